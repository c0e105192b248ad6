"""A local cache in front of a remote blob store.

Writes go to both stores; the folder shows a blob only once the remote store has it, so the local blobs are a subset of
the remote ones. Blobs read from the remote store are verified and cached. A blob that the folder loses is fetched
again.
"""

import builtins
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from io import FileIO
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar, cast

from benchlock.artifacts.atomic_files import RemovedFiles, UnfinishedFile
from benchlock.artifacts.blob_store import PARALLEL_TRANSFERS, BlobNotFoundError, put_each, verify
from benchlock.artifacts.digest import Descriptor, Digest
from benchlock.artifacts.errors import IntegrityError
from benchlock.artifacts.oci.oci_documents import OciIndex, OciManifest
from benchlock.artifacts.resumable_fetch import OpenAtOffset
from benchlock.artifacts.stores.local_store import BeforePublication, LocalStore
from benchlock.artifacts.stores.oci_store import OciStore
from benchlock.artifacts.stores.remote_store import RemoteStore
from benchlock.artifacts.user_output import SILENT, Advance, Progress, ignore_progress, serialize_advance

_SHOWN = 19  # characters of a digest in the display


@dataclass(frozen=True, slots=True)
class EvictionReport:
    """Blobs evicted from the cache (``gone``), and blobs kept because the remote copy is missing or damaged.

    In a dry run, ``gone`` are the blobs that would be evicted.
    """

    gone: tuple[Descriptor, ...]
    kept: tuple[Digest, ...]


Remote = TypeVar("Remote", bound=RemoteStore)


