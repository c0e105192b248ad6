"""Ranges: what each form of the grammar means, the normal form, and the text that comes out."""

import pytest

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.versions.semantic_version import parse_version
from benchlock.registry.versions.version_ranges import Range

# Each pair is one set, said in the grammar and with nothing but complete versions and comparators. The meanings are
# those of https://github.com/npm/node-semver#advanced-range-syntax, but for `*` and the upper end of `<2.0`.
SAME = [
    ("1.2.3 - 2.3.4", ">=1.2.3 <=2.3.4"),
    ("1.2 - 2.3.4", ">=1.2.0 <=2.3.4"),
    ("1.2.3 - 2.3", ">=1.2.3 <2.4.0-0"),
    ("1.2.3 - 2", ">=1.2.3 <3.0.0-0"),
    ("1.x", ">=1.0.0 <2.0.0-0"),
    ("1.2.x", ">=1.2.0 <1.3.0-0"),
    ("1.*", "1.X"),
    ("1.x.x", "1.x"),
    ("~1.2.3", ">=1.2.3 <1.3.0-0"),
    ("~1.2", ">=1.2.0 <1.3.0-0"),
    ("~1", ">=1.0.0 <2.0.0-0"),
    ("~0.2.3", ">=0.2.3 <0.3.0-0"),
    ("~0", ">=0.0.0 <1.0.0-0"),
    ("~1.2.3-beta.2", ">=1.2.3-beta.2 <1.3.0-0"),
    ("^1.2.3", ">=1.2.3 <2.0.0-0"),
    ("^0.2.3", ">=0.2.3 <0.3.0-0"),
    ("^0.0.3", ">=0.0.3 <0.0.4-0"),
    ("^1.2.3-beta.2", ">=1.2.3-beta.2 <2.0.0-0"),
    ("^0.0.3-beta", ">=0.0.3-beta <0.0.4-0"),
    ("^1.2.x", ">=1.2.0 <2.0.0-0"),
    ("^0.0.x", ">=0.0.0 <0.1.0-0"),
    ("^0.0", ">=0.0.0 <0.1.0-0"),
    ("^1.x", ">=1.0.0 <2.0.0-0"),
    ("^0.x", ">=0.0.0 <1.0.0-0"),
    ("^*", "*"),
    ("<2.0", "<2.0.0"),
    (">=1.20", ">=1.20.0"),
    (">1.2", ">=1.3.0"),
    ("<=1.2", "<1.3.0-0"),
    (">1", ">=2.0.0"),
    (">1.2.3", ">=1.2.4-0"),
    (">1.2.3-a", ">=1.2.3-a.0"),
    ("<=1.2.3", "<1.2.4-0"),
    ("=1.2.3", ">=1.2.3 <1.2.4-0"),
    ("==1.2.3", "1.2.3"),
    ("1.2.3-rc.1", ">=1.2.3-rc.1 <1.2.3-rc.1.0"),
    ("!=1.2.3", "<1.2.3 || >1.2.3"),
    ("!=1.x", "<1.0.0 || >=2.0.0-0"),
    ("*", ">=0.0.0-0"),
    (">=1.12.0 <2.0", ">=1.12.0,<2.0.0"),
    (">= 1.12.0 , < 2.0", ">=1.12.0 <2.0.0"),
    ("1.2.3+cpu", "1.2.3"),
    (">*", "<0.0.0-0"),
    ("<2 >3", "<0.0.0-0"),
    ("1.x || 2.x", ">=1.0.0 <2.0.0-0 || >=2.0.0 <3.0.0-0"),
    ("<=1.2.3 || >1.2.3", "*"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "plain"), SAME)
def test_a_form_means_what_its_comparators_mean(text: str, plain: str) -> None:
    assert Range.parse(text) == Range.parse(plain)


SIMPLEST = [
    (">=1.2.3 <1.2.4-0", "1.2.3"),
    (">=1.0.0 <2.0.0-0", "^1"),
    ("~1.2.0", "~1.2"),
    ("~0.2", "^0.2"),
    ("1.2 - 1", "^1.2"),
    (">=1.12.0,<2.0", ">=1.12.0 <2.0.0"),
    (">=1.2.4-0", ">1.2.3"),
    (">=1.2.3-a.0", ">1.2.3-a"),
    ("<1.2.3-a.0", "<=1.2.3-a"),
    (">=1.3.0-0 <1.4.0-0", "~1.3.0-0"),
    ("<1.2.4-0", "<=1.2.3"),
    ("<1.3.0 || >=1.3.1-0", "!=1.3.0"),
    ("^1 !=1.3.0 !=1.4.0", "^1 !=1.3.0 !=1.4.0"),
    ("3.x || 1.x", "^1 || ^3"),
    (">=0.0.0-0", "*"),
    (">1 <1", "<0.0.0-0"),
]


