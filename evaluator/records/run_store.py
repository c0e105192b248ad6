"""The append-only store of runs in SQL."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import islice
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace
from sqlalchemy import Column, ColumnElement, Connection, Engine, Row, Select, Table, and_, delete, func, insert, select

from benchlock.artifacts import size_limits
from benchlock.artifacts.digest import Descriptor, Digest
from benchlock.artifacts.errors import IntegrityError, InvalidInputError, UnknownNameError
from benchlock.evaluator.records.replayed_runs import refuse_replay
from benchlock.evaluator.records.run_document import encode_run, summarize
from benchlock.evaluator.records.run_groups import NewestRuns, RunGroup, select_compared, select_groups, select_newest
from benchlock.evaluator.records.run_types import (
    ALL_RUNS,
    SELECTED_KINDS,
    DamagedRun,
    Outcome,
    PromotedModel,
    Run,
    RunEnd,
    RunEndedError,
    RunFilter,
    RunId,
    RunStart,
    VersionSelector,
    check_end,
    check_start,
    clean_message,
    new_run_id,
)
from benchlock.evaluator.records.runs_schema import (
    HIDDEN_RUNS,
    find_hiding,
    held_runs,
    imported_runs,
    insert_hiding,
    open_runs,
    run_batch_metrics,
    run_blobs,
    run_ends,
    run_metrics,
    run_packages,
    runs,
)
from benchlock.evaluator.records.timing_validity import explain_unusable_times
from benchlock.evaluator.statistics.metric_types import Interval, Metric
from benchlock.registry.artifact_names import Reference
from benchlock.registry.auth.audit_log import action_record, now
from benchlock.registry.auth.permissions import get_actor
from benchlock.registry.catalogue.version_rows import of_version
from benchlock.registry.catalogue.version_uses import EXAMINED_LOCKS, WITHOUT_COLUMN, WITHOUT_MODEL, has_manifest
from benchlock.registry.database.column_types import begins_with
from benchlock.registry.database.engine import (
    RESTORE,
    DamagedDatabaseError,
    read_transaction,
    report_decode_errors,
    write_transaction,
)
from benchlock.registry.database.record_chain import (
    Record,
    check_records,
    digest_record,
    find_positions,
    insert_records,
)
from benchlock.registry.database.registry_schema import VERSION, files, lock_blobs, locks, manifests, versions
from benchlock.registry.versions.semantic_version import parse_version

_PARTS: Final = (run_metrics, run_batch_metrics, run_packages, run_blobs)
_AT_ONCE: Final = 50
"""The number of whole records in memory at once; records that are older than the limits may have any size."""
FLAGS_READ: Final = 1000
"""The number of runs that are read in one search for flagged runs, or for runs that are not flagged."""
_KINDS: Final = ("runs", "run_ends", "imported_runs")


class Records:
    """The runs of a registry."""

    def __init__(self, engine: Engine) -> None:
        """Open the runs in a database."""
        self._engine = engine

    def start(self, start: RunStart) -> None:
        """Record the start of a run.

        Raises:
            IncompleteRecordError: A field that every record has is missing.
            UnknownNameError: Its lock is not stored.
        """
        with write_transaction(self._engine) as connection:
            record_start(connection, start)

    def finish(self, run: RunId, end: RunEnd) -> None:
        """Record the end of a run, once and for all.

        Raises:
            UnknownNameError: No such run was started.
            RunEndedError: It already has an end; it may have been recorded as abandoned.
            IncompleteRecordError: A field that every record has is missing.
            ReplayedRunError: Another run of its lock has the same samples.
        """
        with write_transaction(self._engine) as connection:
            record_end(connection, run, end)

    def get(self, run: RunId) -> Run:
        """Return the run as recorded; only administrators see a hidden one, which is marked.

        Raises:
            UnknownNameError: No such run was started, or it is hidden from the actor.
        """
        with read_transaction(self._engine) as connection:
            return load_visible_run(connection, run)

    def recall(self, run: RunId) -> Run | None:
        """Return the run as ``get`` does if that recomputes nothing, else None; raises as ``get``."""
        return self.get(run)

    def hide(self, run: RunId, reason: str) -> bool:
        """Hide a run from lists, comparisons and verdicts; its record and its bytes do not change.

        Returns:
            Whether that changed anything: false if it is already hidden for that reason.

        Raises:
            ForbiddenError: The actor is not an administrator.
            UnknownNameError: No such run was started.
            InvalidInputError: The reason is empty or too long.
        """
        if not reason.strip():
            raise InvalidInputError("no reason for hiding the run", where=run, next_step="give a reason")
        size_limits.check_text(reason, size_limits.REASON, "reason")
        return self._mark(run, reason)

    def unhide(self, run: RunId) -> bool:
        """Show a hidden run again; false if it is not hidden. Raises as ``hide``."""
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
        """Return the run as its rows have it, without a comparison with its evidence.

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
        """Return summaries of the newest runs that are not hidden, newest first, as ``list_entries`` does.

        Raises:
            DamagedDatabaseError: The record of one of them is damaged.
        """
        entries = self.list_entries(chosen=RunFilter(lock=lock, outcome=outcome), before=before, limit=limit)
        damaged_run = next((entry for entry in entries if isinstance(entry, DamagedRun)), None)
        if damaged_run is not None:
            raise DamagedDatabaseError(damaged_run.damage, where=damaged_run.id, next_step=RESTORE)
        return tuple(entry for entry in entries if isinstance(entry, Run))

    def list_entries(
        self,
        *,
        chosen: RunFilter = ALL_RUNS,
        before: RunId | None = None,
        limit: int = 100,
        examine: bool = True,
        with_host: bool = False,
    ) -> tuple[Run | DamagedRun, ...]:
        """Return summaries of the newest runs that are not hidden, newest first, and damaged records as such.

        ``run_document.summarize`` decides what a summary has.

        Args:
            chosen: Only runs that meet this filter.
            before: Only runs older than this one.
            limit: The maximum number of runs.
            examine: Whether to compare the runs with their evidence, so that their metrics may be used.
            with_host: Whether the summaries have the host, without which they cannot be compared with each other.
        """
        found: list[Run | DamagedRun] = []
        while len(found) < limit:
            entries, before = self.list_some(
                chosen=chosen, before=before, limit=limit - len(found), examine=examine, with_host=with_host
            )
            found += entries
            if before is None:
                break
        return tuple(found)

    def list_some(
        self,
        *,
        chosen: RunFilter = ALL_RUNS,
        before: RunId | None = None,
        limit: int = 100,
        examine: bool = True,
        with_host: bool = False,
    ) -> tuple[tuple[Run | DamagedRun, ...], RunId | None]:
        """Return entries as ``list_entries`` does, of a bounded number of runs with the filter ``flagged``.

        No column says whether a run is flagged, so whole records are read, ``FLAGS_READ`` at most.

        Returns:
            The entries, and the last run that was read if older ones may meet the filter, too; None after ``limit``
            entries or the oldest run.
        """
        most = limit if chosen.flagged is None else FLAGS_READ
        with read_transaction(self._engine) as connection:
            ids = connection.execute(_select_ids(connection, chosen, before).limit(most)).scalars().all()
        entries: dict[str, Run | DamagedRun] = {}
        loaded = self._load_parts(ids, entries)
        if chosen.flagged is not None:
            meeting = (run for run in loaded if (explain_unusable_times(run) is not None) is chosen.flagged)
            loaded = islice(meeting, limit)
        summaries = {}
        for run in self._examine(loaded) if examine else loaded:
            summary = summarize(run)
            summaries[run.id] = replace(summary, start=run.start) if with_host else summary
        listed = summaries if chosen.flagged is not None else entries | summaries
        last = RunId(ids[-1]) if len(ids) == most and len(listed) < limit else None
        return tuple(listed[id_] for id_ in ids if id_ in listed), last

    def get_each(self, ids: Sequence[RunId]) -> tuple[Run | DamagedRun, ...]:
        """Return runs as ``get`` does, in the order of ``ids``, and damaged records as such.

        A run that does not exist or is hidden is left out, whoever asks.
        """
        visible = select(runs.c.id).where(runs.c.id.in_(ids), runs.c.id.not_in(HIDDEN_RUNS))
        with read_transaction(self._engine) as connection:
            known = set(connection.execute(visible).scalars())
        entries: dict[str, Run | DamagedRun] = {}
        entries |= {run.id: run for run in self._examine(self._load_parts([i for i in ids if i in known], entries))}
        return tuple(entries[id_] for id_ in ids if id_ in entries)

    def list_promoted(self, reference: Reference, limit: int) -> tuple[PromotedModel, ...]:
        """Return at most ``limit`` models that were promoted from trainings with a recipe or dataset.

        The model of the newest run is the first. ``_select_trainings`` says which runs are examined.
        """
        with read_transaction(self._engine) as connection:
            rows = connection.execute(_select_promoted(reference).limit(limit))
            return tuple(PromotedModel(*row) for row in rows)

    def group_done(self, dataset: VersionSelector | None = None) -> tuple[RunGroup, ...]:
        """Return the groups of done runs, on a dataset or on all, the group with the newest run first."""
        with read_transaction(self._engine) as connection:
            of_dataset = None if dataset is None else _select_locks(connection, RunFilter(dataset=dataset))
            return tuple(RunGroup(*row) for row in connection.execute(select_groups(of_dataset)))

    def list_newest(self, group: RunGroup, limit: int, before: RunId | None = None) -> tuple[RunId, ...]:
        """Return the ids of the newest runs of a group, newest first; with ``before``, only older ones."""
        with read_transaction(self._engine) as connection:
            return tuple(map(RunId, connection.execute(select_newest(group, limit, before)).scalars()))

    def list_compared(self, run: RunId, comparison: str) -> tuple[RunId, ...]:
        """Return the ids of the runs of the interleaved comparison that a run is part of, oldest first."""
        with read_transaction(self._engine) as connection:
            return tuple(map(RunId, connection.execute(select_compared(run, comparison)).scalars()))

    def read_newest(self, groups: Sequence[RunGroup], limit: int, most: int) -> tuple[NewestRuns, ...]:
        """Read the newest runs of each group, and older ones until as many have times that are not flagged.

        The evidence of older runs with flagged times is not examined, because that is slow.

        Args:
            groups: The groups.
            limit: The number of runs of a group whose times are not flagged.
            most: The maximum number of runs of a group to look at.
        """
        ids = [self.list_newest(group, limit) for group in groups]
        damaged: dict[str, Run | DamagedRun] = {}
        loaded = {run.id: run for run in self._load_parts([id_ for each in ids for id_ in each], damaged)}
        return tuple(
            self._add_usable(
                group,
                each,
                (
                    *(damaged[id_] for id_ in each if id_ in damaged),
                    *self._examine(loaded[id_] for id_ in each if id_ in loaded),  # each group has a budget of its own
                ),
                limit,
                most,
            )
            for group, each in zip(groups, ids, strict=True)
        )

    def _add_usable(
        self, group: RunGroup, ids: Sequence[RunId], newest: Iterable[Run | DamagedRun], limit: int, most: int
    ) -> NewestRuns:
        """Return the ``newest`` runs of a group, and older ones until enough are usable."""
        found, looked_at, passed_over = [*newest], len(ids), 0
        while len(ids) and looked_at < most and (missing := limit - sum(map(_counts, found))) > 0:
            ids = self.list_newest(group, min(_AT_ONCE, most - looked_at), ids[-1])
            looked_at += len(ids)
            damaged: dict[str, Run | DamagedRun] = {}
            loaded = list(self._load_parts(ids, damaged))
            usable = [run for run in loaded if explain_unusable_times(run) is None]
            found += (*damaged.values(), *self._examine(usable[:missing]))
            passed_over += len(loaded) - len(usable)
        return NewestRuns(tuple(found), passed_over, looked_at)

    def _load_parts(self, ids: Sequence[str], entries: dict[str, Run | DamagedRun]) -> Iterator[Run]:
        """Yield runs, loaded a few at a time; each transaction ends before their evidence is examined.

        Damaged runs go into ``entries`` instead.
        """
        for at in range(0, len(ids), _AT_ONCE):
            for entry in self._load_some(ids[at : at + _AT_ONCE]):
                if isinstance(entry, Run):
                    yield entry
                else:
                    entries[entry.id] = entry

    def _load_some(self, ids: Sequence[str]) -> tuple[Run | DamagedRun, ...]:
        """Load runs together, or one by one if a record is damaged."""
        try:
            with read_transaction(self._engine) as connection:
                return _load(connection, ids)
        except DamagedDatabaseError as error:
            if len(ids) == 1:
                return (DamagedRun(RunId(ids[0]), error.what),)
        return tuple(entry for id_ in ids for entry in self._load_some([id_]))

    def _examine(self, runs: Iterable[Run]) -> Iterable[Run]:
        """Return the runs with the state of their evidence; this store compares nothing."""
        return runs

    def count(self, lock: Digest) -> int:
        """Return the number of runs of a lock, whatever their outcome."""
        with read_transaction(self._engine) as connection:
            return runs_of(connection, lock)

    def count_each(self, ids: Collection[Digest]) -> Mapping[str, int]:
        """Return the numbers of runs by lock, as ``count`` does, without locks that have none."""
        query = select(runs.c.lock, func.count()).where(runs.c.lock.in_(ids)).group_by(runs.c.lock)
        with read_transaction(self._engine) as connection:
            return {row[0]: row[1] for row in connection.execute(query)}

    def unfinished(self) -> tuple[Run, ...]:
        """Return the runs without an end, oldest first: running, or abandoned by a dead process.

        Runs under a lease of the queue and runs held by clients are left out; these end with their lease or hold.
        """
        is_held = select(held_runs.c.run).where(held_runs.c.run == open_runs.c.run).exists()
        query = select(open_runs.c.run).where(open_runs.c.fence.is_(None), ~is_held).order_by(open_runs.c.run)
        with read_transaction(self._engine) as connection:
            return _load(connection, connection.execute(query).scalars().all())

    def live_digests(self) -> Iterator[Digest]:
        """Yield every digest that a run refers to, which garbage collection must keep."""
        with read_transaction(self._engine) as connection:
            for digest in connection.execute(select(run_blobs.c.digest).distinct()).scalars():
                yield Digest(digest)


