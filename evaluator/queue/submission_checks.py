"""Checks of submitted jobs and of the runs that workers record.

The registry trusts neither: another machine sends them, and later readers rely on the records.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace as replace_fields
from datetime import datetime
from typing import Any, Final

from msgspec import to_builtins
from msgspec.structs import replace
from sqlalchemy import Connection, Row, func, select, text

from benchlock.artifacts.blob_store import FileStore
from benchlock.artifacts.errors import IntegrityError, InvalidInputError, RefusedError
from benchlock.artifacts.json_codec import encode_canonical
from benchlock.artifacts.size_limits import MACHINE_FACTS
from benchlock.evaluator.harness_releases import check_version
from benchlock.evaluator.queue.job_matching import JobRequirements, MachineFacts, find_job_requirements
from benchlock.evaluator.queue.queue_schema import jobs
from benchlock.evaluator.queue.queue_types import FencedError, JobId, JobRequest, MachineId, new_job_id
from benchlock.evaluator.records.comparison_types import ComparisonTurn
from benchlock.evaluator.records.run_document import bound_start
from benchlock.evaluator.records.run_types import (
    Isolation,
    Run,
    RunEnd,
    RunId,
    RunStart,
    check_same_end,
    check_start,
)
from benchlock.evaluator.records.runs_schema import runs
from benchlock.evaluator.runner.host_platform import carries_code, check_code, is_confined
from benchlock.evaluator.runner.lock_verification import find_evaluated, read_manifests
from benchlock.evaluator.statistics.metric_types import find_definitions
from benchlock.registry.auth.permissions import get_actor
from benchlock.registry.lock.lockfile import Lock, list_blob_references


def make_job_request(
    lock: Lock,
    store: FileStore,
    isolation: Isolation | None,
    now: Callable[[], datetime],
    *,
    allow_code: bool = False,
    job: JobId | None = None,
    machine: str | None = None,
) -> JobRequest:
    """Describe the job that runs ``lock``, after checks that it can run.

    Args:
        lock: The lock to run.
        store: The registry's blob store.
        isolation: How the job must run; None leaves the choice to the worker.
        now: The calendar clock; the new job id contains its time.
        allow_code: Whether code of the model may run without a container.
        job: The id of the job; None creates a new one.
        machine: The only machine that may run it; None for any that fits.

    Raises:
        IntegrityError: A blob is missing, a manifest does not match its digest, or the harness version is wrong.
        InvalidInputError: The lock needs another version of benchlock.
        CodeNotAllowedError: The isolation is ``process``, and the model must not run as a process.
    """
    find_definitions(lock)
    check_version(lock.harness)
    check_stored(lock, store)
    wants = replace_fields(find_wants(lock, store, isolation, allow_code=allow_code), machine=machine)
    return JobRequest(job or new_job_id(now()), lock.id, wants, allow_code)


def find_wants(lock: Lock, store: FileStore, isolation: Isolation | None, *, allow_code: bool) -> JobRequirements:
    """Return the requirements of a job that runs ``lock``; raise as ``make_job_request``."""
    model = find_evaluated(read_manifests(lock, store))
    if isolation == "process":
        check_code(model, isolation, allow_code=allow_code)
    confined, code = is_confined(model, allow_code=allow_code), allow_code and carries_code(model)
    return find_job_requirements(lock, isolation, confined=confined, code=code)


def check_stored(lock: Lock, store: FileStore) -> None:
    """Raise if the store lacks a blob that every platform of the lock needs.

    Raises:
        IntegrityError: Every platform lacks a blob. The message names the first missing blob.
    """
    missing = [blob for blob in list_blob_references(lock) if not store.exists(blob.digest)]
    unavailable = {blob.platform for blob in missing}
    if None in unavailable or unavailable >= set(lock.image.platforms):
        raise IntegrityError(
            f"{missing[0].name} is not in the registry's store ({missing[0].digest})",
            where=missing[0].name,
            next_step="publish it, or import the bundle of the lock",
        )


MAX_WAITING: Final = 10_000
"""The maximum number of queued jobs of a token without the scope admin."""


def check_facts(facts: MachineFacts, machine: MachineId) -> None:
    """Raise unless the facts of a machine are short enough and in plain text, because every user can list them.

    Raises:
        InvalidInputError: The facts are too large, or a text has control characters.
    """
    size = len(encode_canonical(facts.document()))
    if size > MACHINE_FACTS:
        raise InvalidInputError(
            f"the facts of {machine} have {size} bytes; the maximum is {MACHINE_FACTS}", where=machine
        )
    for name, value in _texts(facts.document()):
        if not value.isprintable():
            raise InvalidInputError(
                f"{name} of {machine} contains control characters", where=f"facts.{name}", next_step="send plain text"
            )


def check_waiting(connection: Connection, count: int = 1) -> None:
    """Raise if the actor has no room for ``count`` more queued jobs.

    Raises:
        RefusedError: The actor would have more than the maximum number of queued jobs.
    """
    actor = get_actor()
    if actor.scopes.allow("admin"):
        return
    own = select(jobs.c.seq).where(text("jobs.state = 'queued'"), jobs.c.owner == actor.id).limit(MAX_WAITING)
    waiting = connection.execute(select(func.count()).select_from(own.subquery())).scalar_one()
    if waiting + count > MAX_WAITING:
        raise RefusedError(
            f"{actor.id} has {waiting} queued jobs already; the maximum is {MAX_WAITING}",
            next_step="wait until some have run, or cancel some",
        )


def _texts(value: object, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the texts of a document with their paths."""
    if isinstance(value, str):
        yield name, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _texts(item, f"{name}.{key}".lstrip("."))
    elif isinstance(value, (list, tuple)):
        for number, item in enumerate(value):
            yield from _texts(item, f"{name}.{number}")


