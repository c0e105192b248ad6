"""A blob store in a repository of an OCI registry, and the manifests that index its blobs.

A registry does not list blobs, and its own garbage collection removes blobs without a manifest. So every blob is a
layer of an index manifest, which is tagged ``blobs-`` and the hex digits of its own digest. Index manifests are added
and removed, never changed, so that concurrent writers do not conflict.

The registry verifies a blob before it is visible. The owner of a repository is in a manifest with a tag of its own.
"""

import io
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Final

from msgspec import UNSET

from benchlock.artifacts.blob_store import BlobNotFoundError
from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes, from_hex, to_hex
from benchlock.artifacts.errors import IntegrityError, InvalidInputError, UnavailableError
from benchlock.artifacts.oci.oci_client import DAMAGE_ADVICE, DeletionRefusedError, RegistryClient
from benchlock.artifacts.oci.oci_documents import (
    EMPTY_CONTENT,
    MANIFEST,
    OciDescriptor,
    OciIndex,
    OciManifest,
    decode,
    empty_descriptor,
    encode,
)
from benchlock.artifacts.oci.oci_reference import Repository
from benchlock.artifacts.stores.remote_store import ClaimedStore
from benchlock.artifacts.user_output import Advance, ignore_progress

TAG: Final = "blobs-"
ARTIFACT: Final = "application/vnd.benchlock.blobs.v1+json"
BLOB: Final = "application/vnd.benchlock.blob.v1"
_MAX_BLOBS: Final = 8192  # blobs of one index manifest: some 1.4 MB, well below the limit of registries


class BlobIndex:
    """The index manifests of one repository."""

    def __init__(self, client: RegistryClient) -> None:
        """Read and write the index over ``client``."""
        self._client = client
        self._turn = Lock()
        self._has_empty = False

    def add(self, blobs: Iterable[Descriptor]) -> None:
        """Index blobs that exist; the same blobs make the same manifest."""
        ordered = iter(sorted(set(blobs), key=lambda blob: blob.digest))
        while batch := tuple(islice(ordered, _MAX_BLOBS)):
            layers = tuple(OciDescriptor(media_type=BLOB, digest=blob.digest, size=blob.size) for blob in batch)
            content = encode(OciManifest(artifact_type=ARTIFACT, config=self.empty(), layers=layers))
            self._client.put_manifest(content, MANIFEST, TAG + to_hex(digest_bytes(content)))

    def all(self) -> Iterator[tuple[Digest, Mapping[Digest, Descriptor]]]:
        """Yield the digest of each index manifest, and its blobs."""
        for tag in self._client.tags():
            if not tag.startswith(TAG):
                continue
            try:
                digest = from_hex(tag.removeprefix(TAG))
                content = self._client.manifest(digest)
            except (
                InvalidInputError,
                BlobNotFoundError,
            ):  # a tag of another program, or a manifest that was just removed
                continue
            layers = decode(content, OciManifest, f"the manifest {digest} of {self._client.repository}").layers
            yield digest, {layer.digest: layer.blob for layer in layers}

    def remove(self, blobs: set[Digest]) -> None:
        """Remove blobs from the index; other blobs of the same manifests are indexed again, unless they are lost."""
        for digest, indexed in tuple(self.all()):
            remaining = [blob for blob in indexed.values() if blob.digest not in blobs]
            if len(remaining) < len(indexed):
                self._add_existing(remaining)
                self._client.delete_manifest(digest)

    def _add_existing(self, blobs: list[Descriptor]) -> None:
        """Index blobs, without those that the registry lost if it rejects the manifest for them."""
        try:
            self.add(blobs)
        except UnavailableError:
            existing = [blob for blob in blobs if self._client.stat_blob(blob.digest) is not None]
            if len(existing) == len(blobs):
                raise
            self.add(existing)

    def empty(self) -> OciDescriptor:
        """Return the descriptor of the empty blob, and upload the blob if needed."""
        empty = empty_descriptor()
        with self._turn:
            if not self._has_empty and self._client.stat_blob(empty.digest) is None:
                self._client.put_blob(io.BytesIO(EMPTY_CONTENT), empty.blob, name="the empty configuration")
            self._has_empty = True
        return empty


OWNER_TAG: Final = "benchlock-registry"
"""The tag of the owner manifest, and the key of its annotation with the owner's id."""
OWNER_TYPE: Final = "application/vnd.benchlock.registry.v1+json"
"""The artifact type of the owner manifest; absent, but equally valid, from version 0.1.0."""


