"""Resumable uploads to a store: each is a file that survives a restart and has one writer at a time.

The file ``FOLDER/open/<id>-<owner>`` is an upload, and its size on disk is the offset to resume at. The id begins with
its start time in seconds; the rest is random and cannot be guessed. The file is locked (flock) by its writer. If the
store is a folder on the same file system, the file itself becomes the blob. Blobs that were uploaded, or that a client
asked for before an upload, are held (``FOLDER/held``): garbage collection spares them for a while.
"""

import fcntl
import os
import re
import secrets
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from io import FileIO
from pathlib import Path
from threading import Lock
from typing import Final, Protocol, runtime_checkable

from benchlock.artifacts.atomic_files import RemovedFiles, UnfinishedFile, is_at
from benchlock.artifacts.blob_store import BlobStore, check_digest
from benchlock.artifacts.digest import Descriptor, Digest, parse_digest
from benchlock.artifacts.errors import (
    IntegrityError,
    InvalidInputError,
    RefusedError,
    UnavailableError,
    UnknownNameError,
)
from benchlock.artifacts.uploads.disk_quotas import NO_RESERVE, DiskReserve, FindReferenced, UnreferencedQuota
from benchlock.artifacts.uploads.gc_holds import BLOCK_BYTES, FolderHolds, Holds, make_owner_tag
from benchlock.artifacts.uploads.upload_file import DigestState, UploadFile, convert_upload_errors, list_file_stats

HOLDS_FOLDER: Final = "held"
_ID: Final = re.compile(r"[0-9a-f]{32}")
_SECOND_DIGITS, _RANDOM_BYTES = 10, 11
_MODE, _FOLDER_MODE = 0o600, 0o700


class UploadNotFoundError(UnknownNameError):
    """There is no upload with that id: it is finished, was deleted, or belongs to another owner."""

    code = "upload-not-found"


class UploadBusyError(RefusedError):
    """Another client is sending to the upload."""

    code = "upload-busy"


class UploadOffsetError(InvalidInputError):
    """The bytes sent do not begin at the end of the upload, which is ``offset``."""

    code = "range-not-satisfiable"

    def __init__(self, what: str, offset: int) -> None:
        """Set the message and the offset to resume at."""
        super().__init__(what, next_step=f"continue at {offset}")
        self.offset = offset


class TooManyUploadsError(UnavailableError):
    """There are too many open uploads."""

    code = "too-many-uploads"


def _beyond_block(upload_file: UploadFile, size: int) -> int:
    """Return the charge for ``size`` more bytes of an upload: its first block was charged at its start."""
    return max(0, upload_file.size + size - max(upload_file.size, BLOCK_BYTES))


def _find_none(_: Collection[Digest]) -> Collection[Digest]:
    return ()


