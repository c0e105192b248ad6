"""The append-only store of runs in SQL."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Engine, Row, Table, delete, func, insert, select

from benchlock.artifacts import size_limits
from benchlock.artifacts.digest import Descriptor, Digest
from benchlock.artifacts.errors import IntegrityError, InvalidInputError, UnknownNameError
from benchlock.evaluator.records.run_document import encode_run, summarize
from benchlock.evaluator.records.run_model import (
    DamagedRun,
    Outcome,
    Run,
    RunEnd,
    RunEndedError,
    RunId,
    RunStart,
    check_end,
    check_start,
    clean_message,
)
from benchlock.evaluator.records.runs_schema import (
    HIDDEN_RUNS,
    find_hiding,
    held_runs,
    imported_runs,
    insert_hiding,
    open_runs,
    refuse_replay,
    run_batch_metrics,
    run_blobs,
    run_ends,
    run_metrics,
    run_packages,
    runs,
)
from benchlock.evaluator.statistics.metric_model import Interval, Metric
from benchlock.registry.auth.audit_log import now, record_action
from benchlock.registry.auth.permissions import get_actor
from benchlock.registry.database.catalogue_schema import locks
from benchlock.registry.database.engine import (
    RESTORE,
    DamagedDatabaseError,
    read_transaction,
    report_decode_errors,
    write_transaction,
)
from benchlock.registry.database.record_chain import check_records, digest_record, find_positions, insert_record

_PARTS: Final = (run_metrics, run_batch_metrics, run_packages, run_blobs)
_AT_ONCE: Final = 8
"""Runs of a list whose whole records are in memory together: a record that is older than the limits has any size."""
_KINDS: Final = ("runs", "run_ends", "imported_runs")


class Records:
    """The runs of a registry."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def start(self, start: RunStart) -> None:
        """Record that a run starts.

        Raises:
            IncompleteRecordError: something that every record has is missing.
            UnknownNameError: its lock is not stored.
        """
        with write_transaction(self._engine) as connection:
            record_start(connection, start)

    def finish(self, run: RunId, end: RunEnd) -> None:
        """Record a run's end, once and for all.

        Raises:
            UnknownNameError: no such run was started.
            RunEndedError: it has an end already: it was reaped as abandoned, say.
            IncompleteRecordError: something that every record has is missing.
            ReplayedRunError: another run of its lock has the same samples.
        """
        with write_transaction(self._engine) as connection:
            record_end(connection, run, end)

    def get(self, run: RunId) -> Run:
        """The run as recorded; one that is hidden is there for administrators alone, and says so.

        Raises:
            UnknownNameError: no such run was started, or it is hidden from whoever asks.
        """
        with read_transaction(self._engine) as connection:
            return load_visible_run(connection, run)

    def recall(self, run: RunId) -> Run | None:
        """Return the run as ``get`` does if that recomputes nothing, else None; raises as ``get``."""
        return self.get(run)

    def hide(self, run: RunId, reason: str) -> bool:
        """Hide a run from lists, comparisons and verdicts; nothing of its record or its bytes changes.

        Returns:
            Whether that changed anything: false where it is hidden for that reason already.

        Raises:
            ForbiddenError: The actor is no administrator.
            UnknownNameError: No such run was started.
            InvalidInputError: No reason is given, or it is too long.
        """
        if not reason.strip():
            raise InvalidInputError("no reason for hiding the run", where=run, next_step="say why: --reason TEXT")
        size_limits.check_text(reason, size_limits.REASON, "reason")
        return self._mark(run, reason)

    def unhide(self, run: RunId) -> bool:
        """Show a hidden run again; false where it is not hidden. Raises as ``hide``."""
        return self._mark(run, None)

    def _mark(self, run: RunId, reason: str | None) -> bool:
        get_actor().require("admin")
        with write_transaction(self._engine) as connection:
            load_run(connection, run)
            hiding = find_hiding(connection, run)
            if (None if hiding is None else hiding.reason) == reason:
                return False
            insert_hiding(connection, run, reason, now())
        return True

    def as_recorded(self, run: RunId) -> Run:
        """Return the run as its rows have it, compared with nothing.

        Raises:
            UnknownNameError: No such run was started.
        """
        return Records.get(self, run)

    def ids(self) -> tuple[RunId, ...]:
        """Return the ids of all runs, oldest first."""
        with read_transaction(self._engine) as connection:
            return tuple(map(RunId, connection.execute(select(runs.c.id).order_by(runs.c.id)).scalars()))

    def list(
        self,
        *,
        lock: Digest | None = None,
        outcome: Outcome | None = None,
        before: RunId | None = None,
        limit: int = 100,
    ) -> tuple[Run, ...]:
        """Return summaries of the newest runs that are not hidden, newest first.

        Raises:
            DamagedDatabaseError: The record of one of them is damaged.

        The arguments are those of ``list_entries``.
        """
        entries = self.list_entries(lock=lock, outcome=outcome, before=before, limit=limit)
        damaged_run = next((one for one in entries if isinstance(one, DamagedRun)), None)
        if damaged_run is not None:
            raise DamagedDatabaseError(damaged_run.damage, where=damaged_run.id, next_step=RESTORE)
        return tuple(one for one in entries if isinstance(one, Run))

    def list_entries(
        self,
        *,
        lock: Digest | None = None,
        outcome: Outcome | None = None,
        before: RunId | None = None,
        limit: int = 100,
        examine: bool = True,
    ) -> tuple[Run | DamagedRun, ...]:
        """Return summaries of the newest runs that are not hidden, newest first; of a damaged record the damage.

        ``summaries.summarize`` says what a summary has.

        Args:
            lock: Only runs of this lock.
            outcome: Only runs with this outcome.
            before: Only runs older than this one.
            limit: The largest number of runs.
            examine: Whether to compare the runs with their evidence, so that their figures may be used.
        """
        query = select(runs.c.id).where(runs.c.id.not_in(HIDDEN_RUNS)).limit(limit)
        if lock is not None:
            query = query.where(runs.c.lock == lock)
        if before is not None:
            query = query.where(runs.c.id < before)
        if outcome is not None:
            query = query.join(run_ends, run_ends.c.run == runs.c.id).where(run_ends.c.outcome == outcome)
        query = query.order_by((runs.c.id if outcome is None or lock is not None else run_ends.c.run).desc())
        with read_transaction(self._engine) as connection:
            ids = connection.execute(query).scalars().all()
        entries: dict[str, Run | DamagedRun] = {}
        loaded = self._load_parts(ids, entries)
        for run in self._examine(loaded) if examine else loaded:
            entries[run.id] = summarize(run)
        return tuple(entries[id_] for id_ in ids if id_ in entries)

    def _load_parts(self, ids: Sequence[str], entries: dict[str, Run | DamagedRun]) -> Iterator[Run]:
        """Load runs a few at a time, each few in a transaction that ends before anybody looks at their evidence.

        Damaged ones are put into ``entries`` instead.
        """
        for at in range(0, len(ids), _AT_ONCE):
            for one in self._load_some(ids[at : at + _AT_ONCE]):
                if isinstance(one, Run):
                    yield one
                else:
                    entries[one.id] = one

    def _load_some(self, ids: Sequence[str]) -> tuple[Run | DamagedRun, ...]:
        """Load runs together; where a record is damaged, each alone."""
        try:
            with read_transaction(self._engine) as connection:
                return _load(connection, ids)
        except DamagedDatabaseError as error:
            if len(ids) == 1:
                return (DamagedRun(RunId(ids[0]), error.what),)
        return tuple(one for id_ in ids for one in self._load_some([id_]))

    def _examine(self, runs: Iterable[Run]) -> Iterable[Run]:
        """Return the runs with the state of their evidence, where somebody compares them with it."""
        return runs

    def count(self, lock: Digest) -> int:
        """How many runs of a lock there are, whatever their outcome."""
        with read_transaction(self._engine) as connection:
            return runs_of(connection, lock)

    def unfinished(self) -> tuple[Run, ...]:
        """The runs without an end, oldest first: running still, or abandoned by a process that is no more.

        Without those under a lease of the queue, or held by somebody elsewhere: these are ended with their lease.
        """
        held = select(held_runs.c.run).where(held_runs.c.run == open_runs.c.run).exists()
        query = select(open_runs.c.run).where(open_runs.c.fence.is_(None), ~held).order_by(open_runs.c.run)
        with read_transaction(self._engine) as connection:
            return _load(connection, connection.execute(query).scalars().all())

    def live_digests(self) -> Iterator[Digest]:
        """Every digest that a run names: what garbage collection must keep."""
        with read_transaction(self._engine) as connection:
            for digest in connection.execute(select(run_blobs.c.digest).distinct()).scalars():
                yield Digest(digest)


