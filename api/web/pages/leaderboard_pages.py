"""The leaderboards: datasets with done runs, and one board for each group of comparable runs on a dataset."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from msgspec import UNSET

from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.schemas.pagination_cursors import decode_cursor, encode_cursor
from benchlock.api.web.links import compare_path, with_query
from benchlock.api.web.page import Page
from benchlock.api.web.pages.compare_pages import RUNS
from benchlock.api.web.run_lists import find_lock
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.user_output import format_count
from benchlock.evaluator.analysis.tables import Column, Table
from benchlock.evaluator.records.run_groups import RunGroup
from benchlock.evaluator.records.run_types import DamagedRun, Run, RunId, VersionSelector
from benchlock.evaluator.records.timing_validity import explain_unusable_times
from benchlock.evaluator.report.leaderboards import make_boards
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.requests.request_form import read_document

SYSTEMS: Final = 100
"""The largest number of groups of runs of a page, those with the newest runs; each is of one lock and one host."""
LISTED: Final = 50
"""The number of datasets of a page of the list."""
READ: Final = 60
"""The number of runs whose values count, over all groups of a page."""
_MOST_OF_GROUP: Final = 10
LOOKED_AT: Final = 300
"""The number of runs of a group that are looked at until enough have times that are not flagged."""
_LOCKS: Final = 10_000
_boards_of_locks: Final = dict[Digest, tuple[tuple[str, Digest], ...]]()
_JSON_PATH: Final = "/v1/leaderboards"
_COLUMNS: Final = (
    Column("leaderboard", None, "The dataset, its version and the split."),
    Column("models", None, "Number of models and their versions."),
    Column("runs", None, "Done runs."),
    Column("newest", None, "When the newest of them began, UTC."),
)
_UNRANKED: Final = (
    Column("model", None, "The model and its version."),
    Column("run", None, "The run."),
    Column("lock", None, "The lock that ran."),
    Column("reason", None, "Why its times decide nothing."),
)


@dataclass(frozen=True, slots=True)
class LeaderboardQuery:
    """The state of the leaderboards in their address; texts are as the reader wrote them."""

    dataset: str = ""
    split: str = ""
    cursor: str = ""


_FIRST_PAGE: Final = LeaderboardQuery()


def make_leaderboards(registry: LocalRegistry, query: LeaderboardQuery = _FIRST_PAGE) -> Page:
    """Make the list of datasets with done runs, by name.

    Args:
        registry: The registry.
        query: The cursor: the name after which the page begins.

    Raises:
        InvalidInputError: The cursor is malformed.
    """
    boards: dict[str, list[tuple[Digest, RunGroup]]] = {}
    for group in registry.records.group_done():
        for name, model in _name_board(registry, group.lock):
            boards.setdefault(name, []).append((model, group))
    after = decode_cursor(query.cursor, 1)[0] if query.cursor else ""
    names = sorted(name for name in boards if name > after)
    rows = tuple(
        (
            name,
            len({model for model, _ in boards[name]}),
            sum(group.runs for _, group in boards[name]),
            f"{max(group.newest_at for _, group in boards[name]):%Y-%m-%d %H:%M}",
        )
        for name in names[:LISTED]
    )
    tables = {"leaderboards": Table("leaderboards", "Datasets with done runs", _COLUMNS, rows)}
    cursor = encode_cursor((names[LISTED - 1],)) if len(names) > LISTED else ""
    context = {"next": with_query("/leaderboards", cursor=cursor) if cursor else None}
    return Page("leaderboards", "Leaderboards", context, tables, with_query(_JSON_PATH, cursor=query.cursor))


def _name_board(registry: LocalRegistry, lock: Digest) -> tuple[tuple[str, Digest], ...]:
    """Return the leaderboard and the model of a lock; empty for one of an operator, and for one that cannot be read.

    They are cached: the id of a lock is the digest of its content.
    """
    if lock not in _boards_of_locks:
        found = find_lock(registry, lock)
        if found is None:
            return ()
        while len(_boards_of_locks) >= _LOCKS:
            _boards_of_locks.pop(next(iter(_boards_of_locks)), None)
        used = found.dataset
        name = "" if used is UNSET else f"{used.name}@{used.version}/{used.split}"
        _boards_of_locks[lock] = ((name, found.subject.digest),) if name else ()
    return _boards_of_locks.get(lock, ())


def make_leaderboard(registry: LocalRegistry, query: LeaderboardQuery) -> Page:
    """Make the boards of a split of a dataset.

    Args:
        registry: The registry.
        query: The dataset as NAME@VERSION, and the split; without a split, all of them.

    Raises:
        InvalidInputError: The dataset has another form.
    """
    groups = registry.records.group_done(VersionSelector.parse(_pin(query.dataset)))
    found = _find_locks(registry, groups, query.split)
    pairs, group_of, left_out, search = _read_runs(registry, found[:SYSTEMS])
    ranked = [(lock, run) for lock, run in pairs if explain_unusable_times(run) is None]
    boards = make_boards(ranked, registry.store, group_of) if ranked else ()
    unreadable = sum(group.runs for group, lock in found if lock is None)
    if unreadable:
        left_out["whose lock cannot be read"] = unreadable
    limit = " ".join(filter(None, (_describe_limit([group for group, _ in found]), search)))
    context: dict[str, Any] = {
        "dataset": query.dataset,
        "all_runs": with_query("/runs", dataset=_pin(query.dataset), outcome="done"),
        "boards": tuple(
            (
                board,
                _compare([system.runs[0] for system in board.systems]) if len(board.systems) > 1 else "",
                _offer_settings(board.lock),
            )
            for board in boards
        ),
        "limit": limit,
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
    if len(ranked) < len(pairs):
        tables["unranked"] = _tabulate_unranked(pairs)
    title = f"Leaderboard of {query.dataset}{f', {query.split}' if query.split else ''}"
    facts = {name: context[name] for name in ("dataset", "limit", "left_out")} | {"split": query.split}
    facts["boards"] = [
        {
            "table": board.table.id,
            "conditions": board.conditions,
            "reasons": board.reasons,
            "differences": board.differences,
        }
        for board in boards
    ]
    json_path = with_query(_JSON_PATH, dataset=query.dataset, split=query.split)
    breadcrumbs = (("/leaderboards", "Leaderboards"),)
    charts = [chart for board in boards for chart in (*board.charts, *(board.batches.charts if board.batches else ()))]
    return Page("leaderboard", title, context, tables, json_path, breadcrumbs, charts=tuple(charts), facts=facts)


def _tabulate_unranked(pairs: Sequence[tuple[Lock, Run]]) -> Table:
    """Return the runs whose times decide nothing, with the reason."""
    rows = tuple(
        (f"{lock.subject.name} {lock.subject.version}", run.id, lock.id, reason)
        for lock, run in pairs
        if (reason := explain_unusable_times(run)) is not None
    )
    return Table("unranked", "Runs without a rank, newest first", _UNRANKED, rows)


def _pin(dataset: str) -> str:
    """Return NAME@=VERSION for NAME@VERSION, so that no other version is admitted."""
    name, at, version = dataset.partition("@")
    return f"{name}@={version}" if at and version[:1].isdigit() else dataset


def _offer_settings(lock: Lock) -> str:
    """Return the path of the form of a new evaluation with the settings of a board, for another model."""
    fields = read_document(lock.request, lock.framework.name)
    return with_query("/new", **replace(fields, model="", task="", framework="", image="").as_parameters())


def _find_locks(registry: LocalRegistry, groups: Sequence[RunGroup], split: str) -> list[tuple[RunGroup, Lock | None]]:
    """Return the groups of a split with their locks, None for one that cannot be read; an empty split is all."""
    locks = registry.find_locks(group.lock for group in groups)
    return [
        (group, lock)
        for group in groups
        if (lock := locks[group.lock]) is None or (lock.dataset is not UNSET and split in ("", lock.dataset.split))
    ]


def _read_runs(
    registry: LocalRegistry, found: Sequence[tuple[RunGroup, Lock | None]]
) -> tuple[list[tuple[Lock, Run]], dict[RunId, RunGroup], dict[str, int], str]:
    """Return the newest verified runs of each group with their locks, the group of each, what was left out, and a note.

    Runs whose times are flagged take no place of others: older runs are read in their stead, up to ``LOOKED_AT``.
    """
    locked = [(group, lock) for group, lock in found if lock is not None]
    limit = max(1, min(_MOST_OF_GROUP, READ // max(1, len(locked))))
    pairs, group_of, left_out = list[tuple[Lock, Run]](), dict[RunId, RunGroup](), Counter[str]()
    passed_over, usable, unsearched = Counter[Digest](), set[Digest](), list[RunGroup]()
    read = registry.records.read_newest([group for group, _ in locked], limit, LOOKED_AT)
    for (group, lock), newest in zip(locked, read, strict=True):
        passed_over[lock.id] += newest.passed_over
        is_usable = False
        for run in newest.entries:
            group_of[run.id] = group
            if reason := _explain_omission(run):
                left_out[reason] += 1
            elif isinstance(run, Run):
                pairs.append((lock, run))
                is_usable |= explain_unusable_times(run) is None
        if is_usable:
            usable.add(lock.id)
        elif newest.looked_at < group.runs:
            unsearched.append(group)
    chosen = [pair for pair in pairs if pair[0].id not in usable or explain_unusable_times(pair[1]) is None]
    listed = sum(lock.id not in usable for lock, _ in pairs)
    unlisted = sum(number for id_, number in passed_over.items() if id_ not in usable)
    left_out[f"with flagged times, of locks that have no others; the newest {listed} are listed"] = listed + unlisted
    flagged = len(pairs) - len(chosen) + passed_over.total() - unlisted
    left_out["with flagged times, of locks that have runs whose times are not flagged"] = flagged
    chosen.sort(key=lambda pair: pair[1].id, reverse=True)
    counts = {reason: number for reason, number in left_out.items() if number}
    return chosen, group_of, counts, _describe_search([group for group in unsearched if group.lock not in usable])


def _explain_omission(run: Run | DamagedRun) -> str:
    """Return why no run like this one counts; empty if it may count."""
    if isinstance(run, DamagedRun):
        return "damaged"
    is_verified = run.evidence is not None and run.evidence.state == "verified"
    return "" if is_verified else "whose record is not verified"


def _compare(runs: Sequence[Run]) -> str:
    return compare_path(run.id for run in runs[:RUNS])


def _describe_search(groups: Sequence[RunGroup]) -> str:
    """Return where only flagged runs were found and older ones were not looked at; empty for no groups."""
    if not groups:
        return ""
    older = format_count(sum(group.runs for group in groups) - LOOKED_AT * len(groups), "older run")
    return (
        f"All of the newest {LOOKED_AT} runs of {format_count(len(groups), 'pair')} of a lock and a host have flagged "
        f"times; {older} were not looked at."
    )


def _describe_limit(groups: Sequence[RunGroup]) -> str:
    """Return how many groups of runs are left out; empty if none are."""
    rest = groups[SYSTEMS:]
    return (
        f"The {SYSTEMS} pairs of a lock and a host with the newest runs are ranked; "
        f"older ones with {format_count(sum(group.runs for group in rest), 'run')} are left out."
        if rest
        else ""
    )
