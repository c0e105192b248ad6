"""The temporary store of dry runs, which refers to local files in place."""

import builtins
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO

from benchlock.artifacts.atomic_files import RemovedFiles, open_regular
from benchlock.artifacts.blob_store import BlobStore, check_digest, put_each
from benchlock.artifacts.digest import Descriptor, Digest, describe
from benchlock.artifacts.resumable_fetch import OpenAtOffset, fetch
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.user_output import Advance, ignore_progress


@contextmanager
def open_dry_run(store: BlobStore | None = None) -> Iterator["DryRunStore"]:
    """Open a dry-run store with a temporary folder that is removed after the context.

    The blobs of ``store`` are visible in the dry-run store. Blobs fetched from remote sources are kept in ``store``, so
    that a later publication need not fetch them again. ``store`` collects no garbage meanwhile.
    """
    writing = nullcontext() if store is None else store.writing()
    with tempfile.TemporaryDirectory(prefix="benchlock-") as folder, writing:
        yield DryRunStore(LocalStore(Path(folder) / "blobs"), store)


class DryRunStore:
    """A store that refers to local files in place. Implements ``BlobStore`` and ``ResumingStore``."""

    def __init__(self, scratch: LocalStore, store: BlobStore | None) -> None:
        """Store streams in ``scratch``; read other blobs from ``store``, if given, and keep fetched ones there."""
        self._scratch = scratch
        self._store = store or scratch
        self._paths: dict[Digest, Path] = {}

    def put(
        self,
        stream: BinaryIO,
        expected: Digest | None = None,
        *,
        name: str = "the content",
        advance: Advance = ignore_progress,
    ) -> Descriptor:
        """Store the rest of ``stream`` in the temporary folder."""
        return self._scratch.put(stream, expected, name=name, advance=advance)

    def put_file(
        self,
        path: Path,
        expected: Digest | None = None,
        *,
        name: str | None = None,
        advance: Advance = ignore_progress,
    ) -> Descriptor:
        """Remember the path of a local file under its digest."""
        with open_regular(path) as source:
            blob = describe(source, advance)
        check_digest(name or str(path), expected, blob)
        self._paths[blob.digest] = path
        return blob

    def put_files(self, paths: Iterable[Path], *, advance: Advance = ignore_progress) -> builtins.list[Descriptor]:
        """Remember the paths of several files."""
        return put_each(self, paths, advance)

    def fetch(
        self, expected: Digest, open_at: OpenAtOffset, *, name: str, advance: Advance = ignore_progress
    ) -> Descriptor:
        """Fetch a blob into the underlying store."""
        return fetch(self._store, expected, open_at, name=name, advance=advance)

    def open(self, digest: Digest) -> BinaryIO:
        """Open a blob: a local file, or one of either store."""
        path = self._paths.get(digest)
        return self._find_store(digest).open(digest) if path is None else open_regular(path)

    def stat(self, digest: Digest) -> Descriptor:
        """Return the digest and the current size."""
        path = self._paths.get(digest)
        return self._find_store(digest).stat(digest) if path is None else Descriptor(digest, path.stat().st_size)

    def exists(self, digest: Digest) -> bool:
        """Return whether the blob is a local file or in either store."""
        return digest in self._paths or self._find_store(digest).exists(digest)

    def delete(self, digest: Digest) -> None:
        """Forget the local file, and delete the blob from the temporary folder."""
        self._paths.pop(digest, None)
        self._scratch.delete(digest)

    def list(self) -> Iterator[Digest]:
        """Yield the digests of blobs put into the dry-run store; those of the underlying store are left out."""
        yield from self._paths
        yield from (digest for digest in self._scratch.list() if digest not in self._paths)

    def writing(self) -> AbstractContextManager[None]:
        """Hold the lock of the temporary folder, shared."""
        return self._scratch.writing()

    def together(self) -> AbstractContextManager[None]:
        """Hold the lock of the temporary folder, as ``writing`` does."""
        return self._scratch.together()

    def collecting(self) -> AbstractContextManager[None]:
        """Hold the lock of the temporary folder exclusively."""
        return self._scratch.collecting()

    def sweep(self, *, dry_run: bool = False) -> RemovedFiles:
        """Remove leftover files in the temporary folder."""
        return self._scratch.sweep(dry_run=dry_run)

    def _find_store(self, digest: Digest) -> BlobStore:
        return self._scratch if self._scratch.exists(digest) else self._store
