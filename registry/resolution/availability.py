"""Versions that a question admits, newest first, from a snapshot.

What may be chosen at all depends on the question and the preferences alone; which of it exists, the snapshot says.
"""

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from operator import itemgetter

from benchlock.registry.names import Kind
from benchlock.registry.requests.hardware_requirements import KEYS
from benchlock.registry.resolution.candidates import (
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
    """What versions of a model require.

    ``models`` has the key of the newest version of each requirement and status, newest first, of those ``admitted``.
    """

    def __init__(self, models: Mapping[tuple[Need, Status], str], admitted: AdmittedVersions) -> None:
        self.models = models
        self._admitted = admitted

    @cached_property
    def choices(self) -> Choices:
        """All admitted versions of the model."""
        return Choices.of_parts({strand: self._admitted[strand[1]] for strand in self.models})

    @cached_property
    def strands(self) -> Mapping[Need, Sequence[VersionClass]]:
        """The strands of the model with each requirement."""
        found: defaultdict[Need, list[VersionClass]] = defaultdict(list)
        for strand in self.models:
            found[strand[0]].append(strand)
        return found

    @cached_property
    def constraints(self) -> Mapping[Need, Constraint]:
        """Each requirement once, those of the newest versions first."""
        return {need: Constraint.parse(need[2]) for need, _ in self.models}

    @cached_property
    def together(self) -> Mapping[str, Constraint]:
        """The union of all requirements of each framework."""
        by_name: defaultdict[str, list[Constraint]] = defaultdict(list)
        for need, constraint in self.constraints.items():
            by_name[need[1]].append(constraint)
        return {name: _united(some) for name, some in by_name.items()}

    @cached_property
    def pins(self) -> Mapping[str, Sequence[tuple[Constraint, Version]]]:
        """The requirements of each framework that name one version, and that version."""
        found: dict[str, list[tuple[Constraint, Version]]] = {name: [] for name in self.together}
        for need, constraint in self.constraints.items():
            pin = constraint.pinned
            if pin is not None:
                found[need[1]].append((constraint, pin))
        return found


class Availability:
    """One question over one snapshot."""

    def __init__(self, question: Question, snapshot: Snapshot, preferences: Preferences) -> None:
        self.question = question
        self.snapshot = snapshot
        self.preferences = preferences
        self._let_ins: dict[Hashable, dict[Hashable, Choices]] = {}
        self._of_models: dict[Hashable, ModelNeeds] = {}

    def asking(self, question: Question) -> "Availability":
        """The same of another question; what frameworks are asked for is worked out once."""
        other = Availability(question, self.snapshot, self.preferences)
        other._let_ins, other._of_models = self._let_ins, self._of_models
        return other

    @cached_property
    def _let_in(self) -> dict[Hashable, Choices]:
        """What requirements let in, under this question's narrowing: other questions with the same one share it."""
        question = self.question
        narrowing = (question.framework, "framework" in question.prereleases, "framework" in question.yanked)
        return self._let_ins.setdefault(narrowing, {})

    def admitted(self, kind: Kind, name: str, *constraints: Constraint) -> AdmittedVersions:
        """The versions of the name that may be chosen under ``constraints``, by status."""
        return self._admitted(kind, self.preferences.get((kind, name)), constraints)

    def _admitted(self, kind: Kind, preferred: Version | None, constraints: Sequence[Constraint]) -> AdmittedVersions:
        prereleases, yanked = kind in self.question.prereleases, kind in self.question.yanked
        return admitted(constraints, preferred, prereleases=prereleases, yanked=yanked)

    @cached_property
    def of_model(self) -> AdmittedVersions:
        return self.admitted("model", self.question.model.name, self.question.model.constraint)

    def frameworks(self, need: Need) -> Choices:
        """The versions of the framework that ``need``, and the request's narrowing of it, let in."""
        if need not in self._let_in:
            narrowing = self.question.framework
            constraints = (Constraint.parse(need[2]), *(() if narrowing is None else (narrowing,)))
            versions = self.admitted("framework", need[1], *constraints)
            self._let_in[need] = Choices.of_parts({(need[1], status): part for status, part in versions.items()})
        return self._let_in[need]

    def of_any(self) -> Choices:
        """Return all frameworks that any admitted version of the model lets in.

        What many requirements and one narrowing let in is what their union and the narrowing do: the effort of another
        narrowing does not grow with the number of requirements. Pins of yanked versions alone are taken one by one.
        """
        parts: dict[VersionClass, Range] = {}
        for name, union in self.needs.together.items():
            narrowing = self.question.framework
            versions = self.admitted("framework", name, *(one for one in (union, narrowing) if one is not None))
            parts |= {(name, status): part for status, part in versions.items() if status != "yanked"}
            yanked = [versions.get("yanked", Range.NONE)]
            if "framework" not in self.question.yanked:
                yanked += self._admitted_pins(name)
            parts[name, "yanked"] = Range.union(yanked)
        return Choices.of_parts(parts)

    def _admitted_pins(self, name: str) -> Iterator[Range]:
        """Yield the versions that one requirement of a framework names, and the request's narrowing admits."""
        narrowing = self.question.framework
        prereleases = "framework" in self.question.prereleases
        for constraint, pin in self.needs.pins[name]:
            if all(by is None or by.admits(pin, prereleases=prereleases) for by in (constraint, narrowing)):
                yield constraint.range

    def needs_outside(self, present: Choices) -> Iterator[Need]:
        """Yield what versions of the model require that nothing in ``present``, a part of ``of_any``, fits."""
        if present.is_empty():
            yield from self.needs.constraints
            return
        prereleases, is_pinned = "framework" in self.question.prereleases, "framework" not in self.question.yanked
        there = {name: tuple(present.of((name, status)) for status in STATUSES) for name in self.needs.together}
        for need, constraint in self.needs.constraints.items():
            release, prerelease, yanked = there[need[1]]
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
        """The newest version of ``versions`` with that status, and with that requirement where one is given."""

        def below(interval: Interval) -> Version | None:
            found = self.snapshot.newest(Population(kind, name, interval, status, need), 1)
            return found[0] if found else None

        return _newest_in(versions, below)

    @property
    def models(self) -> Mapping[tuple[Need, Status], str]:
        """The key of the newest version of each sort that the model has among those admitted, newest first.

        Any other is like one of these, and older.
        """
        return self.needs.models

    @cached_property
    def needs(self) -> "ModelNeeds":
        """What the admitted versions of the model require: other questions that admit the same ones share it."""
        within = {status: versions & self._published(status) for status, versions in self.of_model.items()}
        admitted = {status: versions for status, versions in within.items() if not versions.is_empty()}
        versions = tuple(admitted.items())
        if versions not in self._of_models:
            self._of_models[versions] = ModelNeeds(self._newest_models(admitted), admitted)
        return self._of_models[versions]

    def _published(self, status: Status) -> Range:
        """From the oldest to the newest version of the model with that status: what is beyond makes no difference."""
        wanted = Population("model", self.question.model.name, EVERY, status)
        found = (*self.snapshot.oldest(wanted, 1), *self.snapshot.newest(wanted, 1))
        return Range.between(found[0], successor(found[-1])) if found else Range.NONE

    def _newest_models(self, admitted: AdmittedVersions) -> Mapping[tuple[Need, Status], str]:
        found: dict[tuple[Need, Status], str] = {}
        for status, versions in admitted.items():
            for interval in reversed(versions.intervals):
                for need, newest in self._needed(interval, status):
                    found.setdefault((need, status), newest)
        return dict(sorted(found.items(), key=itemgetter(1), reverse=True))

    def _needed(self, interval: Interval, status: Status) -> Iterable[tuple[Need, str]]:
        """What versions of the model require; of one alone the snapshot says it without going through all others."""
        name = self.question.model.name
        alone = Range.between(interval.low, interval.high).single()
        if alone is None:
            return self.snapshot.needed(Population("model", name, interval, status))
        models = self.snapshot.candidates("model", name, (alone,))
        return [(need, key(one.version)) for one in models if one.status == status for need in one.requires]

    def preferred_model(self) -> Candidate | None:
        """The version of the model that the preferences name, if it is published."""
        name = self.question.model.name
        preferred = self.preferences.get(("model", name))
        found = () if preferred is None else self.snapshot.candidates("model", name, (preferred,))
        return found[0] if found else None

    def framework(self, name: str, status: Status, versions: Range) -> Version | None:
        """The newest framework of ``versions`` with that status that an image provides where it will do."""

        def below(interval: Interval) -> Version | None:
            found = [self.snapshot.provided(one) for one in self._environments(name, interval, status)]
            return _newest_first(found)[0] if any(found) else None

        return _newest_in(versions, below)

    def images(self, framework: str, status: Status, version: Version) -> tuple[tuple[str, Version], ...]:
        """Names and versions of the images that provide that version of the framework, in the order of choice.

        Preferred names, names without a namespace, then by name; of each name the preferred version or the newest.
        """
        (exactly,) = Range.exactly(version).intervals
        newest: dict[str, Version] = {}
        for environments in self._environments(framework, exactly, status):
            for name, found in self.snapshot.providers(environments):
                newest[name] = max(newest.get(name, found), found, key=key)
        names = sorted(newest, key=lambda name: (("image", name) not in self.preferences, "/" in name, name))
        return tuple((name, self._preferred_image(name, framework, version) or newest[name]) for name in names)

    def _preferred_image(self, name: str, framework: str, version: Version) -> Version | None:
        """The preferred version of that image, if it too provides the framework where it will do."""
        preferred = self.preferences.get(("image", name))
        if preferred is None:
            return None
        (found,) = self.snapshot.candidates("image", name, (preferred,)) or (None,)
        if found is None or found.provides != (framework, version) or not self.fits(found):
            return None
        admitted_by = (
            named in (None, name) and found.status == status and interval.low_key <= key(preferred) < interval.high_key
            for named, interval, status in self._images
        )
        return preferred if any(admitted_by) else None

    def fits(self, image: Candidate) -> bool:
        """Whether the image is for a platform that will do."""
        return any(map(self._will_do, image.platforms))

    def platforms(self, framework: str) -> tuple[Platform, ...]:
        """Those for which there are images with the framework, and that will do."""
        return tuple(filter(self._will_do, self.snapshot.platforms(framework)))

    def _will_do(self, platform: Sequence[object]) -> bool:
        """The request admits it; where an accelerator and no device is asked for, a CPU alone is none."""
        hardware = self.question.hardware
        in_vain = self.question.accelerated and hardware.device is None and platform[DEVICE] == "cpu"
        return hardware.admits(platform) and not in_vain

    def _environments(self, framework: str, interval: Interval, status: Status) -> Iterator[Environments]:
        for platform, images in product(self.platforms(framework), self._images):
            yield Environments(framework, interval, status, platform, *images)

    @cached_property
    def _images(self) -> tuple[tuple[str | None, Interval, Status], ...]:
        """Which images will do, whatever they provide: a name or any, an interval of versions, their status."""
        asked = self.question.image
        constraint = ANY if asked is None else asked.constraint
        name = None if asked is None else asked.name
        found: list[tuple[str | None, Interval, Status]] = [
            (name, interval, status)
            for status, versions in self._admitted("image", None, (constraint,)).items()
            for interval in versions.intervals
        ]
        for kind, kept in self.preferences:
            if kind == "image" and name in (None, kept):
                yanked = self.admitted("image", kept, constraint).get("yanked", Range.NONE)
                found += [(kept, interval, "yanked") for interval in yanked.intervals]
        return tuple(dict.fromkeys(found))


def _newest_in(versions: Range, newest: Callable[[Interval], Version | None]) -> Version | None:
    """The newest of ``versions`` that there is; ``newest`` says what there is in an interval.

    Asked for all between the ends, and where that lies in a gap, for what is below the gap: a set of many intervals
    costs few questions.
    """
    cuts = versions.cuts
    below = len(cuts)
    while below:
        hull = Range(cuts[:1] if below % 2 else (cuts[0], cuts[below - 1])).hull
        found = newest(hull)
        if found is None or versions.contains(found):
            return found
        below = bisect_right(cuts, key(found))
    return None


def _united(constraints: Sequence[Constraint]) -> Constraint:
    """Return a constraint that admits what any of these admits."""
    if len(constraints) == 1:
        return constraints[0]
    versions = Range.union(one.range for one in constraints)
    prereleases = Range.union(one.prereleases for one in constraints)
    return Constraint(versions, prereleases, f"one of {len(constraints)} constraints")


def _newest_first(versions: Iterable[Version | None]) -> tuple[Version, ...]:
    return tuple(sorted((one for one in versions if one is not None), key=key, reverse=True))
