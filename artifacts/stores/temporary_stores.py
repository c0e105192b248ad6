"""Stores that keep nothing: one in memory, and one for dry runs that refers to local files in place."""

import builtins
import io
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from threading import Condition
from typing import BinaryIO

from benchlock.artifacts.atomic_files import RemovedFiles, open_regular
from benchlock.artifacts.blob_store import BlobNotFoundError, BlobStore, check_digest, put_each
from benchlock.artifacts.digest import Descriptor, Digest, describe, digest_bytes
from benchlock.artifacts.display import Advance, ignore_progress
from benchlock.artifacts.resumable_fetch import OpenAtOffset, fetch
from benchlock.artifacts.stores.local_store import LocalStore


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
        advance: Advance = ignore_progress,
    ) -> Descriptor:
        content = stream.read()
        advance(len(content))
        found = Descriptor(digest_bytes(content), len(content))
        check_digest(name, expected, found)
        with self.writing():
            self._blobs.setdefault(found.digest, content)
        return found

    def put_file(
        self,
        path: Path,
        expected: Digest | None = None,
        *,
        name: str | None = None,
        advance: Advance = ignore_progress,
    ) -> Descriptor:
        with open_regular(path) as source:
            return self.put(source, expected, name=name or str(path), advance=advance)

    def put_files(self, paths: Iterable[Path], *, advance: Advance = ignore_progress) -> builtins.list[Descriptor]:
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


@contextmanager
def open_dry_run(store: BlobStore | None = None) -> Iterator["DryRunStore"]:
    """A rehearsal, and its temporary folder for as long as the context is held.

    What is in ``store`` is there in the rehearsal, too; what it fetches from elsewhere is kept in ``store``, where it
    need not come again, and nothing names it until it is published. No garbage is collected there meanwhile.
    """
    writing = nullcontext() if store is None else store.writing()
    with tempfile.TemporaryDirectory(prefix="benchlock-") as folder, writing:
        yield DryRunStore(LocalStore(Path(folder) / "blobs"), store)


class DryRunStore:
    """Refers to local files where they lie. Implements ``BlobStore`` and ``ResumingStore``."""

    def __init__(self, aside: LocalStore, store: BlobStore | None) -> None:
        self._aside = aside
        self._store = store or aside
        self._places: dict[Digest, Path] = {}

    def put(
        self,
        stream: BinaryIO,
        expected: Digest | None = None,
        *,
        name: str = "the content",
        advance: Advance = ignore_progress,
    ) -> Descriptor:
        return self._aside.put(stream, expected, name=name, advance=advance)

    def put_file(
        self,
        path: Path,
        expected: Digest | None = None,
        *,
        name: str | None = None,
        advance: Advance = ignore_progress,
    ) -> Descriptor:
        with open_regular(path) as source:
            found = describe(source, advance)
        check_digest(name or str(path), expected, found)
        self._places[found.digest] = path
        return found

    def put_files(self, paths: Iterable[Path], *, advance: Advance = ignore_progress) -> builtins.list[Descriptor]:
        return put_each(self, paths, advance)

    def fetch(
        self, expected: Digest, opened: OpenAtOffset, *, name: str, advance: Advance = ignore_progress
    ) -> Descriptor:
        return fetch(self._store, expected, opened, name=name, advance=advance)

    def open(self, digest: Digest) -> BinaryIO:
        place = self._places.get(digest)
        return self._holder(digest).open(digest) if place is None else open_regular(place)

    def stat(self, digest: Digest) -> Descriptor:
        place = self._places.get(digest)
        return self._holder(digest).stat(digest) if place is None else Descriptor(digest, place.stat().st_size)

    def exists(self, digest: Digest) -> bool:
        return digest in self._places or self._holder(digest).exists(digest)

    def delete(self, digest: Digest) -> None:
        self._places.pop(digest, None)
        self._aside.delete(digest)

    def list(self) -> Iterator[Digest]:
        """What was put, in the rehearsal alone."""
        yield from self._places
        yield from (digest for digest in self._aside.list() if digest not in self._places)

    def writing(self) -> AbstractContextManager[None]:
        return self._aside.writing()

    def together(self) -> AbstractContextManager[None]:
        return self._aside.together()

    def collecting(self) -> AbstractContextManager[None]:
        return self._aside.collecting()

    def sweep(self, *, dry_run: bool = False) -> RemovedFiles:
        return self._aside.sweep(dry_run=dry_run)

    def _holder(self, digest: Digest) -> BlobStore:
        return self._aside if self._aside.exists(digest) else self._store
