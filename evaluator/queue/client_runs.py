"""Runs that clients execute and record here, kept open by heartbeats.

A client holds its run and renews the hold. A hold that is not renewed in time ends, and its run is recorded as
abandoned, so that no run stays open forever. Seconds are those of the queue's clock, which nobody can set.
"""

import logging
from collections.abc import Callable
from datetime import datetime

from msgspec.structs import replace
from sqlalchemy import Connection, Engine, delete, insert, select, update
from sqlalchemy.exc import OperationalError

from benchlock.artifacts.errors import InvalidInputError, RefusedError
from benchlock.evaluator.queue.lease_times import Times
from benchlock.evaluator.queue.queue_clock import Clock
from benchlock.evaluator.records.run_document import bound_start
from benchlock.evaluator.records.run_store import load_run, load_visible_run, record_end, record_start
from benchlock.evaluator.records.run_types import (
    Run,
    RunEnd,
    RunEndedError,
    RunId,
    RunStart,
    check_end,
    check_same_end,
    check_start,
    clean_message,
)
from benchlock.evaluator.records.runs_schema import held_runs, runs
from benchlock.registry.auth.permissions import get_actor
from benchlock.registry.database.engine import read_transaction, write_transaction

_log = logging.getLogger("benchlock")


class ClientRuns:
    """The runs of a registry that clients hold.

    Args:
        engine: The database of the registry.
        now: The calendar clock, with which the times of records are compared.
        times: The durations of holds; the length of a hold is that of a lease.
    """

    def __init__(self, engine: Engine, now: Callable[[], datetime], times: Times | None = None) -> None:
        """Open the client runs in a database."""
        self._engine = engine
        self._now = now
        self.times = times or Times()
        self._clock = Clock(self.times)

    def start(self, start: RunStart) -> None:
        """Record the start of a run and hold it; the same start by the same actor again only renews the hold.

        Raises:
            IncompleteRecordError: A field that every record has is missing.
            InvalidInputError: Its id is of a later time, or another run has its id.
            UnknownNameError: Its lock is not stored, or a hidden run of another token has its id.
            ForbiddenError: Another token began it.
        """
        check_start(start)
        start = bound_start(start, self._now())
        with write_transaction(self._engine) as connection:
            if connection.execute(select(runs.c.id).where(runs.c.id == start.id)).first() is None:
                record_start(connection, start)
                hold = {"run": start.id, "owner": get_actor().id, "until": self._until(connection)}
                connection.execute(insert(held_runs), hold)
            else:
                recorded = self._load(connection, start.id).start
                if replace(recorded, started_at=start.started_at) != start:
                    raise InvalidInputError(
                        f"another run has the id {start.id}", where=start.id, next_step="create a new id"
                    )
                self._renew(connection, start.id)

    def renew(self, run: RunId) -> None:
        """Extend the hold of a run that continues.

        Raises:
            UnknownNameError: No such run was started, or it is hidden and another token's.
            RunEndedError: The run has ended; it was abandoned if this call comes too late.
            ForbiddenError: Another token began it.
        """
        with write_transaction(self._engine) as connection:
            self._renew(connection, run)

    def finish(self, run: RunId, end: RunEnd, check: Callable[[Run], None]) -> Run:
        """Record the end of a run and return the run as recorded; the same end again changes nothing.

        Args:
            run: The run to end.
            end: The end to record.
            check: Raises unless the run fits its lock and agrees with its evidence.

        Raises:
            As ``renew``; ``IncompleteRecordError`` if a field is missing or impossible; and as ``check``.
        """
        with read_transaction(self._engine) as connection:
            open_run = self._load(connection, run)
            if open_run.end is not None:
                check_same_end(open_run, end)
                return open_run
            # Checked before the expensive check, and again in the transaction that records the end.
            self._check_own(connection, run)
        if end.ended_at.tzinfo is None:
            check_end(open_run.start, end)  # raises
        end = clean_message(end)
        end = replace(end, ended_at=min(end.ended_at, self._now()))
        ended_run = Run(open_run.start, replace(end, ended_at=max(end.ended_at, open_run.start.started_at)))
        assert ended_run.end is not None
        check(ended_run)
        with write_transaction(self._engine) as connection:
            recorded = self._load(connection, run)
            if recorded.end is not None:
                check_same_end(recorded, end)
                return recorded
            self._check_own(connection, run)
            record_end(connection, run, end)
            connection.execute(delete(held_runs).where(held_runs.c.run == run))
            return load_run(connection, run)

    def reap(self) -> tuple[RunId, ...]:
        """Record runs whose hold has expired as abandoned and return their ids; log those that cannot be ended."""
        reaped = []
        with write_transaction(self._engine) as connection:
            over = held_runs.c.until < self._clock.now(connection)
            expired = [RunId(run) for run in connection.execute(select(held_runs.c.run).where(over)).scalars()]
            for run in expired:
                try:
                    with connection.begin_nested():
                        connection.execute(delete(held_runs).where(held_runs.c.run == run))
                        record_end(connection, run, RunEnd(outcome="abandoned", ended_at=self._now()))
                except OperationalError:  # the database failed, not this run
                    raise
                except Exception:  # noqa: BLE001 - any error of one run must not keep the others open
                    _log.exception("%s cannot be ended", run)
                else:
                    reaped.append(run)
        return tuple(reaped)

    def is_any(self) -> bool:
        """Return whether any run is held; a cheap read before ``reap``, which writes."""
        with read_transaction(self._engine) as connection:
            return connection.execute(select(held_runs.c.run).limit(1)).first() is not None

    def _renew(self, connection: Connection, run: RunId) -> None:
        recorded = self._load(connection, run)
        if recorded.end is not None:
            raise RunEndedError(f"{run} has ended already: {recorded.end.outcome}", where=run)
        self._check_own(connection, run)
        until = self._until(connection)
        connection.execute(update(held_runs).where(held_runs.c.run == run).values(until=until))

    def _load(self, connection: Connection, run: RunId) -> Run:
        """Return the run; a hidden run is visible to administrators, and to its owner until it has ended."""
        owner = connection.execute(select(held_runs.c.owner).where(held_runs.c.run == run)).scalar()
        load = load_run if owner == get_actor().id else load_visible_run
        return load(connection, run)

    def _check_own(self, connection: Connection, run: RunId) -> None:
        owner = connection.execute(select(held_runs.c.owner).where(held_runs.c.run == run)).scalar()
        if owner is None:
            raise RefusedError(
                f"{run} was started on the registry's machine or by a worker, not by a client", where=run
            )
        get_actor().require_own(owner, run)

    def _until(self, connection: Connection) -> float:
        now = self._clock.now(connection)
        self._clock.note(connection, now)
        return now + self.times.lease