def check_same(job: Row[Any], request: JobRequest) -> None:
    """Raise unless ``job`` is the job that was submitted earlier as ``request``.

    Raises:
        ForbiddenError: Another token submitted it.
        InvalidInputError: It is a different job with the same id.
    """
    get_actor().require_own(job.owner, request.id)
    wanted = (request.lock, request.wants.digest, request.allow_code, request.priority)
    if (job.lock, job._mapping["class"], job.allow_code, job.priority) != wanted:  # noqa: SLF001 - SQLAlchemy's public name for it
        raise InvalidInputError(f"another job has the id {request.id}", where=request.id, next_step="create a new id")


def check_same_comparison(rows: Sequence[Row[Any]], turns: Sequence[tuple[JobRequest, ComparisonTurn]]) -> None:
    """Raise unless ``rows`` are the jobs of the comparison that was submitted earlier as ``turns``.

    Raises:
        ForbiddenError: Another token submitted it.
        InvalidInputError: It is a different comparison with the same id.
    """
    id_ = rows[0].comparison
    get_actor().require_own(rows[0].owner, f"comparison {id_}")
    before = [(row.lock, row._mapping["class"], row.part_of) for row in rows]  # noqa: SLF001 - as above
    if before != [(request.lock, request.wants.digest, to_builtins(turn)) for request, turn in turns]:
        raise InvalidInputError(f"another comparison has the id {id_}", where=id_, next_step="create a new id")


def check_begun(connection: Connection, start: RunStart, now: datetime) -> RunStart:
    """Check the start of a run under a lease.

    Returns:
        The start, with its reported time no later than ``now``.

    Raises:
        IncompleteRecordError: A field that every record has is missing.
        InvalidInputError: Its id is of a later time, or another run has its id.
    """
    check_start(start)
    bounded = bound_start(start, now)
    if connection.execute(select(runs.c.id).where(runs.c.id == start.id)).first() is not None:
        raise InvalidInputError(f"another run has the id {start.id}", where=start.id, next_step="create a new id")
    return bounded


def check_over(run: RunId, end: RunEnd, now: datetime) -> RunEnd:
    """Check the end of a run under a lease, before ``record_end`` checks whether it is complete.

    Returns:
        The end, with its reported time no later than ``now``, unless it has no time zone.

    Raises:
        InvalidInputError: The outcome is ``abandoned``, which only the queue may record.
    """
    if end.outcome == "abandoned":
        raise InvalidInputError(
            f"{run} cannot end as abandoned: only the queue records this, when a lease is lost",
            where=run,
            next_step="report the run as cancelled or failed",
        )
    return end if end.ended_at.tzinfo is None else replace(end, ended_at=min(end.ended_at, now))


def check_again(run: Run, end: RunEnd, lease: Row[Any]) -> None:
    """Raise unless the ``run`` of an ended lease already has this end.

    Raises:
        FencedError: The run was recorded as abandoned when its lease ended.
        RunEndedError: The run has a different end.
    """
    if run.end is not None and run.end.outcome == "abandoned":
        reason = f"the lease on {lease.job} had ended: {lease.reason}; {run.id} counts as abandoned"
        raise FencedError(reason, where=lease.job)
    check_same_end(run, end)