def _counts(run: Run | DamagedRun) -> bool:
    """Return whether the times of a run count: they are not flagged, and its evidence does not contradict them."""
    if isinstance(run, DamagedRun) or explain_unusable_times(run) is not None:
        return False
    return run.evidence is None or run.evidence.state == "verified"


def _select_ids(connection: Connection, chosen: RunFilter, before: RunId | None) -> Select[Any]:
    """Return the query for the ids of the runs that are not hidden and meet ``chosen``, newest first."""
    query = select(runs.c.id).where(runs.c.id.not_in(HIDDEN_RUNS))
    id_: Column[str] = runs.c.id
    if chosen.outcome is not None:
        query = query.join(run_ends, run_ends.c.run == runs.c.id).where(run_ends.c.outcome == chosen.outcome)
        id_ = runs.c.id if chosen.lock is not None else run_ends.c.run  # the last column of the index that is read
    if chosen.lock is not None:
        query = query.where(runs.c.lock == chosen.lock)
    if any(getattr(chosen, kind) is not None for kind in SELECTED_KINDS):
        query = query.where(runs.c.lock.in_(_select_locks(connection, chosen)))
    if before is not None:
        query = query.where(id_ < before)
    if chosen.since is not None:
        query = query.where(id_ >= new_run_id(chosen.since, bytes(10)))
    if chosen.prefix is not None:
        query = query.where(begins_with(id_, chosen.prefix))
    return query.order_by(id_.desc())


