"""A blob store in a folder, safe against kill -9, power loss and concurrent processes.

``ROOT/sha256/ab/<64 hex>`` is a blob: mode 0444, and complete, because it is renamed into place. ``ROOT/incoming/`` has
unfinished files, each locked by its writer, until their digest is known. The next writer removes the files of killed
processes, except interrupted fetches, which are resumed; a garbage collection removes all of them.

``ROOT/lock`` is locked (flock) shared by writers, and exclusively by a garbage collection; the kernel releases the lock
when its holder dies.
"""

import builtins
import errno
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import partialmethod
from io import FileIO
from pathlib import Path
from typing import BinaryIO

from benchlock.artifacts.atomic_files import (
    RemovedFiles,
    StoreLock,
    UnfinishedFile,
    create_unfinished_file,
    lock_file,
    make_unreadable_error,
    open_regular,
    remove_all,
    remove_dead_files,
    sync_folder,
)
from benchlock.artifacts.blob_store import BlobNotFoundError, check_digest
from benchlock.artifacts.digest import Descriptor, Digest, from_hex, parse_digest, relay, to_hex
from benchlock.artifacts.errors import InvalidInputError, UnavailableError
from benchlock.artifacts.resumable_fetch import OpenAtOffset, find_intact, open_partial_file, receive
from benchlock.artifacts.user_output import Advance, ignore_progress, serialize_advance

_FOLDER_MODE = 0o755
_NEXT_STEPS = {
    errno.ENOSPC: "free disk space and try again: no stored data is lost",
    errno.EDQUOT: "raise the quota or free disk space, and try again: no stored data is lost",
    errno.EROFS: "choose a folder on a writable file system",
    errno.EACCES: "choose a readable and writable folder",
    errno.EPERM: "choose a readable and writable folder",
}

_AT_ONCE = 4
_MAX_FILES, _MAX_BYTES = 64, 4 << 20
"""Limits of the files that are made durable together; all of them are open meanwhile."""

BeforePublication = Callable[[FileIO, Descriptor], None]
"""Handle the bytes and their digest before the blob becomes visible; an error prevents that."""


def _split_batches(paths: Iterable[Path]) -> Iterator[list[Path]]:
    batch: list[Path] = []
    size = 0
    for path in paths:
        batch.append(path)
        with suppress(OSError):  # opening the file raises the error
            size += path.stat().st_size
        if len(batch) == _MAX_FILES or size >= _MAX_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