@runtime_checkable
class AdoptingStore(Protocol):
    """A store that can turn a file into a blob without copying it."""

    def adopt(self, draft: UnfinishedFile, blob: Descriptor) -> None:
        """Turn an unfinished file, whose digest is known, into a blob; avoid a copy on the same file system."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadLimits:
    """The limits of uploads.

    Attributes:
        uploads: Open uploads of all owners.
        of_one: Open uploads of one owner.
        blob: Bytes of one upload.
        together: Bytes of all open uploads.
        unnamed: Bytes of one owner in unfinished uploads and in blobs without a reference.
        idle: Seconds from the last byte until an upload is removed.
        age: Seconds from the start until an upload is removed.
    """

    uploads: int = 1024
    of_one: int = 128
    blob: int = 256 << 30
    together: int = 1 << 40
    unnamed: int = 1 << 40
    idle: float = 24 * 3600
    age: float = 7 * 24 * 3600


class Uploads:
    """The uploads to ``store``, by several processes at once; the store shows only finished ones."""

    def __init__(
        self,
        folder: Path,
        store: BlobStore,
        bounds: UploadLimits | None = None,
        clock: Callable[[], float] = time.time,
        holds: Holds | None = None,
        reserve: DiskReserve = NO_RESERVE,
        find_referenced: FindReferenced = _find_none,
    ) -> None:
        """Open the uploads to ``store`` in ``folder``.

        Args:
            folder: The folder of unfinished uploads.
            store: The store that finished uploads become blobs of.
            bounds: The limits.
            clock: Returns seconds since the epoch.
            holds: The holds of uploaded blobs; by default files in ``folder``.
            reserve: Free disk space that uploads may not use.
            find_referenced: Returns those of some digests that a version, a lock or a run refers to.
        """
        self._open = folder / "open"
        self._holds = holds or FolderHolds(folder / HOLDS_FOLDER, clock=clock)
        self._store = store
        self._bounds = bounds or UploadLimits()
        self._clock = clock
        self._reserve = reserve
        self._quota = UnreferencedQuota(self._bounds.unnamed, self._holds, self._open_bytes, find_referenced)
        self._lock = Lock()
        self._digest_states: dict[Path, DigestState] = {}

    @property
    def bounds(self) -> UploadLimits:
        """The limits."""
        return self._bounds

    def begin(self, owner: str, share: float = 1.0) -> str:
        """Start an upload of ``owner``, which no other owner can use, and return its id.

        Raises:
            TooManyUploadsError: There are too many open uploads.
            LowSpaceError: Less space is free than this ``share`` of the reserve, which the owner may not use.
            UnreferencedBytesError: The owner has reached the quota of unreferenced bytes.
        """
        self._reserve.require(0, share)
        self._quota.charge(owner, BLOCK_BYTES)
        self.sweep()
        with self._lock, convert_upload_errors(self._open):
            self._open.mkdir(_FOLDER_MODE, parents=True, exist_ok=True)
            names = os.listdir(self._open)  # noqa: PTH208 - names only
            own_count = sum(name.endswith(_tag(owner)) for name in names)
            if len(names) >= self._bounds.uploads or own_count >= self._bounds.of_one:
                raise TooManyUploadsError(
                    f"{own_count if own_count >= self._bounds.of_one else len(names)} uploads are open",
                    next_step="finish or delete some, or wait until abandoned ones expire",
                )
            upload = f"{int(self._clock()):0{_SECOND_DIGITS}x}{secrets.token_hex(_RANDOM_BYTES)}"
            os.close(os.open(self._path(owner, upload), os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, _MODE))
        return upload

    def offset(self, owner: str, upload: str) -> int:
        """Return the number of bytes received; raise ``UploadNotFoundError`` if there is no such upload."""
        path = self._path(owner, upload)
        with convert_upload_errors(self._open), _convert_missing(upload):
            return path.stat().st_size

    def open(self, owner: str, upload: str, at: int | None = None, size: int = 0, share: float = 1.0) -> UploadFile:
        """Open an upload at its end, locked for this caller, who closes it.

        Args:
            owner: The owner of the upload, who is charged for the bytes.
            upload: The id of the upload.
            at: The offset of the first byte that follows; ``None`` skips the check.
            size: The announced number of bytes.
            share: The part of the disk reserve that this upload may not use.

        Raises:
            LowSpaceError: The disk has no room for ``size`` bytes in addition to its reserve.
            UnreferencedBytesError: The owner would exceed the quota of unreferenced bytes.
            UploadNotFoundError: There is no such upload.
            UploadBusyError: Another client is sending to the upload.
            UploadOffsetError: The upload does not end at ``at``.
        """
        path = self._path(owner, upload)
        with convert_upload_errors(self._open), _convert_missing(upload):
            file = _open_locked(path, upload)
        try:
            upload_file = UploadFile(path, file, self._digest_states.pop(path, None), owner=owner)
        except BaseException:
            file.close()
            raise
        try:
            upload_file.largest = min(self._bounds.blob, upload_file.size + self._room())
            _check_offset(upload_file, at)
            if size and upload_file.size + size <= upload_file.largest:  # otherwise it is too large for any owner
                self._reserve.require(size, share)
                self._quota.require(owner, _beyond_block(upload_file, size))
            upload_file.admit = partial(self._admit, upload_file, share)
        except BaseException:
            self.close(upload_file)
            raise
        return upload_file

    def close(self, upload_file: UploadFile) -> None:
        """Close and unlock an upload."""
        if upload_file.is_kept:
            self._digest_states[upload_file.path] = upload_file.digest_state
        upload_file.close()

    def finish(self, upload_file: UploadFile, expected: Digest) -> Descriptor:
        """Turn an upload into the blob ``expected``, and remove the upload, also if its digest differs.

        Raises:
            IntegrityError: The digest differs; no blob became visible. The message has both digests.
            UnavailableError: The store failed; the upload stays.
        """
        blob = upload_file.describe()
        try:
            check_digest("the upload", expected, blob)
        except IntegrityError:
            upload_file.remove()
            raise
        with self._store.writing():
            self._holds.hold(blob.digest, upload_file.owner, blob.size)
            if isinstance(self._store, AdoptingStore):
                self._store.adopt(upload_file.draft, blob)
            else:
                self._store.put_file(upload_file.path, blob.digest)
        upload_file.remove()
        return blob

    def delete(self, owner: str, upload: str) -> None:
        """Delete an unfinished upload, if it exists; raise ``UploadBusyError`` if a client is sending to it."""
        with suppress(UploadNotFoundError):
            upload_file = self.open(owner, upload)
            try:
                upload_file.remove()
            finally:
                self.close(upload_file)

    def has(self, digest: Digest, owner: str = "") -> bool:
        """Return whether the store has the blob; if so, hold it so that ``owner`` can publish a reference.

        Raises:
            UnreferencedBytesError: The owner exceeds the quota of unreferenced bytes.
        """
        with self._store.writing():
            if not self._store.exists(parse_digest(digest)):
                return False
            self._quota.require(owner, 0)
            self._holds.hold(digest, owner, self._store.stat(digest).size)
        return True

    def charge(self, owner: str, blobs: Mapping[Digest, int]) -> None:
        """Hold and charge blobs that ``owner`` is about to store, until records refer to them.

        Stored blobs are skipped. Blobs that ``owner`` holds after a failed attempt are charged already.

        Args:
            owner: The owner of the blobs.
            blobs: Digests and sizes in bytes.

        Raises:
            UnreferencedBytesError: The owner would exceed the quota of unreferenced bytes.
        """
        new = {digest: size for digest, size in blobs.items() if not self._store.exists(digest)}
        held_digests = frozenset(self._holds.owned(owner))
        self._quota.charge(
            owner, sum(max(size, BLOCK_BYTES) for digest, size in new.items() if digest not in held_digests)
        )
        for digest, size in new.items():
            self._holds.hold(digest, owner, size)

    def held(self) -> Iterator[Digest]:
        """Return the digests of held blobs; only while garbage is collected."""
        return self._holds.held()

    def forget_expired(self) -> None:
        """Remove expired holds, after a collection has deleted their blobs."""
        self._holds.forget_expired()

    def sweep(self, *, dry_run: bool = False) -> RemovedFiles:
        """Remove uploads that are idle for too long or too old; return their number and bytes."""
        now, removed = self._clock(), RemovedFiles(0, 0)
        for name, status in list_file_stats(self._open):
            path = self._open / name
            if now - status.st_mtime > self._bounds.idle or now - _start_time(name) > self._bounds.age:
                with suppress(OSError, RefusedError), _open_locked(path, name):
                    if not dry_run:
                        path.unlink()
                    removed += RemovedFiles(1, status.st_size)
        for path in tuple(self._digest_states):
            if not path.exists():
                self._digest_states.pop(path, None)
        return removed

    def _admit(self, upload_file: UploadFile, share: float, size: int) -> None:
        self._reserve.require(size, share)
        self._quota.charge(upload_file.owner, _beyond_block(upload_file, size))

    def _open_bytes(self, owner: str) -> int:
        """Return the bytes of an owner's unfinished uploads, by blocks at least."""
        return sum(
            max(status.st_size, BLOCK_BYTES)
            for name, status in list_file_stats(self._open)
            if name.endswith(_tag(owner))
        )

    def _room(self) -> int:
        """Return the bytes that all uploads together may still have."""
        return max(0, self._bounds.together - sum(status.st_size for _, status in list_file_stats(self._open)))

    def _path(self, owner: str, upload: str) -> Path:
        if not _ID.fullmatch(upload):
            raise _make_unknown_error("that id")
        return self._open / f"{upload}{_tag(owner)}"


