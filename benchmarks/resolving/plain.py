"""The same requests through resolvelib with a plain provider: candidate by candidate, newest first, kind after kind."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from time import process_time

from resolvelib import AbstractProvider, BaseReporter, ResolutionImpossible, Resolver
from resolvelib.resolvers import RequirementInformation
from resolvelib.structs import State

from benchlock.registry.artifact_names import Kind
from benchmarks.resolving.universes import ANY, Ask, Release, Span, Universe, version

Package = tuple[Kind, str]
_ORDER: tuple[Kind, ...] = ("model", "framework", "image", "dataset")
_ROUNDS = 10**9  # the time limit ends it, not their number


@dataclass(frozen=True, slots=True)
class Wanted:
    """Versions of a name. Any image of a framework will do, so the name of an image is that of its framework."""

    kind: Kind
    name: str
    span: Span = ANY
    only: str = ""  # the image of that name alone


@dataclass(frozen=True, slots=True)
class Answer:
    """``chosen`` is the newest version that fits, by kind, or ``None``; ``seconds`` of CPU, and rounds."""

    chosen: Mapping[Kind, str] | None
    seconds: float
    rounds: int


def answer(universe: Universe, ask: Ask) -> Answer:
    """What resolvelib says. Making the candidates is not counted: they are looked up in a dictionary."""
    provider = Provider(universe, ask.arch)
    asked = [Wanted("model", ask.model, ask.versions), Wanted("dataset", ask.dataset)]
    if ask.framework is not None:
        asked.append(Wanted("framework", ask.needs, ask.framework))
    if ask.image is not None:
        asked.append(Wanted("image", ask.needs, ask.image[1], ask.image[0]))
    for package in (("model", ask.model), ("framework", ask.needs), ("image", ask.needs), ("dataset", ask.dataset)):
        provider.candidates(*package)
    counted = _Counted()
    start = process_time()
    try:
        found = Resolver(provider, counted).resolve(asked, max_rounds=_ROUNDS)
    except ResolutionImpossible:
        return Answer(None, process_time() - start, counted.rounds)
    seconds = process_time() - start
    chosen: dict[Kind, str] = {
        one.kind: f"{one.name} {version(one.number)}" for one in found.mapping.values() if one.kind in _ORDER
    }
    return Answer(chosen, seconds, counted.rounds)


class Provider(AbstractProvider[Wanted, Release, Package]):
    """A model requires its framework, a framework some image of it, an image the one version that it provides."""

    def __init__(self, universe: Universe, arch: str) -> None:
        self._universe = universe
        self._arch = arch
        self.candidates = cache(self._candidates)

    def identify(self, requirement_or_candidate: Wanted | Release) -> Package:
        one = requirement_or_candidate
        if isinstance(one, Release) and one.provides:
            return "image", one.provides[0]
        return one.kind, one.name

    def get_preference(
        self,
        identifier: Package,
        resolutions: Mapping[Package, Release],  # noqa: ARG002 - the library's interface
        candidates: Mapping[Package, Iterator[Release]],  # noqa: ARG002
        information: Mapping[Package, Iterator[RequirementInformation[Wanted, Release]]],  # noqa: ARG002
        backtrack_causes: Sequence[RequirementInformation[Wanted, Release]],  # noqa: ARG002
    ) -> int:
        return _ORDER.index(identifier[0])

    def find_matches(
        self,
        identifier: Package,
        requirements: Mapping[Package, Iterator[Wanted]],
        incompatibilities: Mapping[Package, Iterator[Release]],
    ) -> Iterable[Release]:
        found = self.candidates(*identifier)
        for want in requirements[identifier]:
            found = [one for one in found if self.is_satisfied_by(want, one)]
        out = {id(one) for one in incompatibilities[identifier]}
        return [one for one in found if id(one) not in out]

    def is_satisfied_by(self, requirement: Wanted, candidate: Release) -> bool:
        return candidate.number in requirement.span and requirement.only in ("", candidate.name)

    def get_dependencies(self, candidate: Release) -> Iterable[Wanted]:
        if candidate.requires:
            return [Wanted("framework", *candidate.requires)]
        if candidate.provides:
            framework, number = candidate.provides
            return [Wanted("framework", framework, Span(number, number + 1))]
        return [Wanted("image", candidate.name)] if candidate.kind == "framework" else []

    def _candidates(self, kind: Kind, name: str) -> list[Release]:
        """Every candidate, the preferred one first, made once; of images those for the processor."""
        if kind != "image":
            return self._universe.of(kind, name)[::-1]
        images = [
            release for one in self._universe.images_of(name) for release in self._universe.of("image", one)[::-1]
        ]
        return [release for release in images if self._arch in release.arches]


class _Counted(BaseReporter[Wanted, Release, Package]):
    def __init__(self) -> None:
        self.rounds = 0

    def starting_round(self, index: int) -> None:
        self.rounds = index + 1

    def ending(self, state: State[Wanted, Release, Package]) -> None:
        pass
