"""A store in memory."""

import builtins
import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Condition
from typing import BinaryIO

from benchlock.artifacts.atomic_files import RemovedFiles, open_regular
from benchlock.artifacts.blob_store import BlobNotFoundError, check_digest
from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes
from benchlock.artifacts.user_output import Advance, ignore_progress


class MemoryStore:
    """Blobs in the memory of this process. Implements ``BlobStore``, without its bound of memory."""

    def __init__(self) -> None:
        """Start without blobs."""
        self._blobs: dict[Digest, bytes] = {}
        self._condition = Condition()
        self._writers = 0
        self._is_collecting = False

    def put(
        self,
        stream: BinaryIO,
        expected: Digest | None = None,
        *,
        name: str = "the content",
        advance: Advance = ignore_progress,
    ) -> Descriptor:
        """Store the rest of ``stream``."""
        content = stream.read()
        advance(len(content))
        blob = Descriptor(digest_bytes(content), len(content))
        check_digest(name, expected, blob)
        with self.writing():
            self._blobs.setdefault(blob.digest, content)
        return blob

    def put_file(
        self,
        path: Path,
        expected: Digest | None = None,
        *,
        name: str | None = None,
        advance: Advance = ignore_progress,
    ) -> Descriptor:
        """Store a local file."""
        with open_regular(path) as source:
            return self.put(source, expected, name=name or str(path), advance=advance)

    def put_files(self, paths: Iterable[Path], *, advance: Advance = ignore_progress) -> builtins.list[Descriptor]:
        """Store several files, one after another."""
        return [self.put_file(path, advance=advance) for path in paths]

    def open(self, digest: Digest) -> BinaryIO:
        """Open a blob."""
        return io.BytesIO(self._content(digest))

    def stat(self, digest: Digest) -> Descriptor:
        """Return the digest and size."""
        return Descriptor(digest, len(self._content(digest)))

    def exists(self, digest: Digest) -> bool:
        """Return whether the store has the blob."""
        return digest in self._blobs

    def delete(self, digest: Digest) -> None:
        """Delete the blob, if it exists."""
        self._blobs.pop(digest, None)

    def list(self) -> Iterator[Digest]:
        """Return the digests of all blobs."""
        return iter(tuple(self._blobs))

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Exclude garbage collection during the context."""
        with self._condition:
            self._condition.wait_for(lambda: not self._is_collecting)
            self._writers += 1
        try:
            yield
        finally:
            with self._condition:
                self._writers -= 1
                self._condition.notify_all()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Exclude garbage collection, as ``writing`` does."""
        with self.writing():
            yield

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Exclude writers during the context."""
        with self._condition:
            self._condition.wait_for(lambda: not self._is_collecting and not self._writers)
            self._is_collecting = True
        try:
            yield
        finally:
            with self._condition:
                self._is_collecting = False
                self._condition.notify_all()

    def sweep(self, *, dry_run: bool = False) -> RemovedFiles:  # noqa: ARG002 - part of the protocol
        """Return zero: there are no leftovers in memory."""
        return RemovedFiles(0, 0)

    def _content(self, digest: Digest) -> bytes:
        try:
            return self._blobs[digest]
        except KeyError:
            raise BlobNotFoundError(f"the store has no blob {digest}", where="memory") from None
