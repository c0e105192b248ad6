"""A blob store in a folder, safe against kill -9, power loss and several processes at once.

``ROOT/sha256/ab/<64 hex>`` is a blob: mode 0444, and complete, since it comes there by a rename. ``ROOT/incoming/`` is
where bytes lie until their digest is known; what a killed process left there, the next collection removes.
``ROOT/lock`` is locked (flock) shared while anything is written, and exclusively while garbage is collected; the kernel
frees it when its holder dies.
"""

import errno
import hashlib
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO

from artifacts.digest import Descriptor, Digest, chunks, describe, from_hex, parse_digest, to_hex
from artifacts.errors import InvalidInputError, UnavailableError
from artifacts.files import open_regular
from artifacts.locking import lock_file
from artifacts.progress import Advance, unnoticed
from artifacts.store import BlobNotFoundError, refuse_other

_BLOB_MODE = 0o444
_FOLDER_MODE = 0o755
_NEXT_STEPS = {
    errno.ENOSPC: "free disk space and do it again: nothing that was stored is lost",
    errno.EDQUOT: "raise the quota or free disk space, and do it again: nothing that was stored is lost",
    errno.EROFS: "choose a folder on a file system that can be written",
    errno.EACCES: "choose a folder that you may read and write",
    errno.EPERM: "choose a folder that you may read and write",
}


First = Callable[[FileIO, Descriptor], None]
"""What ``put`` does with the bytes once they are known, before they become visible; where it fails, they never do."""


def _nothing(_draft: FileIO, _found: Descriptor) -> None:
    pass


