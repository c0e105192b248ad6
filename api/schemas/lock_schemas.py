"""Bodies for resolving requests and for making, checking and comparing locks."""

from typing import Annotated, Any

from msgspec import UNSET, Meta, Struct, UnsetType

from benchlock.api.schemas.artifact_schemas import Name, Version
from benchlock.artifacts import size_limits
from benchlock.artifacts.digest import Digest, DigestText, parse_digest
from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.artifact_names import Kind, parse_kind, parse_name
from benchlock.registry.lock.lock_diff import Change
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.resolution.resolver_types import Candidate, Offer, Resolution
from benchlock.registry.resolution.version_search import Preferences
from benchlock.registry.versions.semantic_version import parse_version
from benchlock.registry.versions.version_ranges import Constraint

Lockfile = Annotated[str, size_limits.limit_text(size_limits.LOCK, 'id = "sha256:…"\nschema = "1.0"\n…')]
RequestDocument = Annotated[dict[str, Any], size_limits.limit_document(size_limits.REQUEST)]


class PreferredVersion(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A version to choose if it satisfies the request, even if newer versions exist."""

    kind: Kind
    name: Name
    version: Version


class DraftVersion(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An unpublished version; ``requires`` are the kind, name and constraint of each dependency."""

    kind: Kind
    name: Name
    version: Version
    digest: DigestText
    requires: Annotated[
        tuple[tuple[Kind, Name, Annotated[str, size_limits.limit_text(1000)]], ...], Meta(max_length=16)
    ] = ()


class ResolveRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A request as in its file, and versions to prefer.

    With ``drafts``, it is resolved as if they were published, in place of all versions of their names.
    """

    request: RequestDocument
    preferences: Annotated[tuple[PreferredVersion, ...], Meta(max_length=size_limits.PREFERENCES)] = ()
    drafts: Annotated[tuple[DraftVersion, ...], Meta(max_length=16)] = ()


class LockRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request to resolve and lock, or the text of a lock to store."""

    request: RequestDocument | UnsetType = UNSET
    preferences: Annotated[tuple[PreferredVersion, ...], Meta(max_length=size_limits.PREFERENCES)] = ()
    text: Lockfile | UnsetType = UNSET


class ChosenVersion(Struct, frozen=True, kw_only=True):
    """A chosen version; ``yanked`` is the reason if it is yanked."""

    kind: Kind
    name: Name
    version: Version
    digest: DigestText
    yanked: str | None = None


class OfferedPlatform(Struct, frozen=True, kw_only=True):
    """A platform of the image; with ``layered``, it can run in a container."""

    os: str
    arch: str
    device: str
    python: str
    layered: bool


class ResolveResponse(Struct, frozen=True, kw_only=True):
    """The versions that satisfy a request, and the platforms that it admits.

    There are a model and a dataset, or a recipe and a dataset, or an operator.
    """

    model: ChosenVersion | UnsetType = UNSET
    operator: ChosenVersion | UnsetType = UNSET
    recipe: ChosenVersion | UnsetType = UNSET
    framework: ChosenVersion
    image: ChosenVersion
    dataset: ChosenVersion | UnsetType = UNSET
    platforms: tuple[OfferedPlatform, ...]


class LockResponse(Struct, frozen=True, kw_only=True):
    """A stored lock and the text of its file; ``warnings`` concern yanked versions and newer schemas."""

    lock: DigestText
    text: Lockfile
    warnings: tuple[str, ...] = ()


class LockCheckRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A lock, by its text or id, and the request that it should satisfy."""

    lock: Lockfile
    request: RequestDocument


class ExplainRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A lock, by its text or id, and one of its artifacts as ``KIND/NAME``."""

    lock: Lockfile
    target: Annotated[str, size_limits.limit_text(size_limits.TARGET, "framework/onnxruntime")]


class LockDiffRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Two locks to compare, each by its text or id."""

    before: Lockfile
    after: Lockfile


class LockDiff(Struct, frozen=True, kw_only=True):
    """The changes from one lock to another; empty if the locks are equal."""

    changes: tuple[Change, ...]


def decode_preferences(preferred: tuple[PreferredVersion, ...]) -> Preferences:
    """Decode preferred versions.

    Raises:
        InvalidInputError: A kind or version is invalid.
    """
    return {(parse_kind(choice.kind), choice.name): parse_version(choice.version) for choice in preferred}


def encode_preferences(preferences: Preferences) -> tuple[PreferredVersion, ...]:
    """Encode preferred versions."""
    return tuple(
        PreferredVersion(kind=kind, name=name, version=str(version)) for (kind, name), version in preferences.items()
    )


def encode_draft(draft: Candidate) -> DraftVersion:
    """Encode the version of a draft."""
    return DraftVersion(
        kind=draft.kind, name=draft.name, version=str(draft.version), digest=draft.digest, requires=draft.requires
    )


def decode_draft(draft: DraftVersion) -> Candidate:
    """Decode an unpublished version.

    Raises:
        InvalidInputError: A name, version, digest or constraint is invalid.
    """
    requires = tuple((kind, parse_name(name), str(Constraint.parse(text))) for kind, name, text in draft.requires)
    name, version = parse_name(draft.name), parse_version(draft.version)
    return Candidate(draft.kind, name, version, parse_digest(draft.digest), requires=requires)


def encode_resolution(resolution: Resolution) -> ResolveResponse:
    """Encode a resolution."""
    platforms = tuple(
        OfferedPlatform(os=os, arch=arch, device=device, python=python, layered=layered)
        for os, arch, device, python, layered in resolution.platforms
    )
    chosen = {str(kind): _encode_chosen_version(candidate) for kind, candidate in resolution.chosen().items()}
    return ResolveResponse(**chosen, platforms=platforms)


def decode_resolution(resolved: ResolveResponse) -> Resolution:
    """Decode a resolution.

    Raises:
        InvalidInputError: The server chose no model, operator or recipe.
    """
    subjects = (resolved.model, resolved.operator, resolved.recipe)
    subject = next((subject for subject in subjects if subject is not UNSET), None)
    if subject is None:
        raise InvalidInputError("the server chose no model, operator or recipe", next_step="upgrade benchlock")
    platforms: tuple[Offer, ...] = tuple(
        (platform.os, platform.arch, platform.device, platform.python, platform.layered)
        for platform in resolved.platforms
    )
    return Resolution(
        model=_decode_candidate(subject),
        framework=_decode_candidate(resolved.framework),
        image=_decode_candidate(resolved.image),
        dataset=None if resolved.dataset is UNSET else _decode_candidate(resolved.dataset),
        platforms=platforms,
    )


def encode_lock(lock: Lock, text: str, warnings: tuple[str, ...] = ()) -> LockResponse:
    """Encode a stored lock; its own warnings follow ``warnings``."""
    return LockResponse(lock=lock.id, text=text, warnings=(*warnings, *lock.warnings))


def _encode_chosen_version(candidate: Candidate) -> ChosenVersion:
    return ChosenVersion(
        kind=candidate.kind,
        name=candidate.name,
        version=str(candidate.version),
        digest=candidate.digest,
        yanked=candidate.yanked,
    )


def _decode_candidate(document: ChosenVersion) -> Candidate:
    return Candidate(
        document.kind, document.name, parse_version(document.version), Digest(document.digest), document.yanked
    )
