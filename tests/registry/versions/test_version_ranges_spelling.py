"""The text of a range is the simplest: the family that ``Range.__str__`` states, written out on few numbers."""

import re
from collections.abc import Iterator
from itertools import product

from benchlock.registry.versions.version_ranges import Range

VERSIONS = [
    f"{major}.{minor}.{patch}{tag}"
    for major, minor, patch, tag in product((0, 1), (0, 1, 2), (0, 1, 2), ("", "-0", "-a", "-a.0"))
]
SHORT = [*(str(major) for major in (0, 1)), *(f"{major}.{minor}" for major, minor in product((0, 1), (0, 1, 2)))]
LOWER = [f"{operator}{version}" for operator, version in product((">", ">="), VERSIONS)]
UPPER = [f"{operator}{version}" for operator, version in product(("<", "<="), VERSIONS)]
VERSION = r"\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?"
INTERVAL = rf"\*|{VERSION}|[\^~](?:\d+(?:\.\d+)?|{VERSION})|>=?{VERSION}(?: <=?{VERSION})?|<=?{VERSION}"
FAMILY = re.compile(rf"(?:{INTERVAL}|!={VERSION})(?: !={VERSION})*(?: \|\| (?:{INTERVAL})(?: !={VERSION})*)*")


def _intervals() -> Iterator[str]:
    yield "*"
    yield from VERSIONS
    yield from (f"{operator}{version}" for operator, version in product("^~", SHORT + VERSIONS))
    yield from LOWER
    yield from UPPER
    yield from (f"{lower} {upper}" for lower, upper in product(LOWER, UPPER))


def _shortest(texts: Iterator[str]) -> dict[Range, str]:
    found: dict[Range, str] = {}
    for text in texts:
        spelled = Range.parse(text)
        found[spelled] = min(found.get(spelled, text), text, key=len)
    return found


def test_no_text_of_the_family_spells_an_interval_shorter() -> None:
    shortest = _shortest(_intervals())
    assert len(shortest) > 5_000
    for one, text in shortest.items():
        assert FAMILY.fullmatch(str(one))
        assert len(str(one)) <= len(text), (str(one), text)


def test_no_text_of_the_family_spells_an_interval_without_one_version_shorter() -> None:
    outer = [
        "*",
        *(f"{operator}{part}" for operator, part in product("^~", SHORT)),
        ">=0.1.0-a <1.2.0",
        ">0.1.1 <=1.1.0",
    ]
    checked = 0
    for text, missing in product(outer, VERSIONS):
        one = Range.parse(f"{text} !={missing}")
        if len(one.intervals) == 2:
            checked += 1
            said = f"!={missing}" if text == "*" else f"{text} !={missing}"
            assert FAMILY.fullmatch(str(one))
            assert len(str(one)) <= len(said), (str(one), said)
    assert checked > 300


def test_alternatives_stand_in_order_and_none_could_be_left_out() -> None:
    for first, second in product(("1.0.1", "^0.1", ">=0.2.0 <0.2.2", "~1.1.0-a", "<0.0.1-a"), repeat=2):
        one = Range.parse(f"{first} || {second}")
        alternatives = str(one).split(" || ")
        parts = [Range.parse(text) for text in alternatives]
        assert Range.union(parts) == one
        assert parts == sorted(parts, key=lambda part: part.cuts)
        assert len(parts) == len(one.intervals)
