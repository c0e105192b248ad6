"""Publishing: the files of a draft become blobs, then one transaction makes the version visible.

Until that transaction nothing can be seen. A process that is killed before it leaves blobs that nothing names, which
garbage collection removes; the store keeps the collection away while a draft is written.
"""

import io
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from benchlock.artifacts.errors import InvalidInputError, UnknownNameError
from benchlock.artifacts.progress import SILENT, Progress
from benchlock.artifacts.rehearsal import rehearsing
from benchlock.artifacts.store import BlobStore
from benchlock.registry.catalogue.contents import Contents
from benchlock.registry.catalogue.entries import Provenance, Published
from benchlock.registry.drafts import Draft
from benchlock.registry.inspection.calls import InspectionTarget, inspect_version
from benchlock.registry.intake import Taken, take_in
from benchlock.registry.manifests import Dataset, Manifest, Model, files_of, manifest_digest
from benchlock.registry.manifests.identity import content as manifest_content
from benchlock.registry.manifests.identity import parse_published, reference_of, with_files
from benchlock.registry.names import parse_name
from benchlock.registry.packaging import name_version
from benchlock.registry.problems import EchoError, Problems

__all__ = ["Draft", "publish", "publish_all", "rehearse", "rehearse_all", "take"]


@dataclass(frozen=True, slots=True)
class _Prepared:
    """A draft that is found well: its manifest as it is published, and where its files came from."""

    draft: Draft
    manifest: Manifest
    taken: Taken


def unsaid(_: str) -> None:
    """What is said to nobody."""


def publish(draft: Draft, store: BlobStore, catalogue: Contents, *, progress: Progress = SILENT) -> Published:
    """Publish one draft. As ``publish_all``."""
    (published,) = publish_all([draft], store, catalogue, progress=progress)
    return published


def rehearse(
    draft: Draft, catalogue: Contents, store: BlobStore | None = None, *, progress: Progress = SILENT
) -> Published:
    """What ``publish`` would do. As ``rehearse_all``."""
    (published,) = rehearse_all([draft], catalogue, store, progress=progress)
    return published


def publish_all(
    drafts: Sequence[Draft],
    store: BlobStore,
    catalogue: Contents,
    *,
    progress: Progress = SILENT,
    warn: Callable[[str], None] = unsaid,
) -> tuple[Published, ...]:
    """Publish drafts, each in a transaction, once all of them are found well.

    The same content again changes nothing, but replaces damaged blobs. ``warn`` is told what is odd, and no reason to
    refuse.

    Raises:
        VersionTakenError: a version is published with other content; nothing changed.
        IntegrityError: a file is not what the author's ``sha256`` says.
        InvalidInputError: a file is missing, or its bytes contradict the manifest.
        UnavailableError: a source or the store failed.
        Every one carries all the problems that were found in all the drafts.
    """
    if any(draft.problems for draft in drafts):
        return rehearse_all(drafts, catalogue, store, progress=progress, warn=warn)
    with store.writing():
        prepared = _prepare(drafts, store, catalogue, progress, warn)
        return tuple(_commit(one, store, catalogue) for one in prepared)


def rehearse_all(
    drafts: Sequence[Draft],
    catalogue: Contents,
    store: BlobStore | None = None,
    *,
    progress: Progress = SILENT,
    warn: Callable[[str], None] = unsaid,
) -> tuple[Published, ...]:
    """What ``publish_all`` would do, with all its checks and errors; nothing becomes visible.

    Local files are read where they lie. Remote ones that are in ``store`` are not fetched, and those that are come into
    it, where nothing names them yet: publishing needs them next.
    """
    with rehearsing(store) as rehearsal:
        prepared = _prepare(drafts, rehearsal, catalogue, progress, warn)
    return tuple(catalogue.would_change(one.manifest) for one in prepared)


def take(
    draft: Draft, store: BlobStore, *, progress: Progress = SILENT, warn: Callable[[str], None] = unsaid
) -> Manifest:
    """The manifest as it would be published; its bytes and files are in the store, and nothing names them.

    Hold ``store.writing()`` for as long as they are needed. Raises as ``publish_all``, but for the version.
    """
    problems = Problems()
    for problem in draft.problems:
        problems.add(problem)
    prepared = _prepare_one(draft, store, progress, problems, warn)
    problems.refuse()
    assert prepared is not None
    store.put(io.BytesIO(manifest_content(prepared.manifest)), name=str(draft.path))
    return prepared.manifest


def _commit(prepared: _Prepared, store: BlobStore, catalogue: Contents) -> Published:
    draft, manifest = prepared.draft, prepared.manifest
    store.put(io.BytesIO(manifest_content(manifest)), name=str(draft.path))
    published = catalogue.publish(manifest, Provenance(draft.text, prepared.taken.sources))
    name_version(store, manifest)
    return published


def _prepare(
    drafts: Sequence[Draft], store: BlobStore, catalogue: Contents, progress: Progress, warn: Callable[[str], None]
) -> list[_Prepared]:
    """The drafts, with their files in the store; or every problem of all of them."""
    problems, done = Problems(), list[_Prepared]()
    for draft in drafts:
        own = Problems()
        for problem in draft.problems:
            own.add(problem)
        prepared = _prepare_one(draft, store, progress, own, warn)
        if prepared is not None:
            with own.noted():
                catalogue.would_change(prepared.manifest)
                _check_alone(prepared, done)
            done.append(prepared)
        for error in own.found:
            problems.add(error)
    problems.refuse()
    _warn_of_claims([one.manifest for one in done], catalogue, warn)
    return done


def _warn_of_claims(manifests: Sequence[Manifest], catalogue: Contents, warn: Callable[[str], None]) -> None:
    """Tell of each dataset that a claim names, and that is neither published nor among the manifests."""
    models = [one for one in manifests if isinstance(one, Model)]
    claimed = {claim.dataset.name for model in models for claim in model.claims or ()}
    for name in sorted(claimed - {one.name for one in manifests if isinstance(one, Dataset)}):
        try:
            catalogue.versions("dataset", parse_name(name))
        except UnknownNameError as error:
            warn(f"no dataset {name!r} is published here: a claim on it is judged once one is; {error.next_step}")


def _prepare_one(
    draft: Draft, store: BlobStore, progress: Progress, problems: Problems, warn: Callable[[str], None]
) -> _Prepared | None:
    """One of them; None where a file is missing or wrong, so that there is no such manifest."""
    met = Problems()
    taken = take_in(draft, store, progress, met)
    untaken = frozenset(file.path for file in files_of(draft.manifest) if file.path not in taken.files)
    files = {file.path: taken.files[file.path] for file in files_of(draft.manifest) if file.path in taken.files}
    version = InspectionTarget(draft.manifest, str(draft.path), store, files, untaken)
    inspect_version(version, met, ask=draft.ask, warn=warn)
    for error in met.found:
        if not (isinstance(error, EchoError) and problems.tell_of(error.where)):
            problems.add(error)
    if untaken or problems.found:
        return None
    with problems.noted():
        return _Prepared(draft, parse_published(manifest_content(with_files(draft.manifest, files))), taken)
    return None


def _check_alone(prepared: _Prepared, others: Iterable[_Prepared]) -> None:
    """No other draft of the same call is the same version with other content."""
    reference, digest = reference_of(prepared.manifest), manifest_digest(prepared.manifest)
    for other in others:
        if reference_of(other.manifest) == reference and manifest_digest(other.manifest) != digest:
            raise InvalidInputError(
                f"{reference} is also what {other.draft.path} publishes, with other content",
                where=str(prepared.draft.path),
                next_step="give one of them another version",
            )
