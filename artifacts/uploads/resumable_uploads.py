"""Resumable uploads to a store: each is a file that survives a restart and has one writer at a time.

``FOLDER/open/<id>-<owner>`` is an upload: what is on the disk is how far it came, whatever was killed. Its id begins
with the second of its beginning, and nobody else can guess the rest. It is locked (flock) while it is written. Where
the store is a folder on the same file system, the file itself becomes the blob. What came, or was asked for by somebody
who would have sent it, is held (``FOLDER/held``): it is no garbage for a while, though nothing names it yet.
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
from benchlock.artifacts.uploads.blob_holds import BLOCK_BYTES, FolderHolds, Holds, make_owner_tag
from benchlock.artifacts.uploads.disk_quotas import NO_RESERVE, DiskReserve, FindReferenced, UnreferencedQuota
from benchlock.artifacts.uploads.upload_file import DigestState, UploadFile, convert_disk_errors, list_file_stats

HOLDS_FOLDER: Final = "held"
_ID: Final = re.compile(r"[0-9a-f]{32}")
_SECOND_DIGITS, _RANDOM_BYTES = 10, 11
_MODE, _FOLDER_MODE = 0o600, 0o700


class UploadNotFoundError(UnknownNameError):
    """Nothing is being uploaded under that id: it is finished, was given up, or is somebody else's."""

    code = "upload-not-found"


class UploadBusyError(RefusedError):
    """Somebody is sending to the upload already."""

    code = "upload-busy"


class UploadOffsetError(InvalidInputError):
    """What was sent does not begin where the upload ends, which is at ``offset``."""

    code = "range-not-satisfiable"

    def __init__(self, what: str, offset: int) -> None:
        super().__init__(what, next_step=f"go on at {offset}")
        self.offset = offset


class TooManyUploadsError(UnavailableError):
    """No more can be taken in before others are finished."""

    code = "too-many-uploads"


def _beyond_block(piece: UploadFile, size: int) -> int:
    """Return what ``size`` more bytes of an upload count: its first block was charged when it began."""
    return max(0, piece.size + size - max(piece.size, BLOCK_BYTES))


def _find_none(_: Collection[Digest]) -> Collection[Digest]:
    return ()


