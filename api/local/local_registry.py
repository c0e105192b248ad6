"""Opening a local registry and building its parts, configured by environment variables."""

import os
import tempfile
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from benchlock.api.local.registry_store import STORE_VARIABLE, open_store
from benchlock.artifacts.blob_store import FileStore
from benchlock.artifacts.display import SILENT, Progress
from benchlock.artifacts.errors import BenchlockError, InvalidInputError, UnavailableError

if TYPE_CHECKING:
    from sqlalchemy import Engine as Database

    from benchlock.api.registry_protocol import Registry as AnyRegistry
    from benchlock.artifacts.digest import Digest
    from benchlock.artifacts.sources import SourceAccess
    from benchlock.artifacts.stores.local_store import LocalStore
    from benchlock.artifacts.uploads.disk_quotas import DiskReserve
    from benchlock.artifacts.uploads.resumable_uploads import Uploads
    from benchlock.evaluator.evidence.examination import Examiner
    from benchlock.evaluator.records.run_store import Records
    from benchlock.evaluator.runner.engine import Engine
    from benchlock.evaluator.runner.wall_clock import WallClock
    from benchlock.evaluator.workflows.run import Runner
    from benchlock.registry.auth.audit_log import AuditLog
    from benchlock.registry.auth.tokens import Tokens
    from benchlock.registry.catalogue.catalogue import Catalogue

DISK_RESERVE = "BENCHLOCK_DISK_RESERVE"
UNNAMED_BYTES = "BENCHLOCK_UNNAMED_BYTES"
DOWNLOAD_TIME = "BENCHLOCK_DOWNLOAD_TIME"


@dataclass(frozen=True, slots=True)
class LocalRegistry:
    """An embedded registry: one folder with a database and the blobs, or those that are at hand."""

    home: Path
    store: FileStore
    catalogue: "Catalogue"
    records: "Records"
    database: "Database"
    examiner: "Examiner"


def source_access() -> "SourceAccess":
    """How remote sources are reached, as the environment says.

    HF_TOKEN and HF_ENDPOINT are the Hub's own; BENCHLOCK_REDIRECT_HOSTS lists the hosts that redirects may lead to
    whatever their addresses; HTTPS_PROXY, NO_PROXY and the like are as everywhere. BENCHLOCK_DOWNLOAD_TIME bounds the
    time of one download.

    Raises:
        InvalidInputError: BENCHLOCK_DOWNLOAD_TIME is no duration.
    """
    from urllib.request import getproxies  # noqa: PLC0415 - only publishing asks for it

    from benchlock.api.local.image_lookup import redirect_hosts  # noqa: PLC0415
    from benchlock.artifacts.sources import Hub, NetworkPolicy, SourceAccess  # noqa: PLC0415

    hub = Hub(os.environ.get("HF_ENDPOINT", "").rstrip("/") or Hub().endpoint, os.environ.get("HF_TOKEN") or None)
    network = NetworkPolicy(redirect_hosts=redirect_hosts(), proxies=getproxies())
    longest = _download_time()
    return SourceAccess(network if longest is None else replace(network, longest=longest), hub)


def _download_time() -> float | None:
    """Return the seconds that BENCHLOCK_DOWNLOAD_TIME names; None where it is not set."""
    from benchlock.registry.text.quantities import parse_seconds  # noqa: PLC0415 - as above

    text = os.environ.get(DOWNLOAD_TIME)
    if not text:
        return None
    try:
        return parse_seconds(text)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"invalid {DOWNLOAD_TIME} {text[:100]!r}", where=DOWNLOAD_TIME, next_step=f"write {DOWNLOAD_TIME}=30m"
        ) from error


def now() -> datetime:
    return datetime.now(UTC)


