"""The search for compatible versions: facts and rules for PubGrub, and snapshots with a cache or drafts.

The packages are the kinds, decided in the order of ``candidates.ORDER``, each newest first, but what ``preferences``
name (the choices of an existing lock) before all else. Since every decision is the best that no fact
rules out, the answer is the best in that order, and it does not depend on the order of rows.

Versions that are alike are one strand, and the facts are about strands: what a model's versions require is said once
for each requirement, and that nothing in a set of frameworks can be had is learnt of the whole set. So the effort grows
with the number of different requirements, not with the number of versions.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import chain
from typing import Literal

from benchlock.registry.names import Kind
from benchlock.registry.resolution.availability import Availability, Preferences
from benchlock.registry.resolution.candidates import (
    EVERY,
    ORDER,
    RARE,
    Candidate,
    Environments,
    Extent,
    Need,
    Platform,
    Population,
    Question,
    Resolution,
    Snapshot,
    Status,
)
from benchlock.registry.resolution.pubgrub import Incompatibility, Solver, UnsolvableError
from benchlock.registry.resolution.version_sets import AdmittedVersions, Choices, VersionClass
from benchlock.registry.versions.semantic_version import Version, key, successor, version_of
from benchlock.registry.versions.version_ranges import Range


class CachedSnapshot:
    """Implements ``registry.resolution.candidates.Snapshot``; for as long as the other one does not change.

    Of what is rare it asks once whether the name has any: most have none, and then no interval of it has.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        self.names = cache(snapshot.names)
        self.needs = cache(snapshot.needs)
        self.candidates = cache(snapshot.candidates)
        self.platforms = cache(snapshot.platforms)
        self.images = cache(snapshot.images)
        self._needed = cache(snapshot.needed)
        self._newest = cache(snapshot.newest)
        self._oldest = cache(snapshot.oldest)
        self._extent = cache(snapshot.extent)
        self._provided = cache(snapshot.provided)
        self._providers = cache(snapshot.providers)

    def needed(self, wanted: Population) -> Sequence[tuple[Need, str]]:
        return self._needed(wanted) if self._has(wanted.kind, wanted.name, wanted.status) else ()

    def newest(self, wanted: Population, most: int) -> Sequence[Version]:
        return self._newest(wanted, most) if self._has(wanted.kind, wanted.name, wanted.status) else ()

    def oldest(self, wanted: Population, most: int) -> Sequence[Version]:
        return self._oldest(wanted, most) if self._has(wanted.kind, wanted.name, wanted.status) else ()

    def extent(self, wanted: Population) -> Extent | None:
        return self._extent(wanted) if self._has(wanted.kind, wanted.name, wanted.status) else None

    def provided(self, wanted: Environments) -> Version | None:
        return self._provided(wanted) if self._has_both(wanted) else None

    def providers(self, wanted: Environments) -> Sequence[tuple[str, Version]]:
        return self._providers(wanted) if self._has_both(wanted) else ()

    def _has_both(self, wanted: Environments) -> bool:
        images = wanted.image is None or self._has("image", wanted.image, wanted.image_status)
        return images and self._has("framework", wanted.framework, wanted.status)

    def _has(self, kind: Kind, name: str, status: Status | None) -> bool:
        """Whether the name may have versions of that status."""
        return status not in RARE or bool(self._newest(Population(kind, name, EVERY, status), 1))


class DraftSnapshot:
    """Another snapshot, where ``drafts`` hide the versions of their names.

    Implements ``registry.resolution.candidates.Snapshot``.
    """

    def __init__(self, snapshot: Snapshot, drafts: Sequence[Candidate]) -> None:
        self._snapshot = snapshot
        self._drafts = {(one.kind, one.name): one for one in drafts}

    def names(self, kind: Kind, near: str, most: int) -> Sequence[str]:
        return self._snapshot.names(kind, near, most)

    def needs(self, model: str) -> Sequence[Need]:
        draft = self._drafts.get(("model", model))
        return self._snapshot.needs(model) if draft is None else sorted(draft.requires)

    def needed(self, wanted: Population) -> Sequence[tuple[Need, str]]:
        found = self._found(wanted)
        if found is None:
            return self._snapshot.needed(wanted)
        return sorted((need, key(one.version)) for one in found for need in one.requires)

    def newest(self, wanted: Population, most: int) -> Sequence[Version]:
        found = self._found(wanted)
        return self._snapshot.newest(wanted, most) if found is None else [one.version for one in found][:most]

    def oldest(self, wanted: Population, most: int) -> Sequence[Version]:
        found = self._found(wanted)
        return self._snapshot.oldest(wanted, most) if found is None else [one.version for one in found][:most]

    def extent(self, wanted: Population) -> Extent | None:
        found = self._found(wanted)
        if found is None:
            return self._snapshot.extent(wanted)
        return Extent(1, found[0].version, found[0].version) if found else None

    def candidates(self, kind: Kind, name: str, versions: tuple[Version, ...]) -> Sequence[Candidate]:
        draft = self._drafts.get((kind, name))
        if draft is None:
            return self._snapshot.candidates(kind, name, versions)
        return [draft] if key(draft.version) in map(key, versions) else []

    def platforms(self, framework: str) -> Sequence[Platform]:
        return self._snapshot.platforms(framework)

    def images(self, framework: str) -> Sequence[str]:
        return self._snapshot.images(framework)

    def provided(self, wanted: Environments) -> Version | None:
        return self._snapshot.provided(wanted)

    def providers(self, wanted: Environments) -> Sequence[tuple[str, Version]]:
        return self._snapshot.providers(wanted)

    def _found(self, wanted: Population) -> list[Candidate] | None:
        """The draft, if it is in the population, as a list; None where the name has no draft."""
        draft = self._drafts.get((wanted.kind, wanted.name))
        if draft is None:
            return None
        inside = wanted.interval.low_key <= key(draft.version) < wanted.interval.high_key
        fits = wanted.status in (None, draft.status) and (wanted.need is None or wanted.need in draft.requires)
        return [draft] if inside and fits else []


