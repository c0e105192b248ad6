"""Publishing what somebody else prepared: a manifest as published, whose blobs were sent before. Nothing is trusted."""

import io
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import IntegrityError, InvalidInputError
from benchlock.artifacts.store import BlobStore
from benchlock.registry.access.actors import acting
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.catalogue.entries import Provenance, Published
from benchlock.registry.catalogued import CataloguedStore
from benchlock.registry.inspection.calls import inspect_version
from benchlock.registry.manifests import Manifest, Model
from benchlock.registry.manifests.geometry import check_geometry
from benchlock.registry.manifests.identity import content, manifest_digest, parse_content, reference_of
from benchlock.registry.packaging import name_version
from benchlock.registry.problems import Problems
from benchlock.registry.vetting import described, sent_version
from benchlock.registry.yaml import Document, Place

_SHOWN = 3


class MissingBlobsError(InvalidInputError):
    """Blobs that a manifest or a record names are not in the store. ``blobs`` are their digests, to be sent."""

    code = "missing-blobs"

    def __init__(self, what: str, blobs: Collection[Digest]) -> None:
        super().__init__(what, next_step="send them, and do this again")
        self.blobs = tuple(blobs)


def parse_accepted(document: Mapping[str, Any], stated: Digest | None = None) -> Manifest:
    """The manifest whose content, as RFC 8785 writes it, is ``document``.

    Raises:
        InvalidInputError: it breaks a rule of manifests.
        IntegrityError: its digest is not the one that the sender states.
    """
    manifest = parse_content(document)
    found = manifest_digest(manifest)
    if stated is not None and stated != found:
        raise IntegrityError(
            f"the manifest's digest is {found}, and the sender says {stated}",
            where="digest",
            next_step="send the manifest as it was digested",
        )
    return manifest


def accept(
    manifest: Manifest,
    provenance: Provenance,
    store: BlobStore,
    catalogue: Catalogue,
    *,
    warn: Callable[[str], None],
    dry_run: bool = False,
) -> Published:
    """Publish ``manifest``, in one transaction, once its files in ``store`` are found well; again it changes nothing.

    Finished images are not asked for: a sender names their registries, and this may run where it may not go.

    Raises:
        ForbiddenError: who is acting may not publish versions of that name.
        MissingBlobsError: files are not there yet.
        VersionTakenError: the version is published with other content.
        IntegrityError: a file in ``store`` is damaged.
        InvalidInputError: the files contradict the manifest, or a version that is new breaks a rule that older ones may
            break; carries all the problems that were found.
    """
    acting().require_publishing(manifest.name)
    with store.writing():
        problems = Problems()
        _inspect_sent(manifest, store, problems, warn)
        if isinstance(manifest, Model) and catalogue.would_change(manifest).changed:
            with problems.noted():
                check_geometry(manifest, Place(Document(None, str(reference_of(manifest)))))
        problems.refuse()
        if dry_run:
            return catalogue.would_change(manifest)
        published = _publish(manifest, provenance, store, catalogue)
        name_version(store, manifest)
    return published


def _publish(manifest: Manifest, provenance: Provenance, store: BlobStore, catalogue: Catalogue) -> Published:
    """One that the store finds in the catalogue is put nowhere else; published again, it repairs what is there."""
    found_there = isinstance(store, CataloguedStore)
    if not found_there:
        _put(manifest, store)
    published = catalogue.publish(manifest, provenance)
    if found_there and not published.changed:
        _put(manifest, store)
    return published


def _put(manifest: Manifest, store: BlobStore) -> None:
    store.put(io.BytesIO(content(manifest)), name=str(reference_of(manifest)))


def refuse_missing(blobs: Mapping[Digest, str], store: BlobStore) -> None:
    """Nothing, where the store has all of ``blobs``, which are named for messages.

    Raises:
        MissingBlobsError: it lacks some; names all of them.
    """
    missing = {digest: name for digest, name in blobs.items() if not store.exists(digest)}
    if missing:
        raise MissingBlobsError(_told(list(missing.values()), len(missing)), tuple(missing))


def _inspect_sent(manifest: Manifest, store: BlobStore, problems: Problems, warn: Callable[[str], None]) -> None:
    """All files are there, those inside trees too, in the sizes that are written down for them; and they are well."""
    refuse_missing({blob.digest: path for path, blob in described(manifest).items()}, store)
    missing = inspect_version(sent_version(manifest, store), problems, ask=None, warn=warn, present=False)
    if missing.count:
        raise MissingBlobsError(_told(missing.paths, missing.count), missing.digests)


def _told(paths: Sequence[str], count: int) -> str:
    more = f" and {count - _SHOWN} more" if count > _SHOWN else ""
    return f"not sent yet: {', '.join(paths[:_SHOWN])}{more}"
