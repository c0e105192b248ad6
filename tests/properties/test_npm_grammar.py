"""``Constraint.admits`` against ``nodesemver``, a port of npm's own code to Python that shares no line with benchlock.

The port was compared with npm's semver 7.8.6 over 120,000 pairs of a text and a version. Without ``includePrerelease``
it differs in one place, which ``_the_port_errs`` leaves out; with it, it differs at plain comparators too
(``0.2.3`` would admit ``0.2.3-a.0``), so that flag is never given: the table of ``tests/cases/ranges`` holds npm's
own answers for it. Here membership of pre-releases is asked by naming their triple in every alternative.
"""

import re

import nodesemver
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from benchlock.registry.versions.semantic_version import Version, parse_version
from benchlock.registry.versions.version_ranges import Constraint
from tests.support.resolution.constraints import hyphens, npm_comparators, versions

_COMPLETE = re.compile(r"(?:[<>=]*\s*\d+\.\d+\.\d+(?:-[0-9A-Za-z.-]+)?(?:\s+|$))+")

conjunctions = st.lists(npm_comparators, min_size=1, max_size=3).map(" ".join)
texts = st.lists(conjunctions | hyphens, min_size=1, max_size=3).map(" || ".join)


def _port(text: str, version: Version) -> bool:
    return bool(nodesemver.satisfies(str(version), text, loose=False))


def _the_port_errs(text: str, version: Version) -> bool:
    """Pre-releases that the text names, of an upper end that it does not write out.

    The port ends ``^1``, ``~1.2``, ``1.x`` and ``<=1`` at a release, 2.0.0; npm ends them before its pre-releases, at
    2.0.0-0. Such ends are X.0.0, X.Y.0 or 0.0.Z. Pre-releases of 0.0.0 are left out always: npm reads ``>=0.0.0`` as
    if nothing were said, a stated difference.
    """
    if version.prerelease is None or f"{version.finalize_version()}-" not in text:
        return False
    possible_end = version.patch == 0 or version.major == version.minor == 0
    written_out = all(_COMPLETE.fullmatch(part.strip()) for part in text.split("||"))
    return possible_end and (not written_out or version.finalize_version() == Version(0))


@pytest.mark.parametrize(
    ("text", "version", "npm"),
    [
        ("^1.2.3 <=2.0.0-z", "2.0.0-0", False),
        ("~1.2 >=1.3.0-0", "1.3.0-a", False),
        ("<=1.x >=2.0.0-0", "2.0.0-0", False),
        ("^0.0.3 >=0.0.4-0", "0.0.4-a", False),
        ("<* >=0.0.0-0", "0.0.0-a", False),
    ],
)
def test_the_port_errs_where_it_is_not_asked(text: str, version: str, npm: bool) -> None:
    """Fails when the port is mended: then ask it."""
    parsed = parse_version(version)
    assert _the_port_errs(text, parsed)
    assert _port(text, parsed) is not npm
    assert Constraint.parse(text).admits(parsed) is npm


@settings(max_examples=1_000)
@given(texts, versions)
@example(">1.2.3-a.3", parse_version("1.2.3-a.7"))
@example("^1.0.0 || 1.5.0-rc.1", parse_version("1.5.0-rc.1"))
def test_a_constraint_admits_what_npm_admits(text: str, version: Version) -> None:
    assume(not _the_port_errs(text, version))
    assert Constraint.parse(text).admits(version) is _port(text, version)


@settings(max_examples=500)
@given(st.lists(conjunctions, min_size=1, max_size=3), versions)
def test_with_leave_the_range_alone_decides(parts: list[str], version: Version) -> None:
    triple = f"{version.finalize_version()}-0"
    named = " || ".join(f"{part} >={triple}" for part in parts)
    assume(not _the_port_errs(named, version))
    assert Constraint.parse(" || ".join(parts)).admits(version, prereleases=True) is _port(named, version)


@settings(max_examples=500)
@given(st.lists(npm_comparators, min_size=1, max_size=3), versions, versions)
def test_what_npm_cannot_spell_means_what_npm_can(parts: list[str], other: Version, version: Version) -> None:
    """A comma is a space, ``==`` is ``=``, and ``!=`` leaves one version out and names nothing."""
    text = " ".join(parts)
    assume(not _the_port_errs(text, version))
    without = Constraint.parse(f"{', '.join(parts)},!={other}")
    assert without.admits(version) is (_port(text, version) and version != other)
    either = Constraint.parse(f"=={other} || {','.join(parts)}")
    assert either.admits(version) is (_port(text, version) or version == other)
