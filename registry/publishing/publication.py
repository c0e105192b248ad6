"""Publishing of drafts in one transaction, with automatic version numbers where requested.

Nothing is visible before the transaction commits. A process that is killed earlier leaves unreferenced blobs, which
garbage collection removes. While a draft is written, the store keeps garbage collection out.
"""

import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import UNSET, structs

from benchlock.artifacts.blob_store import BlobStore
from benchlock.artifacts.digest import Descriptor, Digest, from_hex
from benchlock.artifacts.errors import InvalidInputError, UnknownNameError
from benchlock.artifacts.stores.temporary_stores import open_dry_run
from benchlock.artifacts.user_output import SILENT, Progress
from benchlock.registry.artifact_names import Reference, parse_name
from benchlock.registry.catalogue.catalogue_protocol import CatalogueProtocol, Entry, Provenance, PublishResult
from benchlock.registry.inspection.inspection_process import InspectionTarget, inspect_version
from benchlock.registry.manifests import Dataset, Image, Manifest, Model, files_of, manifest_digest
from benchlock.registry.manifests.manifest_checks import check
from benchlock.registry.manifests.manifest_content import content as manifest_content
from benchlock.registry.manifests.manifest_content import reference_of, with_files
from benchlock.registry.publishing.drafts import Draft, StoredFiles, store_draft_files
from benchlock.registry.publishing.oci_artifacts import name_version
from benchlock.registry.text.collected_problems import EchoError, Problems
from benchlock.registry.text.parsed_text import Document
from benchlock.registry.versions.semantic_version import parse_version

__all__ = ["Draft", "dry_run_publish", "dry_run_publish_all", "publish", "publish_all", "store_draft"]


@dataclass(frozen=True, slots=True)
class _PreparedDraft:
    """A draft without problems: the manifest to publish, and its stored files."""

    draft: Draft
    manifest: Manifest
    stored: StoredFiles


def discard_message(_: str) -> None:
    """Ignore a message."""


def publish(
    draft: Draft, store: BlobStore, catalogue: CatalogueProtocol, *, progress: Progress = SILENT
) -> PublishResult:
    """Publish one draft; see ``publish_all``."""
    (result,) = publish_all([draft], store, catalogue, progress=progress)
    return result


def dry_run_publish(
    draft: Draft, catalogue: CatalogueProtocol, store: BlobStore | None = None, *, progress: Progress = SILENT
) -> PublishResult:
    """Return the result that ``publish`` would have; see ``dry_run_publish_all``."""
    (result,) = dry_run_publish_all([draft], catalogue, store, progress=progress)
    return result


def publish_all(
    drafts: Sequence[Draft],
    store: BlobStore,
    catalogue: CatalogueProtocol,
    *,
    progress: Progress = SILENT,
    warn: Callable[[str], None] = discard_message,
) -> tuple[PublishResult, ...]:
    """Publish drafts, each in a transaction, once none of them has problems.

    Publishing the same content again changes nothing, except that it replaces damaged blobs.

    Args:
        drafts: The drafts.
        store: The store for their files.
        catalogue: The catalogue.
        progress: Shows the progress of long steps.
        warn: Receives messages about oddities that do not prevent publishing.

    Raises:
        VersionTakenError: A version is published with other content. Nothing changed.
        IntegrityError: A file differs from the author's ``sha256``.
        InvalidInputError: A file is missing, or its bytes contradict the manifest.
        UnavailableError: A source or the store failed.
        BenchlockError: Each of these errors contains all problems of all drafts.
    """
    if any(draft.problems for draft in drafts):
        return dry_run_publish_all(drafts, catalogue, store, progress=progress, warn=warn)
    results = list[PublishResult]()
    with store.writing():
        for prepared in _prepare(drafts, store, catalogue, progress, warn):
            draft, manifest = prepared.draft, prepared.manifest
            store.put(io.BytesIO(manifest_content(manifest)), name=str(draft.path))
            results.append(catalogue.publish(manifest, Provenance(draft.text, prepared.stored.sources)))
            name_version(store, manifest)
    return tuple(results)


def dry_run_publish_all(
    drafts: Sequence[Draft],
    catalogue: CatalogueProtocol,
    store: BlobStore | None = None,
    *,
    progress: Progress = SILENT,
    warn: Callable[[str], None] = discard_message,
) -> tuple[PublishResult, ...]:
    """Return the results that ``publish_all`` would have, with all its checks and errors; publish nothing.

    Local files are read in place. Remote files in ``store`` are not fetched again. Other remote files are stored there
    unreferenced, because publishing needs them next.
    """
    with open_dry_run(store) as dry_run_store:
        prepared = _prepare(drafts, dry_run_store, catalogue, progress, warn)
    return tuple(catalogue.would_change(item.manifest) for item in prepared)


def store_draft(
    draft: Draft, store: BlobStore, *, progress: Progress = SILENT, warn: Callable[[str], None] = discard_message
) -> Manifest:
    """Return the manifest as it would be published, and store it with its files unreferenced.

    The caller must hold ``store.writing()`` as long as it needs them. Raise as ``publish_all``, but not for the
    version.
    """
    problems = Problems()
    for problem in draft.problems:
        problems.add(problem)
    prepared = _prepare_one(draft, store, progress, problems, warn)
    problems.refuse()
    assert prepared is not None
    store.put(io.BytesIO(manifest_content(prepared.manifest)), name=str(draft.path))
    return prepared.manifest


