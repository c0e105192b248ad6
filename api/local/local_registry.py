"""Opening a local registry and building its parts, as configured by settings."""

import json
import os
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from benchlock.api.local.registry_database import (
    DATABASE_DECISION,
    DATABASE_FILE,
    is_new,
    open_database,
    require_registry,
)
from benchlock.api.local.registry_store import STORE_VARIABLE, open_store, uploads_folder
from benchlock.api.local.run_setup import connect_engine
from benchlock.api.settings import KEYS, read_setting
from benchlock.artifacts.blob_store import FileStore
from benchlock.artifacts.errors import BenchlockError, InvalidInputError, UnavailableError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.user_output import SILENT, Progress
from benchlock.evaluator.evidence.run_examination import ExaminedRecords, Examiner
from benchlock.migrations import prepare
from benchlock.registry.auth.audit_log import AuditLog
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.database.engine import open_engine
from benchlock.registry.database.postgresql_gc_holds import DatabaseHolds, DatabaseStoreLock
from benchlock.registry.lock.lockfile import Lock, load
from benchlock.registry.publishing.garbage_collection import find_referenced
from benchlock.registry.text.quantities import parse_bytes, parse_seconds

if TYPE_CHECKING:
    from sqlalchemy import Engine as Database

    from benchlock.artifacts.digest import Digest
    from benchlock.artifacts.sources import SourceAccess
    from benchlock.artifacts.uploads.disk_quotas import DiskReserve
    from benchlock.artifacts.uploads.resumable_uploads import Uploads
    from benchlock.evaluator.records.run_store import Records
    from benchlock.registry.auth.tokens import Tokens

T = TypeVar("T")

DISK_RESERVE = "BENCHLOCK_DISK_RESERVE"
UNNAMED_BYTES = "BENCHLOCK_UNNAMED_BYTES"

_LONGEST_CACHED = 32 << 10
_load_cached = lru_cache(128)(load)  # lists name the same locks again and again


@dataclass(frozen=True, slots=True)
class LocalRegistry:
    """The parts of an embedded registry: one folder with the database, and with the blobs or a cache of them."""

    home: Path
    store: FileStore
    catalogue: Catalogue
    records: "Records"
    database: "Database"
    examiner: Examiner

    def read_lock(self, lock: "Digest") -> Lock:
        """Return the lock with that id, whose stored text is compared with its record each time."""
        return _parse_lock(self.catalogue.get_lock(lock), lock)

    def find_locks(self, ids: "Iterable[Digest]") -> "dict[Digest, Lock | None]":
        """Return several locks by id as ``read_lock`` does, None for one that is missing or damaged."""
        wanted = list(dict.fromkeys(ids))
        with suppress(BenchlockError):
            texts = self.catalogue.get_locks(wanted)
            return {id_: _parse_lock(texts[id_], id_) if id_ in texts else None for id_ in wanted}
        found: dict[Digest, Lock | None] = dict.fromkeys(wanted)
        for id_ in wanted:  # at least one of them is damaged
            with suppress(BenchlockError):
                found[id_] = self.read_lock(id_)
        return found


def _parse_lock(text: str, lock: "Digest") -> Lock:
    return (_load_cached if len(text) <= _LONGEST_CACHED else load)(text, lock)


def source_access() -> "SourceAccess":
    """Return how remote sources are accessed, as configured.

    HF_TOKEN and HF_ENDPOINT are the Hub's own variables, the setting ``download_time`` limits the time of one download,
    and ``read_network_policy`` reads the rest.

    Raises:
        InvalidInputError: The setting ``download_time`` is not a duration.
    """
    from benchlock.api.local.container_registry_access import read_network_policy  # noqa: PLC0415 - used by publishing only
    from benchlock.artifacts.sources import Hub, SourceAccess  # noqa: PLC0415 - as above

    hub = Hub(os.environ.get("HF_ENDPOINT", "").rstrip("/") or Hub().endpoint, os.environ.get("HF_TOKEN") or None)
    network = read_network_policy()
    longest = _parse_setting("download_time", parse_seconds)
    return SourceAccess(network if longest is None else replace(network, longest=longest), hub)


def _parse_setting(key: str, parse: Callable[[str], T]) -> T | None:
    """Return the parsed value of a setting, ``None`` if it is not set."""
    value = read_setting(key)
    if value is None:
        return None
    try:
        return parse(value.text)
    except InvalidInputError as error:
        variable, example = KEYS[key].variable, KEYS[key].example
        raise InvalidInputError(
            f"invalid {value.origin} {value.text[:100]!r}",
            where=value.origin,
            next_step=f"write {key} = {example}"
            if value.origin != variable
            else f"write {variable}={json.loads(example)}",
        ) from error