def record_start(connection: Connection, start: RunStart, fence: int | None = None) -> None:
    """Record that a run starts, under a lease of the queue where there is a ``fence``. Raises as ``Records.start``."""
    check_start(start)
    if connection.execute(select(locks.c.id).where(locks.c.id == start.lock)).first() is None:
        raise UnknownNameError(f"the registry has no lock {start.lock}", next_step="store the lock first")
    _insert_start(connection, start)
    connection.execute(insert(open_runs), {"run": start.id, "fence": fence})
    record_action(connection, "run.start", f"{start.id} {start.lock}", now())


def record_end(connection: Connection, run: RunId, end: RunEnd) -> None:
    """Record a run's end in a transaction that the caller holds. Raises as ``Records.finish``."""
    recorded = load_run(connection, run)
    if recorded.end is not None:
        raise RunEndedError(f"{run} has ended already: {recorded.end.outcome}", where=run)
    end = clean_message(end)
    # Where the clock was set back in between, the run took no time: better than no record.
    if end.ended_at.tzinfo is not None and end.ended_at < recorded.start.started_at:
        end = replace(end, ended_at=recorded.start.started_at)
    check_end(recorded.start, end)
    refuse_replay(connection, run, recorded.start.lock, end)
    _insert_end(connection, run, end)
    connection.execute(delete(open_runs).where(open_runs.c.run == run))
    record_action(connection, "run.end", f"{run} {end.outcome}", now())


