"""Submission of matrices: their locks on one snapshot of the catalogue, and their jobs."""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice
from typing import Final

from benchlock.artifacts.blob_store import FileStore
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import BenchlockError, UnavailableError
from benchlock.artifacts.json_codec import encode_canonical
from benchlock.artifacts.size_limits import REASON, truncate
from benchlock.evaluator.matrices.matrix_types import PlannedRun
from benchlock.evaluator.matrices.sql_matrices import SqlMatrices
from benchlock.evaluator.queue.queue_types import JobRequest, new_job_id
from benchlock.evaluator.queue.submission_checks import make_job_request
from benchlock.evaluator.runner.host_platform import CodeNotAllowedError
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.lock.lock_creation import ConfigurationLookup, Harness, build_locks
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.requests.matrix_request import Matrix, MatrixCell

_AT_ONCE: Final = 500
"""The number of locks that are in memory and stored at once."""


@dataclass(frozen=True, slots=True)
class LockSources:
    """What locks are made of: the catalogue, the store, the harness, and ``look_up`` of ``keep_lock``."""

    catalogue: Catalogue
    store: FileStore
    harness: Harness
    look_up: ConfigurationLookup | None = None


def submit_matrix(matrix: Matrix, matrices: SqlMatrices, sources: LockSources, now: Callable[[], datetime]) -> None:
    """Resolve and lock the cells of a matrix, and queue their runs; runs that it has already change nothing.

    A cell without a lock is stored with its conflict. A submission that was interrupted is completed by the next one.

    Args:
        matrix: The matrix.
        matrices: The matrices of the registry.
        sources: What the locks are made of.
        now: The calendar clock.

    Raises:
        ForbiddenError: Another token submitted it.
        RefusedError: The token would have more than the maximum number of queued jobs.
        UnavailableError: The registry of a finished image cannot be reached.
    """
    as_of, known = matrices.begin(matrix)
    missing = [(at, name) for at, name in matrix.rounds() if (at, name) not in known]
    names = {name for _, name in missing}
    with sources.store.writing():
        cells = [cell for cell in matrix.cells if cell.name in names]
        planned = dict(zip((cell.name for cell in cells), _plan(matrix, cells, as_of, sources, now), strict=True))
        matrices.add(matrix.id, [_plan_run(at, name, planned[name], now()) for at, name in missing])


def _plan_run(number: int, cell: str, planned: JobRequest | BenchlockError, at: datetime) -> PlannedRun:
    if isinstance(planned, BenchlockError):
        return PlannedRun(cell, number, None, truncate(str(planned), REASON))
    return PlannedRun(cell, number, replace(planned, id=new_job_id(at)))


def _plan(
    matrix: Matrix, cells: Collection[MatrixCell], as_of: datetime, sources: LockSources, now: Callable[[], datetime]
) -> Iterator[JobRequest | BenchlockError]:
    """Yield the job of each cell, whose lock is stored, or the error because of which it has none."""
    access = (sources.store, sources.catalogue, sources.look_up)
    locks = build_locks([cell.request for cell in cells], as_of, sources.harness, access)
    isolation, allow_code = matrix.content.isolation or None, matrix.content.allow_code

    def make_request(lock: Lock) -> JobRequest:
        return make_job_request(lock, sources.store, isolation, now, allow_code=allow_code)

    checked: dict[bytes, JobRequest | BenchlockError] = {}
    while batch := list(islice(locks, _AT_ONCE)):
        stored = []
        for lock in batch:
            planned = lock if isinstance(lock, BenchlockError) else _find_job(lock, checked, make_request)
            if isinstance(lock, Lock) and isinstance(planned, JobRequest):
                stored.append(lock)
            yield planned
        sources.catalogue.put_locks(stored)


def _find_job(
    lock: Lock, checked: dict[bytes, JobRequest | BenchlockError], make_request: Callable[[Lock], JobRequest]
) -> JobRequest | BenchlockError:
    """Return the job of a lock; locks with the same artifacts and needs are checked once."""
    artifacts: dict[str, Digest] = {str(kind): artifact.digest for kind, artifact in lock.artifacts().items()}
    key = encode_canonical([artifacts, lock.request.get("hardware", {}), lock.limits.cpus])
    if key not in checked:
        try:
            checked[key] = make_request(lock)
        except CodeNotAllowedError as error:
            checked[key] = error
        except UnavailableError:
            raise
        except BenchlockError as error:
            checked[key] = error
    found = checked[key]
    return found if isinstance(found, BenchlockError) else replace(found, lock=lock.id)
