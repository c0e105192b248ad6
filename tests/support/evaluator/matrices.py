"""A registry with two versions of a model, in which matrices are submitted."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from sqlalchemy import Engine

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.matrices.matrix_submission import LockSources, submit_matrix
from benchlock.evaluator.matrices.matrix_types import MatrixRun, SubmittedMatrix
from benchlock.evaluator.matrices.sql_matrices import SqlMatrices
from benchlock.evaluator.queue.queue_types import MachineId
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.evaluator.records.run_store import Records
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.lock.lock_creation import Harness
from benchlock.registry.requests.matrix_request import Matrix, parse_matrix, read_matrix
from tests.support.evaluator.queues import BOOT, TIMES, Ticking, end, facts, start
from tests.support.evaluator.recorded import NOON
from tests.support.registry.matrices import MATRIX
from tests.support.resolution.variants import variant

HARNESS = Harness("0.1.0", b"a harness")


def matrix_of(**changes: Any) -> Matrix:  # noqa: ANN401 - keys of a matrix
    """The matrix of ``MATRIX`` with other values of some keys; None removes a key."""
    document = read_matrix(MATRIX, "matrix.yaml").document | changes
    return parse_matrix({key: value for key, value in document.items() if value is not None}, "matrix")


@dataclass
class MatrixBench:
    """A registry on a database, with a queue and its matrices."""

    database: Engine
    folder: Path

    def __post_init__(self) -> None:
        self.store = LocalStore(self.folder / "blobs")
        self.moment = NOON
        self.catalogue = Catalogue(self.database, self.now)
        self.records = Records(self.database)
        self.queue = SqlQueue(self.database, self.now, TIMES, Ticking())
        self.matrices = SqlMatrices(self.database, self.queue, self.now)
        self.sources = LockSources(self.catalogue, self.store, HARNESS)
        for version in ("1.0.0", "1.1.0"):
            self.publish(version)

    def now(self) -> datetime:
        """The calendar time of this registry, which ``tick`` moves on."""
        return self.moment

    def tick(self) -> None:
        self.moment += timedelta(hours=1)

    def publish(self, version: str) -> None:
        variant({"model": {"version": version}}).publish(self.catalogue, self.store)

    def submit(self, matrix: Matrix) -> SubmittedMatrix:
        submit_matrix(matrix, self.matrices, self.sources, self.now)
        return self.matrices.read(matrix.id)

    def enrol(self, name: str = "m1", **changes: Any) -> None:  # noqa: ANN401 - facts of a machine
        self.queue.enrol(MachineId(name), BOOT, facts(**changes))

    def finish_next(self, failure: str | None = None, name: str = "m1") -> Digest:
        """Let a machine run the next job, and return its lock."""
        lease = self.queue.lease(MachineId(name), BOOT)
        assert lease is not None
        begun = self.queue.begin(lease.fence, start(lock=lease.lock))
        assert begun is not None
        self.queue.commit(lease.fence, begun.id, end("failed" if failure else "done", failure))
        return lease.lock


def runs_by_cell(matrix: SubmittedMatrix) -> dict[tuple[str, int], MatrixRun]:
    return {(run.cell, run.repeat): run for run in matrix.runs}
