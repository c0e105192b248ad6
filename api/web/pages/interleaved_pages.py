"""The page of an interleaved comparison in the queue: its progress, and its result once every run is done."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.web.links import comparison_path
from benchlock.api.web.page import Page
from benchlock.api.web.pages.compare_pages import make_compare
from benchlock.evaluator.analysis.tables import Cell, Column, Table
from benchlock.evaluator.queue.queue_texts import job_state
from benchlock.evaluator.queue.queue_types import INCOMPLETE, TERMINAL, Job
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.evaluator.records.run_texts import describe_subject
from benchlock.registry.lock.lockfile import Lock

_REFRESH: Final = 5
_JOBS: Final = (
    Column("round", None, "The round; each has a run of every lock, and the first lock's control."),
    Column("lock", None, "The lock that runs."),
    Column("model", None, "Its model; the control is a second run of the first lock."),
    Column("framework", None, "Its framework."),
    Column("job", None, "The job."),
    Column("state", None, "Its state."),
    Column("run", None, "Its run."),
)


def make_comparison(registry: LocalRegistry, queue: SqlQueue, comparison: str, *, anyway: bool) -> Page:
    """Make the page of an interleaved comparison, which compares its runs once all of them are done.

    Args:
        registry: The registry.
        queue: Its queue.
        comparison: The id of the comparison.
        anyway: Whether to show the figures of runs that are not comparable.

    Raises:
        UnknownNameError: There is no such comparison.
        IntegrityError: A record contradicts its evidence.
    """
    jobs = queue.comparison(comparison)
    runs = [job.run for job in jobs if job.state == "done" and job.run is not None]
    page = (
        make_compare(registry, runs, anyway=anyway, most=len(runs))
        if len(runs) == len(jobs)
        else _make_progress(registry, queue, jobs)
    )
    path = comparison_path(comparison)
    context = {**page.context, "path": path, "anyway": f"{path}?anyway=1"}
    twin = f"/v1/comparisons/interleaved/{comparison}"
    return replace(page, title="Interleaved comparison", context=context, twin=twin, trail=(("/jobs", "Queue"),))


def _make_progress(registry: LocalRegistry, queue: SqlQueue, jobs: Sequence[Job]) -> Page:
    """Make the page of a comparison that has not ended, or that ended without all of its results."""
    locks = {id_: registry.read_lock(id_) for id_ in dict.fromkeys(job.lock for job in jobs)}
    current, is_incomplete = _find_current(jobs)
    explanation = queue.explain(current.id)
    is_live = any(job.state not in TERMINAL for job in jobs)
    context = {
        "summary": "; ".join(map(describe_subject, locks.values())),
        "current": current,
        "is_incomplete": is_incomplete,
        "explanation": explanation,
        "done": sum(job.state == "done" for job in jobs),
        "count": len(jobs),
        "is_live": is_live,
    }
    rows = tuple(_make_row(job, locks[job.lock]) for job in jobs)
    tables = {"jobs": Table("jobs", "Runs in their order", _JOBS, rows)}
    return Page("comparison", "", context, tables, refresh=_REFRESH if is_live else None)


def _find_current(jobs: Sequence[Job]) -> tuple[Job, bool]:
    """Return the job that explains the state of a comparison, and whether the comparison stays incomplete.

    A job that was cancelled because of another one explains nothing.
    """
    incomplete = [job for job in jobs if job.state in INCOMPLETE or (job.state == "done" and job.run is None)]
    if incomplete:
        return min(incomplete, key=lambda job: job.failure == "comparison"), True
    return next(job for job in jobs if job.state not in TERMINAL), False


def _make_row(job: Job, lock: Lock) -> tuple[Cell, ...]:
    assert job.part_of is not None
    model = f"{lock.model.name} {lock.model.version}{', control' if job.part_of.control else ''}"
    framework = f"{lock.framework.name} {lock.framework.version}"
    return (job.part_of.round, lock.id, model, framework, job.id, job_state(job), job.run)