def _select_locks(connection: Connection, chosen: RunFilter) -> Select[Any]:
    """Return the query for the ids of the locks with the artifacts of ``chosen``."""
    selectors = {kind: getattr(chosen, kind) for kind in SELECTED_KINDS}
    conditions = (_has_artifact(connection, kind, one) for kind, one in selectors.items() if one is not None)
    return select(locks.c.id).where(*conditions)


def _has_artifact(connection: Connection, kind: str, selector: VersionSelector) -> ColumnElement[bool]:
    """Return the condition that a lock has a selected artifact.

    No column names the operator or the recipe of a lock; its manifest, if it is published here, is among the blobs.
    """
    if kind not in WITHOUT_COLUMN:
        return _is_selected(connection, locks.c[kind] == selector.name, locks.c[f"{kind}_version"], selector)
    named = and_(versions.c.kind == kind, versions.c.name == selector.name)
    selected = _is_selected(connection, named, versions.c.version, selector)
    return and_(*WITHOUT_MODEL, has_manifest(select(versions.c.digest).where(selected)))


def _is_selected(
    connection: Connection, named: ColumnElement[bool], version: Column[str], selector: VersionSelector
) -> ColumnElement[bool]:
    """Return the condition that a row has the selected name, and a version that is admitted."""
    if selector.constraint is None:
        return named
    texts, admits = connection.execute(select(version).where(named).distinct()).scalars(), selector.constraint.admits
    return and_(named, version.in_([text for text in texts if admits(parse_version(text))]))


