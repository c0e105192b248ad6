"""Creation of locks over the catalogue, with or without draft versions; stored, or only tried."""

import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import Protocol, cast

from msgspec import UNSET

from benchlock.artifacts.blob_store import BlobStore, read
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import (
    BenchlockError,
    IntegrityError,
    InvalidInputError,
    UnavailableError,
    UnknownNameError,
)
from benchlock.registry.artifact_names import Kind, Reference, parse_name
from benchlock.registry.inspection.file_facts import FileFacts, FileQuestions
from benchlock.registry.lock.file_facts_reader import read_file_facts
from benchlock.registry.lock.lock_assembly import (
    Freshness,
    build_lock,
    check_lock,
    check_lockable,
    file_questions,
    list_admitted_platforms,
    question_of,
)
from benchlock.registry.lock.lock_feasibility import (
    Chosen,
    ChosenManifests,
    ChosenOperator,
    ChosenRecipe,
    check_answerable,
    check_index,
    find_required_index,
)
from benchlock.registry.lock.lockfile import Lock, LockedArtifact, LockedHarness
from benchlock.registry.lock.selection_reasons import SelectionReason, explain_selection
from benchlock.registry.lock.split_checks import check_index_labelled, check_labelled
from benchlock.registry.manifests import (
    Dataset,
    Framework,
    Image,
    Manifest,
    Model,
    Operator,
    Platform,
    Recipe,
    manifest_digest,
    parse_published,
)
from benchlock.registry.requests.evaluation_request import Request, parse_locked_request
from benchlock.registry.resolution.conflicts import ConflictError
from benchlock.registry.resolution.resolver import resolve
from benchlock.registry.resolution.resolver_types import Candidate, Need, Question, Resolution, Snapshot
from benchlock.registry.resolution.version_search import DraftSnapshot, Preferences, Search
from benchlock.registry.versions.semantic_version import parse_version


class ManifestReader(Protocol):
    """Access to the published manifests that a lock is built from."""

    def manifest(self, reference: Reference) -> Manifest:
        """Return the manifest as published."""
        ...


class Manifests(ManifestReader, Protocol):
    """Access to the published manifests that a lock is built from, and storage of the lock."""

    def put_lock(self, lock: Lock) -> object:
        """Store a lock under its id; storing it again changes nothing."""
        ...


class Versions(Protocol):
    """Access to the published versions that the resolver chooses from."""

    def snapshot(self, as_of: datetime | None = None) -> AbstractContextManager[Snapshot]:
        """Open the resolver's view of the catalogue: as it is now, or as it was at ``as_of``."""
        ...


class PublishedVersions(Versions, ManifestReader, Protocol):
    """Access to the published versions and their manifests."""


ConfigurationLookup = Callable[[str, str, str], bytes]
"""Returns the verified configuration of an image from its registry, by reference, OS and architecture."""


@dataclass(frozen=True, slots=True)
class Harness:
    """The zipapp of the harness that new locks contain."""

    version: str
    content: bytes


def resolve_request(request: Request, catalogue: Versions, preferences: Preferences) -> Resolution:
    """Resolve a request, as of the time that it contains, if any. Raise as the resolver."""
    question = question_of(request)
    try:
        with catalogue.snapshot(request.as_of) as snapshot:
            return resolve(question, snapshot, preferences)
    except (ConflictError, UnknownNameError) as error:
        if request.as_of is not None:
            _add_current_answer(error, request, catalogue, preferences)
        raise


def _add_current_answer(
    error: ConflictError | UnknownNameError, request: Request, catalogue: Versions, preferences: Preferences
) -> None:
    """Add to an error the time that it applies to, and the resolution as of now, if there is one."""
    error.what += f"\n  as of {request.content.as_of}, the time in the request (as_of)"
    with catalogue.snapshot() as snapshot, suppress(ConflictError, UnknownNameError):
        answer = ", ".join(map(str, resolve(question_of(request), snapshot, preferences).chosen().values()))
        step = f"remove as_of: now the request resolves to {answer}"
        error.next_step = f"{error.next_step}; or {step}" if error.next_step else step


