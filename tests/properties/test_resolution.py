"""The resolver against brute force on small random catalogues: same choice, same unsolvability, fixes that work."""

import random
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from artifacts.digest import digest_bytes
from registry.constraints import Constraint
from registry.hardware import Hardware
from registry.names import Kind
from registry.resolution.conflicts import ConflictError
from registry.resolution.fixes import changed, nearest_fixes
from registry.resolution.resolver import Candidate, Question, Requirement, Resolution, resolve
from registry.resolution.search import Preferences, Search
from registry.versions import Version, key, parse_version
from tests.support.universe import Universe

VERSIONS = ["1.0.0", "1.1.0", "1.2.0-rc.1", "1.2.0", "2.0.0-rc.1", "2.0.0"]
TEXTS = ["*", "^1", ">=1.1 <2", "<1.2", "=1.1.0", "1.2.0-rc.1", ">=1.2.0-rc.1", "^2", "!=1.2.0", "^1.1 || >=2.0.0-a"]
constraints = st.sampled_from(TEXTS).map(Constraint.parse)
versions = st.sampled_from(VERSIONS)
yanks = st.sampled_from([None, None, None, "bad"])
frameworks = st.sampled_from(["f", "g"])
DEVICES = ["cpu", "cuda"]
PUBLISHED = digest_bytes(b"")


def _published(kind: Kind, name: str) -> st.SearchStrategy[list[Candidate]]:
    def candidate(
        version: str, yanked: str | None, need: tuple[str, str], provided: tuple[str, str], on: str
    ) -> Candidate:
        return Candidate(
            kind=kind,
            name=name,
            version=parse_version(version),
            digest=PUBLISHED,
            yanked=yanked,
            requires=(("framework", *need),) if kind == "model" else (),
            provides=(provided[0], parse_version(provided[1])) if kind == "image" else None,
            platforms=(("linux", "amd64", on, "3.11", True),) if kind == "image" else (),
        )

    needs = st.tuples(frameworks, st.sampled_from(TEXTS))
    one = st.builds(candidate, versions, yanks, needs, st.tuples(frameworks, versions), st.sampled_from(DEVICES))
    return st.lists(one, max_size=4, unique_by=lambda one: key(one.version))


universes = st.tuples(
    _published("model", "m").filter(bool), _published("dataset", "d").filter(bool),
    _published("framework", "f"), _published("framework", "g"),
    _published("image", "i").filter(bool), _published("image", "j"),
).map(lambda parts: [one for part in parts for one in part])  # fmt: skip
questions = st.builds(
    lambda model, dataset, framework, image, prereleases, device: Question(
        Requirement("model", "m", model, "the request"),
        Requirement("dataset", "d", dataset, "the request"),
        framework,
        image and Requirement("image", "i", image, "the request"),
        prereleases,
        Hardware(("linux",), ("amd64",), device and (device,)),
    ),
    constraints,
    st.sampled_from(["*", "*", "^1"]).map(Constraint.parse),
    st.none() | constraints,
    st.none() | st.none() | constraints,
    st.sampled_from([frozenset[Kind](), frozenset[Kind]({"framework"}), frozenset[Kind]({"model", "image"})]),
    st.sampled_from([None, *DEVICES]),
)
preferred = st.dictionaries(
    st.sampled_from([("model", "m"), ("framework", "f"), ("image", "i"), ("image", "j"), ("dataset", "d")]),
    versions.map(parse_version),
    max_size=3,
)


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
    found = Search(asked, Universe(rows), preferences).find()
    assert (None if found is None else chosen(found)) == expected


@settings(max_examples=60)
@given(universes, questions)
def test_every_fix_that_a_conflict_proposes_works_and_none_is_proposed_without_need(
    rows: list[Candidate], asked: Question
) -> None:
    search = Search(asked, Universe(rows), {})
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
    if Search(asked, Universe(rows), {}).find() is not None:
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
