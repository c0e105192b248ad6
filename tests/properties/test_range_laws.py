"""Ranges are sets: the laws of a Boolean algebra, membership, and text that comes back as the same set."""

import re
from contextlib import suppress
from functools import reduce
from operator import or_

from hypothesis import given
from hypothesis import strategies as st

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.versions.semantic_version import Version, key, successor
from benchlock.registry.versions.version_ranges import Constraint, Range
from tests.support.resolution.constraints import alternatives, texts, versions

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


@given(ranges, ranges)
def test_sets_are_equal_exactly_when_they_hold_the_same(a: Range, b: Range) -> None:
    either = (a - b) | (b - a)
    assert (a == b) == either.is_empty()
    for interval in either.intervals:
        assert (interval.low in a) != (interval.low in b)


@given(ranges, ranges)
def test_equal_sets_have_one_digest_and_one_text(a: Range, b: Range) -> None:
    for one, same in ((a & b, b & a), (a | b, ~(~a & ~b)), (a - b, a - (a & b)), (a, Range.parse(str(a)))):
        assert one == same
        assert hash(one) == hash(same)
        assert str(one) == str(same)


@given(st.lists(ranges, max_size=5))
def test_a_union_of_many_is_that_of_each_with_the_next(many: list[Range]) -> None:
    assert Range.union(many) == reduce(or_, many, Range.NONE)


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
    assert Range.union(Range.between(interval.low, interval.high) for interval in one.intervals) == one


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


@given(st.lists(alternatives, min_size=1, max_size=3), versions.filter(lambda version: version.prerelease is not None))
def test_a_pre_release_is_admitted_where_an_alternative_holds_it_and_names_its_triple(
    parts: list[str], version: Version
) -> None:
    def names(part: str) -> bool:
        said = re.sub(r"!=[^ ,]*", "", part)
        return re.search(rf"(?<![0-9.]){version.finalize_version()}-", said) is not None

    admitted = any(names(part) and version in Range.parse(part) for part in parts)
    assert Constraint.parse(" || ".join(parts)).admits(version) == admitted


@given(texts, versions, st.booleans())
def test_build_metadata_decides_nothing(text: str, version: Version, leave: bool) -> None:
    constraint = Constraint.parse(text)
    built = constraint.admits(version.replace(build="cpu"), prereleases=leave)
    assert built == constraint.admits(version, prereleases=leave)


@given(st.lists(alternatives, min_size=1, max_size=3), versions)
def test_each_alternative_names_its_own_pre_releases(parts: list[str], version: Version) -> None:
    whole = Constraint.parse(" || ".join(parts))
    assert whole.admits(version) == any(Constraint.parse(part).admits(version) for part in parts)


@given(st.text(max_size=20) | st.text(alphabet="0123.x*-+<>=!^~|, ab", max_size=20))
def test_any_text_is_a_set_or_a_clear_error(text: str) -> None:
    with suppress(InvalidInputError):
        found = Range.parse(text)
        assert found | ~found == Range.ALL