class OciStore(ClaimedStore):
    """The blobs of a repository.

    A registry never replaces the bytes of a blob that it has, so ``put`` reports damage and cannot repair it.
    """

    _client: RegistryClient

    def __init__(self, client: RegistryClient, lock: Path, owner: str | None = None) -> None:
        """Open the store, as ``ClaimedStore`` does."""
        super().__init__(client, lock, owner)
        self._index = BlobIndex(client)
        self._turn = Lock()
        self._unindexed: set[Descriptor] = set()
        self._batches = 0

    @property
    def repository(self) -> Repository:
        """The repository."""
        return self._client.repository

    def send(self, source: BinaryIO, blob: Descriptor, *, name: str, advance: Advance = ignore_progress) -> None:
        """Upload ``source``, a seekable stream of ``blob``, unless the registry has that blob; index the blob.

        Raises:
            IntegrityError: The registry has a damaged blob of that digest, or ``source`` changed meanwhile.
            UnavailableError: The registry does not answer, or rejects the blob.
        """
        with self.writing():
            existing = self._client.stat_blob(blob.digest)
            if existing is None:
                self._client.put_blob(source, blob, name=name, advance=advance)
            elif existing != blob:
                raise IntegrityError(
                    f"{self.repository} has {existing.size} bytes of {name}, not {blob.size}: {blob.digest}",
                    where=name,
                    next_step=DAMAGE_ADVICE,
                )
            else:
                advance(blob.size)
            self._index_blob(blob)

    def select_stored(self, digests: Iterable[Digest]) -> set[Digest]:
        """Return those of ``digests`` that are indexed."""
        return set(self.list()).intersection(digests)

    def list(self) -> Iterator[Digest]:
        """Yield the digest of every indexed blob, once."""
        seen: set[Digest] = set()
        for _, blobs in self._index.all():
            yield from blobs.keys() - seen
            seen |= blobs.keys()

    @contextmanager
    def together(self) -> Iterator[None]:
        """Index all blobs put within the context together, if it ends without an error."""
        with self.writing():
            with self._turn:
                self._batches += 1
            try:
                yield
                with self._turn:
                    batch = frozenset(self._unindexed)
                self._index.add(batch)
                with self._turn:
                    self._unindexed -= batch
            finally:
                with self._turn:
                    self._batches -= 1
                    if not self._batches:
                        self._unindexed.clear()

    def name_manifest(self, tag: str, document: OciManifest | OciIndex, config: bytes | None = None) -> Digest:
        """Store a manifest of existing blobs under a tag, and its unindexed ``config`` if given.

        Returns:
            The digest of the manifest.
        """
        assert document.media_type is not UNSET
        with self.writing():
            self._index.empty()
            if config is not None:
                self._put_small(config, f"the configuration of {tag}")
            return self._client.put_manifest(encode(document), document.media_type, tag)

    def _put_small(self, content: bytes, name: str) -> None:
        """Upload a blob that is not indexed: a manifest refers to it, and it becomes garbage with the manifest."""
        blob = Descriptor(digest_bytes(content), len(content))
        if self._client.stat_blob(blob.digest) is None:
            self._client.put_blob(io.BytesIO(content), blob, name=name)

    def _index_blob(self, blob: Descriptor) -> None:
        with self._turn:
            if self._batches:
                self._unindexed.add(blob)
                return
        self._index.add((blob,))

    def delete_all(self, digests: set[Digest]) -> None:
        """Delete blobs from the index, and from the repository if it permits that."""
        if not digests:
            return
        self._index.remove(digests)
        for digest in digests:
            with suppress(DeletionRefusedError):  # without an index, it is garbage of the registry itself
                self._client.delete_blob(digest)

    def write_owner(self, owner: str) -> None:
        """Write the owner manifest; of two concurrent claims, the last one wins."""
        empty = self._index.empty()
        claim = OciManifest(artifact_type=OWNER_TYPE, config=empty, layers=(empty,), annotations={OWNER_TAG: owner})
        self._client.put_manifest(encode(claim), MANIFEST, OWNER_TAG)

    def read_owner(self) -> str | None:
        """Return the id in the owner manifest."""
        try:
            content = self._client.manifest(OWNER_TAG)
        except BlobNotFoundError:
            return None
        annotations = decode(content, OciManifest, f"{OWNER_TAG} of {self.repository}").annotations
        return annotations.get(OWNER_TAG, "unknown") if annotations else "unknown"
