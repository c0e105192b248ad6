"""Semantic versions: parsing, sort keys, and the mapping of PEP 440 versions to them.

This is the only module that imports ``semver``. Two ``Version`` objects that differ only in build metadata are equal
but have different hashes, so use ``key(version)`` for sets and dictionaries.
"""

import re
from functools import lru_cache

from packaging.version import InvalidVersion
from packaging.version import Version as UpstreamVersion
from semver import Version

from benchlock.artifacts.errors import InvalidInputError

__all__ = ["LONGEST", "Version", "from_pep440", "key", "parse_version", "release_key", "successor", "version_of"]

LONGEST = 128
"""Longest version, in characters."""

_ASCII = re.compile(r"[0-9A-Za-z.+-]+")
_PRE_RELEASE = {"a": "alpha", "b": "beta", "rc": "rc"}
_RELEASE_LENGTH = 3

_DIGITS = 3
"""Digits of a length in a key: enough for the longest version."""


@lru_cache(maxsize=16384)
def parse_version(text: str) -> Version:
    """Parse a SemVer 2.0.0 version.

    Raises:
        InvalidInputError: The text is not a version; partial versions and a leading ``v`` are rejected.
    """
    if len(text) <= LONGEST and _ASCII.fullmatch(text):
        try:
            return Version.parse(text)
        except ValueError:
            pass
    raise InvalidInputError(
        f"invalid version {text[:LONGEST]!r}",
        next_step="write MAJOR.MINOR.PATCH as in SemVer 2.0.0, such as 1.2.0 or 1.2.0-rc.1",
    )


def release_key(major: int, minor: int = 0, patch: int = 0) -> str:
    """Return the key of a release."""
    return f"{_number(major)}.{_number(minor)}.{_number(patch)}~"


def key(version: Version) -> str:
    """Return a text whose bytewise order is SemVer's order, equal for versions that differ in build metadata.

    Each number follows its length, so longer ones sort later; a release sorts after its pre-releases.
    """
    release = f"{_number(version.major)}.{_number(version.minor)}.{_number(version.patch)}"
    if version.prerelease is None:
        return f"{release}~"
    identifiers = (
        f"0{_number(int(part))}" if part.isdecimal() else f"1{part}" for part in version.prerelease.split(".")
    )
    return f"{release}-{'!'.join(identifiers)}"


@lru_cache(maxsize=65536)
def version_of(key: str) -> Version:
    """Return the version with the key ``key``, without build metadata."""
    release, _, tag = key.rstrip("~").partition("-")
    major, minor, patch = (int(part[_DIGITS:]) for part in release.split("."))
    identifiers = [part[1 + _DIGITS :] if part.startswith("0") else part[1:] for part in tag.split("!")]
    return Version(major, minor, patch, prerelease=".".join(identifiers) or None)


def successor(version: Version) -> Version:
    """Return the least version above ``version``: 1.2.4-0 for 1.2.3, and 1.2.3-a.0 for 1.2.3-a."""
    if version.prerelease is None:
        return Version(version.major, version.minor, version.patch + 1, prerelease="0")
    return Version(version.major, version.minor, version.patch, prerelease=f"{version.prerelease}.0")


def from_pep440(text: str) -> Version:
    """Convert the version of a Python package to SemVer: ``2.21.0rc1`` to ``2.21.0-rc.1``.

    A local label (``+cpu``) is dropped, and a short release is filled with zeros.

    Raises:
        InvalidInputError: The text is not a PEP 440 version, or SemVer cannot express it: an epoch, more than three
            numbers, a post-release or a development release.
    """
    try:
        upstream = UpstreamVersion(text)
    except InvalidVersion as error:
        raise InvalidInputError(f"invalid PEP 440 version {text!r}") from error
    for refused, reason in (
        (upstream.is_postrelease, "a post-release"),
        (upstream.is_devrelease, "a development release"),
        (upstream.epoch != 0, "an epoch"),
        (len(upstream.release) > _RELEASE_LENGTH, "more than three numbers"),
    ):
        if refused:
            raise InvalidInputError(
                f"{text!r} has {reason}, which SemVer cannot express",
                next_step="choose a final release, or an alpha, beta or release candidate",
            )
    prerelease = None if upstream.pre is None else f"{_PRE_RELEASE[upstream.pre[0]]}.{upstream.pre[1]}"
    return Version(upstream.major, upstream.minor, upstream.micro, prerelease=prerelease)


@lru_cache(maxsize=65536)
def _number(value: int) -> str:
    digits = str(value)
    return f"{len(digits):0{_DIGITS}d}{digits}"