def keep_lock(
    request: Request,
    resolution: Resolution,
    harness: Harness,
    store: BlobStore,
    catalogue: Manifests,
    look_up: ConfigurationLookup | None = None,
) -> Lock:
    """Create and store the lock of a resolution, with its harness; repeating it changes nothing.

    Args:
        request: The request.
        resolution: Its resolution.
        harness: The harness to lock.
        store: The store of the blobs.
        catalogue: The catalogue.
        look_up: Returns the configurations of finished images, which are stored as well.

    Raises:
        InvalidInputError: A part of the request is not supported.
        ConflictError: Model and dataset name classes in different orders.
        IntegrityError: A file that the lock depends on is damaged.
        UnavailableError: The registry of a finished image cannot be reached.
    """
    with store.writing():
        chosen = _read_manifests(resolution, catalogue)
        lock = _LockBuilder(harness, store, look_up).build(request, resolution, chosen)
        catalogue.put_lock(lock)
    return lock


def resolve_drafted(request: Request, drafts: Sequence[Candidate], catalogue: Versions) -> Resolution:
    """Resolve a request as if ``drafts`` were published. Raise as the resolver."""
    with catalogue.snapshot(request.as_of) as snapshot:
        return resolve(question_of(request), DraftSnapshot(snapshot, drafts), {})


def build_trial_lock(
    request: Request,
    resolution: Resolution,
    drafts: Sequence[Manifest],
    harness: Harness,
    access: tuple[BlobStore, Manifests, ConfigurationLookup | None],
) -> Lock:
    """Create the lock of a resolution with drafts, as if they were published, without storing it.

    The caller must hold ``store.writing()`` as long as it uses the lock. Raise as ``keep_lock``.

    Args:
        request: The request.
        resolution: Its resolution.
        drafts: The manifests of the drafts.
        harness: The harness to lock.
        access: The store, which has the manifests and files of the drafts; the catalogue; and ``look_up`` of
            ``keep_lock``.
    """
    store, catalogue, look_up = access
    by_name = {(draft.kind, draft.name): draft for draft in drafts}
    chosen = _read_manifests(resolution, catalogue, by_name)
    return _LockBuilder(harness, store, look_up).build(request, resolution, chosen)


def make_draft_candidate(draft: Manifest) -> Candidate:
    """Return the resolver's candidate for a manifest as if it were published."""
    requires: tuple[Need, ...] = ()
    if isinstance(draft, Model):
        requires = (("framework", draft.framework.name, draft.framework.version),)
    return Candidate(draft.kind, draft.name, parse_version(draft.version), manifest_digest(draft), requires=requires)


class _LockBuilder:
    """Builds locks, and stores their harness and the configurations of finished images; equal parts are read once."""

    def __init__(self, harness: Harness, store: BlobStore, look_up: ConfigurationLookup | None) -> None:
        """Build locks with ``harness`` from the files in ``store``; ``look_up`` is that of ``keep_lock``."""
        self._harness, self._store, self._look_up = harness, store, look_up
        self._facts: dict[tuple[FileQuestions, tuple[Digest, ...]], FileFacts] = {}
        self._configurations: dict[Platform, bytes] = {}

    @cached_property
    def _locked_harness(self) -> LockedHarness:
        blob = self._store.put(io.BytesIO(self._harness.content))
        return LockedHarness(version=self._harness.version, digest=blob.digest, size=blob.size)

    def build(self, request: Request, resolution: Resolution, chosen: Chosen) -> Lock:
        """Build the lock of a resolution, whose manifests are ``chosen``."""
        check_answerable(request, chosen)
        facts = self._read_facts(file_questions(request, chosen), resolution, chosen)
        finished = {
            platform: self._configure(platform)
            for platform in list_admitted_platforms(request, chosen)
            if platform.reference is not UNSET
        }
        return build_lock(request, resolution, chosen, facts, self._locked_harness, finished)

    def _read_facts(self, questions: FileQuestions, resolution: Resolution, chosen: Chosen) -> FileFacts:
        key = questions, _digests_of(resolution)
        if key not in self._facts:
            manifests: Mapping[Kind, Manifest] = {manifest.kind: manifest for manifest in chosen.all()}
            self._facts[key] = read_file_facts(questions, manifests, self._store)
        return self._facts[key]

    def _configure(self, platform: Platform) -> bytes:
        if platform not in self._configurations:
            self._configurations[platform] = _configuration(platform, self._look_up)
            self._store.put(io.BytesIO(self._configurations[platform]))
        return self._configurations[platform]