@pytest.mark.parametrize(("text", "simplest"), SIMPLEST)
def test_the_text_is_the_simplest(text: str, simplest: str) -> None:
    assert str(Range.parse(text)) == simplest
    assert Range.parse(simplest) == Range.parse(text)


REFUSED = [
    ("1.12", "write ~1.12 for versions below 1.13.0, ^1.12 for versions below 2.0.0, or 1.12.0 for that version alone"),
    ("=1.12", "write ~1.12 for versions below 1.13.0, ^1.12"),
    ("!=1.12", "write ~1.12"),
    ("2", "write ^2 for versions below 3.0.0, or 2.0.0 for that version alone"),
    ("0.0", "write ^0.0 for versions below 0.1.0"),
    ("", "write * for every version"),
    ("1.x ||", "write a version on both sides of ||"),
    ("1.2.3.4", "invalid version '1.2.3.4'"),
    ("v1.2.3", "invalid version 'v1.2.3'"),
    ("1.2.3-01", "invalid version '1.2.3-01'"),
    ("01.2.3", "invalid version '01.2.3'"),
    ("~01.2", "invalid version '01.2'"),
    ("1.x.3", "invalid version '1.x.3'"),
    ("1.2-rc", "invalid version '1.2-rc'"),
    (">=1.2.3,", "join comparators"),
    (">=1.2.3,,<2", "begins with no comparator"),
    (">=1.2.3<2", "join comparators"),
    ("~=1.4", "Python's ~=1.2 is >=1.2.0 <2.0.0"),
    ("~>1.2", "begins with no comparator"),
    (">", "begins with no comparator"),
    ("latest", "invalid version 'latest'"),
    ("1.2.3 - 2 - 3", "begins with no comparator"),
    ("^1.2.3 & <2", "begins with no comparator"),
    ("^" + "9" * 200, "invalid version"),
    ("٣.x", "begins with no comparator"),
]


@pytest.mark.parametrize(("text", "next_step"), REFUSED)
def test_what_is_no_set_of_versions_is_refused_with_the_way_out(text: str, next_step: str) -> None:
    with pytest.raises(InvalidInputError, match="invalid version constraint") as caught:
        Range.parse(text)
    assert next_step in (caught.value.next_step or "")


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [
        (">=1.12.0 <2.0", ["1.12.0", "1.99.0", "2.0.0-rc.1"], ["1.11.9", "1.12.0-rc.1", "2.0.0"]),
        ("^1.2", ["1.2.0", "1.9.9", "1.3.0-a"], ["1.2.0-rc", "2.0.0-a", "2.0.0"]),
        ("1.2.3", ["1.2.3", "1.2.3+build"], ["1.2.3-0", "1.2.4-0"]),
        ("*", ["0.0.0-0", "0.0.0", "999.0.0-a"], []),
        ("<1 || >=2 <3 || >=4", ["0.9.0", "2.5.0", "4.0.0"], ["1.0.0", "3.0.0", "3.9.9"]),
    ],
)
def test_membership_is_of_the_set_without_a_policy(text: str, inside: list[str], outside: list[str]) -> None:
    found = Range.parse(text)
    assert all(parse_version(version) in found for version in inside)
    assert not any(parse_version(version) in found for version in outside)


def test_the_algebra_in_words() -> None:
    left, right = Range.parse(">=1.12 <2"), Range.parse(">=1.20 <3")
    assert str(left & right) == ">=1.20.0 <2.0.0"
    assert str(left | right) == ">=1.12.0 <3.0.0"
    assert str(left - right) == ">=1.12.0 <1.20.0"
    assert str(~left) == "<1.12.0 || >=2.0.0"
    assert (left & Range.parse("<1")).is_empty()
    assert Range.parse("~1.13").is_subset(left)
    assert not left.is_subset(right)
    assert Range.parse("<=1.2.3 >=1.2.3").single() == parse_version("1.2.3")
    assert Range.parse("^1").single() is None
