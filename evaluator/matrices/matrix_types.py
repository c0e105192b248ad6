"""Values of matrices: planned runs of cells, and submitted matrices with the state of each run."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from msgspec import Struct, field

from benchlock.artifacts.digest import Digest, DigestText
from benchlock.evaluator.queue.queue_types import Job, JobRequest

RUNNING_STATES: Final = ("queued", "delayed", "leased", "blocked")
"""States of runs that have not ended; ``blocked`` ones change once a machine can take them."""


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """A run of a cell to store: its job, or the conflict because of which it has none."""

    cell: str
    repeat: int
    job: JobRequest | None
    conflict: str | None = None


class MatrixRun(Struct, frozen=True, kw_only=True):
    """A run of a cell: its job, or why there is none.

    Attributes:
        cell: The name of the cell.
        repeat: The number of the run, from 1.
        lock: The lock of the cell; None with a conflict.
        job: The job; None with a conflict.
        conflict: Why the cell has no lock.
        blocked: Why no machine can take the job at present, and what the closest match lacks.
        ahead: The number of waiting jobs of the matrix that are before it.
    """

    cell: str
    repeat: int
    lock: DigestText | None = None
    job: Job | None = None
    conflict: str | None = None
    blocked: str | None = None
    ahead: int | None = None


class MatrixStatus(Struct, frozen=True, kw_only=True):
    """A matrix in a registry.

    Attributes:
        id: The digest of its content.
        name: Its name.
        as_of: The time of the catalogue on which its cells were resolved.
        submitted_at: The time of its first submission.
        states: The number of runs by state: those of jobs, ``blocked``, ``conflict``, and ``not submitted`` of a
            submission that broke off.
    """

    id: DigestText = field(name="matrix")
    name: str
    as_of: datetime
    submitted_at: datetime
    states: dict[str, int]


class SubmittedMatrix(MatrixStatus, frozen=True, kw_only=True):
    """A matrix with its runs, in the order of the cells."""

    runs: tuple[MatrixRun, ...]

    @property
    def status(self) -> MatrixStatus:
        """The matrix without its runs."""
        return MatrixStatus(**{name: getattr(self, name) for name in MatrixStatus.__struct_fields__})


@dataclass(frozen=True, slots=True)
class StoredMatrix:
    """A matrix as the database has it."""

    id: Digest
    document: dict[str, Any]
    runs: int
    owner: str
    as_of: datetime
    submitted_at: datetime


@dataclass(frozen=True, slots=True)
class ListedMatrix:
    """A matrix in a list."""

    id: Digest
    name: str
    runs: int
    submitted_at: datetime
