"""Parser of version ranges: npm's grammar, extended by commas for AND, ``==`` and ``!=``.

    set          alternative ( "||" alternative )*
    alternative  comparators | partial " - " partial
    comparators  comparator ( ( " " | "," ) comparator )*
    comparator   [ "=" | "==" | "!=" | ">" | ">=" | "<" | "<=" | "^" | "~" ] partial
    partial      "*" | MAJOR [ "." MINOR [ "." PATCH [ "-" PRERELEASE ] [ "+" BUILD ] ] ], each number also "x" or "*"

The meaning of a comparator is npm's (https://github.com/npm/node-semver#ranges): ``>=1.2`` is ``>=1.2.0``, ``<1.2`` is
``<1.2.0``, ``>1.2`` is ``>=1.3.0``, ``<=1.2`` is ``<1.3.0-0``; ``^`` permits changes right of the left-most number that
is not zero, ``~`` permits changes of the patch number (after a lone major number also of the minor number); ``1.2.x``
is ``>=1.2.0 <1.3.0-0``. There are two differences from npm: a bare partial version (``1.2``, ``=1.2``) is rejected,
because npm and Cargo read it differently; and ``*`` is every version including pre-releases, which the policy for
pre-releases may still exclude. Build metadata is ignored.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.versions.semantic_version import LONGEST, Version, parse_version, successor

LEAST = Version(0, 0, 0, prerelease="0")
"""The first version in SemVer's order."""

_COMPARATOR = re.compile(r"(?P<operator>==|!=|>=|<=|=|>|<|\^|~)?\s*(?P<version>[0-9A-Za-z*][0-9A-Za-z*.+-]*)")
_HYPHEN = re.compile(r"\s*(\S+)\s+-\s+(\S+)\s*")
_JOINT = re.compile(r"\s*,\s*|\s+")
_NUMBERS = re.compile(r"(?:0|[1-9][0-9]{0,8})(?:\.(?:0|[1-9][0-9]{0,8})){0,2}")
"""The form of nearly every version in a constraint: one to three numbers."""
_WILDCARDS = ("x", "X", "*")
_LENGTH = 3


@dataclass(frozen=True, slots=True)
class Bounds:
    """The versions from ``low`` up to but excluding ``high`` (``None``: no end), or with ``excluded`` all others."""

    low: Version
    high: Version | None
    excluded: bool = False


@dataclass(frozen=True, slots=True)
class Alternative:
    """Bounds that all hold. ``triples`` are the triples of pre-releases in comparators other than ``!=``."""

    bounds: tuple[Bounds, ...]
    triples: frozenset[tuple[int, int, int]]


@dataclass(frozen=True, slots=True)
class _Partial:
    """The leading numbers of a version. ``wild``: it was written with an x; ``full``: the version, if complete."""

    numbers: tuple[int, ...]
    wild: bool
    full: Version | None

    def floor(self) -> Version:
        """Return the least release with these numbers; a complete version itself; for ``*`` the least version."""
        if self.full is not None:
            return self.full
        return Version(*_fill_zeros(self.numbers)) if self.numbers else LEAST

    def above(self, position: int) -> Version:
        """Return the first version with a higher number at ``position``: 1.3.0-0 for 1.2 at 1."""
        raised = (*self.numbers[:position], self.numbers[position] + 1)
        return Version(*_fill_zeros(raised), prerelease="0")

    def ceiling(self) -> Version | None:
        """Return the first version above all that begin with these numbers; ``None`` for ``*``."""
        if self.full is not None:
            return successor(self.full)
        return self.above(len(self.numbers) - 1) if self.numbers else None


@lru_cache(maxsize=4096)
def parse(text: str) -> tuple[Alternative, ...]:
    """Parse the alternatives of a range.

    Raises:
        InvalidInputError: The text is malformed, or ambiguous.
    """
    return tuple(_alternative(part, text) for part in text.split("||"))


def _alternative(part: str, text: str) -> Alternative:
    if hyphen := _HYPHEN.fullmatch(part):
        lower, upper = (_partial(end, text) for end in hyphen.groups())
        bounds = (_bounds(">=", lower, text), _bounds("<=", upper, text))
        return Alternative(bounds, _find_prerelease_triples(lower) | _find_prerelease_triples(upper))
    all_bounds, triples = [], frozenset[tuple[int, int, int]]()
    for operator, version in _comparators(part, text):
        partial = _partial(version, text)
        all_bounds.append(_bounds(operator, partial, text))
        if operator != "!=":
            triples |= _find_prerelease_triples(partial)
    return Alternative(tuple(all_bounds), triples)


def _comparators(part: str, text: str) -> list[tuple[str, str]]:
    rest, comparators = part.strip(), list[tuple[str, str]]()
    if not rest:
        raise _make_error(
            text, "write * for every version" if not text.strip() else "write a version on both sides of ||"
        )
    while True:
        comparator = _COMPARATOR.match(rest)
        if comparator is None:
            python = "; Python's ~=1.2 is >=1.2.0 <2.0.0, and its ~=1.2.3 is ~1.2.3" if rest[:2] == "~=" else ""
            use = "use = == != > >= < <= ^ ~ before a version"
            raise _make_error(text, f"{rest!r} begins with no comparator: {use}{python}")
        comparators.append((comparator["operator"] or "", comparator["version"]))
        rest = rest[comparator.end() :]
        if not rest:
            return comparators
        joint = _JOINT.match(rest)
        if joint is None or joint.end() == len(rest):
            raise _make_error(text, f"join comparators by spaces, commas or ||, not by {rest!r}")
        rest = rest[joint.end() :]


