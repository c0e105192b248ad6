"""Files on disk: locks (flock), safe opening, atomic creation, and removal of unfinished files."""

import errno
import fcntl
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

LOCK_TIMEOUT: Final = ContextVar[float | None]("PATIENCE", default=None)
"""For how many seconds whoever runs this waits for a lock; without end where that is None."""


class StoreLock(Protocol):
    """A lock beside the file lock of a store, for processes that do not share a kernel."""

    def held(self, *, alone: bool) -> AbstractContextManager[None]:
        """Hold the lock, together with other writers or ``alone``."""
        ...

    def check(self) -> None:
        """Require that a collection of garbage still holds the lock alone."""
        ...


_MODE = 0o644
_PAUSE: Final = 0.02


def lock_file(path: Path, *, alone: bool) -> int:
    """A descriptor that holds the lock until it is closed; waits for whoever is in the way. ``OSError`` as it comes."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
    try:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != _MODE:  # new, under a narrow umask
            os.fchmod(descriptor, _MODE)
        _lock(descriptor, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _lock(descriptor: int, how: int) -> None:
    patience = LOCK_TIMEOUT.get()
    if patience is None:
        fcntl.flock(descriptor, how)
        return None
    until = time.monotonic() + patience
    while True:
        try:
            return fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise TimeoutError(errno.ETIMEDOUT, f"something else holds it for {patience:g} seconds") from None
            time.sleep(_PAUSE)


def open_regular(path: Path) -> BinaryIO:
    """The bytes of a regular file, or of one that a link leads to.

    Raises:
        InvalidInputError: there is none (missing, a folder, a pipe, a device).
        UnavailableError: it cannot be opened.
    """
    try:
        # Without O_NONBLOCK, opening a pipe would wait for somebody to write into it.
        stream = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise InvalidInputError(f"{path} is no file", where=str(path), next_step="name a file that exists") from error
    except OSError as error:
        raise make_unreadable_error(path, error) from error
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise InvalidInputError(f"{path} is no regular file", where=str(path), next_step="name a regular file")
    return stream


def make_unreadable_error(path: Path, error: OSError) -> UnavailableError:
    """The error of a file or folder that is there and cannot be read."""
    return UnavailableError(
        f"{path} cannot be read: {error.strerror or error}",
        where=str(path),
        next_step="look at its permissions, and at the disk",
    )


BLOB_MODE = 0o444
_DRAFT_MODE = 0o600
_STRETCH = 8 << 20  # bytes that are sent to the disk together
_NAME_BYTES = 16


class UnfinishedFile:
    """A new file, or one that was begun.

    What is written is on its way to the disk at once, so that ``settle`` has little left to wait for.
    """

    def __init__(self, path: Path, begun: FileIO | None = None) -> None:
        self._path = path
        self.file = begun or FileIO(path, "x+", opener=lambda name, flags: os.open(name, flags, _DRAFT_MODE))
        self._size = self._sent = os.fstat(self.file.fileno()).st_size
        self._named = False

    def write(self, chunk: bytes) -> None:
        rest = memoryview(chunk)
        while rest:
            rest = rest[self.file.write(rest) :]
        self._size += len(chunk)
        if self._size - self._sent >= _STRETCH:
            self.send()

    @property
    def size(self) -> int:
        """Bytes that were written."""
        return self._size

    def empty(self) -> None:
        """Begin again."""
        self.file.truncate(0)
        self.file.seek(0)
        self._size = self._sent = 0

    def send(self) -> None:
        """Let the disk begin with what it was not sent yet; no promise. Linux does so when told that it is unneeded."""
        os.posix_fadvise(self.file.fileno(), self._sent, self._size - self._sent, os.POSIX_FADV_DONTNEED)
        self._sent = self._size

    def settle(self) -> None:
        """Read-only and durable from now on, name aside."""
        os.fchmod(self.file.fileno(), BLOB_MODE)
        os.fsync(self.file.fileno())

    def rename(self, place: Path) -> None:
        self._path.replace(place)
        self._named = True

    def is_at(self, place: Path) -> bool:
        """Whether a read-only regular file of the same bytes is there."""
        try:
            descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
            with os.fdopen(descriptor, "rb") as blob:
                found = os.fstat(descriptor)
                if not stat.S_ISREG(found.st_mode) or stat.S_IMODE(found.st_mode) != BLOB_MODE:
                    return False
                self.file.seek(0)
                pairs = zip_longest(read_chunks(blob), read_chunks(cast("BinaryIO", self.file)))
                return found.st_size == self._size and all(one == other for one, other in pairs)
        except OSError:  # absent, or unreadable: to be replaced
            return False

    def close(self) -> None:
        """Gone, unless it was renamed. What cannot be removed now, the next collection removes."""
        with suppress(OSError):
            self.file.close()
        if not self._named:
            with suppress(OSError):
                self._path.unlink()


@contextmanager
def create_file(path: Path, *, durably: bool = False) -> Iterator[BinaryIO]:
    """A file that takes the name ``path`` when the context is left without an error, and is gone otherwise.

    Those who write to one path at once have a draft each, in its folder, and never follow a link: whoever is the last
    has the name. ``durably`` means that bytes and name have reached the disk then. ``OSError`` as it comes.
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
    """Make the names in ``folder`` durable, where its file system has such a promise to give."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # EINVAL: folders cannot be synced here
            raise
    finally:
        os.close(descriptor)


def is_at(draft: FileIO, path: Path) -> bool:
    """Whether an open file is still the one of that name."""
    try:
        return os.path.samestat(os.fstat(draft.fileno()), path.stat(follow_symlinks=False))
    except FileNotFoundError:
        return False


PARTIAL: Final = ".part"
"""The suffix of the file of an interrupted fetch, which the next fetch resumes."""


@dataclass(frozen=True, slots=True)
class RemovedFiles:
    """Number and total bytes of the unfinished files that were removed, or would be without a dry run."""

    files: int = 0
    size: int = 0

    def __add__(self, other: "RemovedFiles") -> "RemovedFiles":
        return RemovedFiles(self.files + other.files, self.size + other.size)


def create_unfinished_file(folder: Path) -> UnfinishedFile:
    """Create a file in ``folder`` that is locked as long as it is open.

    Raises:
        OSError: The file cannot be created.
    """
    while True:
        draft = UnfinishedFile(path := folder / secrets.token_hex(16))
        try:
            fcntl.flock(draft.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another process removes it as a leftover
            draft.close()
            continue
        except BaseException:
            draft.close()
            raise
        if is_at(draft.file, path):
            return draft
        draft.close()


def remove_dead_files(folder: Path) -> RemovedFiles:
    """Remove the drafts in ``folder`` whose writers are gone; others may write at the same time.

    Files of interrupted fetches stay, since they are resumed.
    """
    return sum(
        (_remove_dead(folder / name) for name in _list_names(folder) if not name.endswith(PARTIAL)), RemovedFiles()
    )


def remove_all(folder: Path, names: Iterable[str], *, dry_run: bool) -> RemovedFiles:
    """Remove files while nobody writes.

    Args:
        folder: The folder of the files.
        names: Their names.
        dry_run: Count the files only.

    Raises:
        OSError: A file cannot be read or removed.
    """
    removed = RemovedFiles()
    for path in (folder / name for name in names):
        removed += RemovedFiles(1, path.stat(follow_symlinks=False).st_size)
        if not dry_run:
            path.unlink()
    return removed


def _list_names(folder: Path) -> tuple[str, ...]:
    try:
        return tuple(os.listdir(folder))  # noqa: PTH208 - names alone, without a path for each
    except FileNotFoundError:
        return ()


def _remove_dead(path: Path) -> RemovedFiles:
    """Remove a draft unless it is in use; what cannot be removed stays for the next collection."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            size = os.fstat(descriptor).st_size
            path.unlink()
            return RemovedFiles(1, size)
        finally:
            os.close(descriptor)
    return RemovedFiles()