class LocalStore:
    """Blobs in a folder, which the first write creates. Implements ``BlobStore``."""

    def __init__(self, root: Path, beside: StoreLock | None = None) -> None:
        """Open the store in the folder ``root``; ``beside`` is held together with its file lock."""
        self._root = root
        self._beside = beside
        self._folders: dict[tuple[str, ...], Path] = {}  # whose names in their parents this store has synced
        # Whether this store has removed leftovers; never with ``beside``: other hosts may not see the file locks.
        self._is_tidy = beside is not None

    def path(self, digest: Digest) -> Path:
        """Return the path of the blob, for hard links and read-only mounts; ``BlobNotFoundError`` if absent."""
        self.stat(digest)
        return self._blob_path(digest)

    def put(
        self,
        stream: BinaryIO,
        expected: Digest | None = None,
        *,
        name: str = "the content",
        advance: Advance = ignore_progress,
        first: BeforePublication | None = None,
    ) -> Descriptor:
        """Store the rest of ``stream``; ``first`` is called before the blob becomes visible."""
        with self.writing(), self._create_draft() as draft:
            blob = self._receive(stream, draft, advance)
            check_digest(name, expected, blob)
            self._publish(draft, blob, first)
        return blob

    def put_file(
        self,
        path: Path,
        expected: Digest | None = None,
        *,
        name: str | None = None,
        advance: Advance = ignore_progress,
        first: BeforePublication | None = None,
    ) -> Descriptor:
        """Store a local file; ``first`` is called before the blob becomes visible."""
        with open_regular(path) as source, self.writing(), self._create_draft() as draft:
            blob = self._receive(source, draft, advance, path)
            check_digest(name or str(path), expected, blob)
            self._publish(draft, blob, first)
        return blob

    def put_files(self, paths: Iterable[Path], *, advance: Advance = ignore_progress) -> builtins.list[Descriptor]:
        """Store several files, in batches that are made durable together."""
        advance = serialize_advance(advance)
        with self.writing(), ThreadPoolExecutor(_AT_ONCE) as pool:
            batches = [pool.submit(self._put_batch, batch, advance) for batch in _split_batches(paths)]
            try:
                blobs = [blob for batch in batches for blob in batch.result()]
            finally:
                pool.shutdown(cancel_futures=True)
            with self._convert_errors("be written"):
                for folder in {self._blob_path(blob.digest).parent for blob in blobs}:
                    sync_folder(folder)
        return blobs

    def fetch(
        self,
        expected: Digest,
        open_at: OpenAtOffset,
        *,
        name: str,
        advance: Advance = ignore_progress,
        first: BeforePublication | None = None,
    ) -> Descriptor:
        """Fetch a blob, or resume an interrupted fetch; ``first`` is called before the blob becomes visible."""
        with (
            self.writing(),
            self._convert_errors("be written"),
            open_partial_file(self._folder("incoming"), expected) as (draft, has_waited),
        ):
            existing = find_intact(self, expected, name) if has_waited else None  # another process may have fetched it
            if existing is not None:
                return existing
            blob = receive(draft, expected, open_at, name=name, advance=advance)
            self._publish(draft, blob, first)
        return blob

    def adopt(self, draft: UnfinishedFile, blob: Descriptor, *, first: BeforePublication | None = None) -> None:
        """Make an unfinished file a blob without copying it; ``first`` is called before it becomes visible."""
        with self.writing():
            self._publish(draft, blob, first)

    def open(self, digest: Digest) -> BinaryIO:
        """Open a blob, unverified."""
        with self._convert_errors("be read", digest):
            return self._blob_path(digest).open("rb")

    def stat(self, digest: Digest) -> Descriptor:
        """Return the digest and size as stored."""
        with self._convert_errors("be read", digest):
            return Descriptor(digest, self._blob_path(digest).stat().st_size)

    def exists(self, digest: Digest) -> bool:
        """Return whether the store has the blob."""
        try:
            self.stat(digest)
        except BlobNotFoundError:
            return False
        return True

    def delete(self, digest: Digest) -> None:
        """Delete the blob, if it exists."""
        if self._beside is not None:
            self._beside.check()
        with self._convert_errors("delete"), suppress(FileNotFoundError):
            self._blob_path(digest).unlink()  # after a power failure the whole blob may be back

    def list(self) -> Iterator[Digest]:
        """Yield the digest of every blob, sorted; other files are skipped."""
        for folder in self._names(self._root / "sha256"):
            for name in self._names(self._root / "sha256" / folder):
                with suppress(InvalidInputError):
                    digest = from_hex(name)
                    if name[:2] == folder:
                        yield digest

    @contextmanager
    def _hold_lock(self, *, alone: bool) -> Iterator[None]:
        with self._convert_errors("be locked"):
            descriptor = lock_file(self._folder() / "lock", alone=alone)
        try:
            with nullcontext() if self._beside is None else self._beside.held(alone=alone):
                yield
        finally:
            os.close(descriptor)

    writing = partialmethod(_hold_lock, alone=False)
    """Hold the lock of the store, shared with other writers."""

    collecting = partialmethod(_hold_lock, alone=True)
    """Hold the lock of the store exclusively, also against other processes."""

    @contextmanager
    def together(self) -> Iterator[None]:
        """Hold the lock of the store, as ``writing`` does, and remove leftovers with the next write."""
        with self.writing():
            self._is_tidy = self._beside is not None  # a large import may have been killed meanwhile
            yield

    def sweep(self, *, dry_run: bool = False) -> RemovedFiles:
        """Remove every unfinished file."""
        incoming = self._root / "incoming"
        names = self._names(incoming)
        with self._convert_errors("be cleaned"):
            return remove_all(incoming, names, dry_run=dry_run)

    def _blob_path(self, digest: Digest) -> Path:
        hexdigits = to_hex(parse_digest(digest))
        return self._root / f"sha256/{hexdigits[:2]}/{hexdigits}"  # one join: joins are slow compared with small blobs

    def _names(self, folder: Path) -> tuple[str, ...]:
        with self._convert_errors("be listed"):
            try:
                return tuple(sorted(os.listdir(folder)))  # noqa: PTH208 - names only, without a path for each
            except FileNotFoundError:
                return ()
            except NotADirectoryError:
                if folder.parent == self._root:
                    raise
                return ()  # a stray file among the folders of blobs

    def _put_batch(self, paths: Sequence[Path], advance: Advance) -> builtins.list[Descriptor]:
        """Write all files before the first ``fsync``: a disk syncs many small files as fast as one."""
        with ExitStack() as stack:
            received: list[tuple[UnfinishedFile, Descriptor]] = []
            for path in paths:
                draft = stack.enter_context(self._create_draft())
                with open_regular(path) as source:
                    received.append((draft, self._receive(source, draft, advance, path)))
                draft.send()
            with self._convert_errors("be written"):
                for draft, blob in received:
                    self._rename(draft, blob.digest)
        return [blob for _, blob in received]

    def _receive(
        self, stream: BinaryIO, draft: UnfinishedFile, advance: Advance, path: Path | None = None
    ) -> Descriptor:
        """Write a stream to a draft; ``path`` is its file, for the error if it cannot be read."""
        try:
            return relay(stream, self._convert_errors("be written")(draft.write), advance)
        except OSError as error:  # of the stream
            if path is None:
                raise
            raise make_unreadable_error(path, error) from error

    @contextmanager
    def _create_draft(self) -> Iterator[UnfinishedFile]:
        """Create a file in ``incoming/``, and remove it afterwards unless it was published."""
        with self._convert_errors("be written"):
            if not self._is_tidy:
                self._is_tidy = True
                remove_dead_files(self._folder("incoming"))
            draft = create_unfinished_file(self._folder("incoming"))
        try:
            yield draft
        finally:
            draft.close()

    def _publish(self, draft: UnfinishedFile, blob: Descriptor, first: BeforePublication | None) -> None:
        """Rename the file to its blob, durably; replace a damaged blob and keep an intact one."""
        if first is not None:
            first(draft.file, blob)
        with self._convert_errors("be written"):
            sync_folder(self._rename(draft, blob.digest))  # an existing blob's, too: its writer may not have done so

    def _rename(self, draft: UnfinishedFile, digest: Digest) -> Path:
        """Rename the file to its blob, as ``_publish`` does; return its folder, which is not synced."""
        path = self._blob_path(digest)
        folder = self._folder("sha256", path.parent.name)
        if not draft.is_at(path):
            draft.rename(path)
        return folder

    def _folder(self, *names: str) -> Path:
        """Return the folder under the root; create it durably and readable to all, whatever the umask."""
        if names in self._folders:
            return self._folders[names]
        if names:
            folder = self._folder(*names[:-1]) / names[-1]
            folder.mkdir(_FOLDER_MODE, exist_ok=True)
            mode = stat.S_IMODE(folder.stat().st_mode)
            if mode & _FOLDER_MODE != _FOLDER_MODE:  # new, or left by a process killed right here
                folder.chmod(mode | _FOLDER_MODE)
            sync_folder(folder.parent)
        else:
            folder = self._root
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                if not folder.is_dir():
                    raise
            else:
                folder.chmod(_FOLDER_MODE)
            with suppress(PermissionError):  # the parent of a home folder may be unreadable
                sync_folder(folder.parent)
        self._folders[names] = folder
        return folder

    @contextmanager
    def _convert_errors(self, verb: str, digest: Digest | None = None) -> Iterator[None]:
        """Convert errors of the operating system into ``UnavailableError``, or that the blob ``digest`` is absent."""
        try:
            yield
        except OSError as error:
            if digest is not None and isinstance(error, FileNotFoundError):
                raise BlobNotFoundError(f"the store has no blob {digest}", where=str(self._root)) from error
            raise UnavailableError(
                f"the store cannot {verb}: {error.strerror or error}",
                where=str(self._root),
                next_step=_NEXT_STEPS.get(error.errno or 0, "check the disk and the folder"),
            ) from error
