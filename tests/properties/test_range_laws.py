"""Ranges are sets: the laws of a Boolean algebra, membership, and text that comes back as the same set."""

from contextlib import suppress

from hypothesis import given
from hypothesis import strategies as st

from artifacts.errors import InvalidInputError
from registry.constraints import Constraint
from registry.ranges import Range
from registry.versions import Version, key, successor
from tests.support.constraints import alternatives, texts, versions

ranges = texts.map(Range.parse)


@given(ranges)
def test_the_text_of_a_range_is_that_range(one: Range) -> None:
    assert Range.parse(str(one)) == one


@given(ranges, ranges, ranges)
def test_the_laws_of_sets(a: Range, b: Range, c: Range) -> None:
    assert a & b == b & a
    assert a | b == b | a
    assert a & (b & c) == (a & b) & c
    assert a | (b | c) == (a | b) | c
    assert a & (b | c) == (a & b) | (a & c)
    assert a | (b & c) == (a | b) & (a | c)
    assert a & (a | b) == a == a | (a & b)
    assert ~(a | b) == ~a & ~b
    assert ~(a & b) == ~a | ~b
    assert a - b == a & ~b


@given(ranges)
def test_complements_and_bounds(one: Range) -> None:
    assert ~~one == one
    assert one | ~one == Range.ALL
    assert one & ~one == Range.NONE
    assert one & Range.ALL == one == one | Range.NONE
    assert one.is_empty() == (one == Range.NONE)


@given(ranges, ranges)
def test_subsets(a: Range, b: Range) -> None:
    assert a.is_subset(b) == (a & b == a) == (a | b == b)
    assert (a & b).is_subset(a)
    assert a.is_subset(a | b)


@given(ranges, ranges)
def test_disjoint_sets_share_nothing(a: Range, b: Range) -> None:
    assert a.is_disjoint(b) == b.is_disjoint(a) == (a & b).is_empty() == a.is_subset(~b)
    assert a.is_disjoint(~a)
    assert a.is_disjoint(a) == a.is_empty()


@given(ranges, ranges, versions)
def test_membership_follows_the_operations(a: Range, b: Range, version: Version) -> None:
    assert (version in (a & b)) == (version in a and version in b)
    assert (version in (a | b)) == (version in a or version in b)
    assert (version in (a - b)) == (version in a and version not in b)
    assert (version in ~a) == (version not in a)


@given(versions, versions)
def test_a_version_is_a_set_with_nothing_before_its_successor(one: Version, other: Version) -> None:
    assert (other in Range.exactly(one)) == (one == other)
    assert not key(one) < key(other) < key(successor(one))
    assert Range.exactly(one).single() == one


@given(ranges)
def test_the_normal_form_has_neither_empty_nor_touching_intervals(one: Range) -> None:
    for interval in one.intervals:
        assert interval.low_key < interval.high_key
    for left, right in zip(one.intervals, one.intervals[1:], strict=False):
        assert left.high_key < right.low_key


@given(texts, versions)
def test_a_constraint_admits_the_releases_of_its_range_and_never_more_than_the_range(
    text: str, version: Version
) -> None:
    constraint = Constraint.parse(text)
    inside = version in constraint.range
    assert constraint.range == Range.parse(text)
    assert constraint.admits(version, prereleases=True) == inside
    if version.prerelease is None:
        assert constraint.admits(version) == inside
    else:
        assert inside or not constraint.admits(version)


@given(texts, versions)
def test_two_ranges_say_what_a_constraint_admits(text: str, version: Version) -> None:
    constraint = Constraint.parse(text)
    decisive = constraint.releases if version.prerelease is None else constraint.prereleases
    assert constraint.admits(version) == (version in decisive)
    assert constraint.prereleases.is_subset(constraint.range)
    release = version.replace(prerelease=None)
    assert release not in constraint.prereleases


@given(st.lists(alternatives, min_size=1, max_size=3), versions)
def test_each_alternative_names_its_own_pre_releases(parts: list[str], version: Version) -> None:
    whole = Constraint.parse(" || ".join(parts))
    assert whole.admits(version) == any(Constraint.parse(part).admits(version) for part in parts)


@given(st.text(max_size=20) | st.text(alphabet="0123.x*-+<>=!^~|, ab", max_size=20))
def test_any_text_is_a_set_or_a_clear_error(text: str) -> None:
    with suppress(InvalidInputError):
        found = Range.parse(text)
        assert found | ~found == Range.ALL
