"""A blob store in memory, for tests and for work that keeps nothing."""

import builtins
import io
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Condition
from typing import BinaryIO

from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes
from benchlock.artifacts.files import open_regular
from benchlock.artifacts.leftovers import RemovedFiles
from benchlock.artifacts.progress import Advance, unnoticed
from benchlock.artifacts.store import BlobNotFoundError, refuse_other


class MemoryStore:
    """Blobs in this process alone. Implements ``BlobStore``, but for bounded memory."""

    def __init__(self) -> None:
        self._blobs: dict[Digest, bytes] = {}
        self._turn = Condition()
        self._writers = 0
        self._collects = False

    def put(
        self,
        stream: BinaryIO,
        expected: Digest | None = None,
        *,
        name: str = "the content",
        advance: Advance = unnoticed,
    ) -> Descriptor:
        content = stream.read()
        advance(len(content))
        found = Descriptor(digest_bytes(content), len(content))
        refuse_other(name, expected, found)
        with self.writing():
            self._blobs.setdefault(found.digest, content)
        return found

    def put_file(
        self,
        path: Path,
        expected: Digest | None = None,
        *,
        name: str | None = None,
        advance: Advance = unnoticed,
    ) -> Descriptor:
        with open_regular(path) as source:
            return self.put(source, expected, name=name or str(path), advance=advance)

    def put_files(self, paths: Iterable[Path], *, advance: Advance = unnoticed) -> builtins.list[Descriptor]:
        return [self.put_file(path, advance=advance) for path in paths]

    def open(self, digest: Digest) -> BinaryIO:
        return io.BytesIO(self._content(digest))

    def stat(self, digest: Digest) -> Descriptor:
        return Descriptor(digest, len(self._content(digest)))

    def exists(self, digest: Digest) -> bool:
        return digest in self._blobs

    def delete(self, digest: Digest) -> None:
        self._blobs.pop(digest, None)

    def list(self) -> Iterator[Digest]:
        return iter(tuple(self._blobs))

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self._turn:
            self._turn.wait_for(lambda: not self._collects)
            self._writers += 1
        try:
            yield
        finally:
            with self._turn:
                self._writers -= 1
                self._turn.notify_all()

    @contextmanager
    def together(self) -> Iterator[None]:
        with self.writing():
            yield

    @contextmanager
    def collecting(self) -> Iterator[None]:
        with self._turn:
            self._turn.wait_for(lambda: not self._collects and not self._writers)
            self._collects = True
        try:
            yield
        finally:
            with self._turn:
                self._collects = False
                self._turn.notify_all()

    def sweep(self, *, dry_run: bool = False) -> RemovedFiles:  # noqa: ARG002 - as the protocol says
        """Return nothing: nothing outlives its writer here."""
        return RemovedFiles()

    def _content(self, digest: Digest) -> bytes:
        try:
            return self._blobs[digest]
        except KeyError:
            raise BlobNotFoundError(f"the store has no blob {digest}", where="memory") from None
