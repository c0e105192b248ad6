"""The pages of the queue: its jobs and machines, and one job with the reason for its state."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final, get_args

from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.schemas.pagination_cursors import decode_cursor, encode_cursor
from benchlock.api.web.links import job_path, with_query
from benchlock.api.web.page import Page
from benchlock.api.web.pages.run_lists import find_lock
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.size_limits import SUMMARY, shorten
from benchlock.evaluator.analysis.tables import Cell, Column, Table
from benchlock.evaluator.queue.queue_texts import (
    describe_machine,
    describe_seconds,
    find_machine_trouble,
    job_state,
    machine_state,
)
from benchlock.evaluator.queue.queue_types import (
    TERMINAL,
    Explanation,
    JobId,
    JobState,
    Machine,
    MachineId,
    MachineMatch,
    parse_job_id,
)
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.evaluator.records.run_texts import describe_question, describe_subject, name_question

ROWS: Final = 50
_REFRESH: Final = 5
_JOBS: Final = (
    Column("job", None, "The id of the job."),
    Column("state", None, "Its state, and the phase of a job that runs."),
    Column("ahead", None, "The number of similar jobs before it in the queue."),
    Column("model", None, "The locked model."),
    Column("dataset", None, "The locked dataset."),
    Column("machine", None, "The machine of its last try."),
    Column("run", None, "Its run."),
    Column("submitted", None, "When it was submitted, UTC."),
    Column("why", None, "The reason for its state."),
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


def make_queue(registry: LocalRegistry, queue: SqlQueue, query: QueueQuery, state: JobState | None) -> Page:
    """Make the page of the queue: jobs, newest first, and machines by name.

    Args:
        registry: The registry.
        queue: Its queue.
        query: The state of the page as in the address.
        state: The same state of jobs, parsed.
    """
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
            "states": get_args(JobState),
            "next_jobs": with_query("/jobs", **given, cursor=cursor) if cursor else "",
            "next_machines": with_query("/jobs", **given, cursor=query.cursor, machine=after) if after else "",
        },
        {
            "jobs": Table("jobs", "Jobs, newest first", _JOBS, _list_job_rows(registry, explanations)),
            "machines": Table("machines", "Machines", _MACHINES, tuple(map(_make_machine_row, machines[:ROWS]))),
        },
        with_query("/v1/jobs", **given, cursor=query.cursor),
    )


def _list_job_rows(registry: LocalRegistry, explanations: Iterable[Explanation]) -> tuple[tuple[Cell, ...], ...]:
    names: dict[Digest, tuple[str | None, str | None]] = {}
    rows: list[tuple[Cell, ...]] = []
    for explanation in explanations:
        job = explanation.job
        if job.lock not in names:
            lock = find_lock(registry, job.lock)
            parts = (None, None) if lock is None else (lock.subject, lock.dataset or None)
            model, dataset = (None if part is None else f"{part.name} {part.version}" for part in parts)
            names[job.lock] = (model, dataset)
        rows.append((
            job.id,
            job_state(job),
            explanation.ahead if job.state == "queued" else None,
            *names[job.lock],
            job.machine,
            job.run,
            f"{job.submitted_at:%Y-%m-%d %H:%M}",
            shorten(explanation.sentence, SUMMARY),
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


def make_job(registry: LocalRegistry, queue: SqlQueue, id_: JobId) -> Page:
    """Make the page of a job, which renews itself until the job ends.

    Raises:
        UnknownNameError: There is no such job.
    """
    explanation = queue.explain(id_)
    job, lock = explanation.job, find_lock(registry, explanation.job.lock)
    is_live = job.state not in TERMINAL
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
            "is_live": is_live,
            "events": f"/v1{job_path(job.id)}/events" if is_live else "",
            "summary": "The lock of this job cannot be read." if lock is None else describe_subject(lock),
            "facts": tuple(facts.items()),
            "subject": () if lock is None else tuple(describe_question(lock).items()),
        },
        {"machines": Table("machines", "Machines, the closest match first", _MATCHES, matches)} if matches else {},
        f"/v1{job_path(job.id)}/explanation",
        (("/jobs", "Queue"),),
        _REFRESH if is_live else None,
    )


def _describe_match(match: MachineMatch) -> str:
    return "; ".join(match.lacks) or match.obstacle or "can run it"


def _describe_tries(explanation: Explanation) -> str:
    job = explanation.job
    counts = (("machine lost", job.lost), ("machine failed", job.engine), ("crash", job.crash))
    return ", ".join(f"{name}: {count}" for name, count in counts if count)