def open_registry(
    location: str, say: Callable[[str], None], progress: Progress = SILENT, *, create: bool = True
) -> LocalRegistry:
    """Open the registry in the folder ``location``. An existing schema is never changed.

    Runs that were abandoned by a process that is no more are recorded as such first, and said; what they left is
    removed.

    Args:
        location: The folder.
        say: Prints a message: that the registry was created, and each run that was abandoned.
        progress: Shows how far transfers are.
        create: Create the registry if the folder has none.

    Raises:
        RegistryNotFoundError: The folder has no registry, and ``create`` is false.
        InvalidInputError: ``location`` is the URL of a server; or BENCHLOCK_STORE or BENCHLOCK_DATABASE is not what
            the registry has.
        RefusedError: A service serves the same database from another folder.
        SchemaRevisionError: The database's schema has another revision than this build needs.
        UnavailableError: the folder or the database cannot be used.
    """
    from benchlock.api.local.registry_database import is_new, is_on_server, open_database, require_registry  # noqa: PLC0415 - a registry on a server needs no SQL here
    from benchlock.api.local.running_services import require_same_folder  # noqa: PLC0415
    from benchlock.evaluator.evidence.examination import (  # noqa: PLC0415
        ExaminedRecords,
        Examiner,
    )
    from benchlock.registry.catalogue.catalogue import Catalogue  # noqa: PLC0415
    from benchlock.registry.database.blob_protection import DatabaseStoreLock  # noqa: PLC0415

    def text_of(digest: "Digest") -> str | None:
        return catalogue.text_of(digest)

    if not create:
        require_registry(folder_of(location))
    home = home_of(location)
    lock = DatabaseStoreLock(lambda: database) if is_on_server(home) else None
    store = open_store(home, progress, text_of, is_new=is_new(home), beside=lock)
    database, is_created = open_database(home, now, create=create)
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
    if registry.records.unfinished() or has_run_folders(home):
        from benchlock.evaluator.runner.orphans import sweep  # noqa: PLC0415 - rarely needed

        for run in sweep(registry.records, connect_engine(), home, now):
            say(f"{run} was abandoned: the process that ran it is no more; recorded as such")
    return registry


@contextmanager
def open_empty_registry() -> "Iterator[tuple[Catalogue, LocalStore]]":
    """Open an empty catalogue and store in a temporary folder, for a rehearsal where there is no registry yet."""
    from benchlock.api.local.registry_database import DATABASE_FILE  # noqa: PLC0415 - as above
    from benchlock.artifacts.stores.local_store import LocalStore  # noqa: PLC0415
    from benchlock.migrations import prepare  # noqa: PLC0415
    from benchlock.registry.catalogue.catalogue import Catalogue  # noqa: PLC0415
    from benchlock.registry.database.engine import open_engine  # noqa: PLC0415

    with tempfile.TemporaryDirectory(prefix="benchlock-") as folder:
        database = open_engine(Path(folder) / DATABASE_FILE)
        try:
            prepare(database)
            yield Catalogue(database, now), LocalStore(Path(folder) / "blobs")
        finally:
            database.dispose()


def home_of(location: str) -> Path:
    """The folder of a registry, made where there is none yet.

    Raises:
        InvalidInputError: ``location`` is the URL of a server.
        UnavailableError: the folder cannot be made.
    """
    home = folder_of(location)
    try:
        home.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnavailableError(
            f"the registry's folder cannot be made: {error.strerror}",
            where=str(home),
            next_step="name another folder with --registry or BENCHLOCK_REGISTRY",
        ) from error
    return home


def folder_of(location: str) -> Path:
    """Return the absolute path of a registry's folder, which need not exist.

    Raises:
        InvalidInputError: ``location`` is the URL of a server.
    """
    if "://" in location:
        raise InvalidInputError(
            f"{location} is a server, and this is for the registry in a folder of this machine",
            where=location,
            next_step="do it on the server, in the folder that it serves: --registry DIR",
        )
    return Path(location).absolute()


