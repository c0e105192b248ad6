"""Versions: their order as text, their successor, and where upstream versions go."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.versions.semantic_version import (
    LONGEST,
    Version,
    from_pep440,
    key,
    parse_version,
    successor,
    version_of,
)

NUMBERS = st.one_of(st.integers(0, 3), st.integers(0, 10**12)).map(str)
WORDS = st.from_regex(r"[0-9]{0,2}[a-zA-Z-][0-9a-zA-Z-]{0,3}", fullmatch=True)
PRE_RELEASES = st.lists(st.one_of(NUMBERS, WORDS), max_size=3).map(".".join)
VERSIONS = st.builds(
    lambda release, pre, build: parse_version(".".join(release) + (f"-{pre}" if pre else "") + build),
    st.tuples(NUMBERS, NUMBERS, NUMBERS),
    PRE_RELEASES,
    st.sampled_from(["", "+cpu", "+0.1"]),
)


@given(VERSIONS, VERSIONS)
def test_the_key_orders_bytewise_as_semver_does(one: Version, other: Version) -> None:
    assert (key(one).encode() < key(other).encode()) == (one < other)
    assert (key(one) == key(other)) == (one == other)


@given(VERSIONS)
def test_a_key_gives_its_version_back(version: Version) -> None:
    found = version_of(key(version))
    assert str(found) == str(version.replace(build=None))


def test_the_key_orders_the_example_of_the_specification() -> None:
    """SemVer 2.0.0, item 11.4.4."""
    texts = ["alpha", "alpha.1", "alpha.beta", "beta", "beta.2", "beta.11", "rc.1"]
    versions = [*(f"1.0.0-{text}" for text in texts), "1.0.0", "1.0.1", "1.10.0", "2.0.0"]
    shuffled = versions[1::2] + versions[::2]
    assert sorted(shuffled, key=lambda text: key(parse_version(text))) == versions


@pytest.mark.parametrize(
    ("lower", "higher"),
    [
        ("1.0.0-rc.1", "1.0.0"),  # item 9
        ("0.9.9", "1.0.0-0"),
        ("1.0.0-9", "1.0.0-10"),  # item 11: digits are compared as numbers,
        ("1.0.0-a9", "1.0.0-aa"),  # others in ASCII order,
        ("1.0.0-a10", "1.0.0-a9"),
        ("1.0.0-A", "1.0.0-a"),
        ("1.0.0--", "1.0.0-A"),
        ("1.0.0-999", "1.0.0--"),  # numbers come first,
        ("1.0.0-1", "1.0.0-0a"),
        ("1.0.0-a", "1.0.0-a.0"),  # and a beginning before what it begins
        ("1.0.0-a.0", "1.0.0-a-"),
        ("9.0.0", "10.0.0"),
    ],
)
def test_the_order_is_that_of_the_specification(lower: str, higher: str) -> None:
    """SemVer 2.0.0, items 9 and 11, as ``registry.versions.version_ranges`` quotes them."""
    assert key(parse_version(lower)) < key(parse_version(higher))


@pytest.mark.parametrize(("one", "other"), [("1.0.0", "1.0.0+a"), ("1.0.0-rc.1+a", "1.0.0-rc.1+b.2")])
def test_build_metadata_has_no_place_in_the_order(one: str, other: str) -> None:
    """SemVer 2.0.0, item 10."""
    assert key(parse_version(one)) == key(parse_version(other))


@given(VERSIONS, VERSIONS)
def test_nothing_lies_between_a_version_and_its_successor(version: Version, other: Version) -> None:
    assert version < successor(version)
    assert not version < other < successor(version)


@pytest.mark.parametrize(("text", "expected"), [("1.2.3", "1.2.4-0"), ("1.2.3-a", "1.2.3-a.0"), ("1.2.3+x", "1.2.4-0")])
def test_the_successor_is_the_least_version_above(text: str, expected: str) -> None:
    assert str(successor(parse_version(text))) == expected


@pytest.mark.parametrize(
    "text",
    ["", "1", "1.2", "v1.2.3", "1.2.3.4", "01.2.3", "1.2.3-01", "1.2.3-", "1.2.3-a..b", "1.2.٣", "1.2.3\n", " 1.2.3"],
)
def test_what_is_no_semver_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="invalid version"):
        parse_version(text)


def test_an_endless_version_is_refused() -> None:
    with pytest.raises(InvalidInputError, match="invalid version"):
        parse_version("1.0." + "9" * 10_000)
    assert str(parse_version("1.0." + "9" * (LONGEST - 4))).startswith("1.0.999")


@pytest.mark.parametrize(
    ("upstream", "expected"),
    [
        ("2.21.0rc1", "2.21.0-rc.1"),
        ("2.13.0+cpu", "2.13.0"),
        ("2.13", "2.13.0"),
        ("3", "3.0.0"),
        ("1.0a2", "1.0.0-alpha.2"),
        ("1.0.0b3+local.4", "1.0.0-beta.3"),
        ("v1.31.1", "1.31.1"),
    ],
)
def test_upstream_versions_have_a_place(upstream: str, expected: str) -> None:
    assert str(from_pep440(upstream)) == expected


@pytest.mark.parametrize(
    ("upstream", "reason"),
    [
        ("1.0.post1", "a post-release"),
        ("1.0.dev3", "a development release"),
        ("1.0rc1.dev3", "a development release"),
        ("1!2.0", "an epoch"),
        ("1.2.3.4", "more than three numbers"),
        ("one", "invalid PEP 440 version"),
    ],
)
def test_upstream_versions_without_a_place_are_refused(upstream: str, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        from_pep440(upstream)


@given(st.sampled_from(["", "a1", "b1", "b12", "rc1", "rc2"]), st.sampled_from(["", "a1", "b1", "b12", "rc1", "rc2"]))
def test_upstream_order_is_kept(one: str, other: str) -> None:
    order = ["a1", "b1", "b12", "rc1", "rc2", ""]
    assert (from_pep440(f"1.0{one}") < from_pep440(f"1.0{other}")) == (order.index(one) < order.index(other))
