"""Constraints: a set of versions, and which of its pre-releases may be chosen. All rules about that stand here.

**Order.** "Pre-release versions have a lower precedence than the associated normal version." (SemVer 2.0.0, item 9.)
"Precedence for two pre-release versions with the same major, minor, and patch version MUST be determined by comparing
each dot separated identifier from left to right until a difference is found as follows: identifiers consisting of only
digits are compared numerically and identifiers with letters or hyphens are compared lexically in ASCII sort order.
Numeric identifiers always have lower precedence than non-numeric identifiers. A larger set of pre-release fields has a
higher precedence than a smaller set, if all of the preceding identifiers are equal." (Item 11.) So a set holds the
pre-releases that lie between its ends: ``<2.0.0`` holds 2.0.0-rc.1, ``^1.2`` (below 2.0.0-0) does not.

**Pre-releases.** "If a version has a prerelease tag (for example, ``1.2.3-alpha.3``) then it will only be allowed to
satisfy comparator sets if at least one comparator with the same ``[major, minor, patch]`` tuple also has a prerelease
tag." (https://github.com/npm/node-semver#prerelease-tags) A comparator set is one alternative of ``||``: it holds by
itself. ``!=``, which npm has not, names no pre-release.

**Leave.** "Note that this behavior can be suppressed (treating all prerelease versions as if they were normal versions,
for range-matching)" (ibid.): where a request allows the pre-releases of a kind, the set alone decides, and it is the
same set. npm's ``includePrerelease`` moves some ends too; this and all other differences are in ``tests/cases/ranges``.

**Build metadata** "MUST be ignored when determining version precedence. Thus two versions that differ only in the build
metadata, have the same precedence." (SemVer 2.0.0, item 10.) So it decides nothing, in a constraint or in a version.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry import grammar
from benchlock.registry.ranges import Range
from benchlock.registry.versions import Version, release_key

LONGEST = 1000
"""Characters of the longest constraint that is read."""


_NUMBERS = r"((?:0|[1-9][0-9]{0,8})(?:\.(?:0|[1-9][0-9]{0,8})){0,2})"
_INTERVAL = re.compile(rf">={_NUMBERS}(?: |,|, )<{_NUMBERS}")
"""What most requirements are: from one release up to another. Models by the thousand have one each."""


@dataclass(frozen=True, slots=True)
class Constraint:
    """A range as somebody wrote it: ``text`` is untouched.

    ``prereleases`` are exactly the pre-releases that may be chosen without the request's leave; no release is in it.
    """

    range: Range
    prereleases: Range
    text: str

    @staticmethod
    def parse(text: str) -> "Constraint":
        """The constraint that ``text`` spells (see ``registry.grammar``).

        Raises:
            InvalidInputError: it spells none, or a bare partial version.
        """
        return _parse(text)

    @property
    def releases(self) -> Range:
        """The range, seen as what decides about releases: those in it may be chosen, its pre-releases not thereby."""
        return self.range

    @property
    def pinned(self) -> Version | None:
        """The one version that the constraint admits at most, where it is one."""
        return self.range.single()

    def admits(self, version: Version, *, prereleases: bool = False) -> bool:
        """Whether ``version`` may be chosen: in the range, and a release or a pre-release that the policy lets in.

        ``prereleases``: the request allows them, so that the range alone decides.
        """
        decisive = self.releases if version.prerelease is None or prereleases else self.prereleases
        return decisive.contains(version)

    def __str__(self) -> str:
        return self.text


@lru_cache(maxsize=65536)
def _parse(text: str) -> Constraint:
    if len(text) > LONGEST:
        raise InvalidInputError(
            f"a constraint of {len(text)} characters is too long", next_step=f"write at most {LONGEST} characters"
        )
    interval = _INTERVAL.fullmatch(text)
    if interval is not None:
        low, high = (release_key(*map(int, end.split("."))) for end in interval.groups())
        return Constraint(Range((low, high)) if low < high else Range.NONE, Range.NONE, text)
    alternatives = [(Range.of(one), one.named) for one in grammar.parse(text)]
    if len(alternatives) == 1 and not alternatives[0][1]:
        return Constraint(alternatives[0][0], Range.NONE, text)
    whole = Range.union(part for part, _ in alternatives)
    prereleases = Range.union(part & _prereleases_of(named) for part, named in alternatives)
    return Constraint(whole, prereleases, text)


def _prereleases_of(named: Iterable[tuple[int, int, int]]) -> Range:
    """All pre-releases of the triples: of 1.2.3 they reach from 1.2.3-0 up to 1.2.3."""
    return Range.union(Range.between(Version(*triple, prerelease="0"), Version(*triple)) for triple in named)


ANY = Constraint.parse("*")
"""Every release."""