class CachedStore(Generic[Remote]):
    """A remote store with a cache in a folder. Implements ``FileStore``, ``ResumingStore`` and ``PrefetchingStore``."""

    def __init__(self, local: LocalStore, remote: Remote, progress: Progress = SILENT) -> None:
        """Put the cache ``local`` in front of ``remote``; ``progress`` shows downloads."""
        self._local = local
        self._remote = remote
        self._progress = progress
        self._is_collecting = False

    @property
    def remote(self) -> Remote:
        """The remote store, without the cache."""
        return self._remote

    def evict(self, *, dry_run: bool = False) -> EvictionReport:
        """Remove the blobs from the cache that the remote store has intact; it reads them all to check.

        Raises:
            UnavailableError: The remote store does not answer; nothing was removed.
        """
        with self.writing():
            remote_digests = self._remote.select_stored(self._local.list())
            blobs = tuple(self._local.stat(digest) for digest in self._local.list() if digest in remote_digests)
            intact = self._find_intact(blobs)
        intact_blobs = tuple(blob for blob in blobs if blob in intact)
        if not dry_run:
            with self._local.collecting():
                for blob in intact_blobs:
                    self._local.delete(blob.digest)
        return EvictionReport(intact_blobs, tuple(blob.digest for blob in blobs if blob not in intact))

    def _find_intact(self, blobs: tuple[Descriptor, ...]) -> set[Descriptor]:
        """Return the blobs whose bytes in the remote store are all correct."""
        label = f"reading {len(blobs)} blobs of {self._remote.where}"
        with (
            self._progress.task(label, sum(blob.size for blob in blobs)) as advance,
            ThreadPoolExecutor(PARALLEL_TRANSFERS) as pool,
        ):
            results = pool.map(partial(self._is_intact, serialize_advance(advance)), blobs)
            return {blob for blob, is_intact in zip(blobs, results, strict=True) if is_intact}

    def _is_intact(self, advance: Advance, blob: Descriptor) -> bool:
        try:
            verify(self._remote, blob.digest, name=blob.digest, advance=advance)
        except IntegrityError:
            return False
        return True

    def path(self, digest: Digest) -> Path:
        """Fetch the blob if needed, and return its path in the cache."""
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
        """Upload the rest of ``stream``, then cache it."""
        return self._local.put(stream, expected, name=name, first=self._upload(name, advance))

    def put_file(
        self,
        path: Path,
        expected: Digest | None = None,
        *,
        name: str | None = None,
        advance: Advance = ignore_progress,
    ) -> Descriptor:
        """Upload a local file, then cache it."""
        return self._local.put_file(path, expected, name=name, first=self._upload(name or str(path), advance))

    def put_files(self, paths: Iterable[Path], *, advance: Advance = ignore_progress) -> builtins.list[Descriptor]:
        """Upload and cache several files in parallel."""
        with self.together():
            return put_each(self, paths, advance)

    def fetch(
        self, expected: Digest, open_at: OpenAtOffset, *, name: str, advance: Advance = ignore_progress
    ) -> Descriptor:
        """Fetch a blob from a source into both stores."""
        return self._local.fetch(expected, open_at, name=name, advance=advance, first=self._upload(name))

    def adopt(self, draft: UnfinishedFile, blob: Descriptor) -> None:
        """Upload an unfinished file, then make it a blob of the cache."""
        self._local.adopt(draft, blob, first=self._upload(blob.digest))

    def open(self, digest: Digest) -> BinaryIO:
        """Open a blob from the cache, and fetch it before if needed."""
        if self._is_collecting and not self._local.exists(digest):
            return self._remote.open(digest)  # the cache takes no blobs during garbage collection
        self._fetch(digest)
        return self._local.open(digest)

    def stat(self, digest: Digest) -> Descriptor:
        """Return the digest and size, from the cache if it has the blob."""
        return self._local.stat(digest) if self._local.exists(digest) else self._remote.stat(digest)

    def exists(self, digest: Digest) -> bool:
        """Return whether either store has the blob."""
        return self._local.exists(digest) or self._remote.exists(digest)

    def delete(self, digest: Digest) -> None:
        """Delete the blob from both stores."""
        self._local.delete(digest)
        self._remote.delete(digest)

    def list(self) -> Iterator[Digest]:
        """Yield the digest of every blob of both stores, once."""
        local_digests = set(self._local.list())
        yield from local_digests
        yield from (digest for digest in self._remote.list() if digest not in local_digests)

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Protect new blobs of both stores from garbage collection."""
        with self._local.writing(), self._remote.writing():
            yield

    @contextmanager
    def together(self) -> Iterator[None]:
        """Protect many new blobs of both stores together."""
        with self._local.together(), self._remote.together():
            yield

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Hold both stores exclusively for garbage collection."""
        with self._local.collecting(), self._remote.collecting():
            self._is_collecting = True
            try:
                yield
            finally:
                self._is_collecting = False

    def sweep(self, *, dry_run: bool = False) -> RemovedFiles:
        """Remove leftover files in both stores."""
        return self._local.sweep(dry_run=dry_run) + self._remote.sweep(dry_run=dry_run)

    def prefetch(self, blobs: Iterable[Descriptor]) -> None:
        """Fetch the missing blobs in parallel; skip those that are absent or damaged."""
        missing = {blob.digest: blob for blob in blobs if not self._local.exists(blob.digest)}.values()
        if not missing:
            return
        with self._progress.task(f"fetching {len(missing)} blobs", sum(blob.size for blob in missing)) as advance_by:
            advance = serialize_advance(advance_by)

            def prefetch_one(blob: Descriptor) -> None:
                with suppress(IntegrityError, BlobNotFoundError):
                    self._receive(blob.digest)
                advance(blob.size)

            with ThreadPoolExecutor(PARALLEL_TRANSFERS) as pool:
                try:
                    for future in [pool.submit(prefetch_one, blob) for blob in missing]:
                        future.result()
                finally:
                    pool.shutdown(cancel_futures=True)

    def _upload(self, name: str, advance: Advance = ignore_progress) -> BeforePublication:
        """Return the upload of a blob to the remote store, for the cache to do before the blob becomes visible."""

        def send(draft: FileIO, blob: Descriptor) -> None:
            self._remote.send(cast("BinaryIO", draft), blob, name=name, advance=advance)

        return send

    def _fetch(self, digest: Digest) -> None:
        """Fetch the blob into the cache, unless it is there."""
        if not self._local.exists(digest):
            self._receive(digest, self._progress)

    def _receive(self, digest: Digest, progress: Progress = SILENT) -> None:
        """Fetch a blob: resume an interrupted fetch, or wait for that of another process."""
        size = None if progress is SILENT else self._remote.stat(digest).size
        name = f"blob {digest} of {self._remote.where}"
        try:
            with progress.task(f"fetching {digest[:_SHOWN]}", size) as advance:
                self._local.fetch(digest, partial(self._open_remote, digest), name=name, advance=advance)
        except IntegrityError as error:
            raise IntegrityError(error.what, where=error.where, next_step=self._remote.damaged) from error

    def _open_remote(self, digest: Digest, start: int) -> closing[BinaryIO]:
        return closing(self._remote.receive(digest, start))


class CachedRepository(CachedStore[OciStore]):
    """A cached store in front of an OCI repository, which can also tag manifests."""

    def name_manifest(self, tag: str, document: OciManifest | OciIndex, config: bytes | None = None) -> Digest:
        """Store a manifest under a tag, as ``OciStore.name_manifest`` does."""
        return self._remote.name_manifest(tag, document, config)