def _select_trainings(reference: Reference) -> Select[Any]:
    """Return the query for the ids and locks of the newest runs of trainings with a recipe or dataset.

    The newest ``EXAMINED_LOCKS`` locks without a model are examined, and as many of their runs are returned.
    """
    newest = select(locks.c.id).where(*WITHOUT_MODEL).order_by(locks.c.created_at.desc(), locks.c.id.desc())
    examined = newest.limit(EXAMINED_LOCKS).subquery()
    manifest = select(versions.c.digest).where(of_version(versions, reference)).scalar_subquery()
    having = select(lock_blobs.c.lock).where(lock_blobs.c.lock == examined.c.id, lock_blobs.c.digest == manifest)
    query = select(runs.c.id, runs.c.lock).where(runs.c.lock.in_(having), runs.c.id.not_in(HIDDEN_RUNS))
    return query.order_by(runs.c.id.desc()).limit(EXAMINED_LOCKS)


def _select_promoted(reference: Reference) -> Select[Any]:
    """Return the query for the fields of ``PromotedModel``, those of the newest run first.

    The manifest of the model states the lock, and its weights are those that a run of the lock recorded.
    """
    run = _select_trainings(reference).subquery()
    model = (versions.c.name, versions.c.version, run.c.lock, run_blobs.c.role)
    query = select(*model, func.max(run.c.id)).select_from(run)
    query = query.join(run_blobs, and_(run_blobs.c.run == run.c.id, run_blobs.c.role.like("weights-%")))
    query = query.join(files, and_(files.c.digest == run_blobs.c.digest, files.c.kind == "model"))
    for table in (versions, manifests):
        query = query.join(table, and_(*(table.c[column] == files.c[column] for column in VERSION)))
    states_lock = manifests.c.content.contains('"trained":{"lock":"' + run.c.lock)  # JSON with sorted keys, no spaces
    return query.where(states_lock).group_by(*model).order_by(func.max(run.c.id).desc())


