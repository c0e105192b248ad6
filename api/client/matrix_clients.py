"""The matrices of a registry: in a folder of this machine, or on a server."""

from typing import Final, Protocol

from benchlock.api.client.api_client import ApiClient
from benchlock.api.client.embedded_queue import open_queue
from benchlock.api.client.embedded_registry import EmbeddedRegistry
from benchlock.api.local.local_registry import now
from benchlock.api.schemas.job_schemas import MatrixSubmission
from benchlock.artifacts.digest import Digest
from benchlock.evaluator.matrices.matrix_submission import LockSources, submit_matrix
from benchlock.evaluator.matrices.matrix_tables import MAX_READ, MatrixTable, make_table
from benchlock.evaluator.matrices.matrix_types import ListedMatrix, MatrixStatus
from benchlock.evaluator.matrices.sql_matrices import SqlMatrices
from benchlock.evaluator.queue.queue_types import JobId
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.evaluator.records.run_types import RunId
from benchlock.registry.requests.matrix_request import Matrix

_PATIENCE: Final = 600.0
"""Seconds for which a request is repeated: a server that needs longer than it may answers 503, and goes on."""


class Matrices(Protocol):
    """The matrices of a registry. A submission may be repeated after a lost response.

    The id of a matrix may be abbreviated to ``sha256:`` and its first 4 or more digits, if no other begins with them.
    """

    def submit(self, matrix: Matrix) -> MatrixStatus:
        """Lock the cells of a matrix and queue their runs; add only what is missing.

        Raises:
            BenchlockError: As ``submit_matrix``.
        """

    def status(self, matrix: str) -> MatrixStatus:
        """Return a matrix with the number of its runs by state.

        Raises:
            UnknownNameError: The registry has no such matrix.
            InvalidInputError: Several ids begin with that.
        """

    def table(self, matrix: str) -> MatrixTable:
        """Return the results of a matrix, and why other cells are empty. Raise as ``status``."""

    def cancel(self, matrix: str) -> MatrixStatus:
        """Cancel the jobs of a matrix that have not ended.

        Raises:
            UnknownNameError: The registry has no such matrix.
            ForbiddenError: Another token submitted it.
        """


class EmbeddedMatrices:
    """The ``Matrices`` of a registry that is open."""

    def __init__(self, registry: EmbeddedRegistry, queue: SqlQueue | None = None) -> None:
        """Open the matrices; ``queue`` is that of the registry if it is open already."""
        self._registry = registry
        self._matrices = SqlMatrices(registry.opened.database, queue or open_queue(registry.opened), now)

    def submit(self, matrix: Matrix) -> MatrixStatus:
        """Lock the cells, and queue their runs in the registry's database."""
        sources = LockSources(self._registry.catalogue, self._registry.store, *self._registry.lock_parts())
        submit_matrix(matrix, self._matrices, sources, now)
        return self.status(matrix.id)

    def status(self, matrix: str) -> MatrixStatus:
        """Read the states of the runs from the database."""
        return self._matrices.read(self._matrices.find(matrix)).status

    def table(self, matrix: str) -> MatrixTable:
        """Read the runs and locks of the matrix, and compare the runs with their evidence."""
        return self.read(matrix)[1]

    def read(self, matrix: str) -> tuple[MatrixStatus, MatrixTable]:
        """Read the status and the table as of the same time."""
        submitted = self._matrices.read(self._matrices.find(matrix))
        rounds = sorted(submitted.runs, key=lambda run: run.repeat)
        jobs = [run.job for run in rounds if run.job is not None and run.job.state == "done"]
        done = [RunId(job.run) for job in jobs if job.run is not None]
        locks = self._registry.opened.find_locks(Digest(job.lock) for job in jobs)
        runs = {run.id: run for run in self._registry.records.get_each(done[:MAX_READ])}
        return submitted.status, make_table(submitted, locks, runs, frozenset(done[MAX_READ:]))

    def list_newest(self, limit: int) -> list[ListedMatrix]:
        """List the matrices that were submitted last, newest first."""
        return self._matrices.list_newest(limit)

    def find_cell(self, job: JobId) -> tuple[Digest, str] | None:
        """Return the matrix of a job and the name of its cell; None if the job belongs to no matrix."""
        return self._matrices.find_cell(job)

    def may_cancel(self, matrix: Digest) -> bool:
        """Return whether the actor may cancel the matrix."""
        return self._matrices.may_cancel(matrix)

    def cancel(self, matrix: str) -> MatrixStatus:
        """Cancel the jobs in the database."""
        id_ = self._matrices.find(matrix)
        self._matrices.cancel(id_)
        return self.status(id_)


class RemoteMatrices:
    """The ``Matrices`` of a registry on a server."""

    def __init__(self, client: ApiClient) -> None:
        """Send requests with ``client``."""
        self._client = client

    def submit(self, matrix: Matrix) -> MatrixStatus:
        """Send the matrix; the request is repeated until it is answered."""
        body = MatrixSubmission(matrix=matrix.document)
        return self._client.send("POST", "matrices", body, MatrixStatus, patience=_PATIENCE)

    def status(self, matrix: str) -> MatrixStatus:
        """Fetch the states of the runs."""
        return self._client.send("GET", f"matrices/{matrix}", None, MatrixStatus, patience=_PATIENCE)

    def table(self, matrix: str) -> MatrixTable:
        """Fetch the table."""
        return self._client.send("GET", f"matrices/{matrix}/table", None, MatrixTable, patience=_PATIENCE)

    def cancel(self, matrix: str) -> MatrixStatus:
        """Cancel the jobs on the server."""
        return self._client.send("POST", f"matrices/{matrix}/cancel", {}, MatrixStatus, patience=_PATIENCE)
