"""A blob store in a repository of an OCI registry, and the manifests that index its blobs.

A registry lists no blobs, and its own collection of garbage removes those that no manifest names. So every blob that is
put is named by a shelf: an OCI manifest whose layers are blobs, tagged ``blobs-`` and the hex digits of its own digest.
Shelves are added and removed, never changed, so that several writers need not know of one another.

A blob is a blob of the repository, verified by the registry before it is visible. Shelves name the blobs, see there. A
file on this machine is locked (flock) by writers and the collection of garbage, as in every store: processes of one
machine do not get into each other's way. For those of several machines there is the claim: the collection is for the
registry alone whose id the repository bears.
"""

import builtins
import io
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Final

from msgspec import UNSET

from benchlock.artifacts.atomic_files import RemovedFiles, lock_file, open_regular
from benchlock.artifacts.blob_store import BlobNotFoundError, check_digest, put_each
from benchlock.artifacts.digest import Descriptor, Digest, describe, digest_bytes, from_hex, parse_digest, to_hex
from benchlock.artifacts.display import Advance, ignore_progress
from benchlock.artifacts.errors import IntegrityError, InvalidInputError, RefusedError, UnavailableError
from benchlock.artifacts.net.blob_upload import spool_stream
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

TAG: Final = "blobs-"
ARTIFACT: Final = "application/vnd.benchlock.blobs.v1+json"
BLOB: Final = "application/vnd.benchlock.blob.v1"
_LONGEST: Final = 8192  # blobs of one shelf: some 1.4 MB, well below what a registry takes


class BlobIndex:
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


OWNER_TAG: Final = "benchlock-registry"
"""The tag of the manifest that says whose repository it is, and the key of its annotation for that."""
OWNER_TYPE: Final = "application/vnd.benchlock.registry.v1+json"
"""The artifact type of that manifest; those of version 0.1.0 have none, and count all the same."""


