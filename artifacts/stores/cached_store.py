"""A local cache in front of a remote blob store.

A blob is put into both, and becomes visible in the folder when the other store has it whole: what lies here lies there.
What is read from there is verified and kept here. The folder is the cache, the other store the truth: a blob that the
folder loses, damaged or not, comes again.
"""

import builtins
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from io import FileIO
from pathlib import Path
from typing import BinaryIO, Generic, Protocol, TypeVar, cast

from benchlock.artifacts.atomic_files import RemovedFiles, UnfinishedFile
from benchlock.artifacts.blob_store import PARALLEL_TRANSFERS, BlobNotFoundError, BlobStore, put_each, verify
from benchlock.artifacts.digest import Descriptor, Digest
from benchlock.artifacts.display import SILENT, Advance, Progress, ignore_progress, serialize_advance
from benchlock.artifacts.errors import IntegrityError
from benchlock.artifacts.oci.oci_documents import OciIndex, OciManifest
from benchlock.artifacts.resumable_fetch import OpenAtOffset
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.stores.oci_store import OciStore

_SHOWN = 19  # characters of a digest that a person needs


@dataclass(frozen=True, slots=True)
class EvictionReport:
    """What went from the folder, or with a dry run would go; and what stays, for the other store lost or damaged it."""

    gone: tuple[Descriptor, ...]
    kept: tuple[Digest, ...]


class RemoteStore(BlobStore, Protocol):
    """A store that a folder can be in front of."""

    @property
    def where(self) -> str:
        """What a person calls it."""
        ...

    @property
    def damaged(self) -> str:
        """What a person does about a blob that is damaged there."""
        ...

    def send(self, source: BinaryIO, blob: Descriptor, *, name: str, advance: Advance = ignore_progress) -> None:
        """Keep the bytes of ``source``, which can be sought and is known to hold ``blob``; not sent if it is there.

        Raises:
            IntegrityError: a damaged blob of that digest is there, or ``source`` changed meanwhile.
        """
        ...

    def receive(self, digest: Digest, start: int = 0) -> BinaryIO:
        """The bytes from ``start`` on, for a reader who digests them himself. ``BlobNotFoundError`` if absent."""
        ...

    def among(self, digests: Iterable[Digest]) -> set[Digest]:
        """Those that are there."""
        ...


Remote = TypeVar("Remote", bound=RemoteStore)