def _tag(owner: str) -> str:
    return f"-{make_owner_tag(owner)}"


def _start_time(name: str) -> float:
    """Return the start time of an upload; 0 for other files, so that they are removed."""
    try:
        return int(name[:_SECOND_DIGITS], 16)
    except ValueError:
        return 0


def _check_offset(upload_file: UploadFile, at: int | None) -> None:
    if at is not None and at != upload_file.size:
        raise UploadOffsetError(
            f"the upload has {upload_file.size} bytes, but the chunk begins at {at}", upload_file.size
        )


def _open_locked(path: Path, upload: str) -> FileIO:
    """Open and lock the file of an upload; raise ``FileNotFoundError`` if it is finished by then."""
    try:
        file = FileIO(path, "r+", opener=_no_link)
    except PermissionError:  # the process that finished it was killed before the store had the blob
        path.chmod(_MODE, follow_symlinks=False)
        file = FileIO(path, "r+", opener=_no_link)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not is_at(file, path):
            raise FileNotFoundError(path)  # noqa: TRY301 - the handler below closes the file
    except BlockingIOError as error:
        file.close()
        raise UploadBusyError(
            f"another request is already sending to the upload {upload}",
            next_step="wait until it ends, then query the state of the upload",
        ) from error
    except BaseException:
        file.close()
        raise
    return file


def _no_link(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_CLOEXEC | os.O_NOFOLLOW)


@contextmanager
def _convert_missing(upload: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise _make_unknown_error(upload) from error


def _make_unknown_error(upload: str) -> UploadNotFoundError:
    return UploadNotFoundError(
        f"unknown upload {upload}",
        next_step="begin a new upload: it is finished, expired, or belongs to another caller",
    )
