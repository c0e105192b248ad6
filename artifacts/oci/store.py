"""A blob store over a repository of an OCI registry.

A blob is a blob of the repository, verified by the registry before it is visible. Shelves name the blobs, see there. A
file on this machine is locked (flock) by writers and the collection of garbage, as in every store: processes of one
machine do not get into each other's way. For those of several machines there is the claim: the collection is for the
registry alone whose id the repository bears.
"""

import builtins
import io
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Final

from msgspec import UNSET

from benchlock.artifacts.digest import Descriptor, Digest, describe, digest_bytes, parse_digest
from benchlock.artifacts.errors import IntegrityError, RefusedError, UnavailableError
from benchlock.artifacts.files import open_regular
from benchlock.artifacts.leftovers import RemovedFiles
from benchlock.artifacts.locking import lock_file
from benchlock.artifacts.oci.client import DAMAGED, DeletionRefusedError, RegistryClient
from benchlock.artifacts.oci.documents import MANIFEST, OciIndex, OciManifest, decode, encode
from benchlock.artifacts.oci.reference import Repository
from benchlock.artifacts.oci.shelves import Shelves
from benchlock.artifacts.progress import Advance, unnoticed
from benchlock.artifacts.store import BlobNotFoundError, put_each, refuse_other
from benchlock.artifacts.transfer.spools import spooled

CLAIM: Final = "benchlock-registry"
"""The tag of the manifest that says whose repository it is, and the key of its annotation for that."""
CLAIM_TYPE: Final = "application/vnd.benchlock.registry.v1+json"
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
        self._shelves = Shelves(client)
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
        advance: Advance = unnoticed,
    ) -> Descriptor:
        with self.writing(), spooled(stream, self._lock.parent) as (spool, found):
            refuse_other(name, expected, found)
            self.send(spool, found, name=name, advance=advance)
        return found

    def put_file(
        self,
        path: Path,
        expected: Digest | None = None,
        *,
        name: str | None = None,
        advance: Advance = unnoticed,
    ) -> Descriptor:
        with open_regular(path) as source, self.writing():
            found = describe(source)
            refuse_other(name or str(path), expected, found)
            self.send(source, found, name=name or str(path), advance=advance)
        return found

    def send(self, source: BinaryIO, blob: Descriptor, *, name: str, advance: Advance = unnoticed) -> None:
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
                    next_step=DAMAGED,
                )
            else:
                advance(blob.size)
            self._name(blob)

    def put_files(self, paths: Iterable[Path], *, advance: Advance = unnoticed) -> builtins.list[Descriptor]:
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
            claim = OciManifest(artifact_type=CLAIM_TYPE, config=empty, layers=(empty,), annotations={CLAIM: owner})
            self._client.put_manifest(encode(claim), MANIFEST, CLAIM)
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
            content = self._client.manifest(CLAIM)
        except BlobNotFoundError:
            return None
        annotations = decode(content, OciManifest, f"{CLAIM} of {self.repository}").annotations
        return annotations.get(CLAIM, "unknown") if annotations else "unknown"

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
