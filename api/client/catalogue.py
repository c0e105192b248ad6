"""The catalogue of a registry on a server: the same verbs as one in this process, one request each or few."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar
from urllib.parse import quote

import msgspec

from benchlock.api.client.conversation import Conversation
from benchlock.api.wire.artifacts import (
    Publication,
    PublishedVersion,
    VersionDocument,
    VersionPage,
    Yank,
    Yanked,
    entry_of,
    published_of,
)
from benchlock.api.wire.locks import Given, KeptLock
from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.artifacts.errors import BenchlockError, IntegrityError, UnknownNameError
from benchlock.registry.catalogue.entries import Entry, Provenance, Published, taken
from benchlock.registry.lockfile import Lock, dump
from benchlock.registry.manifests import Manifest, manifest_digest, parse_published
from benchlock.registry.manifests.identity import content, reference_of
from benchlock.registry.names import Kind, Name, Reference

_LATEST: Final = "latest"
_PAGE: Final = 1000
Result = TypeVar("Result")

Resend = Callable[[tuple[str, ...]], bool]
"""Sends blobs again that a server lost, by their digests, as far as they are here; whether all of them were."""


def sent_again(resend: Resend, act: Callable[[], Result]) -> Result:
    """What ``act`` gives; where the server lacks blobs for it, once more after they were sent again."""
    try:
        return act()
    except BenchlockError as error:
        if error.code != "missing-blobs" or not resend(tuple(getattr(error, "blobs", ()))):
            raise
    return act()


class RemoteCatalogue:
    """Implements ``registry.catalogue.contents.Contents``."""

    def __init__(self, talk: Conversation, resend: Resend) -> None:
        self._talk = talk
        self._resend = resend
        self._documents: dict[Reference, VersionDocument] = {}
        self._locks: dict[str, str] = {}

    def publish(self, manifest: Manifest, provenance: Provenance) -> Published:
        body = Publication(
            manifest=msgspec.json.decode(content(manifest)),
            authored=provenance.authored,
            sources=dict(provenance.sources),
            digest=manifest_digest(manifest),
        )
        return published_of(
            sent_again(self._resend, lambda: self._talk.send("POST", "artifacts", body, PublishedVersion))
        )

    def would_change(self, manifest: Manifest) -> Published:
        reference, digest = reference_of(manifest), manifest_digest(manifest)
        try:
            found = self.get(reference)
        except UnknownNameError:
            return Published(reference, digest, changed=True)
        if found.digest != digest:
            raise taken(reference, str(found.reference.version), found.digest, digest)
        return Published(reference, digest, changed=False)

    def get(self, reference: Reference) -> Entry:
        return entry_of(self._talk.get(_path(reference), VersionDocument))

    def manifest(self, reference: Reference) -> Manifest:
        return parse_published(self.content(reference)[0].encode())

    def content(self, reference: Reference) -> tuple[str, Mapping[str, str]]:
        document = self._document(reference)
        return bytes(document.manifest).decode(), document.sources

    def versions(self, kind: Kind, name: Name) -> tuple[Entry, ...]:
        found = tuple(self._pages(kind=kind, name=name))
        if not found:  # whoever asks for one is told what is near
            self._talk.get(f"artifacts/{kind}/{quote(name)}@{_LATEST}", VersionDocument)
        return found

    def list(self, kind: Kind | None = None) -> tuple[Entry, ...]:
        return tuple(self._pages(kind=kind))

    def yank(self, reference: Reference, reason: str) -> bool:
        return self._talk.send("POST", "yanks", Yank(target=str(reference), reason=reason), Yanked).changed

    def unyank(self, reference: Reference) -> bool:
        return self._talk.send("POST", "yanks", Yank(target=str(reference), undo=True), Yanked).changed

    def put_lock(self, lock: Lock) -> None:
        text = dump(lock)
        sent_again(self._resend, lambda: self._talk.send("POST", "locks", Given(text=text), KeptLock))

    def get_lock(self, lock: Digest) -> str:
        if lock not in self._locks:
            self.find_lock(lock)
        return self._locks[lock]

    def find_lock(self, text: str) -> Digest:
        found = self._talk.get(f"locks/{quote(text, safe=':')}", KeptLock)
        self._locks[found.lock] = found.text
        return Digest(found.lock)

    def _document(self, reference: Reference) -> VersionDocument:
        """The version with its manifest, whose bytes are those of the digest."""
        if reference not in self._documents:
            found = self._talk.get(_path(reference), VersionDocument)
            if digest_bytes(bytes(found.manifest)) != found.digest:
                raise IntegrityError(
                    f"the manifest of {reference} is not what its digest says: {found.digest}",
                    where=self._talk.where,
                    next_step="have who runs the server look at it with `benchlock verify`",
                )
            self._documents[reference] = found
        return self._documents[reference]

    def _pages(self, **query: str | None) -> Iterator[Entry]:
        cursor: str | None = None
        while True:
            page = self._talk.get("artifacts", VersionPage, limit=_PAGE, cursor=cursor, **query)
            yield from map(entry_of, page.artifacts)
            if isinstance(page.next, msgspec.UnsetType):
                return
            cursor = page.next


def _path(reference: Reference) -> str:
    return f"artifacts/{reference.kind}/{quote(reference.name)}@{quote(str(reference.version), safe='')}"
