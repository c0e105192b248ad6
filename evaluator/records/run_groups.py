"""Runs that belong together, found in SQL: groups with the same lock and conditions, and interleaved comparisons."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Select, Text, cast, func, or_, select

from benchlock.artifacts.digest import Digest
from benchlock.evaluator.records.run_types import DamagedRun, Run, RunId
from benchlock.evaluator.records.runs_schema import HIDDEN_RUNS, run_ends, runs

# As texts, because PostgreSQL cannot compare values of the type JSON.
_CONDITIONS: Final = (runs.c.lock, runs.c.isolation, cast(runs.c.platform, Text), cast(runs.c.host, Text))
_NEAR: Final = 200
"""The number of runs before one, and after it, among which the others of its comparison are searched."""


@dataclass(frozen=True, slots=True)
class RunGroup:
    """The done runs of a lock in one isolation, on one platform and host, without those that are hidden.

    Attributes:
        lock: Their lock.
        isolation: Their isolation.
        platform: Their platform, as the database has it.
        host: Their host, as the database has it.
        runs: The number of runs.
        newest_at: When the newest of them began.
    """

    lock: Digest
    isolation: str
    platform: str
    host: str
    runs: int
    newest_at: datetime


@dataclass(frozen=True, slots=True)
class NewestRuns:
    """The newest runs of a group, with older ones in place of runs whose times are flagged.

    Attributes:
        entries: The newest runs as they are, and older runs whose times are not flagged, each with the state of its
            evidence.
        passed_over: The number of older runs whose times are flagged.
        looked_at: The number of all runs that were looked at.
    """

    entries: tuple[Run | DamagedRun, ...]
    passed_over: int
    looked_at: int


def select_groups(locks: Select[Any] | None) -> Select[Any]:
    """Return the query for the columns of all groups, the group with the newest run first.

    Args:
        locks: The query for the ids of the locks; None for all locks.
    """
    query = select(*_CONDITIONS, func.count(), func.max(runs.c.started_at)).join(run_ends, run_ends.c.run == runs.c.id)
    if locks is not None:
        query = query.where(runs.c.lock.in_(locks))
    return _only_done(query).group_by(*_CONDITIONS).order_by(func.max(runs.c.id).desc())


def select_newest(group: RunGroup, limit: int, before: RunId | None = None) -> Select[Any]:
    """Return the query for the ids of the newest runs of a group, newest first; those older than ``before``."""
    values = (group.lock, group.isolation, group.platform, group.host)
    query = select(runs.c.id).join(run_ends, run_ends.c.run == runs.c.id)
    query = query.where(*(column == value for column, value in zip(_CONDITIONS, values, strict=True)))
    if before is not None:
        query = query.where(runs.c.id < before)
    return _only_done(query).order_by(runs.c.id.desc()).limit(limit)


def select_compared(run: RunId, comparison: str) -> Select[Any]:
    """Return the query for the ids of the runs of an interleaved comparison, oldest first.

    Args:
        run: One of its runs. The others are near it, because they ran in turn: no index has the ids of comparisons.
        comparison: The id of the comparison, which the details of each of its runs have.
    """
    before = select(runs.c.id).where(runs.c.id <= run).order_by(runs.c.id.desc()).limit(_NEAR)
    after = select(runs.c.id).where(runs.c.id > run).order_by(runs.c.id).limit(_NEAR)
    own = run_ends.c.run
    query = select(own).where(or_(own.in_(before), own.in_(after)), own.not_in(HIDDEN_RUNS))
    return query.where(cast(run_ends.c.details, Text).contains(f'"{comparison}"', autoescape=True)).order_by(own)


def _only_done(query: Select[Any]) -> Select[Any]:
    return query.where(run_ends.c.outcome == "done", runs.c.id.not_in(HIDDEN_RUNS))
