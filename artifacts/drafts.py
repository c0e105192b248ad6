"""A file on its way, to be a blob or where a user wants it: written under a name that means nothing, then renamed."""

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO, cast

from benchlock.artifacts.digest import chunks

BLOB_MODE = 0o444
_DRAFT_MODE = 0o600
_STRETCH = 8 << 20  # bytes that are sent to the disk together
_NAME_BYTES = 16


class Draft:
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
                pairs = zip_longest(chunks(blob), chunks(cast("BinaryIO", self.file)))
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
def new_file(path: Path, *, durably: bool = False) -> Iterator[BinaryIO]:
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
