"""PubGrub, a conflict-driven search over sets of values.

    facts                                   learned incompatibility
      |                      +------------------------------------------+
      v                      v                                          |
    incompatibilities --> [1] propagate --violated--> [2] learn, backtrack
                             |        ^                    |
             nothing follows |        | facts              | no terms left
                             v        |                    v
                          [3] decide -+               no solution
                             |
                             | every package is decided
                             v
                          solution

A *package* takes one value out of a set. An *incompatibility* maps some packages to a set each, and says that their
values do not all lie in these sets. It is either a fact, or it follows from two other incompatibilities. The *trail*
lists all assignments in order. Each assignment has a level: the number of packages that were decided before it.

1. Propagate. Where all packages of an incompatibility but one certainly lie in their sets, narrow that one package to
   the complement of its set. Repeat until nothing follows.
2. Learn. Where all packages of an incompatibility lie in their sets, it is violated. Resolve it with the cause of the
   latest assignment that it depends on, until it leaves one package to narrow at an earlier level. Go back to that
   level and add the result, so that the search never repeats the mistake.
3. Decide. Ask the source for the preferred value of the first undecided package. The source may answer with facts
   instead, which rule out values. A value that implies new facts is decided only after these facts were propagated.
4. Stop when every package is decided, or when a learned incompatibility has no terms. In the second case its derivation
   from facts is the explanation.

One thing differs from the original: every package has a value, so that "not in S" is "in the complement of S", and
terms need no sign. A package that may be absent has absence as one of its values.

Source: Natalie Weizenbaum, "PubGrub: Next-Generation Version Solving", https://nex3.medium.com/pubgrub-2fb6470504f.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar


class Values(Protocol):
    """A set of values of a package."""

    def __and__(self, other: Self, /) -> Self:
        """Return the intersection."""
        ...

    def __or__(self, other: Self, /) -> Self:
        """Return the union."""
        ...

    def __invert__(self) -> Self:
        """Return the complement."""
        ...

    def is_empty(self) -> bool:
        """Return whether the set has no values."""
        ...

    def is_everything(self) -> bool:
        """Return whether the set has all values."""
        ...

    def is_subset(self, other: Self, /) -> bool:
        """Return whether ``other`` contains the set."""
        ...

    def is_disjoint(self, other: Self, /) -> bool:
        """Return whether the sets have no common value."""
        ...


P = TypeVar("P", bound=Hashable)
S = TypeVar("S", bound=Values)
F = TypeVar("F", bound=Hashable)


@dataclass(frozen=True, eq=False, slots=True)
class Incompatibility(Generic[P, S, F]):
    """A statement that the values of the packages in ``terms`` do not all lie in their sets.

    ``because`` is a fact, or the derivation from two other incompatibilities.
    """

    terms: Mapping[P, S]
    because: "F | Derivation[P, S, F]"

    @classmethod
    def of(cls, terms: Mapping[P, S], because: "F | Derivation[P, S, F]") -> Self:
        """Return an incompatibility without the packages whose sets have all values: they say nothing."""
        return cls({package: values for package, values in terms.items() if not values.is_everything()}, because)

    def facts(self) -> tuple[F, ...]:
        """Return the facts that it was derived from, each once, in the order of the traversal."""
        facts: dict[F, None] = {}
        seen: set[int] = set()
        waiting: list[Incompatibility[P, S, F]] = [self]
        while waiting:
            incompatibility = waiting.pop()
            if id(incompatibility) in seen:
                continue
            seen.add(id(incompatibility))
            if isinstance(incompatibility.because, Derivation):
                waiting += [incompatibility.because.cause, incompatibility.because.violated]
            else:
                facts.setdefault(incompatibility.because)
        return tuple(facts)


@dataclass(frozen=True, eq=False, slots=True)
class Derivation(Generic[P, S, F]):
    """The origin of an incompatibility: a violated one, and the cause that had narrowed a package too far."""

    violated: Incompatibility[P, S, F]
    cause: Incompatibility[P, S, F]


class UnsolvableError(Exception, Generic[P, S, F]):
    """No solution meets every incompatibility; ``incompatibility`` has no terms, and its derivation explains why."""

    def __init__(self, incompatibility: Incompatibility[P, S, F]) -> None:
        """Record the incompatibility without terms."""
        super().__init__("no values meet every incompatibility")
        self.incompatibility = incompatibility


class Source(Protocol[P, S, F]):
    """The domain of a search: facts, preferred values, and the facts that a value implies."""

    def facts(self) -> Iterable[Incompatibility[P, S, F]]:
        """Return the facts that hold from the start."""
        ...

    def choose(self, package: P, allowed: S) -> S | Sequence[Incompatibility[P, S, F]]:
        """Return the preferred value in ``allowed``, or facts that rule out values.

        Returns:
            The value, as a set of one; or facts, one of which rules out all of ``allowed``.
        """
        ...

    def implied(self, package: P, value: S) -> Iterable[Incompatibility[P, S, F]]:
        """Return the facts that a value implies; every call returns the same objects."""
        ...


@dataclass(frozen=True, slots=True)
class _Assignment(Generic[P, S, F]):
    """An entry of the trail: ``package`` lies in ``values``, so that it may still be in ``allowed``.

    A decision has no ``cause``.
    """

    package: P
    values: S
    allowed: S
    level: int
    cause: Incompatibility[P, S, F] | None


class Solver(Generic[P, S, F]):
    """One search, which decides ``packages`` in their order; ``everything`` is the set of all values."""

    def __init__(self, packages: Sequence[P], everything: S, source: Source[P, S, F]) -> None:
        """Prepare the search for values of ``packages``."""
        self._packages = packages
        self._everything = everything
        self._source = source
        self._allowed: dict[P, S] = dict.fromkeys(packages, everything)
        self._decided: dict[P, S] = {}
        self._trail: list[_Assignment[P, S, F]] = []
        self._by_package: dict[P, list[Incompatibility[P, S, F]]] = {package: [] for package in packages}
        self._known: set[int] = set()
        self._alive: list[Incompatibility[P, S, F]] = []

    def solve(self) -> Mapping[P, S]:
        """Find a value of each package, as a set of one.

        The value of the first package is the most preferred one that has a solution, and so on in the order of
        packages.

        Raises:
            UnsolvableError: There is no solution.
        """
        self._add(self._source.facts())
        waiting = list(self._packages)
        while True:
            self._propagate(waiting)
            package = next((candidate for candidate in self._packages if candidate not in self._decided), None)
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
        """Add incompatibilities, and return whether any of them was new.

        Raises:
            UnsolvableError: One of them rules out everything.
        """
        fresh = [incompatibility for incompatibility in incompatibilities if id(incompatibility) not in self._known]
        self._alive += fresh  # so that no later object gets one of their ids
        self._known |= {id(incompatibility) for incompatibility in fresh}
        for incompatibility in fresh:
            if not incompatibility.terms:
                raise UnsolvableError(incompatibility)
            for package in incompatibility.terms:
                self._by_package[package].append(incompatibility)
        return bool(fresh)

    def _propagate(self, changed: Iterable[P]) -> None:
        """Narrow what follows from the changed packages, and whatever follows from that."""
        waiting = dict.fromkeys(changed)
        while waiting:
            changed_last, _ = waiting.popitem()
            for incompatibility in reversed(self._by_package[changed_last]):
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
        """Return the one package that must leave its set.

        The tuple is empty if the incompatibility is violated. It is ``None`` if nothing follows yet.
        """
        outside: tuple[P, ...] = ()
        for package, values in incompatibility.terms.items():
            allowed = self._allowed[package]
            if not allowed.is_subset(values):
                if outside or allowed.is_disjoint(values):
                    return None
                outside = (package,)
        return outside

    def _assign(self, package: P, values: S, cause: Incompatibility[P, S, F] | None) -> None:
        """Narrow a package to ``values``, and append the assignment to the trail."""
        allowed = self._allowed[package] & values
        self._allowed[package] = allowed
        self._trail.append(_Assignment(package, values, allowed, len(self._decided), cause))

    def _learn(self, violated: Incompatibility[P, S, F]) -> Incompatibility[P, S, F]:
        """Derive what follows from a violation, and go back to the level where it leaves one package to narrow."""
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
        """Return the first position on the trail from which on the package lies in ``values``."""
        return next(
            position
            for position, assignment in enumerate(self._trail)
            if assignment.package == package and assignment.allowed.is_subset(values)
        )

    def _level_without(self, last: _Assignment[P, S, F], position: int, violated: Incompatibility[P, S, F]) -> int:
        """Return the first level at which only the assignment ``last`` is missing for the violation."""
        positions = [
            self._inside_since(package, values) for package, values in violated.terms.items() if package != last.package
        ]
        outside = last.values & ~violated.terms[last.package]
        if not outside.is_empty():
            positions.append(
                next(
                    index
                    for index, assignment in enumerate(self._trail[:position])
                    if assignment.package == last.package and assignment.allowed.is_disjoint(outside)
                )
            )
        return max((self._trail[index].level for index in positions), default=0)

    def _go_back(self, level: int) -> None:
        """Undo all assignments above ``level``."""
        while self._trail and self._trail[-1].level > level:
            undone = self._trail.pop()
            self._decided.pop(undone.package, None)
        self._allowed = dict.fromkeys(self._packages, self._everything)
        self._allowed |= {assignment.package: assignment.allowed for assignment in self._trail}


def _derived(
    violated: Incompatibility[P, S, F], cause: Incompatibility[P, S, F], package: P
) -> Incompatibility[P, S, F]:
    """Resolve two incompatibilities on ``package``, which cannot lie outside both of its sets.

    A value in the union of the two sets lies in one of them, so it violates one of the two incompatibilities.
    """
    terms = dict(violated.terms)
    for other, values in cause.terms.items():
        terms[other] = values if other not in terms else terms[other] & values
    terms[package] = violated.terms[package] | cause.terms[package]
    return Incompatibility.of(terms, Derivation(violated, cause))