def _prepare(
    drafts: Sequence[Draft],
    store: BlobStore,
    catalogue: CatalogueProtocol,
    progress: Progress,
    warn: Callable[[str], None],
) -> list[_PreparedDraft]:
    """Store the files of drafts and return the prepared drafts, or raise all problems of all drafts."""
    problems, prepared_drafts, versions = Problems(), list[_PreparedDraft](), dict[Reference, tuple[Digest, Path]]()
    for draft in drafts:
        draft_problems = Problems()
        for problem in draft.problems:
            draft_problems.add(problem)
        prepared = _prepare_one(draft, store, progress, draft_problems, warn)
        if prepared is not None:
            with draft_problems.noted():
                catalogue.would_change(prepared.manifest)
                reference, digest = reference_of(prepared.manifest), manifest_digest(prepared.manifest)
                other, path = versions.setdefault(reference, (digest, draft.path))
                if other != digest:
                    raise InvalidInputError(
                        f"{path} also publishes {reference}, with different content",
                        where=str(draft.path),
                        next_step="change the version of one of them",
                    )
            prepared_drafts.append(prepared)
        for error in draft_problems.found:
            problems.add(error)
    problems.refuse()
    _warn_of_claims([item.manifest for item in prepared_drafts], catalogue, warn)
    return prepared_drafts


def _warn_of_claims(manifests: Sequence[Manifest], catalogue: CatalogueProtocol, warn: Callable[[str], None]) -> None:
    """Warn of each dataset in a claim that is neither published nor among the manifests."""
    models = [manifest for manifest in manifests if isinstance(manifest, Model)]
    claimed = {claim.dataset.name for model in models for claim in model.claims or ()}
    for name in sorted(claimed - {manifest.name for manifest in manifests if isinstance(manifest, Dataset)}):
        try:
            catalogue.versions("dataset", parse_name(name))
        except UnknownNameError as error:
            warn(f"the dataset {name!r} of a claim is not published yet, so the claim is not judged; {error.next_step}")


def _prepare_one(
    draft: Draft, store: BlobStore, progress: Progress, problems: Problems, warn: Callable[[str], None]
) -> _PreparedDraft | None:
    """Prepare a draft; return ``None`` if a file is missing or wrong, because the manifest is incomplete then."""
    file_problems = Problems()
    stored = store_draft_files(draft, store, progress, file_problems)
    missing_paths = frozenset(file.path for file in files_of(draft.manifest) if file.path not in stored.files)
    files = {file.path: stored.files[file.path] for file in files_of(draft.manifest) if file.path in stored.files}
    version = InspectionTarget(draft.manifest, str(draft.path), store, files, missing_paths)
    inspect_version(version, file_problems, ask=draft.ask, warn=warn)
    for error in file_problems.found:
        if not (isinstance(error, EchoError) and problems.has_place(error.where)):
            problems.add(error)
    if problems.found:
        return None
    with problems.noted():
        manifest = with_files(draft.manifest, files)
        if isinstance(manifest, Image):  # only now the digests are known by which its platforms name files
            check(manifest, Document(None, str(draft.path)), published=True)
        manifest_content(manifest)  # raises if its text could not be read again
        return _PreparedDraft(draft, manifest, stored)
    return None


def publish_successor(
    draft: Draft, store: BlobStore, catalogue: CatalogueProtocol, *, progress: Progress = SILENT
) -> PublishResult:
    """Publish an image under an automatic version number.

    The draft's manifest has any version and the ``sha256`` of every file; all files are beside it. Unchanged content
    keeps its published version. Changed content gets the next MINOR version after the newest. The first version of a
    name is the one in the manifest.

    Raises:
        BenchlockError: As ``publish_all``.
    """
    image = draft.manifest
    assert isinstance(image, Image)
    published = _versions(image, catalogue)
    image_with_files = with_files(image, _describe_files(image, draft.path.parent))
    for entry in reversed(published):
        candidate = structs.replace(image_with_files, version=str(entry.reference.version))
        if manifest_digest(candidate) == entry.digest:
            return publish(_with_version(draft, str(entry.reference.version)), store, catalogue, progress=progress)
    if published:
        draft = _with_version(draft, str(published[-1].reference.version.bump_minor()))
    return publish(draft, store, catalogue, progress=progress)


def publish_if_missing(draft: Draft, store: BlobStore, catalogue: CatalogueProtocol) -> PublishResult | None:
    """Publish a draft unless its name and version are published, with any content; return ``None`` then."""
    manifest = draft.manifest
    try:
        published = catalogue.versions(manifest.kind, parse_name(manifest.name))
    except UnknownNameError:
        published = ()
    if parse_version(manifest.version) in [entry.reference.version for entry in published]:
        return None
    return publish(draft, store, catalogue)


def _versions(image: Image, catalogue: CatalogueProtocol) -> tuple[Entry, ...]:
    try:
        return catalogue.versions("image", parse_name(image.name))
    except UnknownNameError:
        return ()


def _describe_files(image: Image, folder: Path) -> dict[str, Descriptor]:
    files = () if image.files is UNSET else image.files
    return {
        file.path: Descriptor(from_hex(file.sha256), (folder / file.path).stat().st_size)
        for file in files
        if file.sha256 is not UNSET
    }


def _with_version(draft: Draft, version: str) -> Draft:
    manifest = draft.manifest
    assert isinstance(manifest, Image)
    return replace(draft, manifest=structs.replace(manifest, version=version))
