"""Leaving a lock to the machines of a queue: looked at first, so that what can't be run is refused at once."""

from collections.abc import Callable
from datetime import datetime

from benchlock.artifacts.errors import IntegrityError
from benchlock.artifacts.store import FileStore
from benchlock.evaluator.dispatch.matching import wants_of
from benchlock.evaluator.dispatch.queue import JobId, JobWish, new_job_id
from benchlock.evaluator.evidence.definitions import definitions_of
from benchlock.evaluator.harness_releases import check_version
from benchlock.evaluator.records.runs import Isolation
from benchlock.evaluator.runner.choice import carries_code, check_code, is_confined
from benchlock.evaluator.runner.verification import read_manifests
from benchlock.registry.lockfile import Lock
from benchlock.registry.manifests import Model
from benchlock.registry.named import named


def wish_of(
    lock: Lock,
    store: FileStore,
    isolation: Isolation | None,
    now: Callable[[], datetime],
    *,
    allow_code: bool = False,
    job: JobId | None = None,
) -> JobWish:
    """The wish that ``lock`` be run; everything that it names is in ``store``, for one of its platforms at least.

    Raises:
        IntegrityError: a blob is missing, a manifest is not what its digest says, or the harness has a false version.
        InvalidInputError: the lock needs another version of benchlock.
        UnavailableError: a process is asked for, and the model may not run as one.
    """
    definitions_of(lock)
    check_version(lock.harness)
    check_stored(lock, store)
    model = read_manifests(lock, store)["model"]
    assert isinstance(model, Model)
    if isolation == "process":
        check_code(model, isolation, allow_code=allow_code)
    confined, code = is_confined(model, allow_code=allow_code), allow_code and carries_code(model)
    wants = wants_of(lock, isolation, confined=confined, code=code)
    return JobWish(job or new_job_id(now()), lock.id, wants, allow_code)


def check_stored(lock: Lock, store: FileStore) -> None:
    """Refuse a lock of which the store lacks something, for every one of its platforms.

    Raises:
        IntegrityError: names a blob that is missing.
    """
    absent = [one for one in named(lock) if not store.exists(one.digest)]
    lacking = {one.platform for one in absent}
    if None in lacking or lacking >= set(lock.image.platforms):
        raise IntegrityError(
            f"{absent[0].name} is not in the registry's store ({absent[0].digest})",
            where=absent[0].name,
            next_step="publish it, or import the bundle of the lock",
        )
