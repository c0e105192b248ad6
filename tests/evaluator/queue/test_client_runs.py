"""Runs that somebody elsewhere holds: begun and ended once, renewed by whoever began them, abandoned by silence."""

from datetime import UTC, datetime, timedelta

import pytest
from msgspec.structs import replace
from sqlalchemy import Connection, Engine

from benchlock.artifacts.digest import Descriptor, digest_bytes
from benchlock.artifacts.errors import IntegrityError, InvalidInputError, RefusedError, UnknownNameError
from benchlock.evaluator.queue.client_runs import ClientRuns
from benchlock.evaluator.records.run_document import check_fit
from benchlock.evaluator.records.run_store import Records, record_end
from benchlock.evaluator.records.run_types import Run, RunEnd, RunEndedError, RunId, RunStart, new_run_id
from benchlock.registry.auth.permissions import EVERYTHING, Actor, ForbiddenError, Scopes, use_actor
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.lock.lockfile import Lock
from tests.support.evaluator.queues import TIMES, Ticking
from tests.support.evaluator.recorded import DONE, NOON, metric, recorded
from tests.support.resolution.variants import variant

pytestmark = pytest.mark.databases

RUNNER = Scopes.parse(["run"])
END = replace(
    DONE,
    metrics=(metric("latency_p50", 0.002), replace(metric("top1", 0.5), direction="higher")),
    packages={"onnxruntime": "1.31.1"},
    blobs={"predictions": Descriptor(digest_bytes(b"x"), 1)},
    timings={"load": 0.1},
)


@pytest.fixture
def lock(database: Engine) -> Lock:
    made = variant({}).lock
    Catalogue(database, lambda: NOON).put_lock(made)
    return made


@pytest.fixture
def held(database: Engine) -> ClientRuns:
    return ClientRuns(database, lambda: NOON + timedelta(hours=1))


@pytest.fixture
def begun(held: ClientRuns, lock: Lock) -> RunStart:
    start = start_of(lock)
    with use_actor(Actor("ours", RUNNER)):
        held.start(start)
    return start


def start_of(lock: Lock, at: datetime = NOON) -> RunStart:
    platform = lock.image.platforms[0]
    return replace(
        recorded(lock=lock.id, isolation="process").start,
        id=new_run_id(at),
        started_at=at,
        image_id=None,
        platform={
            "os": platform.os,
            "arch": platform.arch,
            "device": platform.device,
            "python": platform.python,
        },
    )


def test_a_run_is_begun_renewed_and_ended_and_each_may_be_said_twice(
    held: ClientRuns, begun: RunStart, lock: Lock, database: Engine
) -> None:
    records = Records(database)
    with use_actor(Actor("ours", RUNNER)):
        held.start(begun)
        held.renew(begun.id)
        assert held.is_any()
        run = held.finish(begun.id, END, lambda run: check_fit(run, lock))
        assert held.finish(begun.id, replace(END, metrics=END.metrics[::-1]), lambda run: check_fit(run, lock)) == run
    assert run == records.get(begun.id)
    assert run.start == begun
    assert not held.is_any()
    with pytest.raises(RunEndedError, match="has ended already: done"):
        held.finish(begun.id, RunEnd(outcome="cancelled", ended_at=END.ended_at), lambda run: check_fit(run, lock))
    with pytest.raises(RunEndedError):
        held.renew(begun.id)
    with pytest.raises(RunEndedError):
        held.start(begun)


def test_it_belongs_to_whoever_began_it(held: ClientRuns, begun: RunStart) -> None:
    examined: list[Run] = []
    with use_actor(Actor("theirs", RUNNER)):
        for foreign in (
            lambda: held.start(begun),
            lambda: held.renew(begun.id),
            lambda: held.finish(begun.id, END, examined.append),
        ):
            with pytest.raises(ForbiddenError, match="belongs to another token"):
                foreign()
    assert examined == []  # a stranger causes no examination
    with use_actor(Actor("an administrator", EVERYTHING)):
        held.renew(begun.id)


