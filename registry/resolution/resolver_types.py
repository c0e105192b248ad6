"""Types of the resolver: questions, candidates, snapshots and resolutions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from benchlock.artifacts.digest import Digest
from benchlock.registry.artifact_names import Kind
from benchlock.registry.requests.hardware_requirements import ANYWHERE, Hardware
from benchlock.registry.versions.semantic_version import Version
from benchlock.registry.versions.version_ranges import Constraint, Interval, Range

(EVERY,) = Range.ALL.intervals
"""All versions."""

Need = tuple[Kind, str, str]
"""The requirement of a version: kind, name and constraint text."""

Offer = tuple[str, str, str, str, bool]
"""A platform of an image: os, arch, device, Python's minor version, and whether it has layers."""

Platform = tuple[str, str, str]
"""os, arch, device."""

Status = Literal["release", "pre-release", "yanked"]
"""The status of a version; a yanked version is ``yanked`` whether it is a release or a pre-release."""

COUNTED = 1001
"""Limit of counting: above a thousand versions the exact number is of no use."""

STATUSES: tuple[Status, ...] = ("release", "pre-release", "yanked")
RARE: tuple[Status, ...] = ("pre-release", "yanked")
"""Statuses of which most names have no version."""

ORDER: tuple[Kind, ...] = ("model", "framework", "image", "dataset")
"""The kinds in the order of preference for newest versions: a newer model before a newer framework."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A published version.

    ``yanked`` is the reason if the version is yanked. ``provides`` is the framework that an image provides.
    """

    kind: Kind
    name: str
    version: Version
    digest: Digest
    yanked: str | None = None
    requires: tuple[Need, ...] = ()
    provides: tuple[str, Version] | None = None
    platforms: tuple[Offer, ...] = ()

    @property
    def status(self) -> Status:
        """Release, pre-release or yanked."""
        if self.yanked is not None:
            return "yanked"
        return "release" if self.version.prerelease is None else "pre-release"

    def __str__(self) -> str:
        """Return kind, name and version."""
        return f"{self.kind}/{self.name} {self.version}"


@dataclass(frozen=True, slots=True)
class Requirement:
    """A constraint on the versions of one name.

    ``asked_by`` is the origin as messages name it: ``the request``, ``model/resnet8 1.0.0``.
    """

    kind: Kind
    name: str
    constraint: Constraint
    asked_by: str

    def __str__(self) -> str:
        """Return kind, name and constraint."""
        return f"{self.kind}/{self.name} {self.constraint}"


@dataclass(frozen=True, slots=True)
class Question:
    """A request, as far as versions are concerned.

    Attributes:
        model: The constraint on the model, or on the operator that is evaluated in its place.
        dataset: The constraint on the dataset; None for an operator.
        framework: The request's constraint on the framework, in addition to the model's.
        image: The constraint on the image, if the request names one.
        prereleases: The kinds of which pre-releases are allowed.
        hardware: The admitted platforms.
        accelerated: Whether the request needs an accelerator, so that a platform of the device ``cpu`` does not fit.
        yanked: The kinds of which yanked versions are allowed. No request can set it; the search for fixes does.
        need: The framework that the request names for an operator; None for a model, which states its own.
    """

    model: Requirement
    dataset: Requirement | None
    framework: Constraint | None = None
    image: Requirement | None = None
    prereleases: frozenset[Kind] = frozenset()
    hardware: Hardware = ANYWHERE
    accelerated: bool = False
    yanked: frozenset[Kind] = frozenset()
    need: Need | None = None


@dataclass(frozen=True, slots=True)
class Resolution:
    """The answer to a question; ``platforms`` are those of the image that the request admits, sorted.

    ``model`` is the operator if an operator is evaluated; such an answer has no dataset.
    """

    model: Candidate
    framework: Candidate
    image: Candidate
    dataset: Candidate | None
    platforms: tuple[Offer, ...]

    def chosen(self) -> dict[Kind, Candidate]:
        """Return the chosen version of each kind."""
        chosen = (self.model, self.framework, self.image, self.dataset)
        return {candidate.kind: candidate for candidate in chosen if candidate is not None}

    def describe(self) -> dict[str, str]:
        """Return the chosen versions and the platforms as ``benchlock resolve`` words them."""
        chosen = {str(kind): f"{candidate.name} {candidate.version}" for kind, candidate in self.chosen().items()}
        return chosen | {"platforms": ", ".join("/".join(offer[:3]) for offer in self.platforms)}


@dataclass(frozen=True, slots=True)
class Population:
    """Versions of one name in an interval; only those with ``status`` and ``need`` where these are set."""

    kind: Kind
    name: str
    interval: Interval
    status: Status | None = None
    need: Need | None = None


@dataclass(frozen=True, slots=True)
class Extent:
    """The number of versions, counted up to ``COUNTED``, and the oldest and newest of them."""

    count: int
    oldest: Version
    newest: Version


@dataclass(frozen=True, slots=True)
class Environments:
    """Versions of images that provide versions of a framework on a platform.

    Attributes:
        framework: The name of the framework.
        interval: The interval of the framework's versions.
        status: The status of the framework's versions.
        platform: The platform of the images.
        image: The name of the images; ``None`` for any.
        images: The interval of the images' versions.
        image_status: The status of the images' versions.
    """

    framework: str
    interval: Interval
    status: Status
    platform: Platform
    image: str | None
    images: Interval
    image_status: Status


class Snapshot(Protocol):
    """The catalogue at one moment, in a few queries that an index answers; the order of its rows never matters."""

    def names(self, kind: Kind, near: str, limit: int) -> Sequence[str]:
        """Return names of the kind around ``near``, sorted: at most ``limit`` below it, and as many from it on."""
        ...

    def needs(self, model: str) -> Sequence[Need]:
        """Return the requirements of all versions of the model, each once, sorted."""
        ...

    def needed(self, population: Population) -> Sequence[tuple[Need, str]]:
        """Return the requirements of a population of models, each once and sorted, with the newest version's key."""
        ...

    def newest(self, population: Population, limit: int) -> Sequence[Version]:
        """Return the newest versions, newest first, at most ``limit`` of them."""
        ...

    def oldest(self, population: Population, limit: int) -> Sequence[Version]:
        """Return the oldest versions, oldest first, at most ``limit`` of them."""
        ...

    def extent(self, population: Population) -> Extent | None:
        """Return the number of versions and their ends; ``None`` if there are none."""
        ...

    def candidates(self, kind: Kind, name: str, versions: tuple[Version, ...]) -> Sequence[Candidate]:
        """Return the published ones of these versions, in the same order, with all that the resolver needs."""
        ...

    def platforms(self, framework: str) -> Sequence[Platform]:
        """Return the platforms on which some image provides some version of the framework, sorted."""
        ...

    def images(self, framework: str) -> Sequence[str]:
        """Return the names of the images that provide some version of the framework in some version, sorted."""
        ...

    def provided(self, environments: Environments) -> Version | None:
        """Return the newest published version of the framework that one of these images provides."""
        ...

    def providers(self, environments: Environments) -> Sequence[tuple[str, Version]]:
        """Return each name among these images with its newest version, by name."""
        ...