def _partial(version: str, text: str) -> _Partial:
    if _NUMBERS.fullmatch(version):
        whole = tuple(map(int, version.split(".")))
        return _Partial(whole, wild=False, full=Version(*whole) if len(whole) == _LENGTH else None)
    core = re.split(r"[+-]", version, maxsplit=1)[0].split(".")
    wild = any(part in _WILDCARDS for part in core)
    if len(core) == _LENGTH and not wild:
        try:
            full = parse_version(version)
        except InvalidInputError as error:
            raise _make_error(text, f"invalid version {version!r}: {error.next_step}") from error
        return _Partial((full.major, full.minor, full.patch), wild=False, full=full.replace(build=None))
    numbers = [part for part in core if part not in _WILDCARDS]
    partial = "-" not in version and "+" not in version and len(core) <= _LENGTH and len(version) <= LONGEST
    if not partial or numbers != core[: len(numbers)] or not all(_is_number(part) for part in numbers):
        raise _make_error(text, f"invalid version {version!r}: write MAJOR.MINOR.PATCH, or omit parts from the right")
    return _Partial(tuple(int(part) for part in numbers), wild=wild, full=None)


def _bounds(operator: str, partial: _Partial, text: str) -> Bounds:
    low, high = LEAST, None
    match operator:
        case "" | "=" | "==" | "!=":
            if partial.full is None and not partial.wild:
                raise _make_ambiguity_error(partial, text)
            low, high = partial.floor(), partial.ceiling()
        case ">=":
            low = partial.floor()
        case "<":
            high = partial.floor()
        case "<=":
            high = partial.ceiling()
        case ">":
            low, high = (_after(partial), None) if partial.numbers else (LEAST, LEAST)
        case "~":
            low, high = partial.floor(), _tilde(partial)
        case "^":
            low, high = partial.floor(), _caret(partial)
    return Bounds(low, high, excluded=operator == "!=")


def _after(partial: _Partial) -> Version:
    """Return where ``>`` begins: right after a version, but with a release after a partial version."""
    if partial.full is not None:
        return successor(partial.full)
    return partial.above(len(partial.numbers) - 1).replace(prerelease=None)


def _tilde(partial: _Partial) -> Version | None:
    return partial.above(min(1, len(partial.numbers) - 1)) if partial.numbers else None


def _caret(partial: _Partial) -> Version | None:
    if not partial.numbers:
        return None
    position = next((index for index, number in enumerate(partial.numbers) if number), len(partial.numbers) - 1)
    return partial.above(position)


def _find_prerelease_triples(partial: _Partial) -> frozenset[tuple[int, int, int]]:
    version = partial.full
    if version is None or version.prerelease is None:
        return frozenset()
    return frozenset({(version.major, version.minor, version.patch)})


def _fill_zeros(numbers: tuple[int, ...]) -> tuple[int, int, int]:
    major, minor, patch = (*numbers, 0, 0, 0)[:_LENGTH]
    return major, minor, patch


def _is_number(part: str) -> bool:
    return part.isascii() and part.isdecimal() and (part == "0" or not part.startswith("0"))


def list_readings(text: str) -> Mapping[str, str]:
    """Return the constraints that a partial version such as ``1.2`` may mean, with meanings; none for another text."""
    version = text.strip().lstrip("=").strip()
    if _NUMBERS.fullmatch(version) is None or len(version) > LONGEST:
        return {}
    partial = _partial(version, text)
    return {} if partial.full is not None else _list_readings(partial)


def _list_readings(partial: _Partial) -> dict[str, str]:
    written = ".".join(str(number) for number in partial.numbers)
    forms = {_upper_text(_tilde(partial)): f"~{written}", _upper_text(_caret(partial)): f"^{written}"}
    readings = {form: f"versions below {upper}" for upper, form in forms.items()}
    return readings | {str(partial.floor()): "that version alone"}


def _make_ambiguity_error(partial: _Partial, text: str) -> InvalidInputError:
    *choices, last = (f"{form} for {meaning}" for form, meaning in _list_readings(partial).items())
    written = ".".join(str(number) for number in partial.numbers)
    return _make_error(text, f"write {', '.join(choices)}, or {last}", f"{written!r} is a partial version")


def _upper_text(upper: Version | None) -> str:
    return str(upper).removesuffix("-0")


def _make_error(text: str, next_step: str, because: str = "") -> InvalidInputError:
    text = text if len(text) <= LONGEST else f"{text[:LONGEST]}…"
    reason = f": {because}, which is ambiguous" if because else ""
    return InvalidInputError(f"invalid version constraint {text!r}{reason}", next_step=next_step)
