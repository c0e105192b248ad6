"""Versions that a question admits, newest first, from a snapshot.

The question and the preferences determine which versions may be chosen. The snapshot determines which of them exist.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from operator import itemgetter

from benchlock.registry.artifact_names import Kind
from benchlock.registry.requests.hardware_requirements import KEYS
from benchlock.registry.resolution.resolver_types import (
    EVERY,
    STATUSES,
    Candidate,
    Environments,
    Need,
    Platform,
    Population,
    Question,
    Snapshot,
    Status,
)
from benchlock.registry.resolution.version_sets import AdmittedVersions, Choices, VersionClass, admitted
from benchlock.registry.versions.semantic_version import Version, key, successor
from benchlock.registry.versions.version_ranges import ANY, Constraint, Interval, Range

Preferences = Mapping[tuple[Kind, str], Version]
DEVICE = KEYS.index("device")


class ModelNeeds:
    """The requirements of the admitted versions of a model.

    ``models`` has the key of the newest version of each requirement and status, newest first.
    """

    def __init__(self, models: Mapping[tuple[Need, Status], str], admitted: AdmittedVersions) -> None:
        """Keep the requirements ``models`` of the versions in ``admitted``."""
        self.models = models
        self._admitted = admitted

    @cached_property
    def choices(self) -> Choices:
        """All admitted versions of the model."""
        return Choices.of_parts({version_class: self._admitted[version_class[1]] for version_class in self.models})

    @cached_property
    def classes(self) -> Mapping[Need, Sequence[VersionClass]]:
        """The version classes of the model with each requirement."""
        by_need: defaultdict[Need, list[VersionClass]] = defaultdict(list)
        for version_class in self.models:
            by_need[version_class[0]].append(version_class)
        return by_need

    @cached_property
    def constraints(self) -> Mapping[Need, Constraint]:
        """The constraint of each requirement, those of the newest versions first."""
        return {need: Constraint.parse(need[2]) for need, _ in self.models}

    @cached_property
    def unions(self) -> Mapping[str, Constraint]:
        """The union of all requirements of each framework."""
        by_name: defaultdict[str, list[Constraint]] = defaultdict(list)
        for need, constraint in self.constraints.items():
            by_name[need[1]].append(constraint)
        return {name: _united(constraints) for name, constraints in by_name.items()}

    @cached_property
    def pins(self) -> Mapping[str, Sequence[tuple[Constraint, Version]]]:
        """The requirements of each framework that name one version, and that version."""
        pins: dict[str, list[tuple[Constraint, Version]]] = {name: [] for name in self.unions}
        for need, constraint in self.constraints.items():
            pin = constraint.pinned
            if pin is not None:
                pins[need[1]].append((constraint, pin))
        return pins


class Availability:
    """The versions that one question admits over one snapshot."""

    def __init__(self, question: Question, snapshot: Snapshot, preferences: Preferences) -> None:
        """Answer ``question`` from ``snapshot``; versions in ``preferences`` come first."""
        self.question = question
        self.snapshot = snapshot
        self.preferences = preferences
        self._choices_by_narrowing: dict[Hashable, dict[Hashable, Choices]] = {}
        self._needs_by_versions: dict[Hashable, ModelNeeds] = {}

    def with_question(self, question: Question) -> "Availability":
        """Return the availability for another question; it shares the sets of frameworks that requirements admit."""
        other = Availability(question, self.snapshot, self.preferences)
        other._choices_by_narrowing, other._needs_by_versions = self._choices_by_narrowing, self._needs_by_versions
        return other

    @cached_property
    def _framework_choices(self) -> dict[Hashable, Choices]:
        """The frameworks that each requirement admits.

        Questions with the same constraint on the framework share them.
        """
        question = self.question
        narrowing = (question.framework, "framework" in question.prereleases, "framework" in question.yanked)
        return self._choices_by_narrowing.setdefault(narrowing, {})

    def admitted(self, kind: Kind, name: str, *constraints: Constraint) -> AdmittedVersions:
        """Return the versions of the name that may be chosen under ``constraints``, by status."""
        return self._admitted(kind, self.preferences.get((kind, name)), constraints)

    def _admitted(self, kind: Kind, preferred: Version | None, constraints: Sequence[Constraint]) -> AdmittedVersions:
        """Return the versions of the kind that may be chosen, by status."""
        prereleases, yanked = kind in self.question.prereleases, kind in self.question.yanked
        return admitted(constraints, preferred, prereleases=prereleases, yanked=yanked)

    @cached_property
    def model_versions(self) -> AdmittedVersions:
        """The admitted versions of the model, by status."""
        model = self.question.model
        return self.admitted(model.kind, model.name, model.constraint)

    def frameworks(self, need: Need) -> Choices:
        """Return the versions of the framework that both ``need`` and the request admit."""
        if need not in self._framework_choices:
            narrowing = self.question.framework
            constraints = (Constraint.parse(need[2]), *(() if narrowing is None else (narrowing,)))
            versions = self.admitted("framework", need[1], *constraints)
            self._framework_choices[need] = Choices.of_parts(
                {(need[1], status): part for status, part in versions.items()}
            )
        return self._framework_choices[need]

    def all_frameworks(self) -> Choices:
        """Return all frameworks that any admitted version of the model admits.

        The union of many requirements, intersected with one constraint of the request, equals the union of the
        intersections. So the effort of another constraint does not grow with the number of requirements. Only pins of
        yanked versions are checked one by one.
        """
        parts: dict[VersionClass, Range] = {}
        for name, union in self.needs.unions.items():
            narrowing = self.question.framework
            versions = self.admitted(
                "framework", name, *(constraint for constraint in (union, narrowing) if constraint is not None)
            )
            parts |= {(name, status): part for status, part in versions.items() if status != "yanked"}
            yanked = [versions.get("yanked", Range.NONE)]
            if "framework" not in self.question.yanked:
                yanked += self._admitted_pins(name)
            parts[name, "yanked"] = Range.union(yanked)
        return Choices.of_parts(parts)

    def _admitted_pins(self, name: str) -> Iterator[Range]:
        """Yield the versions that a single requirement of a framework pins, and that the request admits."""
        narrowing = self.question.framework
        prereleases = "framework" in self.question.prereleases
        for constraint, pin in self.needs.pins[name]:
            if all(
                admitting is None or admitting.admits(pin, prereleases=prereleases)
                for admitting in (constraint, narrowing)
            ):
                yield constraint.range

    def unmet_needs(self, present: Choices) -> Iterator[Need]:
        """Yield the requirements of the model that nothing in ``present``, a part of ``all_frameworks``, meets."""
        if present.is_empty():
            yield from self.needs.constraints
            return
        prereleases, is_pinned = "framework" in self.question.prereleases, "framework" not in self.question.yanked
        present_by_name = {name: tuple(present.of((name, status)) for status in STATUSES) for name in self.needs.unions}
        for need, constraint in self.needs.constraints.items():
            release, prerelease, yanked = present_by_name[need[1]]
            named = constraint.range if prereleases else constraint.prereleases
            if (
                constraint.range.is_disjoint(release)
                and named.is_disjoint(prerelease)
                and (constraint.range.is_disjoint(yanked) or (is_pinned and self.frameworks(need).is_disjoint(present)))
            ):
                yield need

    def newest(
        self, kind: Kind, name: str, status: Status, versions: Range, need: Need | None = None
    ) -> Version | None:
        """Return the newest of ``versions`` with that status, and with the requirement ``need`` if it is set."""

        def below(interval: Interval) -> Version | None:
            newest = self.snapshot.newest(Population(kind, name, interval, status, need), 1)
            return newest[0] if newest else None

        return _newest_in(versions, below)

    @property
    def models(self) -> Mapping[tuple[Need, Status], str]:
        """The key of the newest admitted version of each requirement and status of the model, newest first.

        Every other version equals one of these in requirement and status, and is older.
        """
        return self.needs.models

    @cached_property
    def needs(self) -> "ModelNeeds":
        """The requirements of the admitted versions of the model; shared by questions that admit the same versions."""
        within = {status: versions & self._published(status) for status, versions in self.model_versions.items()}
        admitted = {status: versions for status, versions in within.items() if not versions.is_empty()}
        versions = tuple(admitted.items())
        if versions not in self._needs_by_versions:
            self._needs_by_versions[versions] = ModelNeeds(self._newest_models(admitted), admitted)
        return self._needs_by_versions[versions]

    def _published(self, status: Status) -> Range:
        """Return the range from the oldest to the newest version of the model with that status.

        Versions beyond it make no difference.
        """
        population = Population(self.question.model.kind, self.question.model.name, EVERY, status)
        ends = (*self.snapshot.oldest(population, 1), *self.snapshot.newest(population, 1))
        return Range.between(ends[0], successor(ends[-1])) if ends else Range.NONE

    def _newest_models(self, admitted: AdmittedVersions) -> Mapping[tuple[Need, Status], str]:
        """Return the key of the newest version of each requirement and status, newest first."""
        newest_keys: dict[tuple[Need, Status], str] = {}
        for status, versions in admitted.items():
            for interval in reversed(versions.intervals):
                for need, newest in self._needed(interval, status):
                    newest_keys.setdefault((need, status), newest)
        return dict(sorted(newest_keys.items(), key=itemgetter(1), reverse=True))

    def _needed(self, interval: Interval, status: Status) -> Iterable[tuple[Need, str]]:
        """Return the requirements of the model's versions in an interval, without a scan where it has one version."""
        kind, name, need = self.question.model.kind, self.question.model.name, self.question.need
        if need is not None:
            newest = self.snapshot.newest(Population(kind, name, interval, status), 1)
            return [(need, key(version)) for version in newest]
        single = Range.between(interval.low, interval.high).single()
        if single is None:
            return self.snapshot.needed(Population("model", name, interval, status))
        models = self.snapshot.candidates("model", name, (single,))
        return [(need, key(model.version)) for model in models if model.status == status for need in model.requires]

    def preferred_model(self) -> Candidate | None:
        """Return the version of the model in the preferences, if it is published."""
        kind, name = self.question.model.kind, self.question.model.name
        preferred = self.preferences.get((kind, name))
        models = () if preferred is None else self.snapshot.candidates(kind, name, (preferred,))
        return models[0] if models else None

    def framework(self, name: str, status: Status, versions: Range) -> Version | None:
        """Return the newest framework in ``versions`` that has that status and an image for an admitted platform."""

        def below(interval: Interval) -> Version | None:
            provided = [
                self.snapshot.provided(environments) for environments in self._environments(name, interval, status)
            ]
            return max((version for version in provided if version is not None), key=key, default=None)

        return _newest_in(versions, below)

    def images(self, framework: str, status: Status, version: Version) -> tuple[tuple[str, Version], ...]:
        """Return names and versions of the images that provide that framework, in the order of choice.

        Preferred names come first, then names without a namespace, then all by name. Of each name it is the preferred
        version, or the newest.
        """
        (exactly,) = Range.exactly(version).intervals
        newest: dict[str, Version] = {}
        for environments in self._environments(framework, exactly, status):
            for name, latest in self.snapshot.providers(environments):
                newest[name] = max(newest.get(name, latest), latest, key=key)
        names = sorted(newest, key=lambda name: (("image", name) not in self.preferences, "/" in name, name))
        return tuple((name, self._preferred_image(name, framework, version) or newest[name]) for name in names)

    def _preferred_image(self, name: str, framework: str, version: Version) -> Version | None:
        """Return the preferred version of that image, if it too provides the framework on an admitted platform."""
        preferred = self.preferences.get(("image", name))
        if preferred is None:
            return None
        (image,) = self.snapshot.candidates("image", name, (preferred,)) or (None,)
        if image is None or image.provides != (framework, version) or not self.fits(image):
            return None
        admissions = (
            image_name in (None, name)
            and image.status == status
            and interval.low_key <= key(preferred) < interval.high_key
            for image_name, interval, status in self._images
        )
        return preferred if any(admissions) else None

    def fits(self, image: Candidate) -> bool:
        """Return whether the image has an admitted platform."""
        return any(map(self._admits_platform, image.platforms))

    def platforms(self, framework: str) -> tuple[Platform, ...]:
        """Return the admitted platforms for which there are images with the framework."""
        return tuple(filter(self._admits_platform, self.snapshot.platforms(framework)))

    def _admits_platform(self, platform: Sequence[object]) -> bool:
        """Return whether the request admits a platform.

        A platform of the device ``cpu`` does not fit a request for any accelerator.
        """
        hardware = self.question.hardware
        is_cpu_only = self.question.accelerated and hardware.device is None and platform[DEVICE] == "cpu"
        return hardware.admits(platform) and not is_cpu_only

    def _environments(self, framework: str, interval: Interval, status: Status) -> Iterator[Environments]:
        """Yield the sets of images that may provide the framework."""
        for platform, images in product(self.platforms(framework), self._images):
            yield Environments(framework, interval, status, platform, *images)

    @cached_property
    def _images(self) -> tuple[tuple[str | None, Interval, Status], ...]:
        """The admitted images, whatever they provide: a name or any, an interval of versions, their status."""
        requirement = self.question.image
        constraint = ANY if requirement is None else requirement.constraint
        name = None if requirement is None else requirement.name
        images: list[tuple[str | None, Interval, Status]] = [
            (name, interval, status)
            for status, versions in self._admitted("image", None, (constraint,)).items()
            for interval in versions.intervals
        ]
        for kind, preferred in self.preferences:
            if kind == "image" and name in (None, preferred):
                yanked = self.admitted("image", preferred, constraint).get("yanked", Range.NONE)
                images += [(preferred, interval, "yanked") for interval in yanked.intervals]
        return tuple(dict.fromkeys(images))


def _newest_in(versions: Range, newest: Callable[[Interval], Version | None]) -> Version | None:
    """Return the newest existing version in ``versions``; ``newest`` returns the newest one in an interval.

    The first query covers all versions between the ends. Where the result lies in a gap, the next query covers what is
    below the gap. So a set of many intervals costs few queries.
    """
    cuts = versions.cuts
    below = len(cuts)
    while below:
        hull = Range(cuts[:1] if below % 2 else (cuts[0], cuts[below - 1])).hull
        version = newest(hull)
        if version is None or versions.contains(version):
            return version
        below = bisect_right(cuts, key(version))
    return None


def _united(constraints: Sequence[Constraint]) -> Constraint:
    """Return a constraint that admits what any of these admits."""
    if len(constraints) == 1:
        return constraints[0]
    versions = Range.union(constraint.range for constraint in constraints)
    prereleases = Range.union(constraint.prereleases for constraint in constraints)
    return Constraint(versions, prereleases, f"one of {len(constraints)} constraints")
