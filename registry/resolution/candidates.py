"""Types of the resolver: questions, candidates, snapshots and resolutions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from benchlock.artifacts.digest import Digest
from benchlock.registry.names import Kind
from benchlock.registry.requests.hardware_requirements import ANYWHERE, Hardware
from benchlock.registry.versions.semantic_version import Version
from benchlock.registry.versions.version_ranges import Constraint, Interval, Range

(EVERY,) = Range.ALL.intervals
"""All versions."""

Need = tuple[Kind, str, str]
"""Kind, name and constraint text that a version requires."""

Offer = tuple[str, str, str, str, bool]
"""A platform of an image: os, arch, device, Python's minor version, and whether it has layers."""

Platform = tuple[str, str, str]
"""os, arch, device."""

Status = Literal["release", "pre-release", "yanked"]
"""What a version is; one that is yanked is nothing else."""

COUNTED = 1001
"""Where counting ends: nobody needs to know how many more there are than a thousand."""

STATUSES: tuple[Status, ...] = ("release", "pre-release", "yanked")
RARE: tuple[Status, ...] = ("pre-release", "yanked")
"""Of these most names have no version."""

ORDER: tuple[Kind, ...] = ("model", "framework", "image", "dataset")
"""The kinds in the order in which their newest version is preferred: a newer model before a newer framework."""


@dataclass(frozen=True, slots=True)
class Candidate:
    """A published version. ``yanked`` is the reason, where it is yanked; ``provides`` is an image's framework."""

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
        if self.yanked is not None:
            return "yanked"
        return "release" if self.version.prerelease is None else "pre-release"

    def __str__(self) -> str:
        return f"{self.kind}/{self.name} {self.version}"


@dataclass(frozen=True, slots=True)
class Requirement:
    """``asked_by`` says who, as messages do: ``the request``, ``model/resnet8 1.0.0``."""

    kind: Kind
    name: str
    constraint: Constraint
    asked_by: str

    def __str__(self) -> str:
        return f"{self.kind}/{self.name} {self.constraint}"


@dataclass(frozen=True, slots=True)
class Question:
    """A request, as far as versions go. ``framework`` narrows what the model asks of the framework that it names.

    ``accelerated``: an accelerator is asked for, so that a platform of the device cpu would not do.
    ``yanked`` lets yanked versions of some kinds in: no request can say so, but proposals are looked for with it.
    """

    model: Requirement
    dataset: Requirement
    framework: Constraint | None = None
    image: Requirement | None = None
    prereleases: frozenset[Kind] = frozenset()
    hardware: Hardware = ANYWHERE
    accelerated: bool = False
    yanked: frozenset[Kind] = frozenset()


@dataclass(frozen=True, slots=True)
class Resolution:
    """The answer. ``platforms`` are those of the image that the request admits, sorted."""

    model: Candidate
    framework: Candidate
    image: Candidate
    dataset: Candidate
    platforms: tuple[Offer, ...]

    def chosen(self) -> dict[Kind, Candidate]:
        return {one.kind: one for one in (self.model, self.framework, self.image, self.dataset)}


@dataclass(frozen=True, slots=True)
class Population:
    """Versions of one name in an interval; of a status, and with a requirement, where these are given."""

    kind: Kind
    name: str
    interval: Interval
    status: Status | None = None
    need: Need | None = None


@dataclass(frozen=True, slots=True)
class Extent:
    """How many versions there are, counted up to ``COUNTED``, and between which."""

    count: int
    oldest: Version
    newest: Version


@dataclass(frozen=True, slots=True)
class Environments:
    """Versions of images that provide versions of a framework on a platform.

    ``interval`` and ``status`` are of the framework's versions, ``images`` and ``image_status`` of the images', whose
    name is ``image`` where it is given.
    """

    framework: str
    interval: Interval
    status: Status
    platform: Platform
    image: str | None
    images: Interval
    image_status: Status


class Snapshot(Protocol):
    """The catalogue at a moment, in few questions, each of which an index answers. No order of its rows matters."""

    def names(self, kind: Kind, near: str, most: int) -> Sequence[str]:
        """Names of the kind, sorted: those next to ``near``, ``most`` at most below it, and as many from it on."""
        ...

    def needs(self, model: str) -> Sequence[Need]:
        """What the versions of the model require, each once, sorted."""
        ...

    def needed(self, wanted: Population) -> Sequence[tuple[Need, str]]:
        """What these versions of a model require, each once, sorted; with the key of the newest that does."""
        ...

    def newest(self, wanted: Population, most: int) -> Sequence[Version]:
        """The newest versions, newest first, ``most`` of them at most."""
        ...

    def oldest(self, wanted: Population, most: int) -> Sequence[Version]:
        """The oldest versions, oldest first, ``most`` of them at most."""
        ...

    def extent(self, wanted: Population) -> Extent | None:
        """How many there are, and between which; ``None`` if there are none."""
        ...

    def candidates(self, kind: Kind, name: str, versions: tuple[Version, ...]) -> Sequence[Candidate]:
        """All that the resolver knows of these versions, in their order; those that are not published are left out."""
        ...

    def platforms(self, framework: str) -> Sequence[Platform]:
        """The platforms on which some image provides some version of the framework, sorted."""
        ...

    def images(self, framework: str) -> Sequence[str]:
        """The names of the images of which some version provides some version of the framework, sorted."""
        ...

    def provided(self, wanted: Environments) -> Version | None:
        """The newest published version of the framework that one of these images provides."""
        ...

    def providers(self, wanted: Environments) -> Sequence[tuple[str, Version]]:
        """Each name among these images with its newest version, by name."""
        ...