@runtime_checkable
class AdoptingStore(Protocol):
    """A store that can make a file its own."""

    def adopt(self, draft: UnfinishedFile, found: Descriptor) -> None:
        """Make a draft a blob, without a copy; it is digested already, and may be on the store's file system."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadLimits:
    """What is taken in at most: uploads at once, of all and of one owner; bytes of one, and of all; and for how long.

    An upload goes ``idle`` seconds after its last byte, and ``age`` after its beginning. ``unnamed`` bytes may be one
    owner's in unfinished uploads and in blobs that nothing names.
    """

    uploads: int = 1024
    of_one: int = 128
    blob: int = 256 << 30
    together: int = 1 << 40
    unnamed: int = 1 << 40
    idle: float = 24 * 3600
    age: float = 7 * 24 * 3600


class Uploads:
    """What is being uploaded to ``store``, by several processes at once too. Nothing of it is visible there."""

    def __init__(
        self,
        folder: Path,
        store: BlobStore,
        bounds: UploadLimits | None = None,
        clock: Callable[[], float] = time.time,
        holds: Holds | None = None,
        reserve: DiskReserve = NO_RESERVE,
        find_named: FindReferenced = _find_none,
    ) -> None:
        """Make the uploads to ``store`` whose files lie in ``folder``.

        Args:
            folder: Where unfinished uploads lie.
            store: What they become blobs of.
            bounds: What is taken in at most.
            clock: Seconds of the epoch.
            holds: What holds the blobs that came; in the folder by default.
            reserve: Free space of the disk that uploads leave alone.
            find_named: Return those of some digests that a version, a lock or a run names.
        """
        self._open = folder / "open"
        self._holds = holds or FolderHolds(folder / HOLDS_FOLDER, clock=clock)
        self._store = store
        self._bounds = bounds or UploadLimits()
        self._clock = clock
        self._reserve = reserve
        self._quota = UnreferencedQuota(self._bounds.unnamed, self._holds, self._open_bytes, find_named)
        self._turn = Lock()
        self._digested: dict[Path, DigestState] = {}

    @property
    def bounds(self) -> UploadLimits:
        return self._bounds

    def begin(self, owner: str, share: float = 1.0) -> str:
        """A new upload of ``owner``'s, whom nobody else's id helps; its id.

        Raises:
            TooManyUploadsError: as many as there may be are open.
            LowSpaceError: less space is free than the ``share`` of the reserve that is not the owner's.
            UnnamedBytesError: The owner has as many unnamed bytes as one owner may.
        """
        self._reserve.require(0, share)
        self._quota.charge(owner, BLOCK_BYTES)
        self.sweep()
        with self._turn, convert_disk_errors(self._open):
            self._open.mkdir(_FOLDER_MODE, parents=True, exist_ok=True)
            names = os.listdir(self._open)  # noqa: PTH208 - names alone
            own = sum(name.endswith(_tag(owner)) for name in names)
            if len(names) >= self._bounds.uploads or own >= self._bounds.of_one:
                raise TooManyUploadsError(
                    f"{own if own >= self._bounds.of_one else len(names)} uploads are open",
                    next_step="finish or delete some, or wait until those that nobody goes on with are given up",
                )
            upload = f"{int(self._clock()):0{_SECOND_DIGITS}x}{secrets.token_hex(_RANDOM_BYTES)}"
            os.close(os.open(self._path(owner, upload), os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, _MODE))
        return upload

    def offset(self, owner: str, upload: str) -> int:
        """How many bytes of it are there. ``UploadNotFoundError`` if it is not."""
        path = self._path(owner, upload)
        with convert_disk_errors(self._open), _known(upload):
            return path.stat().st_size

    def opened(self, owner: str, upload: str, at: int | None = None, size: int = 0, share: float = 1.0) -> UploadFile:
        """The upload, to be gone on with at its end by this caller alone, who closes it.

        Args:
            owner: Who began it. What is written counts as theirs.
            upload: Its id.
            at: Where what comes begins.
            size: Bytes that are announced.
            share: The part of the disk's reserve that is left alone.

        Raises:
            LowSpaceError: The disk has no room for ``size`` bytes beside its reserve.
            UnnamedBytesError: The owner would have more unnamed bytes than one owner may.
            UploadNotFoundError: there is none.
            UploadBusyError: somebody else goes on with it.
            OutOfPlaceError: it does not end at ``at``.
        """
        path = self._path(owner, upload)
        with convert_disk_errors(self._open), _known(upload):
            file = _locked(path, upload)
        try:
            piece = UploadFile(path, file, self._digested.pop(path, None), owner=owner)
        except BaseException:
            file.close()
            raise
        try:
            piece.largest = min(self._bounds.blob, piece.size + self._room())
            _check_place(piece, at)
            if size and piece.size + size <= piece.largest:  # else it is too large, whoever sends it
                self._reserve.require(size, share)
                self._quota.require(owner, _beyond_block(piece, size))
            piece.admit = partial(self._admit, piece, share)
        except BaseException:
            self.close(piece)
            raise
        return piece

    def close(self, piece: UploadFile) -> None:
        """Let others go on with it."""
        if piece.is_kept:
            self._digested[piece.path] = piece.progressed
        piece.close()

    def finish(self, piece: UploadFile, expected: Digest) -> Descriptor:
        """Make what was uploaded the blob that it is said to be. Afterwards there is no such upload, in any case.

        Raises:
            IntegrityError: it is another; nothing became visible. Names both digests.
            UnavailableError: the store failed; what came is kept.
        """
        found = piece.describe()
        try:
            check_digest("the upload", expected, found)
        except IntegrityError:
            piece.remove()
            raise
        with self._store.writing():
            self._holds.hold(found.digest, piece.owner, found.size)
            if isinstance(self._store, AdoptingStore):
                self._store.adopt(piece.draft, found)
            else:
                self._store.put_file(piece.path, found.digest)
        piece.remove()
        return found

    def give_up(self, owner: str, upload: str) -> None:
        """Forget what came; no error if it is finished. ``UploadBusyError`` if somebody sends to it."""
        with suppress(UploadNotFoundError):
            piece = self.opened(owner, upload)
            try:
                piece.remove()
            finally:
                self.close(piece)

    def has(self, digest: Digest, owner: str = "") -> bool:
        """Whether the blob is there, and will stay until ``owner`` has had the time to name it.

        Raises:
            UnnamedBytesError: The owner holds more bytes that nothing names than one owner may.
        """
        with self._store.writing():
            if not self._store.exists(parse_digest(digest)):
                return False
            self._quota.require(owner, 0)
            self._holds.hold(digest, owner, self._store.stat(digest).size)
        return True

    def charge(self, owner: str, blobs: Mapping[Digest, int]) -> None:
        """Hold blobs that ``owner`` is about to store, as theirs until something names them; not those that are there.

        What ``owner`` holds already, since an earlier attempt failed, counts already.

        Args:
            owner: Who stores them.
            blobs: Digests and sizes.

        Raises:
            UnnamedBytesError: The owner would have more unnamed bytes than one owner may.
        """
        new = {digest: size for digest, size in blobs.items() if not self._store.exists(digest)}
        held = frozenset(self._holds.owned(owner))
        self._quota.charge(owner, sum(max(size, BLOCK_BYTES) for digest, size in new.items() if digest not in held))
        for digest, size in new.items():
            self._holds.hold(digest, owner, size)

    def held(self) -> Iterator[Digest]:
        """Blobs that came lately and are no garbage yet; only while garbage is collected."""
        return self._holds.held()

    def forget_expired(self) -> None:
        """Forget holds that have expired, once a collection has deleted what they held."""
        self._holds.forget_expired()

    def sweep(self, *, dry_run: bool = False) -> RemovedFiles:
        """Give up uploads that nobody resumed for long, or that began too long ago; how many, and their bytes."""
        now, swept = self._clock(), RemovedFiles()
        for name, found in list_file_stats(self._open):
            path = self._open / name
            if now - found.st_mtime > self._bounds.idle or now - _begun(name) > self._bounds.age:
                with suppress(OSError, RefusedError), _locked(path, name):
                    if not dry_run:
                        path.unlink()
                    swept += RemovedFiles(1, found.st_size)
        for path in tuple(self._digested):
            if not path.exists():
                self._digested.pop(path, None)
        return swept

    def _admit(self, piece: UploadFile, share: float, size: int) -> None:
        self._reserve.require(size, share)
        self._quota.charge(piece.owner, _beyond_block(piece, size))

    def _open_bytes(self, owner: str) -> int:
        """Return the bytes of an owner's unfinished uploads, a block each at least."""
        return sum(
            max(found.st_size, BLOCK_BYTES) for name, found in list_file_stats(self._open) if name.endswith(_tag(owner))
        )

    def _room(self) -> int:
        """Bytes that uploads may still have, all together."""
        return max(0, self._bounds.together - sum(found.st_size for _, found in list_file_stats(self._open)))

    def _path(self, owner: str, upload: str) -> Path:
        if not _ID.fullmatch(upload):
            raise _unknown("that id")
        return self._open / f"{upload}{_tag(owner)}"