def _digests_of(resolution: Resolution) -> tuple[Digest, ...]:
    return tuple(candidate.digest for candidate in resolution.chosen().values())


def build_locks(
    requests: Sequence[Request],
    as_of: datetime | None,
    harness: Harness,
    access: tuple[BlobStore, PublishedVersions, ConfigurationLookup | None],
) -> Iterator[Lock | BenchlockError]:
    """Build a lock of each request on one snapshot of the catalogue, without storing it.

    Equal questions are resolved once. The caller must hold ``store.writing()`` until the locks are stored.

    Args:
        requests: The requests.
        as_of: The time of the snapshot; None for now.
        harness: The harness to lock.
        access: The store, the catalogue, and ``look_up`` of ``keep_lock``.

    Yields:
        The lock of each request, or why the request has none: the error that ``lock`` would raise.

    Raises:
        UnavailableError: As ``keep_lock``.
    """
    store, catalogue, look_up = access
    builder = _LockBuilder(harness, store, look_up)
    questions = [question_of(request) for request in requests]
    answers: dict[Question, Resolution | BenchlockError] = {}
    with catalogue.snapshot(as_of) as snapshot:
        for question in questions:
            if question not in answers:
                answers[question] = _resolve_or_explain(question, snapshot)
    manifests: dict[tuple[Digest, ...], Chosen] = {}
    for request, question in zip(requests, questions, strict=True):
        answer = answers[question]
        if isinstance(answer, BenchlockError):
            yield answer
            continue
        key = _digests_of(answer)
        try:
            if key not in manifests:
                manifests[key] = _read_manifests(answer, catalogue)
            lock: Lock | BenchlockError = builder.build(request, answer, manifests[key])
        except (ConflictError, InvalidInputError, IntegrityError) as error:
            lock = error
        yield lock


def _resolve_or_explain(question: Question, snapshot: Snapshot) -> Resolution | BenchlockError:
    try:
        return resolve(question, snapshot, {})
    except (ConflictError, UnknownNameError) as error:
        return error


def is_labelled(dataset: Dataset, split: str, metric: str, store: BlobStore) -> bool:
    """Return whether a split has the labels for a quality metric, by the checks of a lock.

    Args:
        dataset: The dataset.
        split: The name of the split.
        metric: The name of the metric.
        store: The store of the dataset's files.
    """
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
    """Return a warning for each yanked version of a resolution. A lock may keep yanked versions."""
    chosen = resolution.chosen().values()
    return tuple(f"{candidate} is yanked: {candidate.yanked}" for candidate in chosen if candidate.yanked is not None)


def explain_locked_version(lock: Lock, kind: Kind, name: str, catalogue: Versions) -> SelectionReason:
    """Explain why a lock has its version of ``kind``/``name``. Raise as ``explain_selection``.

    Args:
        lock: The lock.
        kind: The kind of the artifact.
        name: The name of the artifact.
        catalogue: The catalogue; it is read as of the time of the lock, if the lock has one.
    """
    request = parse_locked_request(lock.request, "the lock's request")
    with catalogue.snapshot(request.as_of) as snapshot:
        return explain_selection(lock.artifacts(), kind, name, Search.of(question_of(request), snapshot, {}))


def check_own_request(lock: Lock, catalogue: Versions) -> tuple[Freshness, tuple[str, ...]]:
    """Check a lock against the request that it contains, as ``benchlock lock --check`` does.

    Args:
        lock: The lock.
        catalogue: The catalogue; it is read as of the time of the lock, if the lock has one.

    Returns:
        Whether the lock is still the answer, and the versions that a new lock of the request would have in place of
        the locked ones, such as ``model/digits 1.0.0 → 1.1.0``.

    Raises:
        InvalidInputError: This version of benchlock does not support the request.
    """
    request = parse_locked_request(lock.request, "the lock's request")
    with catalogue.snapshot(request.as_of) as snapshot:
        freshness = check_lock(lock, request, snapshot)
        try:
            chosen = resolve(question_of(request), snapshot, {}).chosen()
        except (ConflictError, UnknownNameError):
            return freshness, ()
    moved = tuple(
        f"{kind}/{artifact.name} {artifact.version} → "
        + (f"{new.version}" if new.name == artifact.name else f"{new.name} {new.version}")
        for kind, artifact in lock.artifacts().items()
        if (new := chosen.get(kind)) is not None and (new.name, str(new.version)) != (artifact.name, artifact.version)
    )
    return freshness, moved


