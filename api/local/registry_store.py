"""The choice of a registry's blob store, made at creation: its folder, an OCI repository or a bucket of objects.

The decision is stored in the registry's home, so that blobs are found even if BENCHLOCK_STORE is not set.
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from benchlock.api.local.registry_database import create_owner_id, lock_decisions, write_decision
from benchlock.api.settings import read_setting
from benchlock.artifacts.atomic_files import StoreLock
from benchlock.artifacts.errors import InvalidInputError, UnavailableError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.user_output import Progress
from benchlock.registry.catalogue.catalogue_protocol import CataloguedStore, TextOf

if TYPE_CHECKING:
    from benchlock.artifacts.blob_store import FileStore
    from benchlock.artifacts.net.object_client import ObjectLocation
    from benchlock.artifacts.oci.oci_reference import Repository
    from benchlock.artifacts.stores.object_store import ObjectStore
    from benchlock.artifacts.stores.oci_store import OciStore

STORE_VARIABLE = "BENCHLOCK_STORE"
_BUCKET: Final = re.compile(r"(s3|gs|az)[:/]", re.IGNORECASE)
"""The beginning of a bucket's URL, also of a misspelt one."""
_BLOBS, _DECISION, _LOCK = "blobs", "store.json", "store.lock"


@dataclass(frozen=True, slots=True)
class StoreDecision:
    """An OCI repository or a bucket for the blobs, and the id by which the registry claims it."""

    place: "Repository | ObjectLocation"
    owner: str


def open_store(
    home: Path, progress: Progress, text_of: TextOf, *, is_new: bool, beside: StoreLock | None = None
) -> "FileStore":
    """Open the store of the registry in ``home``; a new registry uses the setting ``store``, if it is set.

    Args:
        home: The folder of the registry.
        progress: Shows transfers from and to the repository or bucket.
        text_of: Reads texts from the registry's catalogue; it is not called before the store is used.
        is_new: Whether the registry is new.
        beside: A lock that is held together with the file locks of the store.

    Raises:
        InvalidInputError: BENCHLOCK_STORE names neither a repository nor a bucket, or not the registry's own.
        RefusedError: The repository or bucket belongs to another registry.
        UnavailableError: The repository or bucket cannot be reached, or the decision cannot be written.
    """
    setting = read_setting("store") if is_new else None
    place = setting.text if setting else os.environ.get(STORE_VARIABLE)
    if is_new:
        remote = _open_new_place(home, place)
    else:
        decision = read_store_decision(home)
        _refuse_other(home, place, decision)
        remote = None if decision is None else _remote(home, decision)
    if remote is None:
        return CataloguedStore(home / _BLOBS, text_of, beside)
    from benchlock.artifacts.stores.cached_store import CachedRepository  # noqa: PLC0415 - unused by a registry in a folder
    from benchlock.artifacts.stores.oci_store import OciStore  # noqa: PLC0415 - as above

    local = LocalStore(home / _BLOBS, beside)
    if isinstance(remote, OciStore):
        return CachedRepository(local, remote, progress)
    from benchlock.artifacts.stores.object_store import CachedObjects  # noqa: PLC0415 - as above

    return CachedObjects(local, remote, progress)


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
        return StoreDecision(_parse_place(document["store"]), document["owner"])
    except (msgspec.MsgspecError, KeyError, InvalidInputError) as error:
        raise InvalidInputError(
            f"{path} does not state where the blobs are: {error}", where=str(path), next_step="restore it from a backup"
        ) from error


def take_over_store(home: Path, store: str, owner: str) -> None:
    """Let a new registry in ``home`` take over the place ``store`` of the registry with the id ``owner``.

    This is decided only if the setting ``store`` names the same place.
    """
    setting = read_setting("store")
    if setting and read_store_decision(home) is None and _parse_place(setting.text) == _parse_place(store):
        write_decision(home / _DECISION, {"store": store, "owner": owner})


def _open_new_place(home: Path, place: str | None) -> "OciStore | ObjectStore | None":
    """Open the repository or bucket of an empty registry, decided and claimed by one process at a time.

    A decision may exist without a claim if the process that made it was killed in between.
    """
    if not place and read_store_decision(home) is None:
        return None
    with lock_decisions(home):
        before = read_store_decision(home)
        if before is None and not place:
            return None
        decision = before or _decide(home, str(place))
        _refuse_other(home, place, decision)
        try:
            remote = _remote(home, decision)
            remote.claim()
        except BaseException:
            if before is None:
                (home / _DECISION).unlink()  # the lock hid it from every other process
            raise
        return remote


def _decide(home: Path, place: str) -> StoreDecision:
    """Choose the place and store the decision."""
    decision = StoreDecision(_parse_place(place), create_owner_id())
    write_decision(home / _DECISION, {"store": str(decision.place), "owner": decision.owner})
    return decision


def _remote(home: Path, decision: StoreDecision) -> "OciStore | ObjectStore":
    from benchlock.artifacts.oci.oci_reference import Repository  # noqa: PLC0415 - as above

    if isinstance(decision.place, Repository):
        from benchlock.api.local.container_registry_access import connect_repository  # noqa: PLC0415 - as above
        from benchlock.artifacts.stores.oci_store import OciStore  # noqa: PLC0415 - as above

        return OciStore(connect_repository(decision.place), home / _LOCK, decision.owner)
    from benchlock.artifacts.net.object_client import connect  # noqa: PLC0415 - as above
    from benchlock.artifacts.stores.object_store import ObjectStore  # noqa: PLC0415 - as above

    return ObjectStore(connect(decision.place), home / _LOCK, decision.owner)


def _parse_place(text: str) -> "Repository | ObjectLocation":
    if _BUCKET.match(text):
        with _require_objects():
            from benchlock.artifacts.net.object_client import parse_location  # noqa: PLC0415 - an extra of the package

            return parse_location(text)
    from benchlock.artifacts.oci.oci_reference import parse_repository  # noqa: PLC0415 - as above

    return parse_repository(text)


@contextmanager
def _require_objects() -> Iterator[None]:
    """Explain that the library of buckets is an extra of the package, where it is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        what = f"a registry with its blobs in a bucket needs the package {error.name}, which is not installed"
        raise UnavailableError(what, next_step="pip install 'benchlock[objects]'") from error


def _refuse_other(home: Path, place: str | None, decision: StoreDecision | None) -> None:
    """Raise if BENCHLOCK_STORE names another place than the registry has."""
    if place and (decision is None or _parse_place(place) != decision.place):
        own = "its own folder" if decision is None else decision.place
        raise InvalidInputError(
            f"{STORE_VARIABLE} is {place}, but the registry in {home} has its blobs in {own}",
            where=STORE_VARIABLE,
            next_step=f"unset {STORE_VARIABLE}, or create another registry with --registry",
        )
