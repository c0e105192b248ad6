"""Creation of locks over the catalogue, with or without draft versions; stored, or only tried."""

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol, cast

from msgspec import UNSET

from benchlock.artifacts.blob_store import BlobStore, read
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import InvalidInputError, UnavailableError, UnknownNameError
from benchlock.registry.inspection.file_facts import FileQuestions
from benchlock.registry.lock.file_facts_reader import read_file_facts
from benchlock.registry.lock.lock_assembly import build_lock, file_questions, list_admitted_platforms, question_of
from benchlock.registry.lock.lock_feasibility import ChosenManifests, check_answerable
from benchlock.registry.lock.lockfile import Lock, LockedHarness
from benchlock.registry.lock.selection_reasons import SelectionReason, explain_selection
from benchlock.registry.lock.split_checks import check_index_labelled, check_labelled
from benchlock.registry.manifests import (
    Dataset,
    Framework,
    Image,
    Manifest,
    Model,
    Platform,
    manifest_digest,
    parse_published,
)
from benchlock.registry.names import Kind, Reference, parse_name
from benchlock.registry.requests.request import Request, parse_locked_request
from benchlock.registry.resolution.candidates import Candidate, Need, Resolution, Snapshot
from benchlock.registry.resolution.conflicts import ConflictError
from benchlock.registry.resolution.resolver import resolve
from benchlock.registry.resolution.version_search import DraftSnapshot, Preferences, Search
from benchlock.registry.versions.semantic_version import parse_version


class Manifests(Protocol):
    """The published manifests that a lock is made of."""

    def manifest(self, reference: Reference) -> Manifest: ...

    def put_lock(self, lock: Lock) -> object: ...


class Versions(Protocol):
    """The published versions that the resolver chooses from."""

    def snapshot(self, as_of: datetime | None = None) -> AbstractContextManager[Snapshot]: ...


ConfigurationLookup = Callable[[str, str, str], bytes]
"""The configuration of the image that a reference names, for an os and an arch: verified bytes from its registry."""


@dataclass(frozen=True, slots=True)
class Harness:
    """The zipapp that a lock made now names."""

    version: str
    content: bytes


def resolve_request(request: Request, catalogue: Versions, preferences: Preferences) -> Resolution:
    """The resolution of ``request``, as of its own time if it has one. Raises as the resolver."""
    question = question_of(request)
    try:
        with catalogue.snapshot(request.as_of) as snapshot:
            return resolve(question, snapshot, preferences)
    except (ConflictError, UnknownNameError) as error:
        if request.as_of is not None:
            _tell_of_now(error, request, catalogue, preferences)
        raise


def _tell_of_now(
    error: ConflictError | UnknownNameError, request: Request, catalogue: Versions, preferences: Preferences
) -> None:
    """Say of what time the failure is, and whether there is an answer by now."""
    error.what += f"\n  as of {request.asked.as_of}, which the request asks for"
    with catalogue.snapshot() as snapshot, suppress(ConflictError, UnknownNameError):
        found = ", ".join(map(str, resolve(question_of(request), snapshot, preferences).chosen().values()))
        step = f"leave out the time: now {found} answer it"
        error.next_step = f"{error.next_step}; or {step}" if error.next_step else step


def keep_lock(
    request: Request,
    resolution: Resolution,
    harness: Harness,
    store: BlobStore,
    catalogue: Manifests,
    look_up: ConfigurationLookup | None = None,
) -> Lock:
    """The lock of ``resolution``, kept with the harness that it names. The same lock again changes nothing.

    ``look_up`` is asked for the configurations of finished images, which are kept too.

    Raises:
        InvalidInputError: something is asked that cannot be given.
        ConflictError: model and dataset name classes in another order.
        IntegrityError: a file that the lock looks into is damaged.
        UnavailableError: a finished image's registry cannot be asked.
    """
    with store.writing():
        lock = _build(request, resolution, _chosen(resolution, catalogue), harness, (store, look_up))
        catalogue.put_lock(lock)
    return lock


def resolve_drafted(request: Request, drafts: Sequence[Candidate], catalogue: Versions) -> Resolution:
    """The resolution of ``request`` if ``drafts`` were published. Raises as the resolver."""
    with catalogue.snapshot(request.as_of) as snapshot:
        return resolve(question_of(request), DraftSnapshot(snapshot, drafts), {})


