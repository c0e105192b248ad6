"""Checks of submitted jobs, and of runs that workers record.

Another machine says it, and whoever reads it later believes it.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Row, func, select, text

from benchlock.artifacts.blob_store import FileStore
from benchlock.artifacts.errors import IntegrityError, InvalidInputError, RefusedError
from benchlock.artifacts.json_codec import encode_canonical
from benchlock.artifacts.size_limits import MACHINE_FACTS
from benchlock.evaluator.harness_releases import check_version
from benchlock.evaluator.queue.client_runs import SKEW
from benchlock.evaluator.queue.matching import MachineFacts, wants_of
from benchlock.evaluator.queue.queue_model import FencedError, JobId, JobWish, MachineId, new_job_id
from benchlock.evaluator.queue.queue_schema import jobs
from benchlock.evaluator.records.run_document import bound_start
from benchlock.evaluator.records.run_model import (
    Isolation,
    Run,
    RunEnd,
    RunStart,
    check_end,
    check_same_end,
    check_start,
)
from benchlock.evaluator.records.runs_schema import runs
from benchlock.evaluator.runner.host_platform import carries_code, check_code, is_confined
from benchlock.evaluator.runner.lock_verification import read_manifests
from benchlock.evaluator.statistics.metric_model import definitions_of
from benchlock.registry.auth.permissions import get_actor
from benchlock.registry.lock.lockfile import Lock, list_blob_references
from benchlock.registry.manifests import Model


def wish_of(
    lock: Lock,
    store: FileStore,
    isolation: Isolation | None,
    now: Callable[[], datetime],
    *,
    allow_code: bool = False,
    job: JobId | None = None,
) -> JobWish:
    """The wish that ``lock`` be run; everything that it names is in ``store``, for one of its platforms at least.

    Raises:
        IntegrityError: a blob is missing, a manifest is not what its digest says, or the harness has a false version.
        InvalidInputError: the lock needs another version of benchlock.
        UnavailableError: a process is asked for, and the model may not run as one.
    """
    definitions_of(lock)
    check_version(lock.harness)
    check_stored(lock, store)
    model = read_manifests(lock, store)["model"]
    assert isinstance(model, Model)
    if isolation == "process":
        check_code(model, isolation, allow_code=allow_code)
    confined, code = is_confined(model, allow_code=allow_code), allow_code and carries_code(model)
    wants = wants_of(lock, isolation, confined=confined, code=code)
    return JobWish(job or new_job_id(now()), lock.id, wants, allow_code)


def check_stored(lock: Lock, store: FileStore) -> None:
    """Refuse a lock of which the store lacks something, for every one of its platforms.

    Raises:
        IntegrityError: names a blob that is missing.
    """
    absent = [one for one in list_blob_references(lock) if not store.exists(one.digest)]
    lacking = {one.platform for one in absent}
    if None in lacking or lacking >= set(lock.image.platforms):
        raise IntegrityError(
            f"{absent[0].name} is not in the registry's store ({absent[0].digest})",
            where=absent[0].name,
            next_step="publish it, or import the bundle of the lock",
        )


MOST_WAITING: Final = 10_000
"""So many queued jobs may a token have that is no administrator's."""


def check_facts(facts: MachineFacts, machine: MachineId) -> None:
    """Check that the facts of a machine are of the usual size and in plain text: everybody who lists machines has them.

    Raises:
        InvalidInputError: they are too large, or a text has control characters.
    """
    size = len(encode_canonical(facts.document()))
    if size > MACHINE_FACTS:
        raise InvalidInputError(
            f"the facts of {machine} have {size} bytes, and at most {MACHINE_FACTS} are kept", where=machine
        )
    for name, one in _texts(facts.document()):
        if not one.isprintable():
            raise InvalidInputError(
                f"{name} of {machine} has control characters", where=f"facts.{name}", next_step="send plain text"
            )


def check_waiting(connection: Connection) -> None:
    """Check that whoever acts has room for another queued job.

    Raises:
        RefusedError: they have as many as a token may have.
    """
    actor = get_actor()
    if actor.scopes.allow("admin"):
        return
    own = select(jobs.c.seq).where(text("jobs.state = 'queued'"), jobs.c.owner == actor.id).limit(MOST_WAITING)
    if connection.execute(select(func.count()).select_from(own.subquery())).scalar_one() >= MOST_WAITING:
        raise RefusedError(
            f"{actor.id} has {MOST_WAITING} queued jobs already", next_step="wait until some have run, or cancel some"
        )


def _texts(value: object, name: str = "") -> Iterator[tuple[str, str]]:
    """The texts of a document with where they are."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, one in value.items():
            yield from _texts(one, f"{name}.{key}".lstrip("."))
    elif isinstance(value, (list, tuple)):
        for number, one in enumerate(value):
            yield from _texts(one, f"{name}.{number}")


def check_same(job: Row[Any], wish: JobWish) -> None:
    """Nothing, where ``job`` is what was submitted as ``wish`` before.

    Raises:
        ForbiddenError: another submitted it.
        InvalidInputError: it is another job.
    """
    get_actor().require_own(job.owner, wish.id)
    asked = (wish.lock, wish.wants.digest, wish.allow_code)
    if (job.lock, job._mapping["class"], job.allow_code) != asked:  # noqa: SLF001 - SQLAlchemy's public name for it
        raise InvalidInputError(f"another job has the id {wish.id}", where=wish.id, next_step="make one")


def check_begun(connection: Connection, start: RunStart, now: datetime) -> RunStart:
    """Check how a run under a lease starts.

    Returns:
        The start, its reported time no later than ``now``.

    Raises:
        IncompleteRecordError: something that every record has is missing.
        InvalidInputError: its id is of a later time, or another run has its id.
    """
    check_start(start)
    bounded = bound_start(start, now, SKEW)
    if connection.execute(select(runs.c.id).where(runs.c.id == start.id)).first() is not None:
        raise InvalidInputError(f"another run has the id {start.id}", where=start.id, next_step="make one")
    return bounded


def check_over(start: RunStart, end: RunEnd, now: datetime) -> RunEnd:
    """Check how a run under a lease ends.

    Returns:
        The end, its reported time no later than ``now``.

    Raises:
        IncompleteRecordError: the end says no time zone.
        InvalidInputError: it ends as nobody but the queue says of a run.
    """
    if end.outcome == "abandoned":
        raise InvalidInputError(
            f"{start.id} cannot end as abandoned: that is the end of a run whose lease was lost",
            where=start.id,
            next_step="say that it was cancelled, or that it failed",
        )
    if end.ended_at.tzinfo is None:
        check_end(start, end)  # says so
    return replace(end, ended_at=min(end.ended_at, now))


def check_again(run: Run, end: RunEnd, lease: Row[Any]) -> None:
    """Nothing, where the ``run`` of a lease that is over ended as is said again.

    Raises:
        FencedError: it was abandoned with its lease.
        RunEndedError: it ended otherwise.
    """
    if run.end is not None and run.end.outcome == "abandoned":
        reason = f"the lease on {lease.job} had ended: {lease.reason}; {run.id} counts as abandoned"
        raise FencedError(reason, where=lease.job)
    check_same_end(run, end)