def _tag(owner: str) -> str:
    return f"-{make_owner_tag(owner)}"


def _begun(name: str) -> float:
    """When an upload began; what has no such name was not put here, and goes."""
    try:
        return int(name[:_SECOND_DIGITS], 16)
    except ValueError:
        return 0


def _check_place(piece: UploadFile, at: int | None) -> None:
    if at is not None and at != piece.size:
        raise UploadOffsetError(f"the upload ends at {piece.size}, and what was sent begins at {at}", piece.size)


def _locked(path: Path, upload: str) -> FileIO:
    """The file, locked for this caller alone. ``FileNotFoundError`` if it is finished by then."""
    try:
        file = FileIO(path, "r+", opener=_no_link)
    except PermissionError:  # whoever finished it was killed before the store had it
        path.chmod(_MODE, follow_symlinks=False)
        file = FileIO(path, "r+", opener=_no_link)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not is_at(file, path):
            raise FileNotFoundError(path)  # noqa: TRY301 - the file is closed on its way out
    except BlockingIOError as error:
        file.close()
        raise UploadBusyError(
            f"somebody sends to the upload {upload} already",
            next_step="wait until that has come to its end, and ask how far it came",
        ) from error
    except BaseException:
        file.close()
        raise
    return file


def _no_link(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_CLOEXEC | os.O_NOFOLLOW)


@contextmanager
def _known(upload: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise _unknown(upload) from error


def _unknown(upload: str) -> UploadNotFoundError:
    return UploadNotFoundError(
        f"nothing is being uploaded under {upload}", next_step="begin an upload: it is finished, given up, or another's"
    )
