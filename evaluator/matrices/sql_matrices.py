"""Matrices in SQL: submission in few transactions, and their runs with the state of each."""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Connection, Engine, Row, insert, select

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import UnknownNameError
from benchlock.artifacts.user_output import format_count
from benchlock.evaluator.matrices.matrix_schema import matrices, matrix_cells
from benchlock.evaluator.matrices.matrix_types import (
    ListedMatrix,
    MatrixRun,
    PlannedRun,
    StoredMatrix,
    SubmittedMatrix,
)
from benchlock.evaluator.queue.job_status import job_of, select_jobs
from benchlock.evaluator.queue.queue_schema import jobs, leases
from benchlock.evaluator.queue.queue_types import Job, JobId
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.evaluator.queue.submission_checks import check_waiting
from benchlock.evaluator.records.run_types import RunId
from benchlock.registry.auth.audit_log import record_action
from benchlock.registry.auth.permissions import get_actor
from benchlock.registry.database.column_types import begins_with
from benchlock.registry.database.engine import read_transaction, write_transaction
from benchlock.registry.database.ids_and_timestamps import SHOWN_CANDIDATES, ambiguous_prefix_error
from benchlock.registry.requests.matrix_request import Matrix, place_cell

RUNS_AT_ONCE: Final = 1000
"""The number of runs that a transaction inserts, so that other writers need not wait for long."""
_WAITING: Final = ("queued", "delayed")