def test_a_hidden_run_is_there_for_its_owner_until_it_has_ended(
    held: ClientRuns, begun: RunStart, database: Engine
) -> None:
    ended = RunEnd(outcome="cancelled", ended_at=END.ended_at)
    Records(database).hide(begun.id, "noise")

    def refused(actor: str) -> None:
        with use_actor(Actor(actor, RUNNER)):
            for ask in (
                lambda: held.start(begun),
                lambda: held.renew(begun.id),
                lambda: held.finish(begun.id, ended, lambda _: None),
            ):
                with pytest.raises(UnknownNameError, match=f"has no {begun.id}"):
                    ask()

    refused("theirs")
    with use_actor(Actor("ours", RUNNER)):
        held.renew(begun.id)
        held.finish(begun.id, ended, lambda _: None)
    refused("theirs")
    refused("ours")
    assert held.finish(begun.id, ended, lambda _: None).hidden is not None


def test_silence_ends_it_as_abandoned_and_its_end_comes_too_late(database: Engine, lock: Lock) -> None:
    held, start, clock = ClientRuns(database, lambda: NOON + timedelta(minutes=1), TIMES), start_of(lock), Ticking()
    held._clock = clock
    held.start(start)
    assert held.reap() == ()
    clock.time += TIMES.lease + 1
    held.renew(start.id)  # late, and nobody had noticed yet
    assert held.reap() == ()
    clock.time += TIMES.lease + 1
    assert held.reap() == (start.id,)
    assert held.reap() == ()
    ended = Records(database).get(start.id).end
    assert ended is not None
    assert ended.outcome == "abandoned"
    with pytest.raises(RunEndedError, match="abandoned"):
        held.finish(start.id, END, lambda run: check_fit(run, lock))


def test_a_run_that_cannot_be_ended_keeps_no_other_from_its_end(
    database: Engine, lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, clock = ClientRuns(database, lambda: NOON + timedelta(minutes=1), TIMES), Ticking()
    held._clock = clock
    first, second = (replace(start_of(lock), id=new_run_id(NOON)) for _ in range(2))
    held.start(first)
    held.start(second)
    clock.time += TIMES.lease + 1

    def broken(connection: Connection, run: RunId, end: RunEnd) -> None:
        if run == first.id:
            raise KeyError(run)
        record_end(connection, run, end)

    with monkeypatch.context() as patch:
        patch.setattr("benchlock.evaluator.queue.client_runs.record_end", broken)
        assert held.reap() == (second.id,)
    assert held.reap() == (first.id,)


def test_whoever_opens_the_registry_leaves_it_alone(begun: RunStart, database: Engine) -> None:
    assert Records(database).get(begun.id).end is None
    assert Records(database).unfinished() == ()


def test_a_run_in_other_hands_is_not_taken_over(held: ClientRuns, lock: Lock, database: Engine) -> None:
    start = start_of(lock)
    Records(database).start(start)
    for refused in (lambda: held.renew(start.id), lambda: held.finish(start.id, END, lambda run: check_fit(run, lock))):
        with pytest.raises(RefusedError, match="or by a worker, not by a client"):
            refused()


def test_reported_times_of_the_future_are_bounded_and_refuse_nothing(held: ClientRuns, lock: Lock) -> None:
    start, future = start_of(lock), datetime.now(UTC) + timedelta(days=9999)
    with use_actor(Actor("ours", RUNNER)):
        held.start(replace(start, started_at=future))
        held.start(replace(start, started_at=future))
        run = held.finish(start.id, replace(END, ended_at=future), lambda run: check_fit(run, lock))
    assert run.end is not None
    assert run.start.started_at == run.end.ended_at == held._now()


def test_what_does_not_fit_is_refused(held: ClientRuns, begun: RunStart, lock: Lock) -> None:
    with use_actor(Actor("ours", RUNNER)):
        with pytest.raises(InvalidInputError, match="another run has the id"):
            held.start(replace(begun, attempt=2))
        with pytest.raises(UnknownNameError, match="has no lock"):
            held.start(replace(begun, id=new_run_id(NOON), lock=digest_bytes(b"none")))
        future = datetime.now(UTC) + timedelta(days=9999)
        with pytest.raises(InvalidInputError, match="but the clock here is at"):
            held.start(replace(begun, id=new_run_id(future), started_at=future))
        odd = replace(END, metrics=(replace(metric("top1", 1.0), version=7),))
        with pytest.raises(IntegrityError, match="by definition 7"):
            held.finish(begun.id, odd, lambda run: check_fit(run, lock))
        with pytest.raises(UnknownNameError):
            held.renew(new_run_id(NOON))
