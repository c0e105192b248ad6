"""Backup of a registry into a folder, and restoring a registry from a backup.

The database is copied first. Blobs are stored before the database refers to them, and referenced blobs are never
deleted. All blobs of the copied database are therefore still there when they are copied, whatever is published, run
and collected meanwhile.
"""

import io
import json
import shutil
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from benchlock.api.local import registry_database, registry_store
from benchlock.api.local.local_registry import LocalRegistry, folder_of, now
from benchlock.api.local.registry_database import write_decision
from benchlock.artifacts.atomic_files import create_file
from benchlock.artifacts.blob_store import REPAIR_ADVICE, BlobNotFoundError, FileStore, make_mismatch_error
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import IntegrityError, InvalidInputError, RefusedError, UnavailableError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.records.evidence_status import RUN_AGAIN
from benchlock.evaluator.workflows.blob_inventory import Inventory
from benchlock.registry.database.sqlite import copy_into
from benchlock.registry.text.collected_problems import find_leading_error

if TYPE_CHECKING:
    from benchlock.artifacts.user_output import Progress

_DESCRIPTION_FILE: Final = "backup.json"
_DATABASE: Final = "database.sqlite"


class _Backup(msgspec.Struct, frozen=True):
    """The description of a backup: when it was begun, and which database and store the registry has."""

    schema: int
    taken_at: str
    database: str | None
    database_owner: str | None
    store: str | None
    store_owner: str | None


@dataclass(frozen=True, slots=True)
class BackupReport:
    """The result of a backup or restore: blobs in it, newly copied blobs, and errors of damaged blobs."""

    blobs: int
    copied: int
    damaged: tuple[IntegrityError, ...]


def back_up(registry: LocalRegistry, folder: Path, progress: "Progress") -> BackupReport:
    """Create or update the backup in ``folder``; a failed update leaves the earlier backup as it was.

    Raises:
        DamagedDatabaseError: The database is damaged; nothing was copied.
        UnavailableError: The folder cannot be written.
    """
    errors = registry_database.check_database(registry.database).damaged
    if errors:  # a backup of a damaged database would replace a good one
        raise find_leading_error(list(errors))
    description = _describe(registry)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if description.database is None:
            with create_file(folder / _DATABASE, durably=True) as file:
                copy_into(registry.database, Path(file.name))
                report = _copy_referenced(registry, folder, progress)
        else:
            report = _copy_referenced(registry, folder, progress)
        write_decision(folder / _DESCRIPTION_FILE, msgspec.to_builtins(description))
    except OSError as error:
        raise _write_error(folder, error) from error
    return report


def restore(location: str, folder: Path, progress: "Progress") -> BackupReport:
    """Create a new registry at ``location`` from the backup in ``folder``.

    As for any new registry, BENCHLOCK_DATABASE and BENCHLOCK_STORE name its database and store. A database on a server
    must already have the dump.

    Raises:
        InvalidInputError: ``folder`` has no backup, or its database is on a server and BENCHLOCK_DATABASE is not set.
        RefusedError: ``location`` already has a registry, or the database is another registry's.
    """
    description = _read_description(folder)
    home = folder_of(location, create=True)
    if not registry_database.is_new(home):
        raise RefusedError(
            "the folder already contains a registry",
            where=str(home),
            next_step="choose another folder with --registry",
        )
    if description.store is not None and description.store_owner is not None:
        registry_store.take_over_store(home, description.store, description.store_owner)
    store = registry_store.open_store(home, progress, lambda _: None, is_new=True)
    source = LocalStore(folder / "blobs")
    report = _copy(source, store, list(source.list()), progress)
    try:
        if description.database_owner is not None:
            registry_database.take_over_database(home, description.database_owner)
        else:
            with (
                (folder / _DATABASE).open("rb") as source_file,
                create_file(home / registry_database.DATABASE_FILE, durably=True) as file,
            ):
                shutil.copyfileobj(source_file, file)
    except OSError as error:
        raise _write_error(home, error) from error
    return report


def _copy_referenced(registry: LocalRegistry, folder: Path, progress: "Progress") -> BackupReport:
    """Copy all referenced blobs: at least those that the copied database refers to."""
    with registry.store.writing():
        digests = sorted(Inventory(registry.store, registry.catalogue, registry.records).needed())
        run_blobs = set(registry.records.live_digests()).difference(registry.catalogue.live_digests())
        return _copy(registry.store, LocalStore(folder / "blobs"), digests, progress, run_blobs)


def _describe(registry: LocalRegistry) -> _Backup:
    database, store = (
        registry_database.read_database_decision(registry.home),
        registry_store.read_store_decision(registry.home),
    )
    return _Backup(
        schema=1,
        taken_at=now().isoformat(),
        database=None if database is None else database.address,
        database_owner=None if database is None else database.owner,
        store=None if store is None else str(store.place),
        store_owner=None if store is None else store.owner,
    )


def _read_description(folder: Path) -> _Backup:
    try:
        description = msgspec.convert(json.loads((folder / _DESCRIPTION_FILE).read_bytes()), _Backup)
    except (OSError, ValueError, msgspec.ValidationError) as error:
        raise InvalidInputError(
            f"{folder} does not contain a complete backup: {error}",
            where=str(folder),
            next_step="choose a folder created by `benchlock backup`",
        ) from error
    if description.schema != 1:
        raise InvalidInputError(
            f"{folder} was made by a newer benchlock", where=str(folder), next_step="use that version"
        )
    return description


def _copy(
    source: FileStore,
    target: FileStore,
    digests: Sequence[Digest],
    progress: "Progress",
    run_blobs: Collection[Digest] = (),
) -> BackupReport:
    """Copy the blobs that ``target`` lacks and check their digests; ``source`` is only read.

    Args:
        source: The store to copy from.
        target: The store to copy to.
        digests: The blobs to copy.
        progress: Shows the copied bytes.
        run_blobs: Blobs of runs, which cannot be published again.
    """

    def next_step(digest: Digest) -> str:
        return RUN_AGAIN if digest in run_blobs else REPAIR_ADVICE

    there = set(target.list())
    paths: dict[Digest, Path] = {}
    damaged: list[IntegrityError] = []
    copied = 0
    for digest in digests:
        if digest in there:
            continue
        try:
            with source.open(digest) as stream:
                if isinstance(stream, io.BytesIO):  # a blob without a file
                    target.put(stream, digest, name=f"blob {digest}")
                    copied += 1
                    continue
            paths[digest] = source.path(digest)
        except BlobNotFoundError:
            what = f"blob {digest} is referenced, but missing in the store"
            damaged.append(IntegrityError(what, where=digest, next_step=next_step(digest)))
    with progress.task(f"copying {len(paths)} blobs", sum(path.stat().st_size for path in paths.values())) as advance:
        blobs = target.put_files(paths.values(), advance=advance)
    for digest, blob in zip(paths, blobs, strict=True):
        if blob.digest != digest:
            damaged.append(make_mismatch_error(f"blob {digest}", digest, blob, next_step=next_step(digest)))
            target.delete(blob.digest)
    return BackupReport(len(digests), copied + len(paths), tuple(damaged))


def _write_error(folder: Path, error: OSError) -> UnavailableError:
    return UnavailableError(
        f"{folder} cannot be written: {error.strerror or error}",
        where=str(folder),
        next_step="choose a writable folder on a disk with free space, and try again",
    )