class OciStore:
    """Blobs in a repository. Implements ``BlobStore``; what ``delete`` is told while collecting goes at its end.

    A registry never replaces the bytes of a blob that it has, so that damage there is named, and not repaired, by
    ``put``.
    """

    def __init__(self, client: RegistryClient, lock: Path, owner: str | None = None) -> None:
        """``lock`` is a file in a folder that exists. With ``owner``, garbage is collected for that claim alone."""
        self._client = client
        self._lock = lock
        self._owner = owner
        self._shelves = BlobIndex(client)
        self._turn = Lock()
        self._unnamed: set[Descriptor] = set()
        self._batches = 0
        self._doomed: set[Digest] | None = None

    @property
    def repository(self) -> Repository:
        return self._client.repository

    @property
    def where(self) -> str:
        return self._client.where

    @property
    def damaged(self) -> str:
        return self._client.advice.damaged

    def put(
        self,
        stream: BinaryIO,
        expected: Digest | None = None,
        *,
        name: str = "the content",
        advance: Advance = ignore_progress,
    ) -> Descriptor:
        with self.writing(), spool_stream(stream, self._lock.parent) as (spool, found):
            check_digest(name, expected, found)
            self.send(spool, found, name=name, advance=advance)
        return found

    def put_file(
        self,
        path: Path,
        expected: Digest | None = None,
        *,
        name: str | None = None,
        advance: Advance = ignore_progress,
    ) -> Descriptor:
        with open_regular(path) as source, self.writing():
            found = describe(source)
            check_digest(name or str(path), expected, found)
            self.send(source, found, name=name or str(path), advance=advance)
        return found

    def send(self, source: BinaryIO, blob: Descriptor, *, name: str, advance: Advance = ignore_progress) -> None:
        """Keep the bytes of ``source``, which can be sought and is known to hold ``blob``; not sent if it is there.

        Raises:
            IntegrityError: the registry has a damaged blob of that digest, or ``source`` changed meanwhile.
            UnavailableError: the registry cannot be asked, or refuses.
        """
        with self.writing():
            there = self._client.stat_blob(blob.digest)
            if there is None:
                self._client.put_blob(source, blob, name=name, advance=advance)
            elif there != blob:
                raise IntegrityError(
                    f"{self.repository} holds {there.size} bytes of {name}, not {blob.size}: {blob.digest}",
                    where=name,
                    next_step=DAMAGE_ADVICE,
                )
            else:
                advance(blob.size)
            self._name(blob)

    def put_files(self, paths: Iterable[Path], *, advance: Advance = ignore_progress) -> builtins.list[Descriptor]:
        with self.together():
            return put_each(self, paths, advance)

    def open(self, digest: Digest) -> BinaryIO:
        """The bytes, verified at their end."""
        return self._client.open_digest(digest)

    def receive(self, digest: Digest, start: int = 0) -> BinaryIO:
        return self._client.receive(digest, start)

    def among(self, digests: Iterable[Digest]) -> set[Digest]:
        return set(self.list()).intersection(digests)

    def stat(self, digest: Digest) -> Descriptor:
        found = self._client.stat_blob(parse_digest(digest))
        if found is None:
            repository = str(self.repository)
            raise BlobNotFoundError(f"{repository} has no blob {digest}", where=repository)
        return found

    def exists(self, digest: Digest) -> bool:
        return self._client.stat_blob(parse_digest(digest)) is not None

    def delete(self, digest: Digest) -> None:
        if self._doomed is None:
            self._forget({parse_digest(digest)})
        else:
            self._doomed.add(parse_digest(digest))

    def list(self) -> Iterator[Digest]:
        """Every blob that a shelf names."""
        seen: set[Digest] = set()
        for _, blobs in self._shelves.all():
            yield from blobs.keys() - seen
            seen |= blobs.keys()

    @contextmanager
    def writing(self) -> Iterator[None]:
        with self._locked(alone=False):
            yield

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is put within lies on shelves together, and is named when the context is left without an error."""
        with self.writing():
            with self._turn:
                self._batches += 1
            try:
                yield
                with self._turn:
                    batch = frozenset(self._unnamed)
                self._shelves.add(batch)
                with self._turn:
                    self._unnamed -= batch
            finally:
                with self._turn:
                    self._batches -= 1
                    if not self._batches:
                        self._unnamed.clear()

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Exclusive against ``writing``, of other processes on this machine too.

        Raises:
            RefusedError: the repository is claimed by another registry, whose blobs are not garbage.
        """
        with self._locked(alone=True):
            if self._owner is not None:
                self._bears(self._owner)
            self._doomed = set()
            try:
                yield
                doomed, self._doomed = self._doomed, None
                if doomed and self._owner is not None:
                    self._claim(self._owner)
                self._forget(doomed)
            finally:
                self._doomed = None

    def sweep(self, *, dry_run: bool = False) -> RemovedFiles:  # noqa: ARG002 - as the protocol says
        """Return nothing: what killed writers left in a repository is garbage of the registry that has it."""
        return RemovedFiles()

    def claim(self) -> None:
        """Make the repository this owner's, if it is nobody's yet.

        Raises:
            RefusedError: it is somebody else's.
            UnavailableError: the registry cannot be asked, or refuses.
        """
        assert self._owner is not None
        with self.writing():
            self._claim(self._owner)

    def name_manifest(self, tag: str, document: OciManifest | OciIndex, config: bytes | None = None) -> Digest:
        """Store a manifest of blobs that are there under a tag, and its ``config`` where only it names that.

        Returns:
            The digest of the manifest.
        """
        assert document.media_type is not UNSET
        with self.writing():
            self._shelves.empty()
            if config is not None:
                self._put_small(config, f"the configuration of {tag}")
            return self._client.put_manifest(encode(document), document.media_type, tag)

    def _put_small(self, content: bytes, name: str) -> None:
        """Store a blob that no shelf names: a manifest does, and the blob is garbage when the manifest is gone."""
        blob = Descriptor(digest_bytes(content), len(content))
        if self._client.stat_blob(blob.digest) is None:
            self._client.put_blob(io.BytesIO(content), blob, name=name)

    def _name(self, blob: Descriptor) -> None:
        with self._turn:
            if self._batches:
                self._unnamed.add(blob)
                return
        self._shelves.add((blob,))

    def _forget(self, digests: set[Digest]) -> None:
        if not digests:
            return
        self._shelves.remove(digests)
        for digest in digests:
            with suppress(DeletionRefusedError):  # named no more, it is garbage of the registry's own
                self._client.delete_blob(digest)

    def _claim(self, owner: str) -> None:
        if not self._bears(owner):
            empty = self._shelves.empty()
            claim = OciManifest(artifact_type=OWNER_TYPE, config=empty, layers=(empty,), annotations={OWNER_TAG: owner})
            self._client.put_manifest(encode(claim), MANIFEST, OWNER_TAG)
            self._bears(owner)  # of two that claim at once, the one who came last has it

    def _bears(self, owner: str) -> bool:
        """Whether the repository is claimed for ``owner``, and not for nobody; ``RefusedError`` if for another."""
        found = self._claimed()
        if found not in (None, owner):
            repository = str(self.repository)
            raise RefusedError(
                f"{repository} belongs to another registry of benchlock ({found})",
                where=repository,
                next_step="give each registry a repository of its own: what one has published is garbage to the other",
            )
        return found is not None

    def _claimed(self) -> str | None:
        try:
            content = self._client.manifest(OWNER_TAG)
        except BlobNotFoundError:
            return None
        annotations = decode(content, OciManifest, f"{OWNER_TAG} of {self.repository}").annotations
        return annotations.get(OWNER_TAG, "unknown") if annotations else "unknown"

    @contextmanager
    def _locked(self, *, alone: bool) -> Iterator[None]:
        with self._disk("lock"):
            descriptor = lock_file(self._lock, alone=alone)
        try:
            yield
        finally:
            os.close(descriptor)

    @contextmanager
    def _disk(self, verb: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UnavailableError(
                f"the store cannot {verb}: {error.strerror or error}",
                where=str(self._lock.parent),
                next_step="look at the disk and the folder",
            ) from error