def runs_of(connection: Connection, lock: Digest) -> int:
    """How many runs of a lock there are."""
    return connection.execute(select(func.count()).select_from(runs).where(runs.c.lock == lock)).scalar_one()


def keep_imported(connection: Connection, run: Run, at: datetime) -> bool:
    """Record an ended run that came from somewhere else, under its id; false where it is recorded already.

    Its lock is stored, in the same transaction at the latest.

    Raises:
        IntegrityError: another run is recorded under its id.
        ReplayedRunError: another run of its lock has the same samples.
    """
    recorded = next(iter(_load(connection, [run.id])), None)
    if recorded is not None:
        if recorded.end is None or encode_run(recorded) != encode_run(run):
            raise IntegrityError(
                f"{run.id} is recorded here with other content",
                where=run.id,
                next_step="one of the two records was changed: ask the one who made the run",
            )
        return False
    assert run.end is not None
    refuse_replay(connection, run.id, run.start.lock, run.end)
    _insert_start(connection, run.start)
    _insert_end(connection, run.id, run.end)
    insert_record(connection, imported_runs, {"run": run.id, "at": at})
    record_action(connection, "run.import", run.id, at)
    return True


def _insert_start(connection: Connection, start: RunStart) -> None:
    insert_record(connection, runs, {column.name: getattr(start, column.name) for column in runs.columns})


def _insert_end(connection: Connection, run: RunId, end: RunEnd) -> None:
    names = ("outcome", "failure_class", "failure_message", "timings", "details", "ended_at")
    row = {"run": run} | {name: getattr(end, name) for name in names}
    insert_record(connection, run_ends, row, _rows_of(run, end))


def load_run(connection: Connection, run: RunId) -> Run:
    """The run as recorded. Raises as ``Records.get``."""
    found = _load(connection, [run])
    if not found:
        raise unknown_run(run)
    return found[0]


def load_visible_run(connection: Connection, run: RunId) -> Run:
    """Return the run as recorded, marked if it is hidden. Raises as ``Records.get``."""
    found = load_run(connection, run)
    hiding = find_hiding(connection, run)
    if hiding is not None and not get_actor().scopes.allow("admin"):
        raise unknown_run(run)
    return replace(found, hidden=hiding)


