"""The common part of stores behind a network: an OCI repository, or a benchlock server."""

import builtins
from abc import abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import BinaryIO

from benchlock.artifacts.atomic_files import open_regular
from benchlock.artifacts.blob_store import BlobNotFoundError, BlobStore, check_digest, put_each
from benchlock.artifacts.digest import Descriptor, Digest, describe, parse_digest
from benchlock.artifacts.net.blob_client import BlobClient
from benchlock.artifacts.net.blob_upload import spool_stream
from benchlock.artifacts.user_output import Advance, ignore_progress


class RemoteStore(BlobStore):
    """The blobs of one server, which verifies them; a store that can have a local cache."""

    def __init__(self, client: BlobClient, scratch: Path) -> None:
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