class LocalStore:
    """Blobs in a folder, which is made when it is first written to. Implements ``BlobStore``."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._durable: set[Path] = set()  # folders whose entry in their parent this store has synced

    def path(self, digest: Digest) -> Path:
        """Where the blob lies, for hard links and read-only mounts. ``BlobNotFoundError`` if absent."""
        self.stat(digest)
        return self._place(digest)

    def put(
        self,
        stream: BinaryIO,
        expected: Digest | None = None,
        *,
        name: str = "the content",
        advance: Advance = unnoticed,
        first: First = _nothing,
    ) -> Descriptor:
        with self.writing(), self._draft() as draft:
            found = self._receive(stream, draft, advance)
            refuse_other(name, expected, found)
            first(draft, found)
            self._publish(draft, found.digest)
        return found

    def put_file(
        self,
        path: Path,
        expected: Digest | None = None,
        *,
        name: str | None = None,
        advance: Advance = unnoticed,
        first: First = _nothing,
    ) -> Descriptor:
        # The kernel copies (or shares the extents, where the file system can), and the copy is what is digested: each
        # byte once, and exactly the bytes that become the blob.
        with open_regular(path) as source, self.writing(), self._draft() as draft:
            with self._disk(f"take {path} in"):
                _copy(source, draft)
                draft.seek(0)
                found = describe(draft, advance)
            refuse_other(name or str(path), expected, found)
            first(draft, found)
            self._publish(draft, found.digest)
        return found

    def open(self, digest: Digest) -> BinaryIO:
        with self._disk("be read"), self._present(digest):
            return self._place(digest).open("rb")

    def stat(self, digest: Digest) -> Descriptor:
        with self._disk("be read"), self._present(digest):
            return Descriptor(digest, self._place(digest).stat().st_size)

    def exists(self, digest: Digest) -> bool:
        try:
            self.stat(digest)
        except BlobNotFoundError:
            return False
        return True

    def delete(self, digest: Digest) -> None:
        place = self._place(digest)
        with self._disk("delete"), suppress(FileNotFoundError):
            place.unlink()
            _sync_folder(place.parent)

    def list(self) -> Iterator[Digest]:
        """Every blob, sorted. Names that are no digest are no blobs."""
        for folder in self._names(self._root / "sha256"):
            for name in self._names(self._root / "sha256" / folder):
                with suppress(InvalidInputError):
                    digest = from_hex(name)
                    if name[:2] == folder:
                        yield digest

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self._locked(alone=False):
            yield

    @contextmanager
    def together(self) -> Iterator[None]:
        with self.writing():
            yield

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Exclusive against ``writing``, of other processes too. First removes what killed processes left behind."""
        with self._locked(alone=True):
            incoming = self._root / "incoming"
            for name in self._names(incoming):
                with self._disk("be cleaned"):
                    (incoming / name).unlink()
            yield

    def _place(self, digest: Digest) -> Path:
        hexdigits = to_hex(parse_digest(digest))
        return self._root / "sha256" / hexdigits[:2] / hexdigits

    def _names(self, folder: Path) -> tuple[str, ...]:
        with self._disk("be listed"):
            try:
                return tuple(sorted(os.listdir(folder)))  # noqa: PTH208 - names alone, without a path for each
            except FileNotFoundError:
                return ()
            except NotADirectoryError:
                if folder.parent == self._root:
                    raise
                return ()  # a stray file beside the folders of blobs

    def _receive(self, stream: BinaryIO, draft: FileIO, advance: Advance) -> Descriptor:
        state, size = hashlib.sha256(), 0
        for chunk in chunks(stream):  # an error of the stream is the caller's, not this store's
            state.update(chunk)
            with self._disk("be written"):
                _write(draft, chunk)
            size += len(chunk)
            advance(len(chunk))
        return Descriptor(Digest(f"sha256:{state.hexdigest()}"), size)

    @contextmanager
    def _draft(self) -> Iterator[FileIO]:
        """A new file in incoming/, gone afterwards unless it was published."""
        with self._disk("be written"):
            path = self._folder("incoming") / secrets.token_hex(16)
            draft = FileIO(path, "x+", opener=lambda name, flags: os.open(name, flags, 0o600))
        try:
            yield draft
        finally:
            with suppress(OSError):
                draft.close()
            with suppress(OSError):  # published, or else the next collection removes it
                path.unlink()

    def _publish(self, draft: FileIO, digest: Digest) -> None:
        """Give the draft its blob's name, durably. An intact blob of that name stays; a damaged one is replaced."""
        with self._disk("be written"):
            place = self._place(digest)
            folder = self._folder("sha256", place.parent.name)
            if not _is_intact(place, draft):
                os.fchmod(draft.fileno(), _BLOB_MODE)
                os.fsync(draft.fileno())
                Path(str(draft.name)).replace(place)
            _sync_folder(folder)

    def _folder(self, *names: str) -> Path:
        """The folder under the root, made durably and readable to all, whatever the umask."""
        folder = self._root
        if folder not in self._durable:
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                if not folder.is_dir():
                    raise
            else:
                folder.chmod(_FOLDER_MODE)
            with suppress(PermissionError):  # a home may lie in a folder that its owner cannot read
                _sync_folder(folder.parent)
            self._durable.add(folder)
        for name in names:
            parent, folder = folder, folder / name
            if folder not in self._durable:
                folder.mkdir(_FOLDER_MODE, exist_ok=True)
                mode = stat.S_IMODE(folder.stat().st_mode)
                if mode & _FOLDER_MODE != _FOLDER_MODE:  # new, or left so by a process killed right here
                    folder.chmod(mode | _FOLDER_MODE)
                _sync_folder(parent)
                self._durable.add(folder)
        return folder

    @contextmanager
    def _locked(self, *, alone: bool) -> Iterator[None]:
        with self._disk("be locked"):
            descriptor = lock_file(self._folder() / "lock", alone=alone)
        try:
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def _present(self, digest: Digest) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise BlobNotFoundError(f"the store has no blob {digest}", where=str(self._root)) from error

    @contextmanager
    def _disk(self, verb: str) -> Iterator[None]:
        """Turns what the operating system refuses into ``UnavailableError``."""
        try:
            yield
        except OSError as error:
            raise UnavailableError(
                f"the store cannot {verb}: {error.strerror or error}",
                where=str(self._root),
                next_step=_NEXT_STEPS.get(error.errno or 0, "look at the disk and the folder"),
            ) from error


def _copy(source: BinaryIO, draft: FileIO) -> None:
    """The rest of ``source`` into ``draft``: by the kernel as far as it will, by hand from there."""
    with suppress(OSError):  # another file system, or one that cannot: a real fault shows again below
        while os.copy_file_range(source.fileno(), draft.fileno(), 1 << 30):
            pass
    source.seek(draft.tell())
    for chunk in chunks(source):
        _write(draft, chunk)


def _write(draft: FileIO, chunk: bytes) -> None:
    rest = memoryview(chunk)
    while rest:
        rest = rest[draft.write(rest) :]


def _is_intact(place: Path, draft: FileIO) -> bool:
    """Whether the blob at ``place`` is a read-only regular file of the draft's bytes."""
    try:
        descriptor = os.open(place, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as blob:
            found, wanted = os.fstat(descriptor), os.fstat(draft.fileno())
            if not stat.S_ISREG(found.st_mode) or stat.S_IMODE(found.st_mode) != _BLOB_MODE:
                return False
            draft.seek(0)
            return found.st_size == wanted.st_size and all(a == b for a, b in zip_longest(chunks(blob), chunks(draft)))
    except OSError:  # absent, or unreadable: to be replaced
        return False


def _sync_folder(folder: Path) -> None:
    """Make the names in ``folder`` durable, where its file system has such a promise to give."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # EINVAL: folders cannot be synced here
            raise
    finally:
        os.close(descriptor)