def unknown_run(run: RunId) -> UnknownNameError:
    """Return the error of a run that is not there."""
    return UnknownNameError(f"the registry has no {run}", where=run, next_step="`benchlock runs` lists what it has")


def _load(connection: Connection, ids: Sequence[str]) -> tuple[Run, ...]:
    """The runs of ``ids``, in that order, in nine queries however many they are.

    Raises:
        DamagedDatabaseError: a record is not what was written.
    """
    if not ids:
        return ()
    with report_decode_errors(connection.engine):
        starts = {row.id: row for row in connection.execute(select(runs).where(runs.c.id.in_(ids)))}
        ends = _by_run(connection, run_ends, ids)
        arrivals = _by_run(connection, imported_runs, ids)
        parts = {table.name: _by_run(connection, table, ids) for table in _PARTS}
        digests = {("runs", id_): digest_record({"runs": [row._asdict()]}) for id_, row in starts.items()}
        for id_, rows in ends.items():
            belonging = {name: _values(found[id_]) for name, found in parts.items() if id_ in found}
            digests["run_ends", id_] = digest_record({"run_ends": _values(rows), **belonging})
        for id_, rows in arrivals.items():
            digests["imported_runs", id_] = digest_record({"imported_runs": _values(rows)})
        check_records(connection, _KINDS, ids, digests)
        positions = find_positions(connection, "run_ends", ids)
        return tuple(
            Run(
                _start(starts[id_]),
                _end(ends[id_][0], {name: rows.get(id_, ()) for name, rows in parts.items()}) if id_ in ends else None,
                arrivals[id_][0].at if id_ in arrivals else None,
                position=positions.get(id_),
            )
            for id_ in ids
            if id_ in starts
        )


def _by_run(connection: Connection, table: Table, ids: Sequence[str]) -> Mapping[str, Sequence[Row[Any]]]:
    rows: dict[str, list[Row[Any]]] = {}
    for row in connection.execute(select(table).where(table.c.run.in_(ids))):
        rows.setdefault(row.run, []).append(row)
    return rows


def _values(rows: Iterable[Row[Any]]) -> list[dict[str, Any]]:
    return [row._asdict() for row in rows]


def _start(row: Row[Any]) -> RunStart:
    return RunStart(**row._asdict())


def _end(row: Row[Any], parts: Mapping[str, Sequence[Row[Any]]]) -> RunEnd:
    return RunEnd(
        outcome=row.outcome,
        failure_class=row.failure_class,
        failure_message=row.failure_message,
        timings=row.timings,
        details=row.details,
        ended_at=row.ended_at,
        metrics=(
            *(_metric(part, None) for part in parts["run_metrics"]),
            *(_metric(part, part.batch) for part in parts["run_batch_metrics"]),
        ),
        packages={part.name: part.version for part in parts["run_packages"]},
        blobs={part.role: Descriptor(Digest(part.digest), part.size) for part in parts["run_blobs"]},
    )


def _metric(row: Row[Any], batch: int | None) -> Metric:
    ci = Interval(row.ci_low, row.ci_high)
    return Metric(row.name, row.value, row.unit, row.direction, row.n, ci, row.version, batch)


def _rows_of(run: RunId, end: RunEnd) -> Iterable[tuple[Table, list[dict[str, Any]]]]:
    metrics = [_metric_row(run, metric) for metric in end.metrics if metric.batch is None]
    of_batches = [_metric_row(run, metric) | {"batch": metric.batch} for metric in end.metrics if metric.batch]
    packages = [{"run": run, "name": name, "version": version} for name, version in end.packages.items()]
    blobs = [{"run": run, "role": role, "digest": blob.digest, "size": blob.size} for role, blob in end.blobs.items()]
    return ((run_metrics, metrics), (run_batch_metrics, of_batches), (run_packages, packages), (run_blobs, blobs))


def _metric_row(run: RunId, metric: Metric) -> dict[str, Any]:
    names = ("name", "value", "unit", "direction", "n", "version")
    bounds = {"ci_low": metric.ci.low, "ci_high": metric.ci.high}
    return {"run": run} | {name: getattr(metric, name) for name in names} | bounds