def open_uploads(registry: LocalRegistry) -> "Uploads":
    """Open the uploads to the registry's store; what holds their blobs is shared by all processes of the registry.

    BENCHLOCK_UNNAMED_BYTES bounds what one caller may have there that nothing names; by default half of the disk.

    Raises:
        InvalidInputError: BENCHLOCK_UNNAMED_BYTES or BENCHLOCK_DISK_RESERVE is no amount of bytes.
    """
    from benchlock.api.local.registry_store import uploads_folder  # noqa: PLC0415 - most commands take in none
    from benchlock.artifacts.uploads.resumable_uploads import UploadLimits, Uploads  # noqa: PLC0415
    from benchlock.registry.database.blob_protection import DatabaseHolds  # noqa: PLC0415
    from benchlock.registry.publishing.garbage_collection import find_named  # noqa: PLC0415

    def named(digests: "Collection[Digest]") -> "Collection[Digest]":
        return find_named(digests, registry.store, registry.catalogue, registry.records.live_digests)

    reserve = open_reserve(registry)
    unnamed = _byte_setting(UNNAMED_BYTES)
    bounds = UploadLimits(unnamed=reserve.measure().size // 2 if unnamed is None else unnamed)
    holds = None if registry.database.dialect.name == "sqlite" else DatabaseHolds(registry.database)
    folder = uploads_folder(registry.home)
    return Uploads(folder, registry.store, bounds, holds=holds, reserve=reserve, find_named=named)


def open_reserve(registry: LocalRegistry) -> "DiskReserve":
    """Return the reserve of the disk that has the registry's blobs; BENCHLOCK_DISK_RESERVE sets its bytes.

    Raises:
        InvalidInputError: BENCHLOCK_DISK_RESERVE is no amount of bytes.
    """
    from benchlock.api.local.registry_store import uploads_folder  # noqa: PLC0415 - as above
    from benchlock.artifacts.uploads.disk_quotas import DiskReserve  # noqa: PLC0415

    return DiskReserve(uploads_folder(registry.home), _byte_setting(DISK_RESERVE))


def _byte_setting(variable: str) -> int | None:
    """Return the bytes that a variable of the environment names; None where it is not set."""
    from benchlock.registry.text.quantities import parse_bytes  # noqa: PLC0415 - as above

    text = os.environ.get(variable)
    if not text:
        return None
    try:
        return int(text) if text.isascii() and text.isdecimal() else parse_bytes(text)
    except InvalidInputError as error:
        raise InvalidInputError(
            f"invalid {variable} {text[:100]!r}", where=variable, next_step=f"write bytes: {variable}=8GiB"
        ) from error


def open_tokens(registry: LocalRegistry) -> "Tokens":
    """The tokens of the registry."""
    from benchlock.registry.auth.tokens import Tokens  # noqa: PLC0415 - most commands ask for none

    return Tokens(registry.database, now)


def open_log(registry: LocalRegistry) -> "AuditLog":
    """Who did what in the registry."""
    from benchlock.registry.auth.audit_log import AuditLog  # noqa: PLC0415 - see above

    return AuditLog(registry.database)


def describe_store(registry: LocalRegistry) -> str:
    """Where the blobs are, and whether that answers."""
    from benchlock.artifacts.stores.cached_store import CachedRepository  # noqa: PLC0415 - a registry in a folder needs none of it

    if not isinstance(registry.store, CachedRepository):
        return (
            f"the registry's folder (a new registry can have an OCI repository: {STORE_VARIABLE}=oci://HOST/REPOSITORY)"
        )
    remote = registry.store.remote
    try:
        remote.claim()
    except BenchlockError as error:
        return f"{remote.repository}: {error.what}"
    return f"{remote.repository}, and in the registry's folder what was read or written here"


def has_run_folders(home: Path) -> bool:
    """Whether a folder of a run is there: of a living one, or of one that outlived its record.

    It does where the container could not be removed yet, and where a kill came before the record or after its end.
    """
    runs = home / "runs"
    return runs.is_dir() and any(runs.iterdir())


def connect_engine() -> "Engine | None":
    """The Docker engine that DOCKER_HOST names, else the system's own; none where none answers."""
    from benchlock.evaluator.runner.engine import Engine  # noqa: PLC0415 - most commands run nothing

    return Engine.connect(os.environ.get("DOCKER_HOST"))


def build_runner(
    registry: "AnyRegistry", progress: Progress, say: Callable[[str], None], clock: "WallClock | None" = None
) -> "Runner":
    """What runs locks on this machine, in containers if an engine answers; ``clock`` counts where its time goes."""
    from benchlock.evaluator.runner.wall_clock import WallClock  # noqa: PLC0415
    from benchlock.evaluator.workflows.run import Runner  # noqa: PLC0415 - statistics and images are not what most commands need

    return Runner(
        registry.home,
        registry.store,
        registry.records,
        connect_engine(),
        registry.now,
        progress,
        say,
        registry.catalogue.put_lock,
        clock=clock or WallClock(),
    )
