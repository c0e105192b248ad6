"""The pages of the queue: jobs and machines, one job with the reason for its state, an interleaved comparison."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final, get_args

from benchlock.api.local.local_registry import LocalRegistry, now
from benchlock.api.schemas.pagination_cursors import decode_cursor, encode_cursor
from benchlock.api.web.choices import list_lock_isolations
from benchlock.api.web.links import comparison_path, job_path, run_path, with_query
from benchlock.api.web.page import Page
from benchlock.api.web.pages.compare_pages import make_compare
from benchlock.api.web.pages.verdict_pages import find_earlier, make_verdict
from benchlock.api.web.run_lists import describe_lock, find_lock
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import UnknownNameError
from benchlock.artifacts.size_limits import SUMMARY, shorten
from benchlock.evaluator.analysis.tables import Cell, Column, Table
from benchlock.evaluator.matrices.matrix_types import ListedMatrix
from benchlock.evaluator.matrices.sql_matrices import name_job_cells
from benchlock.evaluator.queue.queue_texts import (
    STATES,
    describe_machine,
    describe_seconds,
    find_machine_trouble,
    job_state,
    machine_state,
)
from benchlock.evaluator.queue.queue_types import (
    INCOMPLETE,
    TERMINAL,
    Explanation,
    Job,
    JobId,
    JobState,
    LiveJob,
    Machine,
    MachineId,
    MachineMatch,
    parse_job_id,
)
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.evaluator.records.run_texts import describe_question, describe_subject, name_question
from benchlock.evaluator.records.run_types import Run, RunId
from benchlock.registry.lock.lockfile import Lock

ROWS: Final = 30
_REFRESH: Final = 5
_JOBS: Final = (
    Column("job", None, "The id of the job."),
    Column("why", None, "The reason for its state."),
    Column("state", None, "Its state, and the phase of a job that runs."),
    Column("jobs before it", None, "The number of jobs of its owner before it that need the same machines."),
    Column("request", None, "The name of the request, if it differs from MODEL-on-DATASET, and the cell of a matrix."),
    Column("model", None, "The locked model."),
    Column("dataset", None, "The locked dataset."),
    Column("framework", None, "The locked framework."),
    Column("scenario", None, "The scenario, and the level of the trace if there is one."),
    Column("machine", None, "The machine of its last try."),
    Column("run", None, "Its run."),
    Column("comparison", None, "The interleaved comparison that it belongs to."),
    Column("submitted", None, "When it was submitted, UTC."),
)
_MACHINES: Final = (
    Column("machine", None, "The name of the machine."),
    Column("state", None, "What it does."),
    Column("platform", None, "Its platform, and what its worker runs outside of containers."),
    Column("cpu", None, "The model of its CPU."),
    Column("accepts_jobs", None, "Whether it gets jobs, and why not."),
    Column("job", None, "The job that it runs."),
    Column("last_seen", None, "The time since its last request."),
)
_MATCHES: Final = (
    Column("machine", None, "The name of the machine."),
    Column("answer", None, "Whether it can run the job, and what it lacks."),
)

_TURNS: Final = (
    Column("round", None, "The round; each has a run of every lock, and the first lock's control."),
    Column("lock", None, "The lock that runs."),
    Column("model", None, "Its model; the control is a second run of the first lock."),
    Column("framework", None, "Its framework."),
    Column("job", None, "The job."),
    Column("state", None, "Its state."),
    Column("run", None, "Its run."),
)

_MATRICES: Final = (
    Column("matrix", None, "The id of the matrix."),
    Column("name", None, "Its name."),
    Column("runs", None, "The number of its runs."),
    Column("submitted", None, "When it was submitted, UTC."),
)
MATRICES: Final = 10
"""The number of matrices on the page of the queue."""


@dataclass(frozen=True, slots=True)
class QueueQuery:
    """The state of the page of the queue in its address.

    Attributes:
        state: Only jobs in this state.
        cursor: The jobs start after this one.
        machine: The machines start after the one with this name.
    """

    state: str = ""
    cursor: str = ""
    machine: str = ""


def make_queue(
    registry: LocalRegistry,
    queue: SqlQueue,
    query: QueueQuery,
    state: JobState | None,
    matrices: Sequence[ListedMatrix] = (),
) -> Page:
    """Make the page of the queue: jobs, newest first, and machines by name.

    Args:
        registry: The registry.
        queue: Its queue.
        query: The state of the page as in the address.
        state: The same state of jobs, parsed.
        matrices: The matrices that were submitted last.
    """
    listed = tuple((each.id, each.name, each.runs, f"{each.submitted_at:%Y-%m-%d %H:%M}") for each in matrices)
    before = parse_job_id(decode_cursor(query.cursor, 1)[0]) if query.cursor else None
    jobs = queue.jobs(state=state, before=before, limit=ROWS + 1)
    machines = queue.machines(after=MachineId(query.machine) if query.machine else None, limit=ROWS + 1)
    explanations = queue.explain_all([job.id for job in jobs[:ROWS]])
    given = {"state": query.state}
    cursor = encode_cursor((jobs[ROWS - 1].id,)) if len(jobs) > ROWS else ""
    after = machines[ROWS - 1].id if len(machines) > ROWS else ""
    return Page(
        "jobs",
        "Queue",
        {
            "chosen": query,
            "states": tuple((state, STATES.get(state, state)) for state in get_args(JobState)),
            "isolations": list_lock_isolations(registry, queue, None, ""),
            "next_jobs": with_query("/jobs", **given, cursor=cursor) if cursor else "",
            "next_machines": with_query("/jobs", **given, cursor=query.cursor, machine=after) if after else "",
        },
        {
            "jobs": Table("jobs", "Jobs, newest first", _JOBS, _list_job_rows(registry, explanations)),
            "machines": Table("machines", "Machines", _MACHINES, tuple(map(_make_machine_row, machines[:ROWS]))),
            **({"matrices": Table("matrices", "Matrices, newest first", _MATRICES, listed)} if listed else {}),
        },
        with_query("/v1/jobs", **given, cursor=query.cursor),
    )


def _list_job_rows(registry: LocalRegistry, explanations: Sequence[Explanation]) -> tuple[tuple[Cell, ...], ...]:
    locks = registry.find_locks(explanation.job.lock for explanation in explanations)
    cells = name_job_cells(registry.database, (explanation.job.id for explanation in explanations))
    rows: list[tuple[Cell, ...]] = []
    for explanation in explanations:
        job = explanation.job
        rows.append((
            job.id,
            shorten(explanation.sentence, SUMMARY),
            job_state(job),
            explanation.ahead if job.state == "queued" else None,
            *describe_lock(locks[job.lock], cells.get(job.id)),
            job.machine,
            job.run,
            None if job.part_of is None else job.part_of.id,
            f"{job.submitted_at:%Y-%m-%d %H:%M}",
        ))  # fmt: skip
    return tuple(rows)


def _make_machine_row(machine: Machine) -> tuple[Cell, ...]:
    trouble = find_machine_trouble(machine) or ("its worker stopped, or lost its connection" if machine.gone else "")
    return (
        machine.id,
        machine_state(machine),
        describe_machine(machine),
        machine.facts.cpu_model,
        f"no: {trouble}" if trouble else "yes",
        machine.job,
        f"{describe_seconds(machine.unseen)} ago",
    )


def make_job(
    registry: LocalRegistry,
    queue: SqlQueue,
    id_: JobId,
    against: RunId | None = None,
    cell: tuple[Digest, str] | None = None,
) -> Page:
    """Make the page of a job, which renews itself until the job ends.

    Args:
        registry: The registry.
        queue: Its queue.
        id_: The job.
        against: The run that the job repeats; None for the latest one before it.
        cell: The matrix of the job and the name of its cell; None if it belongs to no matrix.

    Raises:
        UnknownNameError: There is no such job.
    """
    live = queue.live({id_: None})
    explanation = queue.explain(id_)
    job, lock = explanation.job, find_lock(registry, explanation.job.lock)
    is_live, may_cancel = job.state not in TERMINAL, queue.may_cancel(id_)
    facts: dict[str, str] = {
        "state": job_state(job),
        "submitted": f"{job.submitted_at:%Y-%m-%d %H:%M:%S} UTC",
        "machine": job.machine or "-",
        **({"failed tries": _describe_tries(explanation)} if job.tally.total else {}),
    }
    matches = tuple((match.machine, _describe_match(match)) for match in explanation.machines)
    title = job.id if lock is None else name_question(lock)
    return Page(
        "job",
        f"Job: {title}",
        {
            "job": job,
            "explanation": explanation,
            "verdict": _find_verdict(registry, job, against),
            "against": against or job.run or "",
            "is_live": is_live,
            "may_cancel": may_cancel,
            "cell": cell,
            "isolations": () if is_live else list_lock_isolations(registry, queue, lock, ""),
            "events": f"{job_path(job.id)}/events" if is_live else "",
            "key": live[id_].key,
            "live": make_live(live[id_], job, lock, _find_run(registry, job), may_cancel=may_cancel),
            "summary": "The lock of this job cannot be read." if lock is None else describe_subject(lock),
            "facts": tuple(facts.items()),
            "subject": () if lock is None else tuple(describe_question(lock).items()),
        },
        {"machines": Table("machines", "Machines, the closest match first", _MATCHES, matches)} if matches else {},
        f"/v1{job_path(job.id)}/explanation",
        (("/jobs", "Queue"),),
        _REFRESH if is_live else None,
    )


@dataclass(frozen=True, slots=True)
class LivePart:
    """What a page shows of a run in progress.

    Attributes:
        job: The job as read just now.
        live: Its lease and the progress of that.
        events: The address of the events that keep the page up to date.
        elapsed: Seconds since the run began; None before.
        limit: Seconds that the measurement may take; None if the lock cannot be read.
        may_cancel: Whether the actor may cancel the job.
    """

    job: Job
    live: LiveJob
    events: str
    elapsed: float | None
    limit: float | None
    may_cancel: bool

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """The facts that change only when the page is loaded again."""
        limit = () if self.limit is None else (("time limit of the measurement", describe_seconds(self.limit)),)
        return (("state", job_state(self.job)), ("machine", self.job.machine or "-"), *limit)


def _find_run(registry: LocalRegistry, job: Job) -> Run | None:
    """Return the run in progress of a job, if there is one and the caller may see it."""
    if job.state != "leased" or job.run is None:
        return None
    with suppress(UnknownNameError):
        return registry.records.get(job.run)
    return None


def _find_verdict(registry: LocalRegistry, job: Job, against: RunId | None) -> str:
    """Return the path of the verdict on the run of a done job; empty without an earlier run of its lock."""
    if job.state != "done" or job.run is None:
        return ""
    with suppress(UnknownNameError):
        run = registry.records.get(job.run)
        original = find_earlier(registry, run) if against is None else against
        return "" if original is None else with_query(f"{run_path(run.id)}/verdict", against=original)
    return ""


def make_live(live: LiveJob, job: Job, lock: Lock | None, run: Run | None, *, may_cancel: bool) -> LivePart | None:
    """Return the live part of a page; None if the job is not leased, because only workers report progress.

    Args:
        live: The progress of the job, read before everything else on the page, so that events tell what is newer.
        job: The job.
        lock: Its lock; None if it cannot be read.
        run: Its run in progress; None before it began.
        may_cancel: Whether the actor may cancel the job.
    """
    if job.state != "leased":
        return None
    events = with_query(f"{job_path(job.id)}/events", fence=str(live.fence))
    elapsed = None if run is None else max(0.0, (now() - run.start.started_at).total_seconds())
    return LivePart(job, live, events, elapsed, None if lock is None else lock.limits.seconds, may_cancel)


def _describe_match(match: MachineMatch) -> str:
    return "; ".join(match.lacks) or match.obstacle or "can run it"


def _describe_tries(explanation: Explanation) -> str:
    job = explanation.job
    counts = (("machine lost", job.lost), ("machine failed", job.engine), ("crash", job.crash))
    return ", ".join(f"{name}: {count}" for name, count in counts if count)


def make_comparison(
    registry: LocalRegistry, queue: SqlQueue, comparison: str, *, anyway: bool, against: RunId | None = None
) -> Page:
    """Make the page of an interleaved comparison, which compares its runs once all of them are done.

    Of a single lock, the page is then the verdict on its new runs.

    Args:
        registry: The registry.
        queue: Its queue.
        comparison: The id of the comparison.
        anyway: Whether to show the figures of runs that are not comparable.
        against: The earlier run for a verdict; None for the latest one before the comparison.

    Raises:
        UnknownNameError: There is no such comparison.
        IntegrityError: A record contradicts its evidence.
    """
    jobs = queue.comparison(comparison)
    runs = [job.run for job in jobs if job.state == "done" and job.run is not None]
    path = comparison_path(comparison)
    if len(runs) < len(jobs):
        page = _make_progress(registry, queue, jobs)
    elif len({job.lock for job in jobs}) > 1:
        page = make_compare(registry, runs, anyway=anyway, queue=queue)
    else:
        page = make_verdict(registry, runs[-1], against, queue)
        return replace(page, json_path=f"/v1/comparisons/interleaved/{comparison}")
    context = {**page.context, "path": path, "anyway": f"{path}?anyway=1"}
    json_path = f"/v1/comparisons/interleaved/{comparison}"
    return replace(
        page, title="Interleaved comparison", context=context, json_path=json_path, breadcrumbs=(("/jobs", "Queue"),)
    )


def _make_progress(registry: LocalRegistry, queue: SqlQueue, jobs: Sequence[Job]) -> Page:
    """Make the page of a comparison that has not ended, or that ended without all of its results."""
    locks = {id_: registry.read_lock(id_) for id_ in dict.fromkeys(job.lock for job in jobs)}
    current, is_incomplete = _find_deciding_job(jobs)
    explanation = queue.explain(current.id)
    is_live = any(job.state not in TERMINAL for job in jobs)
    context = {
        "summary": "; ".join(map(describe_subject, locks.values())),
        "current": current,
        "is_incomplete": is_incomplete,
        "explanation": explanation,
        "done": sum(job.state == "done" for job in jobs),
        "count": len(jobs),
        "may_cancel": is_live and queue.may_cancel(current.id),
    }
    rows = tuple(_make_row(job, locks[job.lock]) for job in jobs)
    tables = {"jobs": Table("jobs", "Runs in their order", _TURNS, rows)}
    return Page("comparison", "", context, tables, refresh=_REFRESH if is_live else None)


def _find_deciding_job(jobs: Sequence[Job]) -> tuple[Job, bool]:
    """Return the job that explains the state of a comparison, and whether the comparison stays incomplete.

    A job that was cancelled because of another one explains nothing.
    """
    incomplete = [job for job in jobs if job.state in INCOMPLETE or (job.state == "done" and job.run is None)]
    if incomplete:
        return min(incomplete, key=lambda job: job.failure == "comparison"), True
    return next(job for job in jobs if job.state not in TERMINAL), False


def _make_row(job: Job, lock: Lock) -> tuple[Cell, ...]:
    assert job.part_of is not None
    model = f"{lock.subject.name} {lock.subject.version}{', control' if job.part_of.control else ''}"
    framework = f"{lock.framework.name} {lock.framework.version}"
    return (job.part_of.round, lock.id, model, framework, job.id, job_state(job), job.run)
