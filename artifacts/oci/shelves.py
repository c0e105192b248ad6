"""Shelves: the manifests that name what a store keeps in a repository.

A registry lists no blobs, and its own collection of garbage removes those that no manifest names. So every blob that is
put is named by a shelf: an OCI manifest whose layers are blobs, tagged ``blobs-`` and the hex digits of its own digest.
Shelves are added and removed, never changed, so that several writers need not know of one another.
"""

import io
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from threading import Lock
from typing import Final

from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes, from_hex, to_hex
from benchlock.artifacts.errors import InvalidInputError, UnavailableError
from benchlock.artifacts.oci.client import RegistryClient
from benchlock.artifacts.oci.documents import (
    EMPTY_CONTENT,
    MANIFEST,
    OciDescriptor,
    OciManifest,
    decode,
    empty_descriptor,
    encode,
)
from benchlock.artifacts.store import BlobNotFoundError

TAG: Final = "blobs-"
ARTIFACT: Final = "application/vnd.benchlock.blobs.v1+json"
BLOB: Final = "application/vnd.benchlock.blob.v1"
_LONGEST: Final = 8192  # blobs of one shelf: some 1.4 MB, well below what a registry takes


class Shelves:
    """The shelves of one repository."""

    def __init__(self, client: RegistryClient) -> None:
        self._client = client
        self._turn = Lock()
        self._has_empty = False

    def add(self, blobs: Iterable[Descriptor]) -> None:
        """Name blobs that are there. The same ones again are the same shelf."""
        ordered = iter(sorted(set(blobs), key=lambda blob: blob.digest))
        while some := tuple(islice(ordered, _LONGEST)):
            layers = tuple(OciDescriptor(media_type=BLOB, digest=blob.digest, size=blob.size) for blob in some)
            content = encode(OciManifest(artifact_type=ARTIFACT, config=self.empty(), layers=layers))
            self._client.put_manifest(content, MANIFEST, TAG + to_hex(digest_bytes(content)))

    def all(self) -> Iterator[tuple[Digest, Mapping[Digest, Descriptor]]]:
        """Each shelf's own digest, and its blobs."""
        for tag in self._client.tags():
            if not tag.startswith(TAG):
                continue
            try:
                digest = from_hex(tag.removeprefix(TAG))
                content = self._client.manifest(digest)
            except (InvalidInputError, BlobNotFoundError):  # a tag of somebody else's; a shelf that was just removed
                continue
            layers = decode(content, OciManifest, f"the manifest {digest} of {self._client.repository}").layers
            yield digest, {layer.digest: layer.blob for layer in layers}

    def remove(self, blobs: set[Digest]) -> None:
        """Name them no more. What else lay on their shelves is named anew first, but for what the registry lost."""
        for digest, held in tuple(self.all()):
            rest = [blob for blob in held.values() if blob.digest not in blobs]
            if len(rest) < len(held):
                self._add_anew(rest)
                self._client.delete_manifest(digest)

    def _add_anew(self, blobs: list[Descriptor]) -> None:
        """As ``add``; a registry takes no manifest of blobs that it lost, and seldom says which these are."""
        try:
            self.add(blobs)
        except UnavailableError:
            there = [blob for blob in blobs if self._client.stat_blob(blob.digest) is not None]
            if len(there) == len(blobs):
                raise
            self.add(there)

    def empty(self) -> OciDescriptor:
        """The descriptor for nothing, its blob being there."""
        empty = empty_descriptor()
        with self._turn:
            if not self._has_empty and self._client.stat_blob(empty.digest) is None:
                self._client.put_blob(io.BytesIO(EMPTY_CONTENT), empty.blob, name="the empty configuration")
            self._has_empty = True
        return empty
