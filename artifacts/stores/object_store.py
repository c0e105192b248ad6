"""A blob store in a bucket of objects, which one registry claims."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from benchlock.artifacts.blob_store import BlobNotFoundError
from benchlock.artifacts.digest import Descriptor, Digest
from benchlock.artifacts.errors import RefusedError
from benchlock.artifacts.net.object_client import ObjectClient
from benchlock.artifacts.stores.cached_store import CachedStore
from benchlock.artifacts.stores.remote_store import ClaimedStore
from benchlock.artifacts.user_output import Advance, ignore_progress


class ObjectStore(ClaimedStore):
    """The blobs in a bucket; storing a blob whose object has another size repairs it."""

    _client: ObjectClient

    def __init__(self, client: ObjectClient, lock: Path, owner: str | None = None) -> None:
        """Open the store, as ``ClaimedStore`` does."""
        super().__init__(client, lock, owner)
        self._has_checked_claim = owner is None

    def send(self, source: BinaryIO, blob: Descriptor, *, name: str, advance: Advance = ignore_progress) -> None:
        """Upload ``source``, a seekable stream of ``blob``, unless the bucket has an object of that digest and size.

        Raises:
            IntegrityError: ``source`` has other bytes.
            RefusedError: The bucket is not claimed by this registry, for example that of another endpoint.
            UnavailableError: The service does not answer, or rejects the upload.
        """
        with self.writing():
            self._require_claim()
            if self._client.stat_blob(blob.digest) == blob:
                advance(blob.size)
            else:
                self._client.put_blob(source, blob, name=name, advance=advance)

    def _require_claim(self) -> None:
        """Ask once who owns the bucket: its name says nothing about the endpoint."""
        if self._has_checked_claim:
            return
        if not self.is_claimed():
            raise RefusedError(
                f"{self.where} is not claimed by this registry at this endpoint",
                where=self.where,
                next_step="set the endpoint with which the registry was created, such as AWS_ENDPOINT_URL; if its "
                "bucket is lost, restore a backup into another one",
            )
        self._has_checked_claim = True

    def sign_url(self, digest: Digest, seconds: int) -> str:
        """Return a URL by which anyone can download a blob for ``seconds``, without other credentials."""
        return self._client.sign_url(digest, seconds)

    def select_stored(self, digests: Iterable[Digest]) -> set[Digest]:
        """Return those of ``digests`` that are in the bucket."""
        return set(self.list()).intersection(digests)

    def list(self) -> Iterator[Digest]:
        """Yield the digest of every blob."""
        return self._client.list_blobs()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Hold the local lock: each object is safe by itself."""
        with self.writing():
            yield

    def delete_all(self, digests: set[Digest]) -> None:
        """Delete objects, many with one request."""
        self._client.delete_blobs(sorted(digests))

    def read_owner(self) -> str | None:
        """Return the id in the owner's object."""
        return self._client.read_owner()

    def write_owner(self, owner: str) -> None:
        """Create the owner's object; of two concurrent claims, the service lets the first one win."""
        self._client.create_owner(owner)


class CachedObjects(CachedStore[ObjectStore]):
    """A cached store in front of a bucket, whose blobs can be downloaded from the bucket itself."""

    def sign_url(self, blob: Descriptor, seconds: int) -> str | None:
        """Return a URL of a blob, as ``ObjectStore.sign_url`` does; None if the bucket does not have the whole blob."""
        url = self._remote.sign_url(blob.digest, seconds)
        try:
            return url if self._remote.stat(blob.digest) == blob else None
        except BlobNotFoundError:
            return None
