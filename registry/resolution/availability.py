"""What there is of what a question lets in: the newest of each kind, out of a snapshot.

What may be chosen at all depends on the question and the preferences alone; which of it exists, the snapshot says.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product

from registry.constraints import ANY, Constraint
from registry.grammar import LEAST
from registry.hardware import KEYS
from registry.names import Kind
from registry.ranges import Interval, Range
from registry.resolution.admission import Admitted, admitted
from registry.resolution.candidates import (
    Candidate,
    Environments,
    Need,
    Platform,
    Population,
    Question,
    Snapshot,
    Status,
)
from registry.resolution.choices import Choices, Strand
from registry.versions import Version, key

Preferences = Mapping[tuple[Kind, str], Version]
DEVICE = KEYS.index("device")


class Availability:
    """One question over one snapshot."""

    def __init__(self, question: Question, snapshot: Snapshot, preferences: Preferences) -> None:
        self.question = question
        self.snapshot = snapshot
        self.preferences = preferences
        self._let_ins: dict[Hashable, dict[Hashable, Choices]] = {}

    def asking(self, question: Question) -> "Availability":
        """The same of another question; what frameworks are asked for is worked out once."""
        other = Availability(question, self.snapshot, self.preferences)
        other._let_ins = self._let_ins
        return other

    @cached_property
    def _let_in(self) -> dict[Hashable, Choices]:
        """What requirements let in, under this question's narrowing: other questions with the same one share it."""
        question = self.question
        narrowing = (question.framework, "framework" in question.prereleases, "framework" in question.yanked)
        return self._let_ins.setdefault(narrowing, {})

    def admitted(self, kind: Kind, name: str, *constraints: Constraint) -> Admitted:
        """The versions of the name that may be chosen under ``constraints``, by status."""
        return self._admitted(kind, self.preferences.get((kind, name)), constraints)

    def _admitted(self, kind: Kind, preferred: Version | None, constraints: Sequence[Constraint]) -> Admitted:
        prereleases, yanked = kind in self.question.prereleases, kind in self.question.yanked
        return admitted(constraints, preferred, prereleases=prereleases, yanked=yanked)

    @cached_property
    def of_model(self) -> Admitted:
        return self.admitted("model", self.question.model.name, self.question.model.constraint)

    def frameworks(self, need: Need) -> Choices:
        """The versions of the framework that ``need``, and the request's narrowing of it, let in."""
        if need not in self._let_in:
            narrowing = self.question.framework
            constraints = (Constraint.parse(need[2]), *(() if narrowing is None else (narrowing,)))
            versions = self.admitted("framework", need[1], *constraints)
            self._let_in[need] = Choices({(need[1], status): part for status, part in versions.items()})
        return self._let_in[need]

    def of_any(self, needs: tuple[Need, ...]) -> Choices:
        """All that any of the requirements lets in."""
        if needs not in self._let_in:
            parts: defaultdict[Strand, list[Range]] = defaultdict(list)
            for need in needs:
                for strand, versions in self.frameworks(need).parts.items():
                    parts[strand].append(versions)
            self._let_in[needs] = Choices({strand: Range.union(some) for strand, some in parts.items()})
        return self._let_in[needs]

    def newest(
        self, kind: Kind, name: str, status: Status, versions: Range, need: Need | None = None
    ) -> Version | None:
        """The newest version of ``versions`` with that status, and with that requirement where one is given."""

        def below(interval: Interval) -> Version | None:
            found = self.snapshot.newest(Population(kind, name, interval, status, need), 1)
            return found[0] if found else None

        return _newest_in(versions, below)

    @cached_property
    def models(self) -> Mapping[tuple[Need, Status], Version]:
        """The newest version of each sort that the model has among those admitted, newest first.

        Any other is like one of these, and older.
        """
        found: dict[tuple[Need, Status], Version] = {}
        for status, versions in self.of_model.items():
            for interval in reversed(versions.intervals):
                for need, newest in self._needed(interval, status):
                    found.setdefault((need, status), newest)
        return dict(sorted(found.items(), key=lambda one: key(one[1]), reverse=True))

    def _needed(self, interval: Interval, status: Status) -> Iterable[tuple[Need, Version]]:
        """What versions of the model require; of one alone the snapshot says it without going through all others."""
        name = self.question.model.name
        alone = Range.between(interval.low, interval.high).single()
        if alone is None:
            return self.snapshot.needed(Population("model", name, interval, status))
        models = self.snapshot.candidates("model", name, (alone,))
        return [(need, one.version) for one in models if one.status == status for need in one.requires]

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
    while not versions.is_empty():
        found = newest(versions.hull)
        if found is None or versions.contains(found):
            return found
        versions &= Range.between(LEAST, found)
    return None


def _newest_first(versions: Iterable[Version | None]) -> tuple[Version, ...]:
    return tuple(sorted((one for one in versions if one is not None), key=key, reverse=True))