def record_start(connection: Connection, start: RunStart, fence: int | None = None) -> None:
    """Record the start of a run, under the lease with this ``fence`` if there is one. Raises as ``Records.start``."""
    check_start(start)
    if connection.execute(select(locks.c.id).where(locks.c.id == start.lock)).first() is None:
        raise UnknownNameError(f"the registry has no lock {start.lock}", next_step="store the lock first")
    insert_records(connection, (start_record(start), action_record("run.start", f"{start.id} {start.lock}", now())))
    connection.execute(insert(open_runs), {"run": start.id, "fence": fence})


def record_end(connection: Connection, run: RunId, end: RunEnd, *others: Record) -> None:
    """Record the end of a run, and ``others`` that follow from it. Raises as ``Records.finish``."""
    recorded = load_run(connection, run)
    if recorded.end is not None:
        raise RunEndedError(f"{run} has ended already: {recorded.end.outcome}", where=run)
    end = clean_message(end)
    # If the clock was set back meanwhile, the run is recorded with no duration rather than not at all.
    if end.ended_at.tzinfo is not None and end.ended_at < recorded.start.started_at:
        end = replace(end, ended_at=recorded.start.started_at)
    check_end(recorded.start, end)
    refuse_replay(connection, run, recorded.start.lock, end)
    action = action_record("run.end", f"{run} {end.outcome}", now())
    insert_records(connection, (end_record(run, end), action, *others))
    connection.execute(delete(open_runs).where(open_runs.c.run == run))


def runs_of(connection: Connection, lock: Digest) -> int:
    """Return the number of runs of a lock."""
    return connection.execute(select(func.count()).select_from(runs).where(runs.c.lock == lock)).scalar_one()


def keep_imported(connection: Connection, run: Run, at: datetime) -> bool:
    """Record an imported, ended run under its own id; return false if it is recorded already.

    Its lock must be stored by the end of the transaction.

    Raises:
        IntegrityError: Another run is recorded under its id.
        ReplayedRunError: Another run of its lock has the same samples.
    """
    recorded = next(iter(_load(connection, [run.id])), None)
    if recorded is not None:
        if recorded.end is None or encode_run(recorded) != encode_run(run):
            raise IntegrityError(
                f"{run.id} is already recorded here with different content",
                where=run.id,
                next_step="ask the author of the run which of the two records is the original",
            )
        return False
    assert run.end is not None
    refuse_replay(connection, run.id, run.start.lock, run.end)
    arrival = Record(imported_runs, {"run": run.id, "at": at})
    action = action_record("run.import", run.id, at)
    insert_records(connection, (start_record(run.start), end_record(run.id, run.end), arrival, action))
    return True


def start_record(start: RunStart) -> Record:
    """Return the record of a start as it is, without a check."""
    return Record(runs, {column.name: getattr(start, column.name) for column in runs.columns})


