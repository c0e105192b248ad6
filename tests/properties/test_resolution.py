"""The resolver against brute force on small random catalogues: same choice, same unsolvability, fixes that work."""

import random
from collections.abc import Iterator
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchlock.registry.artifact_names import KINDS
from benchlock.registry.requests.hardware_requirements import KEYS
from benchlock.registry.resolution.conflicts import SHOWN, ConflictError
from benchlock.registry.resolution.fix_proposals import FIELDS, apply_fix, find_nearest_fixes
from benchlock.registry.resolution.resolver import Candidate, Question, Resolution, resolve
from benchlock.registry.resolution.version_search import Preferences, Search
from benchlock.registry.versions.semantic_version import Version
from benchlock.registry.versions.version_ranges import Constraint
from tests.support.resolution.random_universes import preferred, questions, universes
from tests.support.resolution.universe import Universe, candidates, question


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
            and asked.dataset is not None
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


@settings(max_examples=700)
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
    fixes = find_nearest_fixes(search)
    assert len({len(fix.changes) for fix in fixes}) <= 1
    for fix in fixes:
        answer = brute_force(apply_fix(asked, fix.changes), rows, {})
        assert answer is not None
        assert set(answer) == {f"{kind}/{one}" for kind, one in fix.gives.items()}


def single_changes(asked: Question, rows: list[Candidate], field: str) -> Iterator[Any]:
    """Yield every value of a field that the catalogue knows; the field image is another image, or none."""
    images = [one for one in rows if one.kind == "image"]
    match field:
        case "prereleases":
            for size in range(1, len(KINDS) + 1):
                yield from (sorted({*asked.prereleases, *kinds}) for kinds in combinations(KINDS, size))
        case "image":
            others = (one for one in images if asked.image is None or one.name != asked.image.name)
            yield from ({"name": one.name, "version": str(one.version)} for one in others)
            yield from () if asked.image is None else (None,)
        case "hardware":
            offers = sorted({offer[:3] for one in images for offer in one.platforms})
            yield from (dict(zip(KEYS, offer, strict=True)) for offer in offers)
        case _:
            yield from (str(one.version) for one in rows if one.kind == field.removesuffix(".version"))


@settings(max_examples=150)
@given(universes, questions)
def test_whatever_one_field_alone_resolves_is_proposed(rows: list[Candidate], asked: Question) -> None:
    """By trying every value of every field: no larger change is proposed, and no such field is missing."""
    search = Search.of(asked, Universe(rows), {})
    if search.find() is not None:
        return
    fixes = find_nearest_fixes(search)
    helping = {
        field
        for field in FIELDS
        if (field != "image.version" or asked.image is not None)
        and any(brute_force(apply_fix(asked, {field: value}), rows, {}) for value in single_changes(asked, rows, field))
    }
    if helping:
        assert all(len(fix.changes) == 1 for fix in fixes)
        proposed = {field for fix in fixes for field in fix.changes}
        assert len(fixes) == min(len(helping), SHOWN)
        assert proposed <= helping


def test_a_yanked_framework_is_proposed_where_the_answer_for_any_version_has_a_prerelease() -> None:
    """A version that a request names may be yanked; a pre-release has to be admitted by the model, too."""
    of = {"platforms": ["linux/amd64/cpu"]}
    rows = candidates(
        {
            "model/m": {"1.0.0": {"requires": {"framework/f": "*"}}},
            "dataset/d": {"1.0.0": {}},
            "framework/f": {"1.0.0": {}, "1.1.0": {"yanked": "bad"}, "1.2.0-rc.1": {}},
            "image/i": {"1.0.0": {"provides": "f 1.1.0", **of}, "1.1.0": {"provides": "f 1.2.0-rc.1", **of}},
        }
    )
    search = Search.of(question({"model": "m *", "dataset": "d *"}), Universe(rows), {})
    assert search.find() is None
    fixes = [fix.changes for fix in find_nearest_fixes(search)]
    assert fixes == [{"framework.version": "1.1.0"}, {"prereleases": ["framework"]}]


def test_another_image_is_proposed_where_the_asked_one_would_need_another_version() -> None:
    """Both images have yanked versions that fit, and the search prefers the asked name: either change is proposed."""
    yanked = {"provides": "onnxruntime 1.0.0", "platforms": ["linux/amd64/cpu"], "yanked": "old"}
    rows = candidates({
        "dataset/digits": {"1.0.0": {}},
        "framework/onnxruntime": {"1.0.0": {}},
        "image/a": {"1.0.0": yanked},
        "image/b": {"1.0.0": yanked},
        "model/m": {"1.0.0": {"requires": {"framework/onnxruntime": "*"}}},
    })  # fmt: skip
    search = Search.of(question({"model": "m *", "dataset": "digits *", "image": "a *"}), Universe(rows), {})
    assert search.find() is None
    changes = [fix.changes for fix in find_nearest_fixes(search)]
    assert {"image.version": "1.0.0"} in changes
    assert {"image": {"name": "b", "version": "1.0.0"}} in changes


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