def now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def open_registry(
    location: str, say: Callable[[str], None], progress: Progress = SILENT, *, create: bool = True
) -> LocalRegistry:
    """Open the registry in the folder ``location``, without changing an existing schema.

    Runs whose process was killed are first recorded as abandoned and reported, and their leftovers are removed.

    Args:
        location: The folder.
        say: Prints a message: that the registry was created, and each abandoned run.
        progress: Shows the progress of transfers.
        create: Create the registry if the folder has none.

    Raises:
        RegistryNotFoundError: The folder has no registry, and ``create`` is false.
        InvalidInputError: ``location`` is the URL of a server, or BENCHLOCK_STORE or BENCHLOCK_DATABASE differs from
            the registry's own.
        RefusedError: A service serves the same database from another folder.
        SchemaRevisionError: The database's schema has another revision than this build needs.
        UnavailableError: The folder or the database cannot be used.
    """

    def text_of(digest: "Digest") -> str | None:
        return catalogue.text_of(digest)

    home = folder_of(location, create=create)
    if not create:
        require_registry(home)
    first = is_new(home)
    is_on_server = read_setting("database") if first else (home / DATABASE_DECISION).exists()
    lock = DatabaseStoreLock(lambda: database) if is_on_server else None
    store = open_store(home, progress, text_of, is_new=first, beside=lock)
    database, is_created = open_database(home, now, create=create)
    if database.dialect.name != "sqlite":
        from benchlock.api.local.running_services import require_same_folder  # noqa: PLC0415 - rarely used

        try:
            require_same_folder(home, database)
        except BaseException:
            database.dispose()
            raise
    if is_created:
        say(f"created the registry in {home}")
    catalogue = Catalogue(database, now)
    examiner = Examiner(store, home, catalogue.get_lock)
    registry = LocalRegistry(home, store, catalogue, ExaminedRecords(database, examiner), database, examiner)
    runs = home / "runs"  # a folder outlives its run if its container or the process that cleans up was killed
    if registry.records.unfinished() or (runs.is_dir() and any(runs.iterdir())):
        from benchlock.evaluator.runner.orphans import sweep  # noqa: PLC0415 - rarely used

        for run in sweep(registry.records.unfinished(), registry.records.finish, connect_engine(), home, now):
            say(f"{run} was recorded as abandoned: its process no longer exists")
    return registry


@contextmanager
def open_empty_registry() -> Iterator[tuple[Catalogue, LocalStore]]:
    """Open an empty catalogue and store in a temporary folder, for a dry run without a registry."""
    with tempfile.TemporaryDirectory(prefix="benchlock-") as folder:
        database = open_engine(Path(folder) / DATABASE_FILE)
        try:
            prepare(database)
            yield Catalogue(database, now), LocalStore(Path(folder) / "blobs")
        finally:
            database.dispose()


def folder_of(location: str, *, create: bool = False) -> Path:
    """Return the absolute path of a registry's folder, which need not exist; with ``create``, create it.

    Raises:
        InvalidInputError: ``location`` is the URL of a server.
        UnavailableError: The folder cannot be created.
    """
    if "://" in location:
        raise InvalidInputError(
            f"{location} is a server; this command needs a registry in a local folder",
            where=location,
            next_step="run it on the server, with the folder that it serves: --registry DIR",
        )
    home = Path(location).absolute()
    if create:
        try:
            home.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UnavailableError(
                f"cannot create the registry's folder: {error.strerror}",
                where=str(home),
                next_step="choose another folder with --registry or BENCHLOCK_REGISTRY",
            ) from error
    return home


def open_uploads(registry: LocalRegistry) -> "Uploads":
    """Open the uploads to the registry's store; all processes of the registry share the protection of their blobs.

    The setting ``unnamed_bytes`` limits the unreferenced bytes of one caller, by default to half of the disk.

    Raises:
        InvalidInputError: The setting ``unnamed_bytes`` or ``disk_reserve`` is not an amount of bytes.
    """
    from benchlock.artifacts.uploads.resumable_uploads import UploadLimits, Uploads  # noqa: PLC0415 - used by services only

    def find_references(digests: "Collection[Digest]") -> "Collection[Digest]":
        return find_referenced(digests, registry.store, registry.catalogue, registry.records.live_digests)

    reserve = open_reserve(registry)
    unnamed = _parse_setting("unnamed_bytes", _parse_bytes)
    bounds = UploadLimits(unnamed=reserve.measure().size // 2 if unnamed is None else unnamed)
    holds = None if registry.database.dialect.name == "sqlite" else DatabaseHolds(registry.database)
    folder = uploads_folder(registry.home)
    return Uploads(folder, registry.store, bounds, holds=holds, reserve=reserve, find_referenced=find_references)


def open_reserve(registry: LocalRegistry) -> "DiskReserve":
    """Return the reserve of the disk with the registry's blobs; the setting ``disk_reserve`` sets its bytes.

    Raises:
        InvalidInputError: The setting ``disk_reserve`` is not an amount of bytes.
    """
    from benchlock.artifacts.uploads.disk_quotas import DiskReserve  # noqa: PLC0415 - as above

    return DiskReserve(uploads_folder(registry.home), _parse_setting("disk_reserve", _parse_bytes))


def _parse_bytes(text: str) -> int:
    """Parse an amount of bytes, such as ``8GiB``, or a plain number of them."""
    return int(text) if text.isascii() and text.isdecimal() else parse_bytes(text)


def open_tokens(registry: LocalRegistry) -> "Tokens":
    """Return the tokens of the registry."""
    from benchlock.registry.auth.tokens import Tokens  # noqa: PLC0415 - used by few commands

    return Tokens(registry.database, now)


def open_log(registry: LocalRegistry) -> AuditLog:
    """Return the audit log of the registry."""
    return AuditLog(registry.database)


def describe_store(registry: LocalRegistry) -> str:
    """Describe in words where the blobs are, and whether the OCI repository or the bucket is reachable."""
    remote = getattr(registry.store, "remote", None)
    if remote is None:
        return (
            f"the registry's folder (a new registry can have an OCI repository or a bucket: {STORE_VARIABLE}="
            "oci://HOST/REPOSITORY or s3://BUCKET/PREFIX)"
        )
    try:
        is_claimed = remote.is_claimed()
    except BenchlockError as error:
        return f"{remote.where}: {error.what}"
    if not is_claimed:
        return f"{remote.where}: not claimed by this registry; its endpoint may be another one now"
    return f"{remote.where}, and a cache in the registry's folder"
