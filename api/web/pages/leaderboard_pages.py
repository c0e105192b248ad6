"""The leaderboards: datasets with done runs, and one board for each group of comparable runs on a dataset."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from msgspec import UNSET

from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.web.links import compare_path, with_query
from benchlock.api.web.page import Page
from benchlock.api.web.pages.compare_pages import RUNS
from benchlock.api.web.run_lists import find_lock
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.user_output import format_count
from benchlock.evaluator.analysis.tables import Cell, Column, Table
from benchlock.evaluator.records.run_types import DamagedRun, Run, RunFilter, VersionSelector
from benchlock.evaluator.records.timing_validity import explain_unusable_times
from benchlock.evaluator.report.leaderboards import make_boards
from benchlock.registry.lock.lockfile import Lock, dataset_of

NEWEST: Final = 200
"""The largest number of done runs of a page, the newest ones."""
_TWIN: Final = "/v1/leaderboards"
_COLUMNS: Final = (
    Column("leaderboard", None, "The dataset, its version and the split."),
    Column("models", None, "Number of models and their versions."),
    Column("runs", None, "Done runs."),
    Column("newest", None, "When the newest of them began, UTC."),
)


@dataclass(frozen=True, slots=True)
class LeaderboardQuery:
    """The state of the leaderboards in their address; texts are as the reader wrote them."""

    dataset: str = ""
    split: str = ""


def make_leaderboards(registry: LocalRegistry) -> Page:
    """Make the list of datasets with done runs."""
    runs = registry.records.list_entries(chosen=RunFilter(outcome="done"), limit=NEWEST + 1)
    pairs = [pair for pair in _pair(registry, runs[:NEWEST])[0] if pair[0].dataset is not UNSET]
    names = [f"{dataset_of(lock).name}@{dataset_of(lock).version}/{dataset_of(lock).split}" for lock, _ in pairs]
    newest = {name: run for name, (_, run) in reversed([*zip(names, pairs, strict=True)])}
    models: dict[str, set[tuple[str, str]]] = {}
    for name, (lock, _) in zip(names, pairs, strict=True):
        models.setdefault(name, set()).add((lock.subject.name, lock.subject.version))
    counts = Counter(names)
    rows: list[tuple[Cell, ...]] = [
        (name, len(models[name]), counts[name], f"{newest[name].start.started_at:%Y-%m-%d %H:%M}")
        for name in sorted(newest)
    ]
    tables = {"leaderboards": Table("leaderboards", "Datasets with done runs", _COLUMNS, tuple(rows))}
    limit = {"limit": _describe_limit(runs)}
    return Page("leaderboards", "Leaderboards", limit, tables, _TWIN, facts=limit)


def make_leaderboard(registry: LocalRegistry, query: LeaderboardQuery) -> Page:
    """Make the boards of a split of a dataset.

    Args:
        registry: The registry.
        query: The dataset as NAME@VERSION, and the split; without a split, all of them.

    Raises:
        InvalidInputError: The dataset has another form.
    """
    chosen = RunFilter(outcome="done", dataset=VersionSelector.parse(_pin(query.dataset)))
    runs = registry.records.list_entries(chosen=chosen, limit=NEWEST + 1, with_host=True)
    pairs, left_out = _pair(registry, runs[:NEWEST], query.split)
    boards = make_boards(pairs, registry.store) if pairs else ()
    context: dict[str, Any] = {
        "dataset": query.dataset,
        "boards": tuple(
            (board, _compare([system.runs[0] for system in board.systems]) if len(board.systems) > 1 else "")
            for board in boards
        ),
        "limit": _describe_limit(runs),
        "left_out": left_out,
        "others": len(boards) > 1,
        "evaluate": with_query("/new", dataset=query.dataset),
    }
    tables = {
        table.id: table
        for board in boards
        for table in (board.table, board.batches.table if board.batches else None)
        if table is not None
    }
    title = f"Leaderboard of {query.dataset}{f', {query.split}' if query.split else ''}"
    facts = {name: context[name] for name in ("dataset", "limit", "left_out")} | {"split": query.split}
    facts["boards"] = [
        {"table": board.table.id, "conditions": board.conditions, "reasons": board.reasons} for board in boards
    ]
    twin = with_query(_TWIN, dataset=query.dataset, split=query.split)
    trail = (("/leaderboards", "Leaderboards"),)
    charts = [chart for board in boards for chart in (*board.charts, *(board.batches.charts if board.batches else ()))]
    return Page("leaderboard", title, context, tables, twin, trail, charts=tuple(charts), facts=facts)


def _pin(dataset: str) -> str:
    """Return NAME@=VERSION for NAME@VERSION, so that no other version is admitted."""
    name, at, version = dataset.partition("@")
    return f"{name}@={version}" if at and version[:1].isdigit() else dataset


def _pair(
    registry: LocalRegistry, runs: Iterable[Run | DamagedRun], split: str = ""
) -> tuple[list[tuple[Lock, Run]], dict[str, int]]:
    """Return the verified runs of a split with their locks, and the number of the others by the reason.

    A run with unusable times, for instance of a busy host, does not count if its lock has usable ones.

    Args:
        registry: The registry.
        runs: The runs.
        split: The split; empty for all. A run whose split cannot be read counts among the others.
    """
    locks: dict[Digest, Lock | None] = {}
    pairs, left_out = list[tuple[Lock, Run]](), Counter[str]()
    for run in runs:
        if isinstance(run, DamagedRun):
            left_out["damaged"] += 1
            continue
        id_ = run.start.lock
        lock = locks[id_] if id_ in locks else locks.setdefault(id_, find_lock(registry, id_))
        if lock is None:
            left_out["whose lock cannot be read"] += 1
        elif lock.dataset is UNSET or split not in ("", lock.dataset.split):
            continue
        elif run.evidence is None or run.evidence.state != "verified":
            left_out["whose record is not verified"] += 1
        else:
            pairs.append((lock, run))
    usable = {lock.id for lock, run in pairs if explain_unusable_times(run) is None}
    chosen = [pair for pair in pairs if pair[0].id not in usable or explain_unusable_times(pair[1]) is None]
    left_out["with unusable times, of locks that have usable runs"] += len(pairs) - len(chosen)
    return chosen, {reason: number for reason, number in left_out.items() if number}


def _compare(runs: Sequence[Run]) -> str:
    return compare_path(run.id for run in runs[:RUNS])


def _describe_limit(runs: Sequence[object]) -> str:
    """Return that older runs are left out; empty if none are."""
    return (
        f"Only the {format_count(NEWEST, 'newest done run')} count; older ones are left out."
        if len(runs) > NEWEST
        else ""
    )