__all__ = ["Fact", "Preferences", "Search", "need_of"]


@dataclass(frozen=True, slots=True)
class Fact:
    """What rules something out: the request, what a model requires, what images provide, what there is not."""

    sort: Literal["asked", "needs", "provided", "absent"]
    kind: Kind


Ruling = Incompatibility[Kind, Choices, Fact]


class Search:
    """One question over one snapshot. ``facts_of_conflict``: what rules out everything, once ``find`` found nothing."""

    def __init__(self, available: Availability) -> None:
        self.available = available
        self.question, self.snapshot, self.preferences = available.question, available.snapshot, available.preferences
        self.facts_of_conflict: tuple[Fact, ...] = ()
        self._found: dict[Question, tuple[Resolution | None, tuple[Fact, ...]]] = {}
        self._needed: dict[Need, Ruling] = {}
        self._provided: dict[tuple[str, str], tuple[Ruling, tuple[tuple[VersionClass, Version], ...]]] = {}

    @classmethod
    def of(cls, question: Question, snapshot: Snapshot, preferences: Preferences) -> "Search":
        """The search for what answers ``question``; it puts each question to the snapshot once."""
        return cls(Availability(question, CachedSnapshot(snapshot), preferences))

    def asking(self, question: Question) -> "Search":
        """Another question over the same snapshot, with the same preferences."""
        other = Search(self.available.asking(question))
        other._found = self._found
        return other

    def find(self) -> Resolution | None:
        """The preferred resolution, or ``None`` if there is none; searched for once for each question."""
        if self.question not in self._found:
            self._found[self.question] = self._find()
        found, self.facts_of_conflict = self._found[self.question]
        return found

    def _find(self) -> tuple[Resolution | None, tuple[Fact, ...]]:
        try:
            found = Solver[Kind, Choices, Fact](ORDER, Choices.ALL, self).solve()
        except UnsolvableError as unsolvable:
            return None, unsolvable.incompatibility.facts()
        model, framework, image, dataset = (self._candidate(kind, found[kind]) for kind in ORDER)
        platforms = tuple(sorted(filter(self.question.hardware.admits, image.platforms)))
        return Resolution(model, framework, image, dataset, platforms), ()

    # What the solver asks: registry.resolution.pubgrub.Source.

    def facts(self) -> Iterator[Ruling]:
        dataset = self.question.dataset
        datasets = self.available.admitted("dataset", dataset.name, dataset.constraint)
        yield Incompatibility.of({"model": ~self.available.needs.choices}, Fact("asked", "model"))
        yield Incompatibility.of({"dataset": ~_strands(dataset.name, datasets)}, Fact("asked", "dataset"))

    def choose(self, package: Kind, allowed: Choices) -> Choices | Sequence[Ruling]:
        choosing = {"model": self._model, "framework": self._framework, "image": self._image, "dataset": self._dataset}
        chosen = choosing[package](allowed)
        if chosen is not None:
            return chosen
        if package == "framework":
            return self._no_framework(allowed)
        return (Incompatibility.of({package: allowed}, Fact("absent", package)),)

    def implied(self, package: Kind, value: Choices) -> Sequence[Ruling]:
        match package:
            case "model":
                (need, _status), _ = value.single()
                return (self._excluded,) if self.available.frameworks(need).is_empty() else (self._needs(need),)
            case "framework":
                return (self._provides(value),)
            case _:
                return ()

    def _needs(self, need: Need) -> Ruling:
        if need not in self._needed:
            models = self._requiring((need,))
            frameworks = ~self.available.frameworks(need)
            ruling: Ruling = Incompatibility.of({"model": models, "framework": frameworks}, Fact("needs", "framework"))
            self._needed[need] = ruling
        return self._needed[need]

    def _provides(self, framework: Choices) -> Ruling:
        (name, status), version = framework.single()
        place = (name, key(version))
        if place not in self._provided:
            images = tuple(((*place, image), chosen) for image, chosen in self.available.images(name, status, version))
            choices = Choices.of_parts({strand: Range.exactly(chosen) for strand, chosen in images})
            ruling: Ruling = Incompatibility.of({"framework": framework, "image": ~choices}, Fact("provided", "image"))
            self._provided[place] = (ruling, images)
        return self._provided[place][0]

    def _no_framework(self, allowed: Choices) -> Sequence[Ruling]:
        """That nothing in ``allowed`` is there, nor above the newest that any version of the model could have.

        With it, that no version of the model can be had whose requirement lies in that.
        """
        wanted = self.available.of_any()
        newest = {strand: self.available.framework(strand[0], strand[1], part) for strand, part in wanted.parts.items()}
        above = {strand: part & _above(newest[strand]) for strand, part in wanted.parts.items()}
        absent = Choices.of_parts(above) | allowed
        return (
            Incompatibility.of({"framework": absent}, Fact("absent", "framework")),
            self._in_vain(self.available.needs_outside(wanted & ~absent)),
        )

    @cached_property
    def _excluded(self) -> Ruling:
        """That no version of the model can be had that asks for what the request excludes."""
        return self._in_vain(self.available.needs_outside(self.available.of_any()))

    def _in_vain(self, needs: Iterable[Need]) -> Ruling:
        """That no version of the model can be had that requires one of these."""
        return Incompatibility.of({"model": self._requiring(needs)}, Fact("needs", "framework"))

    def _requiring(self, needs: Iterable[Need]) -> Choices:
        """The versions of the model that require one of these: all of each strand that there is."""
        strands = self.available.needs.strands
        return Choices.of_strands(chain.from_iterable(map(strands.__getitem__, needs)))

    def _model(self, allowed: Choices) -> Choices | None:
        preferred = self.available.preferred_model()
        if preferred is not None:
            strand = (need_of(preferred), preferred.status)
            if allowed.of(strand).contains(preferred.version):
                return Choices.one(strand, preferred.version)
        fitting = (one for one in self.available.models.items() if allowed.of(one[0]).contains_key(one[1]))
        return next((Choices.one(strand, version_of(place)) for strand, place in fitting), None)

    def _framework(self, allowed: Choices) -> Choices | None:
        return self._preferred_first("framework", allowed, self.available.framework)

    def _image(self, allowed: Choices) -> Choices | None:
        """The first, in the order of choice, of those that provide the framework that was chosen."""
        images = (image for _, images in self._provided.values() for image in images)
        return next((Choices.one(*image) for image in images if allowed.of(image[0]).contains(image[1])), None)

    def _dataset(self, allowed: Choices) -> Choices | None:
        newest = partial(self.available.newest, "dataset")
        return self._preferred_first("dataset", allowed, newest)

    def _preferred_first(
        self, kind: Kind, allowed: Choices, newest: Callable[[str, Status, Range], Version | None]
    ) -> Choices | None:
        """Of strands that are name and status: a preferred version if there is one, else the newest."""
        preferred = {
            strand: versions & Range.exactly(self.preferences[kind, strand[0]])
            for strand, versions in allowed.parts.items()
            if (kind, strand[0]) in self.preferences
        }
        for parts in (preferred, allowed.parts):
            found = [
                (strand, newest(strand[0], strand[1], versions))
                for strand, versions in parts.items()
                if not versions.is_empty()
            ]
            there = [(strand, version) for strand, version in found if version is not None]
            if there:
                return Choices.one(*max(there, key=lambda one: key(one[1])))
        return None

    def _candidate(self, kind: Kind, chosen: Choices) -> Candidate:
        strand, version = chosen.single()
        names: dict[Kind, str] = {"model": self.question.model.name, "image": strand[-1]}
        (candidate,) = self.snapshot.candidates(kind, names.get(kind) or strand[0], (version,))
        return candidate


def need_of(model: Candidate) -> Need:
    """The one framework that a model requires."""
    (need,) = model.requires
    return need


def _above(version: Version | None) -> Range:
    return Range.ALL if version is None else Range.between(successor(version), None)


def _strands(name: str, versions: AdmittedVersions) -> Choices:
    """Versions of one name, by status."""
    return Choices.of_parts({(name, status): part for status, part in versions.items()})
