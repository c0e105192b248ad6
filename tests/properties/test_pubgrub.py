"""The search over sets against brute force: on problems that know nothing of versions."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchlock.registry.resolution.pubgrub import Incompatibility, Solver, UnsolvableError

VALUES = range(4)
PACKAGES = ("a", "b", "c", "d")


@dataclass(frozen=True)
class Some:
    """A set of small numbers."""

    values: frozenset[int]

    def __and__(self, other: "Some") -> "Some":
        return Some(self.values & other.values)

    def __or__(self, other: "Some") -> "Some":
        return Some(self.values | other.values)

    def __invert__(self) -> "Some":
        return Some(frozenset(VALUES) - self.values)

    def is_empty(self) -> bool:
        return not self.values

    def is_everything(self) -> bool:
        return self.values == frozenset(VALUES)

    def is_disjoint(self, other: "Some") -> bool:
        return not self.values & other.values

    def is_subset(self, other: "Some") -> bool:
        return self.values <= other.values


EVERYTHING = Some(frozenset(VALUES))
Ruling = Incompatibility[str, Some, str]
Clause = Mapping[str, Some]


class Problem:
    """Clauses that hold from the start, clauses that come with a value, and values that exist; small ones first."""

    def __init__(self, clauses: Sequence[Clause], existing: Mapping[str, frozenset[int]]) -> None:
        self.existing = existing
        self.rulings = [Incompatibility[str, Some, str].of(one, str(place)) for place, one in enumerate(clauses)]
        self.chosen: list[tuple[str, int]] = []

    def facts(self) -> Iterable[Ruling]:
        return self.rulings[::2]

    def choose(self, package: str, allowed: Some) -> Some | Sequence[Ruling]:
        there = allowed.values & self.existing[package]
        if not there:
            return (Incompatibility.of({package: allowed}, f"no {package} in {sorted(allowed.values)}"),)
        self.chosen.append((package, min(there)))
        return Some(frozenset({min(there)}))

    def implied(self, package: str, value: Some) -> Iterable[Ruling]:
        """The clauses that the value may take part in."""
        return [one for one in self.rulings[1::2] if package in one.terms and value.is_subset(one.terms[package])]


def violated(clause: Clause, choice: Mapping[str, int]) -> bool:
    return all(choice[package] in some.values for package, some in clause.items())


def brute_force(clauses: Iterable[Clause], existing: Mapping[str, frozenset[int]]) -> Mapping[str, int] | None:
    """The first choice, in the order of packages and values, that violates no clause."""
    for values in product(*(sorted(existing[package]) for package in PACKAGES)):
        choice = dict(zip(PACKAGES, values, strict=True))
        if not any(violated(clause, choice) for clause in clauses):
            return choice
    return None


sets = st.frozensets(st.sampled_from(VALUES), min_size=1, max_size=3).map(Some)
clauses = st.dictionaries(st.sampled_from(PACKAGES), sets, min_size=1, max_size=3)
existing = st.fixed_dictionaries(dict.fromkeys(PACKAGES, st.frozensets(st.sampled_from(VALUES), min_size=1)))


@settings(max_examples=800)
@given(st.lists(clauses, max_size=14), existing)
def test_it_finds_the_first_solution_or_a_set_of_facts_that_has_none(
    some: list[Clause], existing: dict[str, frozenset[int]]
) -> None:
    expected = brute_force(some, existing)
    problem = Problem(some, existing)
    solver = Solver[str, Some, str](PACKAGES, EVERYTHING, problem)
    if expected is not None:
        assert {package: min(values.values) for package, values in solver.solve().items()} == expected
        return
    with pytest.raises(UnsolvableError) as caught:
        solver.solve()
    assert brute_force(*stated(caught.value.incompatibility.facts(), some, existing)) is None


def stated(
    facts: Iterable[str], some: Sequence[Clause], existing: Mapping[str, frozenset[int]]
) -> tuple[list[Clause], Mapping[str, frozenset[int]]]:
    """The problem that consists of these facts alone: nothing but them may be needed for the contradiction."""
    named = [fact for fact in facts if fact.isdigit()]
    absent = {fact.split()[1] for fact in facts if fact.startswith("no ")}
    everything = {one: existing[one] if one in absent else frozenset(VALUES) for one in PACKAGES}
    return [some[int(fact)] for fact in named], everything


def test_a_mistake_is_learnt_once_for_all_values_that_share_it() -> None:
    """Whatever a is, c must not be what b makes of it: b is looked at once, not four times."""
    low, high = Some(frozenset({0, 1})), Some(frozenset({2, 3}))
    problem = Problem([{"b": EVERYTHING, "c": low}, {"c": high}], dict.fromkeys(PACKAGES, frozenset(VALUES)))
    with pytest.raises(UnsolvableError) as caught:
        Solver[str, Some, str](PACKAGES, EVERYTHING, problem).solve()
    assert set(caught.value.incompatibility.facts()) == {"0", "1"}
    assert len(problem.chosen) <= len(PACKAGES)


def test_an_explanation_has_each_fact_once_and_none_that_played_no_part() -> None:
    one, other = Some(frozenset({0})), Some(frozenset({1, 2, 3}))
    problem = Problem(
        [{"a": one}, {"d": one}, {"b": one}, {"b": one}, {"a": other}], dict.fromkeys(PACKAGES, frozenset(VALUES))
    )
    with pytest.raises(UnsolvableError) as caught:
        Solver[str, Some, str](PACKAGES, EVERYTHING, problem).solve()
    assert sorted(caught.value.incompatibility.facts()) == ["0", "4"]
