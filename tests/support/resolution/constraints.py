"""Generated versions and texts of constraints, small enough that they meet each other.

Versions and comparators are drawn from lists: one choice each keeps thousands of examples cheap.
"""

from itertools import product

from hypothesis import strategies as st

from benchlock.registry.versions.semantic_version import Version

_TRIPLES = tuple(product(range(4), repeat=3))
_PRE_RELEASES = (None, "0", "1", "a", "a.0", "a.1", "a-", "b", "rc.1")
_VERSIONS = tuple(Version(major, minor, patch, pre) for pre, (major, minor, patch) in product(_PRE_RELEASES, _TRIPLES))
_PARTIALS = (
    *map(str, range(4)),
    *(f"{major}.{minor}" for major, minor in product(range(4), repeat=2)),
    *(f"{major}.{minor}.x" for major, minor in product(range(4), repeat=2)),
)
_WILDCARDS = ("*", "x", "1.x", "0.*", "=2.X", "1.2.x", "=0.1.x", "0.0.x", "3.x.x")
_TEXTS = tuple(map(str, _VERSIONS))


def _each(operators: tuple[str, ...], versions: tuple[str, ...]) -> tuple[str, ...]:
    return tuple("".join(pair) for pair in product(operators, versions))


_NPM = (
    *(_each((">", ">=", "<", "<=", "^", "~", "~ "), _PARTIALS) + _WILDCARDS) * 8,
    *_each(("", "=", ">", ">=", "<", "<=", "^", "~", "^ ", ">= "), _TEXTS),
)

versions = st.sampled_from(_VERSIONS)
npm_comparators = st.sampled_from(_NPM)
"""Comparators that npm reads too."""

comparators = st.sampled_from((*_NPM, *_each(("==", "!="), _TEXTS), *("!=1.2.x", "==2.x", "!=0.x") * 100))
hyphens = st.tuples(*[st.sampled_from(_TEXTS + _PARTIALS)] * 2).map(" - ".join)
_joined = [st.lists(comparators, min_size=1, max_size=3).map(joint.join) for joint in (" ", ",", " , ")]
alternatives = st.one_of(*_joined, hyphens)
texts = st.lists(alternatives, min_size=1, max_size=3).map(" || ".join)