class SqlMatrices:
    """The matrices of a registry, whose jobs are in its queue."""

    def __init__(self, database: Engine, queue: SqlQueue, now: Callable[[], datetime]) -> None:
        """Open the matrices in a database.

        Args:
            database: The database.
            queue: The queue in the same database.
            now: The calendar clock.
        """
        self._database, self._queue, self._now = database, queue, now

    def begin(self, matrix: Matrix) -> tuple[datetime, Collection[tuple[int, str]]]:
        """Store a matrix unless it is stored.

        Returns:
            The time as of which its cells are resolved, and the runs that it has, as (round, cell).

        Raises:
            ForbiddenError: Another token submitted it.
            RefusedError: The token would have more than the maximum number of queued jobs.
        """
        with write_transaction(self._database) as connection:
            row = connection.execute(select(matrices).where(matrices.c.id == matrix.id)).first()
            if row is not None:
                get_actor().require_own(row.owner, f"matrix {matrix.id}")
                found = select(matrix_cells.c.repeat, matrix_cells.c.cell).where(matrix_cells.c.matrix == matrix.id)
                known = {(at, cell) for at, cell in connection.execute(found)}
                return row.as_of, known
            runs, at = len(matrix.cells) * matrix.content.repeat, self._now()
            as_of = matrix.cells[0].request.as_of or at
            check_waiting(connection, runs)
            values = {
                "id": matrix.id,
                "document": matrix.document,
                "runs": runs,
                "as_of": as_of,
                "owner": get_actor().id,
                "submitted_at": at,
            }
            connection.execute(insert(matrices), values)
            return as_of, ()

    def add(self, matrix: Digest, runs: Sequence[PlannedRun]) -> None:
        """Store runs of a matrix and queue their jobs in order; a run that is stored already changes nothing.

        Raises:
            RefusedError: The token would have more than the maximum number of queued jobs.
        """
        for first in range(0, len(runs), RUNS_AT_ONCE):
            with write_transaction(self._database) as connection:
                self._add(connection, matrix, runs[first : first + RUNS_AT_ONCE])

    def _add(self, connection: Connection, matrix: Digest, runs: Sequence[PlannedRun]) -> None:
        names = {run.cell for run in runs}
        stored = select(matrix_cells.c.repeat, matrix_cells.c.cell).where(
            matrix_cells.c.matrix == matrix, matrix_cells.c.cell.in_(names)
        )
        known = {(at, cell) for at, cell in connection.execute(stored)}  # another submission may have added them
        new = [run for run in runs if (run.repeat, run.cell) not in known]
        self._queue.insert_all(connection, [run.job for run in new if run.job is not None])
        rows = [
            {
                "matrix": matrix,
                "cell": run.cell,
                "repeat": run.repeat,
                "lock": None if run.job is None else run.job.lock,
                "job": None if run.job is None else run.job.id,
                "conflict": run.conflict,
            }
            for run in new
        ]
        if rows:
            connection.execute(insert(matrix_cells), rows)
            record_action(connection, "matrix.submit", f"{matrix} {format_count(len(rows), 'run')}", self._now())

    def find(self, text: str) -> Digest:
        """Return the id of the only matrix whose id is ``text`` or begins with it.

        Args:
            text: ``sha256:`` and at least 4 hex digits.

        Raises:
            InvalidInputError: Several ids begin with it.
            UnknownNameError: No id begins with it.
        """
        query = select(matrices.c.id, matrices.c.submitted_at).where(begins_with(matrices.c.id, text))
        with read_transaction(self._database) as connection:
            rows = connection.execute(query.order_by(matrices.c.id).limit(SHOWN_CANDIDATES + 1)).all()
        if len(rows) > 1:
            candidates = [(row.id, f"{row.submitted_at:%Y-%m-%d %H:%M}") for row in rows]
            raise ambiguous_prefix_error(text, candidates)
        if not rows:
            raise _unknown_matrix(text)
        return Digest(rows[0].id)

    def matrix(self, matrix: Digest) -> StoredMatrix:
        """Return a matrix as it was submitted.

        Raises:
            UnknownNameError: There is no such matrix.
        """
        with read_transaction(self._database) as connection:
            row = connection.execute(select(matrices).where(matrices.c.id == matrix)).first()
        if row is None:
            raise _unknown_matrix(matrix)
        return StoredMatrix(Digest(row.id), row.document, row.runs, row.owner, row.as_of, row.submitted_at)

    def list_newest(self, limit: int) -> list[ListedMatrix]:
        """List the matrices that were submitted last, newest first."""
        name = matrices.c.document["name"].as_string().label("name")
        columns = (matrices.c.id, name, matrices.c.runs, matrices.c.submitted_at)
        query = select(*columns).order_by(matrices.c.submitted_at.desc(), matrices.c.id).limit(limit)
        with read_transaction(self._database) as connection:
            rows = connection.execute(query).all()
        return [ListedMatrix(Digest(row.id), row.name, row.runs, row.submitted_at) for row in rows]

    def find_cell(self, job: JobId) -> tuple[Digest, str] | None:
        """Return the matrix of a job and the name of its cell; None if the job belongs to no matrix."""
        query = select(matrix_cells.c.matrix, matrix_cells.c.cell).where(matrix_cells.c.job == job)
        with read_transaction(self._database) as connection:
            row = connection.execute(query).first()
        return None if row is None else (Digest(row.matrix), row.cell)

    def read(self, matrix: Digest) -> SubmittedMatrix:
        """Return a matrix with the state of each run. Raise as ``matrix``."""
        stored = self.matrix(matrix)
        self._queue.settle()
        in_matrix = matrix_cells.c.matrix == matrix
        columns = (matrix_cells.c.cell, matrix_cells.c.repeat, jobs.c["class"].label("wanted"))
        query = select_jobs().add_columns(*columns).join(matrix_cells, matrix_cells.c.job == jobs.c.id).where(in_matrix)
        with read_transaction(self._database) as connection:
            now = self._queue.clock_now(connection)
            found = [(row, job_of(row, now)) for row in connection.execute(query.order_by(jobs.c.since, jobs.c.seq))]
            conflicts = connection.execute(select(matrix_cells).where(in_matrix, matrix_cells.c.job.is_(None))).all()
        runs = {(row.cell, row.repeat): _conflict_of(row) for row in conflicts}
        blocked = self._explain_blocked(found)
        ahead = 0
        for row, job in found:
            is_waiting = job.state in _WAITING
            runs[row.cell, row.repeat] = MatrixRun(
                cell=row.cell,
                repeat=row.repeat,
                lock=job.lock,
                job=job,
                blocked=blocked.get(row.wanted) if is_waiting else None,
                ahead=ahead if is_waiting else None,
            )
            ahead += is_waiting and row.wanted not in blocked
        ordered = tuple(runs[key] for key in sorted(runs, key=lambda key: (place_cell(key[0]), key[1])))
        states = Counter(map(find_state, ordered))
        if len(ordered) < stored.runs:  # a submission broke off
            states["not submitted"] = stored.runs - len(ordered)
        return SubmittedMatrix(
            id=stored.id,
            name=stored.document["name"],
            as_of=stored.as_of,
            submitted_at=stored.submitted_at,
            states=dict(states),
            runs=ordered,
        )

    def _explain_blocked(self, found: Sequence[tuple[Row[Any], Job]]) -> Mapping[str, str]:
        """Return why no machine can take the waiting jobs of a class, by class; one job stands for its class."""
        first: dict[str, JobId] = {}
        for row, job in found:
            if job.state in _WAITING:
                first.setdefault(row.wanted, job.id)
        explained = zip(first, self._queue.explain_all([*first.values()]), strict=True)
        return {wanted: explanation.sentence for wanted, explanation in explained if explanation.blocked}

    def may_cancel(self, matrix: Digest) -> bool:
        """Return whether the actor may cancel a matrix. Raise as ``matrix``."""
        return get_actor().owns(self.matrix(matrix).owner)

    def cancel(self, matrix: Digest) -> None:
        """Cancel every job of a matrix that has not ended. Raise as ``matrix``, and as ``SqlQueue.cancel``."""
        owner = self.matrix(matrix).owner
        own = select(matrix_cells.c.job).where(matrix_cells.c.matrix == matrix)
        self._queue.cancel_all(jobs.c.id.in_(own), f"matrix {matrix}", owner)


def _unknown_matrix(text: str) -> UnknownNameError:
    return UnknownNameError(f"the registry has no matrix {text}", where=text, next_step="submit it")


def name_job_cells(database: Engine, ids: Iterable[JobId]) -> dict[str, str]:
    """Return the names of the cells of those jobs that belong to a matrix, by job."""
    query = select(matrix_cells.c.job, matrix_cells.c.cell).where(matrix_cells.c.job.in_(tuple(ids)))
    with read_transaction(database) as connection:
        return {row.job: row.cell for row in connection.execute(query)}


def name_run_cells(database: Engine, ids: Iterable[RunId]) -> dict[str, str]:
    """Return the names of the cells of those runs whose jobs belong to a matrix, by run."""
    query = select(leases.c.run, matrix_cells.c.cell).join(matrix_cells, matrix_cells.c.job == leases.c.job)
    with read_transaction(database) as connection:
        return {row.run: row.cell for row in connection.execute(query.where(leases.c.run.in_(tuple(ids))))}


def _conflict_of(row: Row[Any]) -> MatrixRun:
    return MatrixRun(cell=row.cell, repeat=row.repeat, conflict=row.conflict)


def find_state(run: MatrixRun) -> str:
    """Return the state of a run in a word: that of its job, ``blocked`` or ``conflict``."""
    if run.job is None:
        return "conflict"
    return "blocked" if run.blocked is not None else run.job.state
