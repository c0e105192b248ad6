"""Server side of publishing: checks of a manifest and blobs that a client sent before."""

import io
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from benchlock.artifacts.blob_store import BlobStore
from benchlock.artifacts.digest import Descriptor, Digest, from_hex
from benchlock.artifacts.errors import IntegrityError, InvalidInputError
from benchlock.registry.auth.permissions import get_actor
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.catalogue.catalogue_protocol import CataloguedStore, Provenance, PublishResult
from benchlock.registry.inspection.inspection_process import InspectionTarget, find_code, inspect_version
from benchlock.registry.manifests import Manifest, Model, files_of
from benchlock.registry.manifests.manifest_content import content, manifest_digest, parse_content, reference_of
from benchlock.registry.manifests.model_checks import check_geometry
from benchlock.registry.publishing.artifact_export import name_version
from benchlock.registry.text.problems import Problems
from benchlock.registry.text.yaml import Document, Place

_NOT_LOADED = ("code", "card", "labels", "vocabulary")
"""Roles of files that no framework reads: text, and code that says so."""


def refuse_hidden_code(model: Model, store: BlobStore) -> None:
    """Nothing, where no file of the model runs code when it is read, or the manifest says that some do.

    Raises:
        InvalidInputError: one does; names it and says why.
        LimitExceededError: one cannot be looked into.
    """
    if model.unsafe is True:
        return
    loaded = [file.path for file in model.files if file.role not in _NOT_LOADED]
    error = find_code(sent_version(model, store), loaded)
    if error is not None:
        raise error


def find_objection(manifest: Manifest, store: BlobStore) -> str | None:
    """What publishing would refuse in the manifest or in its files, which are all in ``store``; None if nothing."""
    problems = Problems()
    with problems.noted():
        inspect_version(sent_version(manifest, store), problems, ask=None, warn=lambda _: None)
    return problems.found[0].what if problems.found else None


def sent_version(manifest: Manifest, store: BlobStore) -> InspectionTarget:
    """A published manifest and its files, for inspection."""
    return InspectionTarget(manifest, str(reference_of(manifest)), store, describe_files(manifest))


def describe_files(manifest: Manifest) -> Mapping[str, Descriptor]:
    """Digest and size of each file of a published manifest, by path."""
    """Digest and size of each file of a published manifest, by path."""
    found = {}
    for file in files_of(manifest):
        assert isinstance(file.sha256, str)
        assert isinstance(file.size, int)
        found[file.path] = Descriptor(from_hex(file.sha256), file.size)
    return found


_SHOWN = 3


class MissingBlobsError(InvalidInputError):
    """Blobs that a manifest or a record names are not in the store. ``blobs`` are their digests, to be sent."""

    code = "missing-blobs"

    def __init__(self, what: str, blobs: Collection[Digest]) -> None:
        super().__init__(what, next_step="send them, and do this again")
        self.blobs = tuple(blobs)


def parse_received_manifest(document: Mapping[str, Any], stated: Digest | None = None) -> Manifest:
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


def publish_received(
    manifest: Manifest,
    provenance: Provenance,
    store: BlobStore,
    catalogue: Catalogue,
    *,
    warn: Callable[[str], None],
    dry_run: bool = False,
) -> PublishResult:
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
    get_actor().require_publishing(manifest.name)
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


def _publish(manifest: Manifest, provenance: Provenance, store: BlobStore, catalogue: Catalogue) -> PublishResult:
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


def require_blobs(blobs: Mapping[Digest, str], store: BlobStore) -> None:
    """Nothing, where the store has all of ``blobs``, which are named for messages.

    Raises:
        MissingBlobsError: it lacks some; names all of them.
    """
    missing = {digest: name for digest, name in blobs.items() if not store.exists(digest)}
    if missing:
        raise MissingBlobsError(_told(list(missing.values()), len(missing)), tuple(missing))


def _inspect_sent(manifest: Manifest, store: BlobStore, problems: Problems, warn: Callable[[str], None]) -> None:
    """All files are there, those inside trees too, in the sizes that are written down for them; and they are well."""
    require_blobs({blob.digest: path for path, blob in describe_files(manifest).items()}, store)
    missing = inspect_version(sent_version(manifest, store), problems, ask=None, warn=warn, present=False)
    if missing.count:
        raise MissingBlobsError(_told(missing.paths, missing.count), missing.digests)


def _told(paths: Sequence[str], count: int) -> str:
    more = f" and {count - _SHOWN} more" if count > _SHOWN else ""
    return f"not sent yet: {', '.join(paths[:_SHOWN])}{more}"
