"""What the resolver is asked, what it chooses from, and what it answers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from artifacts.digest import Digest
from registry.constraints import Constraint
from registry.hardware import ANYWHERE, Hardware
from registry.names import Kind
from registry.versions import Version

Need = tuple[Kind, str, str]
"""Kind, name and constraint text that a version requires."""

Offer = tuple[str, str, str, str, bool]
"""A platform of an image: os, arch, device, Python's minor version, and whether it has layers."""

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
    """A request, as far as versions go. ``framework`` narrows what the model asks of the framework that it names."""

    model: Requirement
    dataset: Requirement
    framework: Constraint | None = None
    image: Requirement | None = None
    prereleases: frozenset[Kind] = frozenset()
    hardware: Hardware = ANYWHERE


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


class Snapshot(Protocol):
    """The catalogue at a moment, in few queries. No order of the answers matters."""

    def versions(self, kind: Kind, name: str) -> Sequence[Candidate]:
        """Every version of the name, yanked ones included; none of an unknown name."""
        ...

    def names(self, kind: Kind) -> Sequence[str]: ...

    def images_for(self, framework: str) -> Sequence[str]:
        """The names of the images of which a version provides the framework."""
        ...