def known_manifests(locks: Iterable[Lock], store: BlobStore) -> Mapping[Digest, Manifest]:
    """Return the manifests of the locks' artifacts that are in the store, by digest."""
    digests = {artifact.digest for lock in locks for artifact in lock.artifacts().values()}
    return {digest: parse_published(read(store, digest, name=digest)) for digest in digests if store.exists(digest)}


def _read_manifests(
    resolution: Resolution, catalogue: ManifestReader, drafts: Mapping[tuple[Kind, str], Manifest] | None = None
) -> Chosen:
    draft_manifests = drafts or {}

    def manifest(candidate: Candidate) -> Manifest:
        if (candidate.kind, candidate.name) in draft_manifests:
            return draft_manifests[candidate.kind, candidate.name]
        return catalogue.manifest(Reference(candidate.kind, parse_name(candidate.name), candidate.version))

    subject = manifest(resolution.model)
    framework = cast("Framework", manifest(resolution.framework))
    image = cast("Image", manifest(resolution.image))
    if isinstance(subject, Operator):
        return ChosenOperator(subject, framework, image)
    assert resolution.dataset is not None
    dataset = cast("Dataset", manifest(resolution.dataset))
    if isinstance(subject, Recipe):
        return ChosenRecipe(subject, dataset, framework, image)
    return ChosenManifests(cast("Model", subject), dataset, framework, image)


def explain_resolution(request: Request, catalogue: Versions) -> tuple[Resolution, tuple[SelectionReason, ...]]:
    """Resolve a request, and explain each chosen version as ``benchlock why`` does. Raise as the resolver."""
    resolution = resolve_request(request, catalogue, {})
    locked = {
        kind: LockedArtifact(name=candidate.name, version=str(candidate.version), digest=candidate.digest)
        for kind, candidate in resolution.chosen().items()
    }
    with catalogue.snapshot(request.as_of) as snapshot:
        search = Search.of(question_of(request), snapshot, {})
        reasons = tuple(explain_selection(locked, kind, artifact.name, search) for kind, artifact in locked.items())
    return resolution, reasons


def check_resolution(request: Request, resolution: Resolution, store: BlobStore, catalogue: ManifestReader) -> None:
    """Check that a resolution can be locked; nothing is stored. Raise as ``keep_lock``."""
    chosen = _read_manifests(resolution, catalogue)
    check_answerable(request, chosen)
    manifests: Mapping[Kind, Manifest] = {manifest.kind: manifest for manifest in chosen.all()}
    check_lockable(request, chosen, read_file_facts(file_questions(request, chosen), manifests, store))


def check_choices(request: Request, resolution: Resolution, store: BlobStore, catalogue: ManifestReader) -> None:
    """Check what the manifests and the index of the split decide; of all files only the index is read.

    Args:
        request: The request.
        resolution: Its resolution.
        store: The store of the index.
        catalogue: The catalogue.

    Raises:
        InvalidInputError: The versions cannot answer the request.
        IntegrityError: The index is damaged.
    """
    chosen = _read_manifests(resolution, catalogue)
    check_answerable(request, chosen)
    if not isinstance(chosen, ChosenManifests):
        return
    index = find_required_index(request, chosen)
    if index is not None:
        check_index(request, chosen, read_file_facts(FileQuestions(index=index), {"dataset": chosen.dataset}, store))


def _configuration(platform: Platform, look_up: ConfigurationLookup | None) -> bytes:
    if look_up is None:
        raise UnavailableError(f"cannot look up the finished image {platform.reference}: no OCI registry is accessible")
    return look_up(str(platform.reference), platform.os, platform.arch)
