"""PubGrub, a conflict-driven search over sets: https://nex3.medium.com/pubgrub-2fb6470504f.

A *package* gets one value out of a set. An *incompatibility* says of some packages, a set each, that their values
cannot all lie in them; it is a fact, or follows from two others. The search narrows the set that each package may
still be in (unit propagation), decides packages one after the other, and when an incompatibility is violated it derives
from the causes a new one that says why, goes back to where that one leaves a choice, and never makes the mistake
again. Where even no decision can help, the derivation from facts is the explanation.

Different from the original in one thing: every package has a value, so that "not in S" is "in the complement of S" and
terms need no sign. A package that may be absent has absence as one of its values.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar


class Values(Protocol):
    """A set of values of a package."""

    def __and__(self, other: Self, /) -> Self: ...

    def __or__(self, other: Self, /) -> Self: ...

    def __invert__(self) -> Self: ...

    def is_empty(self) -> bool: ...

    def is_everything(self) -> bool: ...

    def is_subset(self, other: Self, /) -> bool: ...

    def is_disjoint(self, other: Self, /) -> bool: ...


P = TypeVar("P", bound=Hashable)
S = TypeVar("S", bound=Values)
F = TypeVar("F", bound=Hashable)


@dataclass(frozen=True, eq=False, slots=True)
class Incompatibility(Generic[P, S, F]):
    """The values of the packages in ``terms`` do not all lie in their sets. ``because`` is a fact, or two others."""

    terms: Mapping[P, S]
    because: "F | Derivation[P, S, F]"

    @classmethod
    def of(cls, terms: Mapping[P, S], because: "F | Derivation[P, S, F]") -> Self:
        """Without the packages whose sets are all there is: they say nothing."""
        return cls({package: values for package, values in terms.items() if not values.is_everything()}, because)

    def facts(self) -> tuple[F, ...]:
        """What it was derived from, each once, what was found first in front."""
        found: dict[F, None] = {}
        seen: set[int] = set()
        waiting: list[Incompatibility[P, S, F]] = [self]
        while waiting:
            one = waiting.pop()
            if id(one) in seen:
                continue
            seen.add(id(one))
            if isinstance(one.because, Derivation):
                waiting += [one.because.cause, one.because.violated]
            else:
                found.setdefault(one.because)
        return tuple(found)


@dataclass(frozen=True, eq=False, slots=True)
class Derivation(Generic[P, S, F]):
    """Where an incompatibility comes from: one that was violated, and one that had narrowed a package too far."""

    violated: Incompatibility[P, S, F]
    cause: Incompatibility[P, S, F]


class UnsolvableError(Exception, Generic[P, S, F]):
    """Nothing meets every incompatibility; ``incompatibility`` has no terms, and says why."""

    def __init__(self, incompatibility: Incompatibility[P, S, F]) -> None:
        super().__init__("no values meet every incompatibility")
        self.incompatibility = incompatibility


class Source(Protocol[P, S, F]):
    """What the search asks."""

    def facts(self) -> Iterable[Incompatibility[P, S, F]]:
        """What holds from the start."""
        ...

    def choose(self, package: P, allowed: S) -> S | Sequence[Incompatibility[P, S, F]]:
        """The single value in ``allowed`` that is preferred, as a set; or facts, one of which rules out all of it."""
        ...

    def implied(self, package: P, value: S) -> Iterable[Incompatibility[P, S, F]]:
        """The facts that come with a value; the same objects whenever asked again."""
        ...


@dataclass(frozen=True, slots=True)
class _Assignment(Generic[P, S, F]):
    """``package`` is in ``values``, so that it may still be in ``allowed``; no ``cause``: decided."""

    package: P
    values: S
    allowed: S
    level: int
    cause: Incompatibility[P, S, F] | None


class Solver(Generic[P, S, F]):
    """One search. ``packages`` are decided in that order; ``everything`` is the set of all values."""

    def __init__(self, packages: Sequence[P], everything: S, source: Source[P, S, F]) -> None:
        self._packages = packages
        self._everything = everything
        self._source = source
        self._allowed: dict[P, S] = dict.fromkeys(packages, everything)
        self._decided: dict[P, S] = {}
        self._trail: list[_Assignment[P, S, F]] = []
        self._about: dict[P, list[Incompatibility[P, S, F]]] = {package: [] for package in packages}
        self._known: set[int] = set()
        self._kept: list[Incompatibility[P, S, F]] = []

    def solve(self) -> Mapping[P, S]:
        """A value of each package, as a set of one; the first package's is the most preferred that has a solution.

        Raises:
            UnsolvableError: there is no solution.
        """
        self._add(self._source.facts())
        waiting = list(self._packages)
        while True:
            self._propagate(waiting)
            package = next((one for one in self._packages if one not in self._decided), None)
            if package is None:
                return self._decided
            waiting = [package]
            chosen = self._source.choose(package, self._allowed[package])
            if isinstance(chosen, Sequence):
                self._add(chosen)
            elif not self._add(self._source.implied(package, chosen)):
                self._decided[package] = chosen
                self._assign(package, chosen, None)

    def _add(self, incompatibilities: Iterable[Incompatibility[P, S, F]]) -> bool:
        """Whether any of them was new.

        Raises:
            UnsolvableError: one of them rules out everything.
        """
        fresh = [one for one in incompatibilities if id(one) not in self._known]
        self._kept += fresh  # keeps them alive, so that an id stays theirs
        self._known |= {id(one) for one in fresh}
        for one in fresh:
            if not one.terms:
                raise UnsolvableError(one)
            for package in one.terms:
                self._about[package].append(one)
        return bool(fresh)

    def _propagate(self, changed: Iterable[P]) -> None:
        """Narrow what follows from the packages that changed, and what follows from that."""
        waiting = dict.fromkeys(changed)
        while waiting:
            changed_last, _ = waiting.popitem()
            for incompatibility in reversed(self._about[changed_last]):
                outside = self._outside(incompatibility)
                if outside is None:
                    continue
                if not outside:
                    learned = self._learn(incompatibility)
                    (package,) = self._outside(learned) or ()
                    self._assign(package, ~learned.terms[package], learned)
                    waiting = {package: None}
                    break
                (package,) = outside
                self._assign(package, ~incompatibility.terms[package], incompatibility)
                waiting[package] = None

    def _outside(self, incompatibility: Incompatibility[P, S, F]) -> tuple[P, ...] | None:
        """The one package that must leave its set, or none: it is violated; ``None`` if nothing follows yet."""
        outside: tuple[P, ...] = ()
        for package, values in incompatibility.terms.items():
            allowed = self._allowed[package]
            if not allowed.is_subset(values):
                if outside or allowed.is_disjoint(values):
                    return None
                outside = (package,)
        return outside

    def _assign(self, package: P, values: S, cause: Incompatibility[P, S, F] | None) -> None:
        allowed = self._allowed[package] & values
        self._allowed[package] = allowed
        self._trail.append(_Assignment(package, values, allowed, len(self._decided), cause))

    def _learn(self, violated: Incompatibility[P, S, F]) -> Incompatibility[P, S, F]:
        """What follows from a violation, after going back to where it leaves one package to narrow."""
        while violated.terms:
            position = max(self._inside_since(package, values) for package, values in violated.terms.items())
            last = self._trail[position]
            level = self._level_without(last, position, violated) if last.level else 0
            if last.cause is None or level < last.level:
                self._go_back(level)
                self._add([violated])
                return violated
            violated = _derived(violated, last.cause, last.package)
        raise UnsolvableError(violated)

    def _inside_since(self, package: P, values: S) -> int:
        """The place on the trail from which on all that is allowed of the package lies in ``values``."""
        return next(
            place for place, one in enumerate(self._trail) if one.package == package and one.allowed.is_subset(values)
        )

    def _level_without(self, last: _Assignment[P, S, F], position: int, violated: Incompatibility[P, S, F]) -> int:
        """The first level at which the assignment ``last`` is all that is missing for the violation."""
        places = [
            self._inside_since(package, values) for package, values in violated.terms.items() if package != last.package
        ]
        outside = last.values & ~violated.terms[last.package]
        if not outside.is_empty():
            places.append(
                next(
                    place
                    for place, one in enumerate(self._trail[:position])
                    if one.package == last.package and one.allowed.is_disjoint(outside)
                )
            )
        return max((self._trail[place].level for place in places), default=0)

    def _go_back(self, level: int) -> None:
        while self._trail and self._trail[-1].level > level:
            undone = self._trail.pop()
            self._decided.pop(undone.package, None)
        self._allowed = dict.fromkeys(self._packages, self._everything)
        self._allowed |= {one.package: one.allowed for one in self._trail}


def _derived(
    violated: Incompatibility[P, S, F], cause: Incompatibility[P, S, F], package: P
) -> Incompatibility[P, S, F]:
    """What follows from both by resolution on ``package``: in one of its two sets it must not be, whatever it is."""
    terms = dict(violated.terms)
    for other, values in cause.terms.items():
        terms[other] = values if other not in terms else terms[other] & values
    terms[package] = violated.terms[package] | cause.terms[package]
    return Incompatibility.of(terms, Derivation(violated, cause))
