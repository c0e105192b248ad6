"""The common part of stores behind a network: an OCI repository, a bucket of objects, or a benchlock server."""

import builtins
import os
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Protocol

from benchlock.artifacts.atomic_files import RemovedFiles, convert_disk_errors, lock_file, open_regular
from benchlock.artifacts.blob_store import BlobNotFoundError, BlobStore, check_digest, put_each
from benchlock.artifacts.digest import Descriptor, Digest, describe, parse_digest
from benchlock.artifacts.errors import RefusedError
from benchlock.artifacts.net.blob_upload import spool_stream
from benchlock.artifacts.net.http_session import ErrorPolicy
from benchlock.artifacts.user_output import Advance, ignore_progress


class BlobSource(Protocol):
    """What a store needs from the client of its server; ``BlobClient`` describes the methods."""

    @property
    def where(self) -> str:
        """The name of the server for users."""
        ...

    @property
    def advice(self) -> ErrorPolicy:
        """The error policy of the server."""
        ...

    def open_digest(self, digest: Digest) -> BinaryIO:
        """Open a seekable stream of a blob."""
        ...

    def receive(self, digest: Digest, start: int = 0) -> BinaryIO:
        """Open an unverified stream of a blob from the offset ``start`` on."""
        ...

    def stat_blob(self, digest: Digest) -> Descriptor | None:
        """Return the digest and size that the server reports, None if it does not have the blob."""
        ...


class RemoteStore(BlobStore):
    """The blobs of one server, which verifies them; a store that can have a local cache."""

    def __init__(self, client: BlobSource, scratch: Path) -> None:
        """Open the store; streams are spooled in the folder ``scratch``."""
        self._client = client
        self._scratch = scratch

    @property
    def where(self) -> str:
        """The name of the store for users."""
        return self._client.where

    @property
    def damaged(self) -> str:
        """The next step for a blob that is damaged in the store."""
        return self._client.advice.damaged

    def put(
        self,
        stream: BinaryIO,
        expected: Digest | None = None,
        *,
        name: str = "the content",
        advance: Advance = ignore_progress,
    ) -> Descriptor:
        """Upload the rest of ``stream``, after spooling it to compute its digest."""
        with self.writing(), spool_stream(stream, self._scratch) as (spool, blob):
            check_digest(name, expected, blob)
            self.send(spool, blob, name=name, advance=advance)
        return blob

    def put_file(
        self,
        path: Path,
        expected: Digest | None = None,
        *,
        name: str | None = None,
        advance: Advance = ignore_progress,
    ) -> Descriptor:
        """Upload a local file."""
        with open_regular(path) as source, self.writing():
            blob = describe(source)
            check_digest(name or str(path), expected, blob)
            self.send(source, blob, name=name or str(path), advance=advance)
        return blob

    def put_files(self, paths: Iterable[Path], *, advance: Advance = ignore_progress) -> builtins.list[Descriptor]:
        """Upload several files in parallel."""
        with self.together():
            return put_each(self, paths, advance)

    @abstractmethod
    def send(self, source: BinaryIO, blob: Descriptor, *, name: str, advance: Advance = ignore_progress) -> None:
        """Upload ``source``, a seekable stream of ``blob``, unless the store has that blob.

        Args:
            source: The bytes, which have the digest and size of ``blob``.
            blob: The digest and size.
            name: The name of the blob in error messages.
            advance: Called with the number of bytes sent.

        Raises:
            IntegrityError: The store has a damaged blob of that digest, or ``source`` changed meanwhile.
            UnavailableError: The store does not answer, or rejects the blob.
        """

    @abstractmethod
    def select_stored(self, digests: Iterable[Digest]) -> set[Digest]:
        """Return those of ``digests`` that the store has."""

    def open(self, digest: Digest) -> BinaryIO:
        """Open a blob as a stream that is verified at its end."""
        return self._client.open_digest(digest)

    def receive(self, digest: Digest, start: int = 0) -> BinaryIO:
        """Open an unverified stream from the offset ``start`` on; raise ``BlobNotFoundError`` if absent."""
        return self._client.receive(digest, start)

    def stat(self, digest: Digest) -> Descriptor:
        """Return the digest and size that the server reports."""
        blob = self._client.stat_blob(parse_digest(digest))
        if blob is None:
            raise BlobNotFoundError(f"{self.where} has no blob {digest}", where=self.where)
        return blob

    def exists(self, digest: Digest) -> bool:
        """Return whether the server has the blob."""
        return self._client.stat_blob(parse_digest(digest)) is not None