def trial_lock(
    request: Request,
    resolution: Resolution,
    drafts: Sequence[Manifest],
    harness: Harness,
    reached: tuple[BlobStore, Manifests, ConfigurationLookup | None],
) -> Lock:
    """The lock of a ``resolution`` that has ``drafts``, as if they were published. It is not kept.

    ``reached`` are the store, which has the drafts' manifests and files, the catalogue, and what ``keep_lock`` asks for
    configurations; hold ``store.writing()`` for as long as the lock is used. Raises as ``keep_lock``.
    """
    store, catalogue, look_up = reached
    own = {(one.kind, one.name): one for one in drafts}
    return _build(request, resolution, _chosen(resolution, catalogue, own), harness, (store, look_up))


def make_draft_candidate(draft: Manifest) -> Candidate:
    """What the resolver would know of a manifest, were it published."""
    requires: tuple[Need, ...] = ()
    if isinstance(draft, Model):
        requires = (("framework", draft.framework.name, draft.framework.version),)
    return Candidate(draft.kind, draft.name, parse_version(draft.version), manifest_digest(draft), requires=requires)


def _build(
    request: Request,
    resolution: Resolution,
    chosen: ChosenManifests,
    harness: Harness,
    reached: tuple[BlobStore, ConfigurationLookup | None],
) -> Lock:
    """The lock, whose harness and configurations are put into the store."""
    store, look_up = reached
    manifests: Mapping[Kind, Manifest] = {manifest.kind: manifest for manifest in chosen.all()}
    check_answerable(request, chosen)
    facts = read_file_facts(file_questions(request, chosen), manifests, store)
    finished = {
        one: _configuration(one, look_up)
        for one in list_admitted_platforms(request, chosen)
        if one.reference is not UNSET
    }
    for configuration in finished.values():
        store.put(io.BytesIO(configuration))
    kept = store.put(io.BytesIO(harness.content))
    locked = LockedHarness(version=harness.version, digest=kept.digest, size=kept.size)
    return build_lock(request, resolution, chosen, facts, locked, finished)


def is_labelled(dataset: Dataset, split: str, metric: str, store: BlobStore) -> bool:
    """Whether the split has the labels that a quality metric compares predictions with, as far as a lock would ask."""
    index = dataset.splits[split].index
    try:
        check_labelled([metric], dataset, split)
        if index is not UNSET:
            facts = read_file_facts(FileQuestions(index=index), {"dataset": dataset}, store)
            check_index_labelled([metric], split, facts.label_columns)
    except InvalidInputError:
        return False
    return True


def list_yanked(resolution: Resolution) -> tuple[str, ...]:
    """What of the resolution is yanked, and why: a lock may keep it, and whoever makes it is told."""
    chosen = resolution.chosen().values()
    return tuple(f"{candidate} is yanked: {candidate.yanked}" for candidate in chosen if candidate.yanked is not None)


def explain_locked_version(lock: Lock, kind: Kind, name: str, catalogue: Versions) -> SelectionReason:
    """Why ``lock`` has its version of ``kind``/``name``, in the catalogue of its time. Raises as ``why``."""
    request = parse_locked_request(lock.request, "the lock's request")
    with catalogue.snapshot(request.as_of) as snapshot:
        return explain_selection(lock.artifacts(), kind, name, Search.of(question_of(request), snapshot, {}))


def known_manifests(locks: Iterable[Lock], store: BlobStore) -> Mapping[Digest, Manifest]:
    """The manifests of the locks' artifacts, as far as the store has them, by digest."""
    digests = {one.digest for lock in locks for one in lock.artifacts().values()}
    return {digest: parse_published(read(store, digest, name=digest)) for digest in digests if store.exists(digest)}


def _chosen(
    resolution: Resolution, catalogue: Manifests, drafts: Mapping[tuple[Kind, str], Manifest] | None = None
) -> ChosenManifests:
    own = drafts or {}

    def manifest(candidate: Candidate) -> Manifest:
        if (candidate.kind, candidate.name) in own:
            return own[candidate.kind, candidate.name]
        return catalogue.manifest(Reference(candidate.kind, parse_name(candidate.name), candidate.version))

    return ChosenManifests(
        cast("Model", manifest(resolution.model)),
        cast("Dataset", manifest(resolution.dataset)),
        cast("Framework", manifest(resolution.framework)),
        cast("Image", manifest(resolution.image)),
    )


def _configuration(platform: Platform, look_up: ConfigurationLookup | None) -> bytes:
    if look_up is None:
        raise UnavailableError(f"no registry can be asked about the finished image {platform.reference}")
    return look_up(str(platform.reference), platform.os, platform.arch)
