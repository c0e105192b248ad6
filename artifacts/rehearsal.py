"""A store for looking at what would be stored: files of this machine stay where they are, and little else is kept."""

import builtins
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO

from benchlock.artifacts.digest import Descriptor, Digest, describe
from benchlock.artifacts.fetching import OpenedAt, fetch
from benchlock.artifacts.files import open_regular
from benchlock.artifacts.leftovers import RemovedFiles
from benchlock.artifacts.local import LocalStore
from benchlock.artifacts.progress import Advance, unnoticed
from benchlock.artifacts.store import BlobStore, put_each, refuse_other


@contextmanager
def rehearsing(store: BlobStore | None = None) -> Iterator["Rehearsal"]:
    """A rehearsal, and its temporary folder for as long as the context is held.

    What is in ``store`` is there in the rehearsal, too; what it fetches from elsewhere is kept in ``store``, where it
    need not come again, and nothing names it until it is published. No garbage is collected there meanwhile.
    """
    writing = nullcontext() if store is None else store.writing()
    with tempfile.TemporaryDirectory(prefix="benchlock-") as folder, writing:
        yield Rehearsal(LocalStore(Path(folder) / "blobs"), store)


class Rehearsal:
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
        advance: Advance = unnoticed,
    ) -> Descriptor:
        return self._aside.put(stream, expected, name=name, advance=advance)

    def put_file(
        self,
        path: Path,
        expected: Digest | None = None,
        *,
        name: str | None = None,
        advance: Advance = unnoticed,
    ) -> Descriptor:
        with open_regular(path) as source:
            found = describe(source, advance)
        refuse_other(name or str(path), expected, found)
        self._places[found.digest] = path
        return found

    def put_files(self, paths: Iterable[Path], *, advance: Advance = unnoticed) -> builtins.list[Descriptor]:
        return put_each(self, paths, advance)

    def fetch(self, expected: Digest, opened: OpenedAt, *, name: str, advance: Advance = unnoticed) -> Descriptor:
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