class CachedStore(Generic[Remote]):
    """Blobs in a folder and elsewhere. A ``FileStore``, and also resuming and bringing."""

    def __init__(self, local: LocalStore, remote: Remote, progress: Progress = SILENT) -> None:
        self._local = local
        self._remote = remote
        self._progress = progress
        self._collects = False

    @property
    def remote(self) -> Remote:
        """The other store, past the folder."""
        return self._remote

    def evict(self, *, dry_run: bool = False) -> EvictionReport:
        """Forget in the folder what the other store has, which is read for that; it comes again when it is needed.

        Raises:
            UnavailableError: the other store does not answer; nothing was forgotten.
        """
        with self.writing():
            there = self._remote.among(self._local.list())
            blobs = tuple(self._local.stat(digest) for digest in self._local.list() if digest in there)
            intact = self._intact_elsewhere(blobs)
        gone = tuple(blob for blob in blobs if blob in intact)
        if not dry_run:
            with self._local.collecting():
                for blob in gone:
                    self._local.delete(blob.digest)
        return EvictionReport(gone, tuple(blob.digest for blob in blobs if blob not in intact))

    def _intact_elsewhere(self, blobs: tuple[Descriptor, ...]) -> set[Descriptor]:
        """Those whose every byte in the other store is right."""
        label = f"reading {len(blobs)} blobs of {self._remote.where}"
        with (
            self._progress.task(label, sum(blob.size for blob in blobs)) as advance,
            ThreadPoolExecutor(PARALLEL_TRANSFERS) as pool,
        ):
            found = pool.map(partial(self._is_intact_elsewhere, serialize_advance(advance)), blobs)
            return {blob for blob, is_intact in zip(blobs, found, strict=True) if is_intact}

    def _is_intact_elsewhere(self, advance: Advance, blob: Descriptor) -> bool:
        try:
            verify(self._remote, blob.digest, name=blob.digest, advance=advance)
        except IntegrityError:
            return False
        return True

    def path(self, digest: Digest) -> Path:
        self._fetch(digest)
        return self._local.path(digest)

    def put(
        self,
        stream: BinaryIO,
        expected: Digest | None = None,
        *,
        name: str = "the content",
        advance: Advance = ignore_progress,
    ) -> Descriptor:
        def send(draft: FileIO, found: Descriptor) -> None:
            self._remote.send(cast("BinaryIO", draft), found, name=name, advance=advance)

        return self._local.put(stream, expected, name=name, first=send)

    def put_file(
        self,
        path: Path,
        expected: Digest | None = None,
        *,
        name: str | None = None,
        advance: Advance = ignore_progress,
    ) -> Descriptor:
        def send(draft: FileIO, found: Descriptor) -> None:
            self._remote.send(cast("BinaryIO", draft), found, name=name or str(path), advance=advance)

        return self._local.put_file(path, expected, name=name, first=send)

    def put_files(self, paths: Iterable[Path], *, advance: Advance = ignore_progress) -> builtins.list[Descriptor]:
        with self.together():
            return put_each(self, paths, advance)

    def fetch(
        self, expected: Digest, opened: OpenAtOffset, *, name: str = "the content", advance: Advance = ignore_progress
    ) -> Descriptor:
        def send(draft: FileIO, found: Descriptor) -> None:
            self._remote.send(cast("BinaryIO", draft), found, name=name)

        return self._local.fetch(expected, opened, name=name, advance=advance, first=send)

    def adopt(self, draft: UnfinishedFile, found: Descriptor) -> None:
        def send(file: FileIO, blob: Descriptor) -> None:
            self._remote.send(cast("BinaryIO", file), blob, name=blob.digest)

        self._local.adopt(draft, found, first=send)

    def open(self, digest: Digest) -> BinaryIO:
        if self._collects and not self._local.exists(digest):
            return self._remote.open(digest)  # nothing is kept while garbage is collected
        self._fetch(digest)
        return self._local.open(digest)

    def stat(self, digest: Digest) -> Descriptor:
        return self._local.stat(digest) if self._local.exists(digest) else self._remote.stat(digest)

    def exists(self, digest: Digest) -> bool:
        return self._local.exists(digest) or self._remote.exists(digest)

    def delete(self, digest: Digest) -> None:
        self._local.delete(digest)
        self._remote.delete(digest)

    def list(self) -> Iterator[Digest]:
        here = set(self._local.list())
        yield from here
        yield from (digest for digest in self._remote.list() if digest not in here)

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self._local.writing(), self._remote.writing():
            yield

    @contextmanager
    def together(self) -> Iterator[None]:
        with self._local.together(), self._remote.together():
            yield

    @contextmanager
    def collecting(self) -> Iterator[None]:
        with self._local.collecting(), self._remote.collecting():
            self._collects = True
            try:
                yield
            finally:
                self._collects = False

    def sweep(self, *, dry_run: bool = False) -> RemovedFiles:
        return self._local.sweep(dry_run=dry_run) + self._remote.sweep(dry_run=dry_run)

    def bring(self, blobs: Iterable[Descriptor]) -> None:
        missing = {blob.digest: blob for blob in blobs if not self._local.exists(blob.digest)}.values()
        if not missing:
            return
        with self._progress.task(f"fetching {len(missing)} blobs", sum(blob.size for blob in missing)) as advance_by:
            advance = serialize_advance(advance_by)

            def bring_one(blob: Descriptor) -> None:
                with suppress(IntegrityError, BlobNotFoundError):
                    self._receive(blob.digest)
                advance(blob.size)

            with ThreadPoolExecutor(PARALLEL_TRANSFERS) as pool:
                try:
                    for done in [pool.submit(bring_one, blob) for blob in missing]:
                        done.result()
                finally:
                    pool.shutdown(cancel_futures=True)

    def _fetch(self, digest: Digest) -> None:
        """Have the blob in the folder."""
        if not self._local.exists(digest):
            self._receive(digest, self._progress)

    def _receive(self, digest: Digest, progress: Progress = SILENT) -> None:
        """As a fetch does: one that was interrupted is gone on with, and one of another process is waited for."""
        size = None if progress is SILENT else self._remote.stat(digest).size
        name = f"blob {digest} of {self._remote.where}"
        try:
            with progress.task(f"fetching {digest[:_SHOWN]}", size) as advance:
                self._local.fetch(digest, partial(self._opened, digest), name=name, advance=advance)
        except IntegrityError as error:
            raise IntegrityError(error.what, where=error.where, next_step=self._remote.damaged) from error

    def _opened(self, digest: Digest, start: int) -> closing[BinaryIO]:
        return closing(self._remote.receive(digest, start))


class CachedRepository(CachedStore[OciStore]):
    """As ``MirroredStore``, and also naming."""

    def name_manifest(self, tag: str, document: OciManifest | OciIndex, config: bytes | None = None) -> Digest:
        return self._remote.name_manifest(tag, document, config)
