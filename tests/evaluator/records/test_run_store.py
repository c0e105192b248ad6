"""Runs are written at their start and at their end, completely or not at all, and never change."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine, insert, select

from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes
from benchlock.artifacts.errors import InvalidInputError, UnknownNameError
from benchlock.evaluator.records import run_store
from benchlock.evaluator.records.run_document import decode_run, encode_run
from benchlock.evaluator.records.run_store import Records
from benchlock.evaluator.records.run_types import (
    HOST_FACTS,
    IncompleteRecordError,
    Run,
    RunEnd,
    RunEndedError,
    RunFilter,
    RunId,
    RunStart,
    VersionSelector,
    new_run_id,
    parse_run_id,
    parse_since,
)
from benchlock.evaluator.records.runs_schema import open_runs, runs
from benchlock.evaluator.runner.host_platform import this_host
from benchlock.evaluator.statistics.metric_types import Interval, Metric
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.catalogue.catalogue_protocol import Provenance
from benchlock.registry.database.engine import read_transaction, write_transaction
from benchlock.registry.database.registry_schema import locks
from tests.registry.lock import test_operator_locks
from tests.support.registry.plans import sources
from tests.support.resolution import recipes as trainings
from tests.support.resolution.variants import variant

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
LOCK, OTHER_LOCK = digest_bytes(b"a lock"), digest_bytes(b"another lock")
HOST: dict[str, Any] = {
    "cpu_model": "A CPU", "cpu_flags": ["avx2", "sse"], "cores": 2, "memory": 24 << 30, "kernel": "Linux 6.1",
    "governor": None, "engine": "Docker 27", "accelerator": None, "driver": None,
}  # fmt: skip
ENGINE = digest_bytes(b"an image")
TOP1 = Metric("top1", 0.751, "fraction", "higher", 1000, Interval(0.72, 0.78), 1)
P99 = Metric("latency_p99", 0.0021, "s", "lower", 120, Interval(0.002, None), 1)

both = pytest.mark.databases


@pytest.fixture
def records(database: Engine) -> Records:
    """Records of a registry that has two locks."""
    with write_transaction(database) as connection:
        for lock in (LOCK, OTHER_LOCK):
            columns = {column.name: "x" for column in locks.columns} | {"id": lock, "created_at": NOON}
            connection.execute(insert(locks).values(columns))
    return Records(database)


def start(number: int = 0, **changes: Any) -> RunStart:  # noqa: ANN401 - fields of any type
    at = NOON + timedelta(seconds=number)
    whole = RunStart(
        id=new_run_id(at),
        lock=LOCK,
        attempt=1,
        isolation="container",
        platform={"os": "linux", "arch": "amd64", "device": "cpu", "python": "3.11"},
        host=HOST,
        process={"pid": 17, "boot": "b"},
        started_at=at,
        image_id=ENGINE,
    )
    return replace(whole, **changes)


def end(**changes: Any) -> RunEnd:  # noqa: ANN401 - fields of any type
    whole = RunEnd(
        outcome="done",
        ended_at=NOON + timedelta(minutes=1, microseconds=1),
        metrics=(P99, TOP1),
        packages={"numpy": "2.4.0", "onnxruntime": "1.31.1"},
        blobs={"predictions": Descriptor(digest_bytes(b"p"), 1), "quality": Descriptor(digest_bytes(b"ss"), 2)},
        timings={"verify": 0.25, "accuracy": 3.0},
        details={"loadgen": {"valid": True, "errors": []}},
    )
    return replace(whole, **changes)


FAILED = RunEnd(
    outcome="failed", ended_at=NOON + timedelta(hours=1), failure_class="timeout", failure_message="took over 10 m"
)


@both
def test_a_run_is_read_as_it_was_written(records: Records) -> None:
    begun = start()
    records.start(begun)
    assert records.get(begun.id) == Run(begun, None)
    records.finish(begun.id, end())
    assert records.get(begun.id) == Run(begun, end())


def test_a_metric_of_several_batches_is_kept_by_batch(records: Records) -> None:
    begun = start()
    swept = [Metric("throughput", 90.0 + n, "samples/s", "higher", 50, Interval(80, None), 1, n) for n in (1, 2, 16)]
    optimal = Metric("optimal_batch", 2, "samples", "none", 3, Interval(1, None), 1)
    records.start(begun)
    records.finish(begun.id, end(metrics=(optimal, *swept)))
    assert records.get(begun.id) == Run(begun, end(metrics=(optimal, *swept)))
    run = records.get(begun.id)
    assert decode_run(encode_run(run), "record").end == replace(end(), metrics=(optimal, *swept))


@both
def test_the_runs_of_an_interleaved_comparison_are_found_from_each_of_them(records: Records) -> None:
    begun = [start(number) for number in range(5)]
    for one, comparison in zip(begun, ("a" * 16, "b" * 16, "a" * 16, "%", ""), strict=True):
        records.start(one)
        records.finish(one.id, replace(FAILED, details={"part_of": {"id": comparison}}))
    expected = (begun[0].id, begun[2].id)
    assert [records.list_compared(id_, "a" * 16) for id_ in expected] == [expected, expected]
    assert records.list_compared(begun[3].id, "%") == (begun[3].id,)


@both
def test_a_failed_run_keeps_its_class_and_message(records: Records) -> None:
    begun = start(isolation="process", image_id=None)
    records.start(begun)
    records.finish(begun.id, FAILED)
    assert records.get(begun.id).end == FAILED


@both
def test_a_message_with_a_nul_loses_no_record(records: Records) -> None:
    begun = start()
    records.start(begun)
    records.finish(begun.id, replace(FAILED, failure_message="at\0the end"))
    recorded = records.get(begun.id).end
    assert recorded is not None
    assert recorded.failure_message == "at\N{REPLACEMENT CHARACTER}the end"


@both
def test_a_run_ends_once(records: Records) -> None:
    begun = start()
    records.start(begun)
    records.finish(begun.id, RunEnd(outcome="abandoned", ended_at=NOON + timedelta(hours=2)))
    with pytest.raises(RunEndedError, match="abandoned"):
        records.finish(begun.id, end())
    found = records.get(begun.id).end
    assert found is not None
    assert (found.outcome, found.metrics) == ("abandoned", ())


@both
def test_a_run_that_never_started_does_not_end(records: Records) -> None:
    with pytest.raises(UnknownNameError, match="has no run/"):
        records.finish(new_run_id(NOON), end())


@both
def test_a_run_of_an_unknown_lock_is_refused(records: Records) -> None:
    with pytest.raises(UnknownNameError, match="has no lock sha256:00"):
        records.start(start(lock=Digest("sha256:" + "0" * 64)))


@both
def test_unfinished_runs_are_found_until_they_end(records: Records, database: Engine) -> None:
    begun = [start(number) for number in range(3)]
    for one in reversed(begun):
        records.start(one)
    records.finish(begun[1].id, end())
    assert [run.id for run in records.unfinished()] == [begun[0].id, begun[2].id]
    with read_transaction(database) as connection:
        assert connection.execute(select(open_runs.c.run).order_by(open_runs.c.run)).scalars().all() == [
            begun[0].id,
            begun[2].id,
        ]


@both
def test_runs_are_listed_newest_first_by_lock_and_outcome(records: Records) -> None:
    ids: list[RunId] = []
    for number, (lock, outcome) in enumerate([(LOCK, end()), (OTHER_LOCK, end()), (LOCK, FAILED), (LOCK, end())]):
        begun = start(number, lock=lock)
        records.start(begun)
        records.finish(begun.id, outcome)
        ids.append(begun.id)
    assert [run.id for run in records.list()] == ids[::-1]
    assert [run.id for run in records.list(limit=2)] == [ids[3], ids[2]]
    assert [run.id for run in records.list(lock=LOCK)] == [ids[3], ids[2], ids[0]]
    assert [run.id for run in records.list(lock=LOCK, outcome="done", limit=1)] == [ids[3]]
    assert [run.end for run in records.list(outcome="failed")] == [FAILED]
    assert [run.id for run in records.list(outcome="done", before=ids[3], limit=2)] == [ids[1], ids[0]]


def chosen(records: Records, **conditions: Any) -> list[RunId]:  # noqa: ANN401 - the fields of a filter
    """List the ids of the runs that meet conditions, in pages of one."""
    ids: list[RunId] = []
    while page := records.list_entries(
        chosen=RunFilter(**conditions), before=ids[-1] if ids else None, limit=1, examine=False
    ):
        ids += [entry.id for entry in page]
    return ids


@both
def test_runs_are_filtered_by_model_dataset_time_and_the_beginning_of_their_id(database: Engine) -> None:
    locks = [variant({"model": {"version": version}}).lock for version in ("1.0.0", "1.1.0", "1.2.0")]
    records, ids = Records(database), list[RunId]()
    for number in range(6):
        lock = locks[number % 3]
        Catalogue(database, lambda: NOON).put_lock(lock)
        begun = start(number, lock=lock.id)
        records.start(begun)
        ids.append(begun.id)
        if number != 3:
            records.finish(begun.id, FAILED)
    newest = ids[::-1]
    model, dataset = locks[0].model.name, locks[0].dataset.name

    def of(*numbers: int) -> list[RunId]:
        return [ids[number] for number in numbers]

    for selector, expected in (
        (model, newest),
        (f"{model}@1.0.0", of(3, 0)),
        (f"{model}@<1.2", of(4, 3, 1, 0)),
        (f"{model}@^1.0", newest),
        (f"{model}@=1.2.0", of(5, 2)),
        (f"{model}@^3.0", []),
        ("another", []),
    ):
        assert chosen(records, model=VersionSelector.parse(selector)) == expected, selector
    first = VersionSelector.parse(f"{model}@1.0.0")
    assert chosen(records, model=first, outcome="failed") == of(0)
    assert chosen(records, model=first, dataset=VersionSelector.parse(dataset)) == of(3, 0)
    assert chosen(records, dataset=VersionSelector.parse(f"{dataset}@^99.0")) == []
    assert chosen(records, model=first, lock=locks[1].id) == []
    times = [entry.start.started_at for entry in records.list()][::-1]
    assert chosen(records, since=times[3]) == of(5, 4, 3)
    assert chosen(records, since=times[3], outcome="failed") == of(5, 4)
    assert chosen(records, since=times[5] + timedelta(milliseconds=1)) == []
    for prefix in (ids[2], ids[2][:-1]):
        assert chosen(records, prefix=prefix) == chosen(records, prefix=prefix, outcome="failed") == of(2)
    assert chosen(records, prefix="run/") == newest
    assert chosen(records, prefix="run/~") == chosen(records, prefix="run/7zzz") == []


@both
def test_runs_are_filtered_by_their_flags_a_bounded_number_at_once(
    records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run_store, "FLAGS_READ", 3)
    ids = []
    for number in range(8):
        begun = start(number)
        records.start(begun)
        ids.append(begun.id)
        calls = {"n": 100, "preempted": 50 if number in (0, 6) else number % 5, "scope": "thread"}
        if number != 2:
            records.finish(begun.id, end(details={"calls": calls}))
    flagged = [ids[6], ids[0]]
    assert chosen(records, flagged=True) == flagged
    assert chosen(records, flagged=False) == [id_ for id_ in ids[::-1] if id_ not in flagged]
    assert chosen(records, flagged=True, outcome="failed") == []

    pages, before = [], None
    while True:
        entries, before = records.list_some(chosen=RunFilter(flagged=True), before=before)
        pages.append([entry.id for entry in entries])
        if before is None:
            break
    assert pages == [[ids[6]], [], [ids[0]]]


@both
def test_runs_are_filtered_by_operator_and_recipe(database: Engine) -> None:
    records, catalogue, ids = Records(database), Catalogue(database, lambda: NOON), list[RunId]()
    gemms = [test_operator_locks.operators(version) for version in ("1.0.0", "1.1.0")]
    recipes = trainings.recipes()
    for manifest in (*(gemm.chosen.all()[0] for gemm in gemms), *recipes.chosen.all()[:2]):
        catalogue.publish(manifest, Provenance("", {}))
    gemm_locks = [gemm.lock(test_operator_locks.ask()) for gemm in gemms]
    for number, lock in enumerate((*gemm_locks, recipes.lock(trainings.ask()), variant({}).lock)):
        catalogue.put_lock(lock)
        begun = start(number, lock=lock.id)
        records.start(begun)
        ids.append(begun.id)
    for selector, expected in (("gemm", ids[1::-1]), ("gemm@^1.1", [ids[1]]), ("gemm@^2", []), ("cnn", [])):
        assert chosen(records, operator=VersionSelector.parse(selector)) == expected, selector
    recipe, dataset = VersionSelector.parse("cnn@=1.0.0"), VersionSelector.parse("digits")
    assert chosen(records, recipe=recipe) == chosen(records, recipe=recipe, dataset=dataset) == [ids[2]]
    assert chosen(records, dataset=dataset) == ids[:1:-1]
    assert chosen(records, recipe=recipe, operator=VersionSelector.parse("gemm")) == []
    assert chosen(records, recipe=VersionSelector.parse("gemm")) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-01", datetime(2026, 11, 1, tzinfo=UTC)),
        ("2026-11-01T12:00:00Z", datetime(2026, 11, 1, 12, tzinfo=UTC)),
        ("2026-11-01T12:00:00+02:00", datetime(2026, 11, 1, 10, tzinfo=UTC)),
        ("7d", NOON - timedelta(days=7)),
        ("12h", NOON - timedelta(hours=12)),
        ("30m", NOON - timedelta(minutes=30)),
    ],
)
def test_the_earliest_time_of_a_list_is_a_date_a_time_or_a_period(text: str, expected: datetime) -> None:
    assert parse_since(text, NOON) == expected


@pytest.mark.parametrize(
    "text",
    ["", "7", "7w", "-7d", "999999d", "yesterday", "2026-13-01", "2026-11-01T12:00:00", "1969-12-31", "20261101"],
)
def test_another_text_is_no_earliest_time(text: str) -> None:
    with pytest.raises(InvalidInputError, match="invalid time") as caught:
        parse_since(text, NOON)
    assert caught.value.where == "since"


@both
def test_lists_are_answered_from_indexes(records: Records, database: Engine) -> None:
    assert records.list() == ()
    with read_transaction(database) as connection:
        for condition in ("", "WHERE lock = 'x'"):
            plan = " ".join(sources(connection, f"SELECT id FROM runs {condition} ORDER BY id DESC LIMIT 10"))
            assert "TEMP B-TREE" not in plan
            assert "Sort" not in plan
            assert "Seq" not in plan
            assert "INDEX" in plan or "Index" in plan or not condition


@both
def test_live_digests_are_those_that_runs_name(records: Records) -> None:
    begun = start()
    records.start(begun)
    records.finish(begun.id, end())
    assert set(records.live_digests()) == {digest_bytes(b"p"), digest_bytes(b"ss")}


def without(mapping: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in mapping.items() if name != key}


START_GAPS: dict[str, Callable[[], RunStart]] = {
    **{f"host.{fact}": lambda fact=fact: start(host=without(HOST, fact)) for fact in HOST_FACTS},  # type: ignore[misc]
    "host.cpu_model": lambda: start(host=HOST | {"cpu_model": None}),
    "host.kernel": lambda: start(host=HOST | {"kernel": ""}),
    "platform.device": lambda: start(platform={"os": "linux", "arch": "amd64", "python": "3.11"}),
    "image_id": lambda: start(image_id=None),
    "isolation": lambda: start(isolation="jail"),
    "attempt": lambda: start(attempt=0),
    "before the time of the id": lambda: start(id=new_run_id(NOON + timedelta(milliseconds=1))),
    "process": lambda: start(process={}),
    "started_at": lambda: start(started_at=NOON.replace(tzinfo=None)),
}
END_GAPS: dict[str, RunEnd] = {
    "packages": end(packages={}),
    "blobs": end(blobs={}),
    "timings": end(timings={}),
    "packages.numpy": end(packages={"numpy": ""}),
    "outcome": end(outcome="finished"),
    "ended_at": end(ended_at=NOON.replace(tzinfo=None)),
    "failure class and message": replace(FAILED, failure_class=None),
    "a failure is given": end(failure_class="crash", failure_message="it crashed"),
    "metrics.top1.unit": end(metrics=(replace(TOP1, unit=""),)),
    "metrics.top1.value": end(metrics=(replace(TOP1, value=float("nan")),)),
    "metrics.top1.direction": end(metrics=(replace(TOP1, direction="up"),)),
    "metrics.top1.n": end(metrics=(replace(TOP1, n=0),)),
    "metrics.top1.ci": end(metrics=(replace(TOP1, ci=Interval(float("inf"), None)),)),
    "metrics.top1.version": end(metrics=(replace(TOP1, version=0),)),
    "metrics.top1@0.batch": end(metrics=(replace(TOP1, batch=0),)),
}


@pytest.mark.parametrize("gap", START_GAPS)
def test_a_start_with_a_gap_is_refused(records: Records, database: Engine, gap: str) -> None:
    with pytest.raises(IncompleteRecordError, match=gap):
        records.start(START_GAPS[gap]())
    with read_transaction(database) as connection:
        assert connection.execute(select(runs)).all() == []


@both
def test_a_clock_that_was_set_back_loses_no_record(records: Records) -> None:
    begun = start()
    records.start(begun)
    records.finish(begun.id, end(ended_at=begun.started_at - timedelta(hours=1)))
    found = records.get(begun.id).end
    assert found is not None
    assert found.ended_at == begun.started_at


@pytest.mark.parametrize("gap", END_GAPS)
def test_an_end_with_a_gap_is_refused(records: Records, gap: str) -> None:
    begun = start()
    records.start(begun)
    with pytest.raises(IncompleteRecordError, match=gap):
        records.finish(begun.id, END_GAPS[gap])
    assert records.get(begun.id).end is None
    records.finish(begun.id, end())


@both
def test_a_number_that_json_cannot_hold_is_refused_and_nothing_is_written(records: Records) -> None:
    begun = start()
    records.start(begun)
    with pytest.raises(InvalidInputError, match="canonical JSON"):
        records.finish(begun.id, end(details={"ratio": float("nan")}))
    assert records.get(begun.id).end is None


@both
def test_the_runs_of_a_lock_are_counted_whatever_they_say(records: Records) -> None:
    for number in range(2):
        records.start(start(number, attempt=17))
    records.start(start(2, lock=OTHER_LOCK))
    assert records.count(LOCK) == 2


def test_the_fingerprint_of_this_host_has_no_gap(records: Records) -> None:
    begun = start(host=this_host().fingerprint("an engine"))
    records.start(begun)
    assert records.get(begun.id).start == begun


def test_run_ids_sort_by_time_and_are_read_back() -> None:
    first, second = new_run_id(NOON, b"\xff" * 10), new_run_id(NOON + timedelta(milliseconds=1), b"\0" * 10)
    assert first < second
    assert new_run_id(NOON) != new_run_id(NOON)
    assert first == "run/01m7yzmhg0zzzzzzzzzzzzzzzz"
    assert parse_run_id(first) == first


@pytest.mark.parametrize("text", ["", "run/", "run/1", "run/01KAK9Y8G0ZZZZZZZZZZZZZZZZ", "01kak9y8g0zzzzzzzzzzzzzzzz"])
def test_what_is_no_run_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="invalid run id"):
        parse_run_id(text)
