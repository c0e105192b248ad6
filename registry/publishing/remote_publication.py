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
from benchlock.registry.publishing.oci_artifacts import name_version
from benchlock.registry.text.collected_problems import Problems
from benchlock.registry.text.parsed_text import Document, Place

_NOT_LOADED = ("code", "card", "labels", "vocabulary")
"""Roles of files that no framework loads: text, and files that the manifest declares as code."""


def refuse_hidden_code(model: Model, store: BlobStore) -> None:
    """Raise if a file of a model runs code when it is loaded, unless the manifest declares the model unsafe.

    Raises:
        InvalidInputError: A file runs code. The error contains its path and the reason.
        LimitExceededError: A file cannot be inspected within the limits.
    """
    if model.unsafe is True:
        return
    loaded = [file.path for file in model.files if file.role not in _NOT_LOADED]
    error = find_code(sent_version(model, store), loaded)
    if error is not None:
        raise error


def find_objection(manifest: Manifest, store: BlobStore) -> str | None:
    """Return the first problem for which publishing would refuse a manifest or its stored files, or ``None``."""
    problems = Problems()
    with problems.noted():
        inspect_version(sent_version(manifest, store), problems, ask=None, warn=lambda _: None)
    return problems.found[0].what if problems.found else None


def sent_version(manifest: Manifest, store: BlobStore) -> InspectionTarget:
    """Return the inspection target for a published manifest and its files."""
    return InspectionTarget(manifest, str(reference_of(manifest)), store, describe_files(manifest))


def describe_files(manifest: Manifest) -> Mapping[str, Descriptor]:
    """Return digest and size of each file of a published manifest, by path."""
    descriptors = {}
    for file in files_of(manifest):
        assert isinstance(file.sha256, str)
        assert isinstance(file.size, int)
        descriptors[file.path] = Descriptor(from_hex(file.sha256), file.size)
    return descriptors


_LISTED = 3


class MissingBlobsError(InvalidInputError):
    """A manifest or record that references blobs the store lacks; ``blobs`` are the digests to send."""

    code = "missing-blobs"

    def __init__(self, what: str, blobs: Collection[Digest]) -> None:
        """Create the error with the message ``what``."""
        super().__init__(what, next_step="send them, then try again")
        self.blobs = tuple(blobs)


def parse_received_manifest(document: Mapping[str, Any], stated: Digest | None = None) -> Manifest:
    """Parse a manifest from its content, and check its digest.

    Args:
        document: The parsed JSON; its RFC 8785 form is the content.
        stated: The digest that the sender states, if any.

    Raises:
        InvalidInputError: The manifest violates a rule.
        IntegrityError: The digest differs from the stated one.
    """
    manifest = parse_content(document)
    actual = manifest_digest(manifest)
    if stated is not None and stated != actual:
        raise IntegrityError(
            f"the digest of the manifest is {actual}, but the request states {stated}",
            where="digest",
            next_step="send the manifest with the digest of its canonical JSON",
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
    """Publish a manifest in one transaction after checking its stored files; repeating it changes nothing.

    Finished images are not looked up: the sender chooses their registries, which this server may not be allowed to
    contact.

    Args:
        manifest: The manifest.
        provenance: The author's text and the sources of the files.
        store: The store, to which the client sent the files.
        catalogue: The catalogue.
        warn: Receives messages about oddities that do not prevent publishing.
        dry_run: Do all checks, but publish nothing.

    Raises:
        ForbiddenError: The actor may not publish versions of this name.
        MissingBlobsError: Files were not sent yet.
        VersionTakenError: The version is published with other content.
        IntegrityError: A file in ``store`` is damaged.
        InvalidInputError: The files contradict the manifest, or a new version violates a rule that only new versions
            must
            follow. The error contains all problems.
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
        result = _publish(manifest, provenance, store, catalogue)
        name_version(store, manifest)
    return result


def _publish(manifest: Manifest, provenance: Provenance, store: BlobStore, catalogue: Catalogue) -> PublishResult:
    """Publish a manifest and store it, unless the store reads it from the catalogue.

    Publishing it again stores it in any case, which repairs a damaged file.
    """
    in_catalogue = isinstance(store, CataloguedStore)
    if not in_catalogue:
        _put(manifest, store)
    result = catalogue.publish(manifest, provenance)
    if in_catalogue and not result.changed:
        _put(manifest, store)
    return result


def _put(manifest: Manifest, store: BlobStore) -> None:
    store.put(io.BytesIO(content(manifest)), name=str(reference_of(manifest)))


def require_blobs(blobs: Mapping[Digest, str], store: BlobStore) -> None:
    """Raise unless the store has all of ``blobs``, whose values are their names for messages.

    Raises:
        MissingBlobsError: The store lacks some of them; the error lists their digests.
    """
    missing_names = {digest: name for digest, name in blobs.items() if not store.exists(digest)}
    if missing_names:
        raise MissingBlobsError(
            _describe_missing(list(missing_names.values()), len(missing_names)), tuple(missing_names)
        )


def _inspect_sent(manifest: Manifest, store: BlobStore, problems: Problems, warn: Callable[[str], None]) -> None:
    """Require that all files were sent, files in trees included, with their declared sizes; then inspect them."""
    require_blobs({blob.digest: path for path, blob in describe_files(manifest).items()}, store)
    missing = inspect_version(sent_version(manifest, store), problems, ask=None, warn=warn, present=False)
    if missing.count:
        raise MissingBlobsError(_describe_missing(missing.paths, missing.count), missing.digests)


def _describe_missing(paths: Sequence[str], count: int) -> str:
    more = f" and {count - _LISTED} more" if count > _LISTED else ""
    return f"not sent yet: {', '.join(paths[:_LISTED])}{more}"
