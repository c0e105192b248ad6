"""The choice of a registry's blob store, made at creation: its folder or an OCI repository.

The decision is stored in the registry's home, so that blobs are found even if BENCHLOCK_STORE is not set.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from benchlock.api.local.registry_database import create_owner_id, lock_decisions, write_decision
from benchlock.api.settings import read_setting
from benchlock.artifacts.atomic_files import StoreLock
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.user_output import Progress
from benchlock.registry.catalogue.catalogue_protocol import CataloguedStore, TextOf

if TYPE_CHECKING:
    from benchlock.artifacts.blob_store import FileStore
    from benchlock.artifacts.oci.oci_reference import Repository
    from benchlock.artifacts.stores.oci_store import OciStore

STORE_VARIABLE = "BENCHLOCK_STORE"
_BLOBS, _DECISION, _LOCK = "blobs", "store.json", "store.lock"


@dataclass(frozen=True, slots=True)
class StoreDecision:
    """An OCI repository for the blobs, and the id by which the registry claims it."""

    repository: "Repository"
    owner: str


def open_store(
    home: Path, progress: Progress, text_of: TextOf, *, is_new: bool, beside: StoreLock | None = None
) -> "FileStore":
    """Open the store of the registry in ``home``; a new registry uses the setting ``store``, if it is set.

    Args:
        home: The folder of the registry.
        progress: Shows transfers from and to the repository.
        text_of: Reads texts from the registry's catalogue; it is not called before the store is used.
        is_new: Whether the registry is new.
        beside: A lock that is held together with the file locks of the store.

    Raises:
        InvalidInputError: BENCHLOCK_STORE is not a repository, or another than the registry's own.
        RefusedError: The repository belongs to another registry.
        UnavailableError: The repository cannot be reached, or the decision cannot be written.
    """
    setting = read_setting("store") if is_new else None
    repository = setting.text if setting else os.environ.get(STORE_VARIABLE)
    if is_new:
        remote = _open_new_repository(home, repository)
    else:
        decision = read_store_decision(home)
        _refuse_other(home, repository, decision)
        remote = None if decision is None else _remote(home, decision)
    if remote is None:
        return CataloguedStore(home / _BLOBS, text_of, beside)
    from benchlock.artifacts.stores.cached_store import CachedRepository  # noqa: PLC0415 - unused by a registry in a folder

    return CachedRepository(LocalStore(home / _BLOBS, beside), remote, progress)


def uploads_folder(home: Path) -> Path:
    """Return the folder of resumable uploads, on the same disk as the registry's blobs so that rename works."""
    return home / _BLOBS / "uploads"


def read_store_decision(home: Path) -> StoreDecision | None:
    """Read the decision in a registry's home, None if its blobs are in the home itself.

    Raises:
        InvalidInputError: The file is invalid, for example after a manual change.
    """
    path = home / _DECISION
    if not path.exists():
        return None

    try:
        document = msgspec.json.decode(path.read_bytes(), type=dict[Literal["store", "owner"], str])
        return StoreDecision(_repository(document["store"]), document["owner"])
    except (msgspec.MsgspecError, KeyError, InvalidInputError) as error:
        raise InvalidInputError(
            f"{path} does not state where the blobs are: {error}", where=str(path), next_step="restore it from a backup"
        ) from error


def take_over_store(home: Path, store: str, owner: str) -> None:
    """Let a new registry in ``home`` take over the repository ``store`` of the registry with the id ``owner``.

    This is decided only if the setting ``store`` names that repository.
    """
    setting = read_setting("store")
    if setting and read_store_decision(home) is None and _repository(setting.text) == _repository(store):
        write_decision(home / _DECISION, {"store": store, "owner": owner})


def _open_new_repository(home: Path, repository: str | None) -> "OciStore | None":
    """Open the repository of an empty registry, decided and claimed by one process at a time.

    A decision may exist without a claim if the process that made it was killed in between.
    """
    if not repository and read_store_decision(home) is None:
        return None
    with lock_decisions(home):
        before = read_store_decision(home)
        if before is None and not repository:
            return None
        decision = before or _decide(home, str(repository))
        _refuse_other(home, repository, decision)
        remote = _remote(home, decision)
        try:
            remote.claim()
        except BaseException:
            if before is None:
                (home / _DECISION).unlink()  # the lock hid it from every other process
            raise
        return remote


def _decide(home: Path, repository: str) -> StoreDecision:
    """Choose the repository and store the decision."""
    decision = StoreDecision(_repository(repository), create_owner_id())
    write_decision(home / _DECISION, {"store": str(decision.repository), "owner": decision.owner})
    return decision


def _remote(home: Path, decision: StoreDecision) -> "OciStore":
    from benchlock.api.local.container_registry_access import connect_repository  # noqa: PLC0415 - as above
    from benchlock.artifacts.stores.oci_store import OciStore  # noqa: PLC0415 - as above

    return OciStore(connect_repository(decision.repository), home / _LOCK, decision.owner)


def _repository(text: str) -> "Repository":
    from benchlock.artifacts.oci.oci_reference import parse_repository  # noqa: PLC0415 - as above

    return parse_repository(text)


def _refuse_other(home: Path, repository: str | None, decision: StoreDecision | None) -> None:
    """Raise if BENCHLOCK_STORE names another repository than the registry has."""
    if repository and (decision is None or _repository(repository) != decision.repository):
        place = "its own folder" if decision is None else decision.repository
        raise InvalidInputError(
            f"{STORE_VARIABLE} is {repository}, but the registry in {home} has its blobs in {place}",
            where=STORE_VARIABLE,
            next_step=f"unset {STORE_VARIABLE}, or create another registry with --registry",
        )
