"""A draft is chosen for as if it were published: the overlaid snapshot answers as the list with it does."""

from itertools import product
from typing import Any

import pytest

from benchlock.registry.artifact_names import Kind
from benchlock.registry.resolution.resolver import resolve
from benchlock.registry.resolution.resolver_types import Candidate, Population, Question, Requirement
from benchlock.registry.resolution.version_search import DraftSnapshot
from benchlock.registry.versions.semantic_version import parse_version
from benchlock.registry.versions.version_ranges import Constraint, Range
from tests.support.resolution.universe import Universe, candidates

PUBLISHED: dict[str, dict[str, dict[str, Any]]] = {
    "model/net": {"1.0.0": {"requires": {"framework/ort": "<1.20"}}, "2.0.0": {"requires": {"framework/ort": "<1.20"}}},
    "dataset/set": {"1.0.0": {}},
    "framework/ort": {"1.19.0": {}, "1.21.0": {}},
    "image/ort-cpu": {
        "1.0.0": {"provides": "ort 1.19.0", "platforms": ["linux/amd64/cpu"]},
        "2.0.0": {"provides": "ort 1.21.0", "platforms": ["linux/amd64/cpu"]},
    },
}
DRAFTS = candidates(
    {"model/net": {"1.5.0-rc.1": {"requires": {"framework/ort": ">=1.20"}}}, "dataset/mine": {"1.0.0": {}}}
)
INTERVALS = [Range.parse(text).intervals[0] for text in ("*", ">=1.5.0-rc.1 <1.5.0", ">=2.0.0")]
NEEDS = [None, DRAFTS[0].requires[0], ("framework", "ort", "<1.20")]


def both() -> tuple[DraftSnapshot, Universe]:
    """A catalogue with drafts over it, and one in which nothing else has their names."""
    published = candidates(PUBLISHED)
    names = {(one.kind, one.name) for one in DRAFTS}
    rest: list[Candidate] = [one for one in published if (one.kind, one.name) not in names]
    return DraftSnapshot(Universe(published), DRAFTS), Universe([*rest, *DRAFTS])


NAMED: list[tuple[Kind, str]] = [("model", "net"), ("dataset", "mine"), ("dataset", "set"), ("framework", "ort")]


@pytest.mark.parametrize(("kind", "name"), NAMED)
def test_populations_are_those_of_a_catalogue_with_the_draft(kind: Kind, name: str) -> None:
    drafted, universe = both()
    for interval, status, need in product(INTERVALS, (None, "release", "pre-release", "yanked"), NEEDS):
        wanted = Population(kind, name, interval, status, need)  # type: ignore[arg-type]
        assert list(drafted.newest(wanted, 9)) == list(universe.newest(wanted, 9))
        assert list(drafted.oldest(wanted, 9)) == list(universe.oldest(wanted, 9))
        assert drafted.extent(wanted) == universe.extent(wanted)
        assert list(drafted.needed(wanted)) == list(universe.needed(wanted))
    versions = tuple(map(parse_version, ("1.0.0", "1.5.0-rc.1", "2.0.0")))
    assert list(drafted.candidates(kind, name, versions)) == list(universe.candidates(kind, name, versions))
    assert list(drafted.needs(name)) == list(universe.needs(name))


def test_the_environment_is_that_of_the_drafts_own_requirement() -> None:
    drafted, _ = both()
    found = resolve(
        Question(
            Requirement("model", "net", Constraint.parse("=1.5.0-rc.1"), "the request"),
            Requirement("dataset", "mine", Constraint.parse("=1.0.0"), "the request"),
        ),
        drafted,
        {},
    )
    assert [str(one) for one in found.chosen().values()] == [
        "model/net 1.5.0-rc.1",
        "framework/ort 1.21.0",
        "image/ort-cpu 2.0.0",
        "dataset/mine 1.0.0",
    ]
