"""Lists of runs as tables."""

from collections.abc import Iterable
from typing import Final

from msgspec import UNSET

from benchlock.api.local.local_registry import LocalRegistry
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import BenchlockError
from benchlock.evaluator.analysis.tables import Cell, Column
from benchlock.evaluator.matrices.sql_matrices import name_run_cells
from benchlock.evaluator.records.run_texts import list_remarks, select_headline
from benchlock.evaluator.records.run_types import DamagedRun, Run, filter_version
from benchlock.registry.artifact_names import Kind, parse_reference
from benchlock.registry.lock.lockfile import Lock, title

OTHERS: Final = 10
RUN_COLUMNS: Final = (
    Column("run", None, "The id of the run."),
    Column("started", None, "When it began, UTC."),
    Column("request", None, "The name of the request, if it differs from MODEL-on-DATASET, and the cell of a matrix."),
    Column("model", None, "The locked model."),
    Column("dataset", None, "The locked dataset."),
    Column("framework", None, "The locked framework."),
    Column("scenario", None, "The scenario, and the level of the trace if there is one."),
    Column("outcome", None, "How it ended."),
    Column("results", None, "The main quality metric, and one metric of speed."),
    Column("remarks", None, "What to know before using the results."),
)


def list_run_rows(registry: LocalRegistry, runs: Iterable[Run | DamagedRun]) -> tuple[tuple[Cell, ...], ...]:
    """Return a row of ``RUN_COLUMNS`` for each run."""
    runs = tuple(runs)
    locks = registry.find_locks(run.start.lock for run in runs if isinstance(run, Run))
    cells = name_run_cells(registry.database, (run.id for run in runs))
    rows: list[tuple[Cell, ...]] = []
    for run in runs:
        if isinstance(run, DamagedRun):
            rows.append((run.id, *(None,) * 6, "damaged", "withheld", run.damage))
            continue
        rows.append((
            run.id,
            f"{run.start.started_at:%Y-%m-%d %H:%M}",
            *describe_lock(locks[run.start.lock], cells.get(run.id)),
            "running" if run.end is None else run.end.outcome,
            ", ".join(select_headline(run)),
            "; ".join(list_remarks(run)),
        ))  # fmt: skip
    return tuple(rows)


def describe_lock(lock: Lock | None, cell: str | None = None) -> tuple[str | None, ...]:
    """Return the request, model, dataset, framework and scenario of a lock.

    A request with the usual name has None, unless it is that of a ``cell`` of a matrix, which has the name of the cell.
    """
    if lock is None:
        return (cell, *(None,) * 4)
    parts = (lock.subject, lock.dataset or None, lock.framework)
    named = (None if part is None else f"{part.name} {part.version}" for part in parts)
    name = str(lock.request.get("name", ""))
    usual = "-on-".join(part.name for part in parts[:2] if part is not None).replace("/", "-")
    if cell is not None:
        return (f"{name}: {cell}" if name else cell, *named, _describe_scenario(lock))
    return (None if name in ("", usual) else name, *named, _describe_scenario(lock))


def _describe_scenario(lock: Lock) -> str:
    level = lock.request.get("trace", "none")
    return str(lock.scenario["name"]) + ("" if level == "none" else f", trace {level}")


def find_lock(registry: LocalRegistry, lock: Digest) -> Lock | None:
    """Return a lock; None if it is missing or damaged."""
    try:
        return registry.read_lock(lock)
    except BenchlockError:
        return None


def list_others(registry: LocalRegistry, lock: Lock, run: Run) -> tuple[str, ...]:
    """Return other done runs on the same dataset or operator, with which this one may be compared."""
    kind: Kind = "operator" if lock.dataset is UNSET else "dataset"
    chosen = filter_version(parse_reference(title(kind, lock.artifacts()[kind])), outcome="done")
    found = registry.records.list_entries(chosen=chosen, limit=OTHERS, examine=False)
    locks = registry.find_locks(entry.start.lock for entry in found if isinstance(entry, Run))
    return tuple(
        entry.id
        for entry in found
        if isinstance(entry, Run)
        and entry.id != run.id
        and (other := locks.get(entry.start.lock)) is not None
        and other.inputs[0] == lock.inputs[0]
    )
