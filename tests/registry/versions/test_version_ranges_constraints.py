"""Constraints: which pre-releases may be chosen. Rules that ``registry.versions.version_ranges`` has, as tables."""

import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.versions.semantic_version import parse_version
from benchlock.registry.versions.version_ranges import LONGEST, Constraint, Range

ADMITTED = [
    (">1.2.3-alpha.3", "1.2.3-alpha.7", True),
    (">1.2.3-alpha.3", "3.4.5-alpha.9", False),
    (">1.2.3-alpha.3", "3.4.5", True),
    (">1.2.3-alpha.3", "1.2.3-alpha.3", False),
    ("*", "1.0.0", True),
    ("*", "1.0.0-rc.1", False),
    (">=1.12.0", "2.0.0-rc.1", False),
    ("<2.0", "2.0.0-rc.1", False),
    ("^1.2.3-beta.2", "1.2.3-beta.4", True),
    ("^1.2.3-beta.2", "1.2.4-beta.2", False),
    ("^1.2.3-beta.2", "1.2.4", True),
    ("~1.2.3-beta.2", "1.2.3-beta.1", False),
    ("=1.2.3-rc.1", "1.2.3-rc.1", True),
    ("=1.2.3-rc.1", "1.2.3-rc.2", False),
    ("1.2.3-a - 1.2.3-c", "1.2.3-b", True),
    ("1.2.3 - 2.0.0-c", "2.0.0-b", True),
    # each alternative by itself: the second names 1.5.0, but does not hold 1.5.0-rc.2; the first holds it, unnamed
    ("^1.0.0 || 1.5.0-rc.1", "1.5.0-rc.1", True),
    ("^1.0.0 || 1.5.0-rc.1", "1.5.0-rc.2", False),
    # a lone * takes nothing away (npm's own code lets it swallow the other alternatives)
    ("^1.1.0-rc.1 || *", "1.1.0-rc.1", True),
    # a comparator of the same alternative names it, whichever
    (">=1.0.0 <1.5.0-rc.3", "1.5.0-rc.2", True),
    # an exclusion names nothing
    (">=1.0.0 !=1.5.0-rc.1", "1.5.0-rc.2", False),
    # the least pre-release above a partial version is an end, no name
    ("^1.2", "2.0.0-0", False),
    # build metadata decides nothing
    ("=1.2.3", "1.2.3+cpu", True),
    ("=1.2.3+cpu", "1.2.3+gpu", True),
    (">1.2.3", "1.2.3+gpu", False),
    ("=1.2.3-rc.1+a", "1.2.3-rc.1+b", True),
]  # fmt: skip


@pytest.mark.parametrize(("text", "version", "admitted"), ADMITTED)
def test_the_policy_is_that_of_npm(text: str, version: str, admitted: bool) -> None:
    assert Constraint.parse(text).admits(parse_version(version)) is admitted


@pytest.mark.parametrize(
    ("text", "version", "admitted"),
    [
        ("*", "1.0.0-rc.1", True),
        (">=1.12.0", "2.0.0-rc.1", True),
        (">=1.12.0", "1.12.0-rc.1", False),
        ("^1.0.0 || 1.5.0-rc.1", "1.5.0-rc.2", True),
        ("^1.2", "2.0.0-0", False),
        ("<2.0", "2.0.0-rc.1", True),
    ],
)
def test_a_request_that_allows_pre_releases_leaves_the_range_alone(text: str, version: str, admitted: bool) -> None:
    assert Constraint.parse(text).admits(parse_version(version), prereleases=True) is admitted


@pytest.mark.parametrize(
    ("text", "prereleases"),
    [
        ("^1.2", "<0.0.0-0"),
        ("1.2.3-rc.1", "1.2.3-rc.1"),
        (">1.2.3-alpha.3", ">=1.2.3-alpha.3.0 <1.2.3"),
        ("<1.5.0-rc.3", ">=1.5.0-0 <1.5.0-rc.3"),
        ("1.2.0-b - 1.3.0-b", ">=1.2.0-b <1.2.0 || >=1.3.0-0 <=1.3.0-b"),
        ("^1.0.0 || 1.5.0-rc.1", "1.5.0-rc.1"),
        (">=1.5.0-a !=1.5.0-rc.1", ">=1.5.0-a <1.5.0 !=1.5.0-rc.1"),
        ("!=1.5.0-rc.1", "<0.0.0-0"),
    ],
)
def test_the_admitted_pre_releases_are_a_range(text: str, prereleases: str) -> None:
    assert Constraint.parse(text).prereleases == Range.parse(prereleases)


def test_the_text_stays_as_written() -> None:
    assert str(Constraint.parse(" >= 1.12.0 ,<2.0")) == " >= 1.12.0 ,<2.0"


@pytest.mark.parametrize(
    ("text", "pinned"), [("1.2.3", "1.2.3"), ("==1.2.3-a", "1.2.3-a"), (">=1.2.3 <=1.2.3", "1.2.3"), ("^1", None)]
)
def test_a_pin_admits_one_version(text: str, pinned: str | None) -> None:
    found = Constraint.parse(text).pinned
    assert (None if found is None else str(found)) == pinned


def test_a_constraint_has_a_length() -> None:
    Constraint.parse("*".ljust(LONGEST))
    with pytest.raises(InvalidInputError, match="too long"):
        Constraint.parse("*".ljust(LONGEST + 1))
