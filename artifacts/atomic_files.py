"""Files on disk: locks (flock), safe opening, atomic creation, and removal of unfinished files."""

import errno
import fcntl
import math
import os
import secrets
import stat
import time
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from io import FileIO
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO, Final, Protocol, cast

from benchlock.artifacts.digest import read_chunks
from benchlock.artifacts.errors import InvalidInputError, UnavailableError

LOCK_TIMEOUT: Final = ContextVar[float | None]("LOCK_TIMEOUT", default=None)
"""Seconds that this context waits for a lock; ``None`` waits without a limit."""


class StoreLock(Protocol):
    """A lock beside the file lock of a store, for processes that do not share a kernel."""

    def held(self, *, alone: bool) -> AbstractContextManager[None]:
        """Hold the lock, shared with other writers or exclusively (``alone``)."""
        ...

    def check(self) -> None:
        """Raise unless the garbage collection still holds the lock exclusively."""
        ...


_MODE = 0o644
_PAUSE: Final = 0.02


def lock_file(path: Path, *, alone: bool) -> int:
    """Open and lock a file; wait while others hold a conflicting lock.

    Returns:
        A descriptor that holds the lock until it is closed.

    Raises:
        OSError: The file cannot be opened or locked.
        TimeoutError: The lock is not free after ``LOCK_TIMEOUT`` seconds.
    """
    operation, timeout = fcntl.LOCK_EX if alone else fcntl.LOCK_SH, LOCK_TIMEOUT.get()
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
    try:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != _MODE:  # new, under a narrow umask
            os.fchmod(descriptor, _MODE)
        while True:
            try:
                fcntl.flock(descriptor, operation if timeout is None else operation | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise TimeoutError(errno.ETIMEDOUT, f"locked by another process for {timeout:g} seconds") from None
                time.sleep(_PAUSE)
            else:
                return descriptor
    except BaseException:
        os.close(descriptor)
        raise


@contextmanager
def lock_if_free(descriptor: int) -> Iterator[bool]:
    """Lock an open file unless another process holds its lock; yield whether it is locked, and close it at the end."""
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file, or the regular file that a link leads to, for reading.

    Raises:
        InvalidInputError: The path is missing, or is a folder, a pipe or a device.
        UnavailableError: The file cannot be opened.
    """
    try:
        # Without O_NONBLOCK, opening a pipe waits for a writer.
        stream = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise InvalidInputError(f"{path} not found", where=str(path), next_step="choose an existing file") from error
    except OSError as error:
        raise make_unreadable_error(path, error) from error
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise InvalidInputError(f"{path} is not a regular file", where=str(path), next_step="choose a regular file")
    return stream


@contextmanager
def convert_disk_errors(what: str, path: Path) -> Iterator[None]:
    """Convert errors of the operating system into ``UnavailableError``; ``what`` is wrong then, at ``path``."""
    try:
        yield
    except OSError as error:
        raise UnavailableError(
            f"{what}: {error.strerror or error}", where=str(path), next_step="check the disk and the folder"
        ) from error


def make_unreadable_error(path: Path, error: OSError) -> UnavailableError:
    """Make the error of a file or folder that exists but cannot be read."""
    return UnavailableError(
        f"{path} cannot be read: {error.strerror or error}",
        where=str(path),
        next_step="check its permissions and the disk",
    )


BLOB_MODE = 0o444
_DRAFT_MODE = 0o600
_STRETCH = 8 << 20  # bytes between two calls of ``send``
_NAME_BYTES = 16


class UnfinishedFile:
    """A file that is still being written: a new one, or a resumed one.

    Written bytes are sent to the disk early, so that ``rename`` has little left to wait for.
    """

    def __init__(self, path: Path, file: FileIO | None = None) -> None:
        """Create the file ``path``, or go on with ``file``, which is open at that path."""
        self._path = path
        self.file = file or FileIO(path, "x+", opener=lambda name, flags: os.open(name, flags, _DRAFT_MODE))
        self._size = self._sent = os.fstat(self.file.fileno()).st_size
        self._named = False

    def write(self, chunk: bytes) -> None:
        """Append all bytes of ``chunk``."""
        view = memoryview(chunk)
        while view:
            view = view[self.file.write(view) :]
        self._size += len(chunk)
        if self._size - self._sent >= _STRETCH:
            self.send()

    @property
    def size(self) -> int:
        """The number of bytes written."""
        return self._size

    def empty(self) -> None:
        """Truncate the file to zero bytes."""
        self.file.truncate(0)
        self.file.seek(0)
        self._size = self._sent = 0

    def send(self) -> None:
        """Start to write dirty pages to the disk, without a promise (Linux does so on ``DONTNEED``)."""
        os.posix_fadvise(self.file.fileno(), self._sent, self._size - self._sent, os.POSIX_FADV_DONTNEED)
        self._sent = self._size

    def rename(self, place: Path) -> None:
        """Make the file read-only and its bytes durable, and rename it to ``place``; ``close`` then keeps it.

        The new name is not durable yet.
        """
        os.fchmod(self.file.fileno(), BLOB_MODE)
        os.fsync(self.file.fileno())
        self._path.replace(place)
        self._named = True

    def is_at(self, place: Path) -> bool:
        """Return whether ``place`` is a read-only regular file with the same bytes."""
        try:
            descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as blob:
                status = os.fstat(descriptor)
                if not stat.S_ISREG(status.st_mode) or stat.S_IMODE(status.st_mode) != BLOB_MODE:
                    return False
                self.file.seek(0)
                pairs = zip_longest(read_chunks(blob), read_chunks(cast("BinaryIO", self.file)))
                return status.st_size == self._size and all(stored == written for stored, written in pairs)
        except OSError:  # absent or unreadable: the caller replaces it
            return False

    def close(self) -> None:
        """Close the file, and remove it unless it was renamed. A failed removal is left to ``remove_dead_files``."""
        with suppress(OSError):
            self.file.close()
        if not self._named:
            with suppress(OSError):
                self._path.unlink()


@contextmanager
def create_file(path: Path, *, durably: bool = False) -> Iterator[BinaryIO]:
    """Create a file that gets the name ``path`` if the context ends without an error, and is removed otherwise.

    Concurrent writers of one path each have a temporary file in its folder; the last one to finish wins. A link at
    ``path`` is replaced, never followed. With ``durably``, bytes and name have reached the disk when the context ends.

    Raises:
        OSError: The file cannot be written or renamed.
    """
    draft = path.parent / f".benchlock-{secrets.token_hex(_NAME_BYTES)}.part"
    try:
        with draft.open("xb") as file:
            yield file
            if durably:
                file.flush()
                os.fsync(file.fileno())
        draft.replace(path)
        if durably:
            sync_folder(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable, if its file system supports that."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # EINVAL: folders cannot be synced here
            raise
    finally:
        os.close(descriptor)


def is_at(draft: FileIO, path: Path) -> bool:
    """Return whether an open file is still the one named ``path``."""
    try:
        return os.path.samestat(os.fstat(draft.fileno()), path.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False


PARTIAL: Final = ".part"
"""The suffix of the file of an interrupted fetch, which the next fetch resumes."""


@dataclass(frozen=True, slots=True)
class RemovedFiles:
    """The number and total bytes of the unfinished files that were removed, or that a dry run would remove."""

    files: int
    bytes: int

    def __add__(self, other: "RemovedFiles") -> "RemovedFiles":
        """Add the counts and the bytes."""
        return RemovedFiles(self.files + other.files, self.bytes + other.bytes)


def create_unfinished_file(folder: Path) -> UnfinishedFile:
    """Create a file in ``folder`` that is locked as long as it is open.

    Raises:
        OSError: The file cannot be created.
    """
    while True:
        draft = UnfinishedFile(path := folder / secrets.token_hex(16))
        try:
            with suppress(BlockingIOError):  # another process removes it as a leftover
                fcntl.flock(draft.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if is_at(draft.file, path):
                    return draft
        except BaseException:
            draft.close()
            raise
        draft.close()


def remove_dead_files(folder: Path) -> RemovedFiles:
    """Remove the unfinished files in ``folder`` whose writers are gone, while others may write.

    Files of interrupted fetches stay, since they are resumed.
    """
    with suppress(FileNotFoundError):
        names = [name for name in os.listdir(folder) if not name.endswith(PARTIAL)]  # noqa: PTH208 - names alone
        return sum((_remove_dead(folder / name) for name in names), RemovedFiles(0, 0))
    return RemovedFiles(0, 0)


def remove_all(folder: Path, names: Iterable[str], *, dry_run: bool) -> RemovedFiles:
    """Remove files while no process writes.

    Args:
        folder: The folder of the files.
        names: The names of the files.
        dry_run: Only count the files.

    Raises:
        OSError: A file cannot be read or removed.
    """
    removed = RemovedFiles(0, 0)
    for path in (folder / name for name in names):
        removed += RemovedFiles(1, path.stat(follow_symlinks=False).st_size)
        if not dry_run:
            path.unlink()
    return removed


def _remove_dead(path: Path) -> RemovedFiles:
    """Remove an unfinished file unless it is in use; the next collection retries failed removals."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            size = os.fstat(descriptor).st_size
            path.unlink()
            return RemovedFiles(1, size)
        finally:
            os.close(descriptor)
    return RemovedFiles(0, 0)
