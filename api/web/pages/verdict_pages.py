"""The page of a verdict: whether a run reproduces an earlier run of its lock."""

from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.web.links import run_path
from benchlock.api.web.page import Page
from benchlock.api.web.run_lists import RUN_COLUMNS, list_run_rows
from benchlock.evaluator.analysis.tables import Table
from benchlock.evaluator.records.run_types import Run, RunFilter, RunId
from benchlock.evaluator.workflows.rerun import judge_recorded_run


def make_verdict(registry: LocalRegistry, id_: RunId, against: RunId | None) -> Page:
    """Make the page of the verdict on a run.

    Args:
        registry: The registry.
        id_: The run.
        against: The earlier run of the same lock; None for the latest one.

    Raises:
        UnknownNameError: There is no such run.
        InvalidInputError: There is no earlier run of the lock, or one of them has not ended.
        IntegrityError: A record contradicts its evidence.
    """
    verdict = judge_recorded_run(registry.records, registry.store, registry.read_lock, id_, against)
    runs = [registry.records.get(RunId(run)) for run in (verdict.original, verdict.run)]
    lock = registry.read_lock(runs[0].start.lock)
    tables = {"runs": Table("runs", "Both runs, the earlier first", RUN_COLUMNS, list_run_rows(registry, runs))}
    trail = (("/runs", "Runs"), (run_path(id_), f"{lock.subject.name} {lock.subject.version}"))
    return Page("verdict", "Is the result reproduced?", {"verdict": verdict, "runs": runs}, tables, None, trail)


def find_earlier(registry: LocalRegistry, run: Run) -> RunId | None:
    """Return the latest done run of the same lock before this one; None if there is none."""
    chosen = RunFilter(lock=run.start.lock, outcome="done")
    earlier = registry.records.list_entries(chosen=chosen, before=run.id, limit=1, examine=False)
    return earlier[0].id if earlier else None