def end_record(run: RunId, end: RunEnd) -> Record:
    """Return the record of an end as it is, without a check."""
    names = ("outcome", "failure_class", "failure_message", "timings", "details", "ended_at")
    row = {"run": run} | {name: getattr(end, name) for name in names}
    return Record(run_ends, row, _rows_of(run, end))


def load_run(connection: Connection, run: RunId) -> Run:
    """Return the run as recorded. Raises as ``Records.get``."""
    loaded = _load(connection, [run])
    if not loaded:
        raise unknown_run(run)
    return loaded[0]


def load_visible_run(connection: Connection, run: RunId) -> Run:
    """Return the run as recorded, marked if it is hidden. Raises as ``Records.get``."""
    loaded = load_run(connection, run)
    hiding = find_hiding(connection, run)
    if hiding is not None and not get_actor().scopes.allow("admin"):
        raise unknown_run(run)
    return replace(loaded, hidden=hiding)


def unknown_run(run: RunId) -> UnknownNameError:
    """Return the error for a run that does not exist."""
    return UnknownNameError(f"the registry has no {run}", where=run, next_step="list its runs")


def _load(connection: Connection, ids: Sequence[str]) -> tuple[Run, ...]:
    """Load the runs of ``ids``, in that order, with nine queries however many they are, or three if none has ended.

    Raises:
        DamagedDatabaseError: A record differs from what was written.
    """
    if not ids:
        return ()
    with report_decode_errors(connection.engine):
        starts = {row.id: row for row in connection.execute(select(runs).where(runs.c.id.in_(ids)))}
        ends = _by_run(connection, run_ends, ids)
        arrivals = _by_run(connection, imported_runs, ends)
        parts = {table.name: _by_run(connection, table, ends) for table in _PARTS}
        digests = {("runs", id_): digest_record({"runs": [row._asdict()]}) for id_, row in starts.items()}
        for id_, rows in ends.items():
            belonging = {name: _values(by_run[id_]) for name, by_run in parts.items() if id_ in by_run}
            digests["run_ends", id_] = digest_record({"run_ends": _values(rows), **belonging})
        for id_, rows in arrivals.items():
            digests["imported_runs", id_] = digest_record({"imported_runs": _values(rows)})
        check_records(connection, _KINDS, ids, digests)
        positions = find_positions(connection, "run_ends", ends) if ends else {}
        return tuple(
            Run(
                RunStart(**starts[id_]._asdict()),
                _end(ends[id_][0], {name: rows.get(id_, ()) for name, rows in parts.items()}) if id_ in ends else None,
                arrivals[id_][0].at if id_ in arrivals else None,
                position=positions.get(id_),
            )
            for id_ in ids
            if id_ in starts
        )


def _by_run(connection: Connection, table: Table, ids: Collection[str]) -> Mapping[str, Sequence[Row[Any]]]:
    rows: dict[str, list[Row[Any]]] = {}
    for row in connection.execute(select(table).where(table.c.run.in_(ids))) if ids else ():
        rows.setdefault(row.run, []).append(row)
    return rows


def _values(rows: Iterable[Row[Any]]) -> list[dict[str, Any]]:
    return [row._asdict() for row in rows]


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
    name, _, case = row.name.partition("@")  # a metric of a case is stored under its key
    return Metric(name, row.value, row.unit, row.direction, row.n, ci, row.version, batch, case=case or UNSET)


def _rows_of(run: RunId, end: RunEnd) -> Iterable[tuple[Table, list[dict[str, Any]]]]:
    metrics = [_metric_row(run, metric) for metric in end.metrics if metric.batch is None]
    of_batches = [_metric_row(run, metric) | {"batch": metric.batch} for metric in end.metrics if metric.batch]
    packages = [{"run": run, "name": name, "version": version} for name, version in end.packages.items()]
    blobs = [{"run": run, "role": role, "digest": blob.digest, "size": blob.size} for role, blob in end.blobs.items()]
    return ((run_metrics, metrics), (run_batch_metrics, of_batches), (run_packages, packages), (run_blobs, blobs))


def _metric_row(run: RunId, metric: Metric) -> dict[str, Any]:
    names = ("name", "value", "unit", "direction", "n", "version")
    bounds = {"ci_low": metric.ci.low, "ci_high": metric.ci.high}
    row = {"run": run} | {name: getattr(metric, name) for name in names} | bounds
    return row if metric.case is UNSET else row | {"name": metric.key}
