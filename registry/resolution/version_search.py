"""The search for compatible versions: facts and rules for PubGrub, and snapshots with a cache or drafts.

     [1] model --requires--> [2] framework <--provides-- [3] image       [4] dataset
          ^                        ^                          ^                ^
     admitted by the         newest that an image       preferred name    admitted by the
     request or lock         provides on an admitted    first, then the   request or lock
                             platform                   newest

The packages of PubGrub are the kinds, decided in the order of ``candidates.ORDER``. Of each kind the version in
``preferences`` (the choices of an existing lock) comes first, then the newest.

1. State the facts of the request: the model and the dataset lie in the versions that it admits.
2. Choose a model. Its requirement implies the set of frameworks that fit.
3. Choose a framework: the newest in this set that an image provides. It implies the set of images that provide it.
4. Choose an image, then a dataset.
5. Where no version is left, state the largest set that is known to be absent. PubGrub then goes back to a choice that
   the absence depends on; it stops when no choice is left.

Since every decision is the best one that no fact rules out, the answer is the best in the order of kinds, and does not
depend on the order of database rows.

Facts are about version classes: sets of versions with the same name, requirement and status. A requirement is stated
once for all versions of a model that have it, and the absence of frameworks is stated for a whole set. So the effort
grows with the number of different requirements, not with the number of versions.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from itertools import chain
from typing import Literal

from benchlock.registry.artifact_names import Kind
from benchlock.registry.resolution.admitted_versions import Availability, Preferences
from benchlock.registry.resolution.pubgrub import Incompatibility, Solver, UnsolvableError
from benchlock.registry.resolution.resolver_types import (
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
from benchlock.registry.resolution.version_sets import Choices, VersionClass
from benchlock.registry.versions.semantic_version import Version, key, successor, version_of
from benchlock.registry.versions.version_ranges import Range


class CachedSnapshot:
    """A snapshot with a cache of answers, valid for as long as the snapshot behind it does not change.

    Implements ``candidates.Snapshot``. For rare statuses it asks once whether the name has such a version at all: most
    names have none.
    """

    def __init__(self, snapshot: Snapshot) -> None:
        """Put a cache in front of each query of ``snapshot``."""
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

    def needed(self, population: Population) -> Sequence[tuple[Need, str]]:
        """Return the requirements of a population of models from the cache."""
        return self._needed(population) if self._has(population.kind, population.name, population.status) else ()

    def newest(self, population: Population, limit: int) -> Sequence[Version]:
        """Return the newest versions of a population from the cache."""
        return self._newest(population, limit) if self._has(population.kind, population.name, population.status) else ()

    def oldest(self, population: Population, limit: int) -> Sequence[Version]:
        """Return the oldest versions of a population from the cache."""
        return self._oldest(population, limit) if self._has(population.kind, population.name, population.status) else ()

    def extent(self, population: Population) -> Extent | None:
        """Return the extent of a population from the cache."""
        return self._extent(population) if self._has(population.kind, population.name, population.status) else None

    def provided(self, environments: Environments) -> Version | None:
        """Return the newest version of the framework that the images provide, from the cache."""
        return self._provided(environments) if self._has_both(environments) else None

    def providers(self, environments: Environments) -> Sequence[tuple[str, Version]]:
        """Return the images and their newest versions from the cache."""
        return self._providers(environments) if self._has_both(environments) else ()

    def _has_both(self, environments: Environments) -> bool:
        """Return whether both the framework and the image may have versions of the wanted status."""
        images = environments.image is None or self._has("image", environments.image, environments.image_status)
        return images and self._has("framework", environments.framework, environments.status)

    def _has(self, kind: Kind, name: str, status: Status | None) -> bool:
        """Return whether the name may have versions of that status."""
        return status not in RARE or bool(self._newest(Population(kind, name, EVERY, status), 1))


class DraftSnapshot:
    """A snapshot in which ``drafts`` hide the published versions of the same names.

    Implements ``candidates.Snapshot``.
    """

    def __init__(self, snapshot: Snapshot, drafts: Sequence[Candidate]) -> None:
        """Lay ``drafts`` over ``snapshot``."""
        self._snapshot = snapshot
        self._drafts = {(draft.kind, draft.name): draft for draft in drafts}

    def names(self, kind: Kind, near: str, limit: int) -> Sequence[str]:
        """Return the published names near ``near``."""
        return self._snapshot.names(kind, near, limit)

    def needs(self, model: str) -> Sequence[Need]:
        """Return the requirements of the draft, or of the published versions of the model."""
        draft = self._drafts.get(("model", model))
        return self._snapshot.needs(model) if draft is None else sorted(draft.requires)

    def needed(self, population: Population) -> Sequence[tuple[Need, str]]:
        """Return the requirements of the draft, or of the published population."""
        drafts = self._draft_in(population)
        if drafts is None:
            return self._snapshot.needed(population)
        return sorted((need, key(draft.version)) for draft in drafts for need in draft.requires)

    def newest(self, population: Population, limit: int) -> Sequence[Version]:
        """Return the version of the draft, or the newest published versions."""
        drafts = self._draft_in(population)
        return (
            self._snapshot.newest(population, limit) if drafts is None else [draft.version for draft in drafts][:limit]
        )

    def oldest(self, population: Population, limit: int) -> Sequence[Version]:
        """Return the version of the draft, or the oldest published versions."""
        drafts = self._draft_in(population)
        return (
            self._snapshot.oldest(population, limit) if drafts is None else [draft.version for draft in drafts][:limit]
        )

    def extent(self, population: Population) -> Extent | None:
        """Return the extent of the draft, or of the published population."""
        drafts = self._draft_in(population)
        if drafts is None:
            return self._snapshot.extent(population)
        return Extent(1, drafts[0].version, drafts[0].version) if drafts else None

    def candidates(self, kind: Kind, name: str, versions: tuple[Version, ...]) -> Sequence[Candidate]:
        """Return the draft if its version is in ``versions``, or the published candidates."""
        draft = self._drafts.get((kind, name))
        if draft is None:
            return self._snapshot.candidates(kind, name, versions)
        return [draft] if key(draft.version) in map(key, versions) else []

    def platforms(self, framework: str) -> Sequence[Platform]:
        """Return the platforms of published images with the framework."""
        return self._snapshot.platforms(framework)

    def images(self, framework: str) -> Sequence[str]:
        """Return the names of published images with the framework."""
        return self._snapshot.images(framework)

    def provided(self, environments: Environments) -> Version | None:
        """Return the newest version of the framework that the published images provide."""
        return self._snapshot.provided(environments)

    def providers(self, environments: Environments) -> Sequence[tuple[str, Version]]:
        """Return the published images and their newest versions."""
        return self._snapshot.providers(environments)

    def _draft_in(self, population: Population) -> list[Candidate] | None:
        """Return the draft as a list if it is in the population; ``None`` where the name has no draft."""
        draft = self._drafts.get((population.kind, population.name))
        if draft is None:
            return None
        is_in_interval = population.interval.low_key <= key(draft.version) < population.interval.high_key
        fits = population.status in (None, draft.status) and (
            population.need is None or population.need in draft.requires
        )
        return [draft] if is_in_interval and fits else []


__all__ = ["Fact", "Preferences", "Search", "need_of"]


@dataclass(frozen=True, slots=True)
class Fact:
    """A reason to rule versions out: the request, a requirement of a model, what images provide, or absence."""

    sort: Literal["asked", "needs", "provided", "absent"]
    kind: Kind


Ruling = Incompatibility[Kind, Choices, Fact]


class Search:
    """The search for an answer to one question over one snapshot.

    ``facts_of_conflict`` holds the facts that rule out every answer, once ``find`` returned ``None``.
    """

    def __init__(self, available: Availability) -> None:
        """Prepare the search over ``available``."""
        self.available = available
        self.question, self.snapshot, self.preferences = available.question, available.snapshot, available.preferences
        self.facts_of_conflict: tuple[Fact, ...] = ()
        self._answers: dict[Question, tuple[Resolution | None, tuple[Fact, ...]]] = {}
        self._needed: dict[Need, Ruling] = {}
        self._provided: dict[tuple[str, str], tuple[Ruling, tuple[tuple[VersionClass, Version], ...]]] = {}

    @classmethod
    def of(cls, question: Question, snapshot: Snapshot, preferences: Preferences) -> "Search":
        """Return the search for an answer to ``question``; it puts each query to the snapshot once."""
        return cls(Availability(question, CachedSnapshot(snapshot), preferences))

    def with_question(self, question: Question) -> "Search":
        """Return the search for another question over the same snapshot, with the same preferences."""
        other = Search(self.available.with_question(question))
        other._answers = self._answers
        return other

    def find(self) -> Resolution | None:
        """Return the preferred resolution, or ``None`` if there is none; each question is searched for once."""
        if self.question not in self._answers:
            self._answers[self.question] = self._find()
        resolution, self.facts_of_conflict = self._answers[self.question]
        return resolution

    def _find(self) -> tuple[Resolution | None, tuple[Fact, ...]]:
        try:
            order = ORDER if self.question.dataset is not None else ORDER[:-1]
            decisions = Solver[Kind, Choices, Fact](order, Choices.ALL, self).solve()
        except UnsolvableError as unsolvable:
            return None, unsolvable.incompatibility.facts()
        model, framework, image, *datasets = (self._candidate(kind, decisions[kind]) for kind in order)
        platforms = tuple(sorted(filter(self.question.hardware.admits, image.platforms)))
        return Resolution(model, framework, image, datasets[0] if datasets else None, platforms), ()

    # The methods of pubgrub.Source.

    def facts(self) -> Iterator[Ruling]:
        """Implement ``pubgrub.Source.facts``: the model and the dataset are among the admitted versions."""
        yield Incompatibility.of({"model": ~self.available.needs.choices}, Fact("asked", "model"))
        dataset = self.question.dataset
        if dataset is None:
            return
        datasets = self.available.admitted("dataset", dataset.name, dataset.constraint)
        choices = Choices.of_parts({(dataset.name, status): part for status, part in datasets.items()})
        yield Incompatibility.of({"dataset": ~choices}, Fact("asked", "dataset"))

    def choose(self, package: Kind, allowed: Choices) -> Choices | Sequence[Ruling]:
        """Implement ``pubgrub.Source.choose``: the preferred version of a kind, else facts about absence."""
        choosing = {"model": self._model, "framework": self._framework, "image": self._image, "dataset": self._dataset}
        chosen = choosing[package](allowed)
        if chosen is not None:
            return chosen
        if package == "framework":
            return self._no_framework(allowed)
        return (Incompatibility.of({package: allowed}, Fact("absent", package)),)

    def implied(self, package: Kind, value: Choices) -> Sequence[Ruling]:
        """Implement ``pubgrub.Source.implied``: requirements of a model, images of a framework."""
        match package:
            case "model":
                (need, _status), _ = value.single()
                return (self._excluded,) if self.available.frameworks(need).is_empty() else (self._needs(need),)
            case "framework":
                return (self._provides(value),)
            case _:
                return ()

    def _needs(self, need: Need) -> Ruling:
        """Return the fact that versions of the model with this requirement need a framework that meets it."""
        if need not in self._needed:
            models = self._requiring((need,))
            frameworks = ~self.available.frameworks(need)
            ruling: Ruling = Incompatibility.of({"model": models, "framework": frameworks}, Fact("needs", "framework"))
            self._needed[need] = ruling
        return self._needed[need]

    def _provides(self, framework: Choices) -> Ruling:
        """Return the fact that a framework needs one of the images that provide it."""
        (name, status), version = framework.single()
        environment = (name, key(version))
        if environment not in self._provided:
            images = tuple(
                ((*environment, image), chosen) for image, chosen in self.available.images(name, status, version)
            )
            choices = Choices.of_parts({version_class: Range.exactly(chosen) for version_class, chosen in images})
            ruling: Ruling = Incompatibility.of({"framework": framework, "image": ~choices}, Fact("provided", "image"))
            self._provided[environment] = (ruling, images)
        return self._provided[environment][0]

    def _no_framework(self, allowed: Choices) -> Sequence[Ruling]:
        """Return the facts that follow where no framework in ``allowed`` can be chosen.

        The first fact is that nothing in ``allowed`` exists, nor anything above the newest framework that a version of
        the model could have. The second is that no version of the model can be chosen whose requirement lies in that
        set.
        """
        demanded = self.available.all_frameworks()
        newest = {
            version_class: self.available.framework(version_class[0], version_class[1], part)
            for version_class, part in demanded.parts.items()
        }
        above_newest = {
            version_class: part & _above(newest[version_class]) for version_class, part in demanded.parts.items()
        }
        absent = Choices.of_parts(above_newest) | allowed
        return (
            Incompatibility.of({"framework": absent}, Fact("absent", "framework")),
            self._rule_out(self.available.unmet_needs(demanded & ~absent)),
        )

    @cached_property
    def _excluded(self) -> Ruling:
        """The fact that no version of the model can be chosen that requires what the request excludes."""
        return self._rule_out(self.available.unmet_needs(self.available.all_frameworks()))

    def _rule_out(self, needs: Iterable[Need]) -> Ruling:
        """Return the fact that no version of the model can be chosen that has one of these requirements."""
        return Incompatibility.of({"model": self._requiring(needs)}, Fact("needs", "framework"))

    def _requiring(self, needs: Iterable[Need]) -> Choices:
        """Return the versions of the model with one of these requirements, as whole version classes."""
        classes = self.available.needs.classes
        return Choices.of_classes(chain.from_iterable(map(classes.__getitem__, needs)))

    def _model(self, allowed: Choices) -> Choices | None:
        """Return the preferred version of the model, else the newest."""
        preferred = self.available.preferred_model()
        if preferred is not None:
            version_class = (self.question.need or need_of(preferred), preferred.status)
            if allowed.of(version_class).contains(preferred.version):
                return Choices.exactly(version_class, preferred.version)
        fitting = (item for item in self.available.models.items() if allowed.of(item[0]).contains_key(item[1]))
        return next((Choices.exactly(version_class, version_of(place)) for version_class, place in fitting), None)

    def _framework(self, allowed: Choices) -> Choices | None:
        """Return the preferred version of the framework, else the newest that an image provides."""
        return self._preferred_first("framework", allowed, self.available.framework)

    def _image(self, allowed: Choices) -> Choices | None:
        """Return the first image, in the order of choice, that provides the chosen framework."""
        images = (image for _, images in self._provided.values() for image in images)
        return next((Choices.exactly(*image) for image in images if allowed.of(image[0]).contains(image[1])), None)

    def _dataset(self, allowed: Choices) -> Choices | None:
        """Return the preferred version of the dataset, else the newest."""
        newest = partial(self.available.newest, "dataset")
        return self._preferred_first("dataset", allowed, newest)

    def _preferred_first(
        self, kind: Kind, allowed: Choices, newest: Callable[[str, Status, Range], Version | None]
    ) -> Choices | None:
        """Return a preferred version if there is one, else the newest; version classes are name and status."""
        preferred = {
            version_class: versions & Range.exactly(self.preferences[kind, version_class[0]])
            for version_class, versions in allowed.parts.items()
            if (kind, version_class[0]) in self.preferences
        }
        for parts in (preferred, allowed.parts):
            newest_versions = [
                (version_class, newest(version_class[0], version_class[1], versions))
                for version_class, versions in parts.items()
                if not versions.is_empty()
            ]
            candidates = [(version_class, version) for version_class, version in newest_versions if version is not None]
            if candidates:
                return Choices.exactly(*max(candidates, key=lambda candidate: key(candidate[1])))
        return None

    def _candidate(self, kind: Kind, chosen: Choices) -> Candidate:
        """Return the published version that was chosen."""
        version_class, version = chosen.single()
        names: dict[Kind, str] = {"model": self.question.model.name, "image": version_class[-1]}
        published: Kind = self.question.model.kind if kind == "model" else kind
        (candidate,) = self.snapshot.candidates(published, names.get(kind) or version_class[0], (version,))
        return candidate


def need_of(model: Candidate) -> Need:
    """Return the one framework requirement of a model."""
    (need,) = model.requires
    return need


def _above(version: Version | None) -> Range:
    """Return all versions above ``version``; all versions if it is ``None``."""
    return Range.ALL if version is None else Range.between(successor(version), None)
