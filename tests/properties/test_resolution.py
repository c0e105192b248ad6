"""The resolver against brute force on small random catalogues: same choice, same unsolvability, fixes that work."""

import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from registry.constraints import Constraint
from registry.resolution.conflicts import ConflictError
from registry.resolution.fixes import changed, nearest_fixes
from registry.resolution.resolver import Candidate, Question, Resolution, resolve
from registry.resolution.search import Preferences, Search
from registry.versions import Version
from tests.support.random_universes import preferred, questions, universes
from tests.support.universe import Universe


def _may(asked: Question, preferences: Preferences, one: Candidate, constraints: list[Constraint]) -> bool:
    admitted = all(by.admits(one.version, prereleases=one.kind in asked.prereleases) for by in constraints)
    pinned = any(by.pinned == one.version for by in constraints)
    return admitted and (not one.yanked or pinned or preferences.get((one.kind, one.name)) == one.version)


def brute_force(asked: Question, rows: list[Candidate], preferences: Preferences) -> tuple[str, ...] | None:
    """All combinations, tried one by one; of those that fit the first in the stated order of preference."""
    kinds = [[one for one in rows if one.kind == kind] for kind in ("model", "framework", "image", "dataset")]
    fitting = []
    for model, framework, image, dataset in product(*kinds):
        ((_, name, text),) = model.requires
        narrowed = [asked.framework] if asked.framework else []
        named = [asked.image.constraint] if asked.image else [Constraint.parse("*")]
        if (
            framework.name == name
            and image.provides == (name, framework.version)
            and (asked.image is None or asked.image.name == image.name)
            and any(asked.hardware.admits(offer) for offer in image.platforms)
            and _may(asked, preferences, model, [asked.model.constraint])
            and _may(asked, preferences, framework, [Constraint.parse(text), *narrowed])
            and _may(asked, preferences, image, named)
            and _may(asked, preferences, dataset, [asked.dataset.constraint])
        ):
            fitting.append((model, framework, image, dataset))

    def rank(choice: tuple[Candidate, ...]) -> list[tuple[bool, str, bool, Version]]:
        return [
            (
                ("image", one.name) in preferences if one.kind == "image" else False,
                "".join(chr(127 - ord(letter)) for letter in one.name) if one.kind == "image" else "",
                preferences.get((one.kind, one.name)) == one.version,
                one.version,
            )
            for one in choice
        ]

    best = max(fitting, key=rank, default=None)
    return None if best is None else tuple(map(str, best))


def chosen(found: Resolution) -> tuple[str, ...]:
    return tuple(str(found.chosen()[kind]) for kind in ("model", "framework", "image", "dataset"))


@settings(max_examples=2000)
@given(universes, questions, preferred, st.randoms(use_true_random=False))
def test_it_agrees_with_brute_force_in_any_order_of_rows(
    rows: list[Candidate], asked: Question, preferences: Preferences, order: random.Random
) -> None:
    expected = brute_force(asked, rows, preferences)
    order.shuffle(rows)
    found = Search.of(asked, Universe(rows), preferences).find()
    assert (None if found is None else chosen(found)) == expected


@settings(max_examples=60)
@given(universes, questions)
def test_every_fix_that_a_conflict_proposes_works_and_none_is_proposed_without_need(
    rows: list[Candidate], asked: Question
) -> None:
    search = Search.of(asked, Universe(rows), {})
    if search.find() is not None:
        return
    fixes = nearest_fixes(search)
    assert len({len(fix.changes) for fix in fixes}) <= 1
    for fix in fixes:
        answer = brute_force(changed(asked, fix.changes), rows, {})
        assert answer is not None
        assert set(answer) == {f"{kind}/{one}" for kind, one in fix.gives.items()}


@settings(max_examples=60)
@given(universes, questions, st.randoms(use_true_random=False))
def test_an_explanation_names_every_requirement_and_does_not_depend_on_the_order(
    rows: list[Candidate], asked: Question, order: random.Random
) -> None:
    if Search.of(asked, Universe(rows), {}).find() is not None:
        return
    conflicts = []
    for _ in range(2):
        order.shuffle(rows)
        with pytest.raises(ConflictError) as caught:
            resolve(asked, Universe(rows), {})
        conflicts.append(caught.value)
    first, second = conflicts
    assert (str(first), first.conflict) == (str(second), second.conflict)
    assert first.conflict["asked"]
    assert first.conflict["rejected"]
    assert first.next_step