class ClaimedStore(RemoteStore):
    """A store that belongs to one registry; deletions within ``collecting`` happen at its end.

    A local file is locked (flock) by writers and by the garbage collection, as in every store, which excludes processes
    of one machine. For several machines the place has an owner: only the benchlock registry whose id it names may
    collect garbage.
    """

    def __init__(self, client: BlobSource, lock: Path, owner: str | None = None) -> None:
        """Open the store.

        Args:
            client: The client of its server.
            lock: The path of the lock file, in an existing folder.
            owner: The id of the benchlock registry that may collect garbage; ``None`` skips that check.
        """
        super().__init__(client, lock.parent)
        self._lock = lock
        self._owner = owner
        self._deletions: set[Digest] | None = None

    @abstractmethod
    def read_owner(self) -> str | None:
        """Return the id of the registry that claimed the place; None if none has."""

    @abstractmethod
    def write_owner(self, owner: str) -> None:
        """Write the id of the registry that claims the place, unless another one was faster."""

    @abstractmethod
    def delete_all(self, digests: set[Digest]) -> None:
        """Delete blobs, of which some may be absent."""

    def claim(self) -> None:
        """Make the place this owner's, unless it has an owner.

        Raises:
            RefusedError: The place has another owner.
            UnavailableError: The server does not answer, or rejects the claim.
        """
        assert self._owner is not None
        with self.writing():
            self._claim_for(self._owner)

    def is_claimed(self) -> bool:
        """Return whether this owner claimed the place; raise ``RefusedError`` if another one did."""
        return self._owner is not None and self._is_owned_by(self._owner)

    def delete(self, digest: Digest) -> None:
        """Delete the blob, within ``collecting`` at its end."""
        if self._deletions is None:
            self.delete_all({parse_digest(digest)})
        else:
            self._deletions.add(parse_digest(digest))

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Hold the local lock, shared with other writers."""
        with self._hold_lock(alone=False):
            yield

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Hold the local lock exclusively; perform the deletions at the end.

        Raises:
            RefusedError: The place belongs to another benchlock registry, whose blobs are not garbage.
        """
        with self._hold_lock(alone=True):
            if self._owner is not None:
                self._is_owned_by(self._owner)
            self._deletions = set()
            try:
                yield
                digests, self._deletions = self._deletions, None
                if digests and self._owner is not None:
                    self._claim_for(self._owner)
                self.delete_all(digests)
            finally:
                self._deletions = None

    def sweep(self, *, dry_run: bool = False) -> RemovedFiles:  # noqa: ARG002 - part of the protocol
        """Return zero: leftovers of killed writers are garbage of the server itself."""
        return RemovedFiles(0, 0)

    def _claim_for(self, owner: str) -> None:
        if not self._is_owned_by(owner):
            self.write_owner(owner)
            self._is_owned_by(owner)  # of two concurrent claims, one wins

    def _is_owned_by(self, owner: str) -> bool:
        """Return whether ``owner`` owns the place; raise ``RefusedError`` if another does."""
        current_owner = self.read_owner()
        if current_owner not in (None, owner):
            raise RefusedError(
                f"{self.where} belongs to another registry of benchlock ({current_owner})",
                where=self.where,
                next_step="give each registry its own place: garbage collection of one deletes blobs of the other",
            )
        return current_owner is not None

    @contextmanager
    def _hold_lock(self, *, alone: bool) -> Iterator[None]:
        with convert_disk_errors("the store cannot lock", self._lock.parent):
            descriptor = lock_file(self._lock, alone=alone)
        try:
            yield
        finally:
            os.close(descriptor)
