"""Names of artifacts, and the text forms that refer to them: ``model/resnet8``, ``model/acme/resnet8@1.2.0``."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import total_ordering
from typing import Literal, NewType, get_args

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.versions.semantic_version import Version, key, parse_version

Kind = Literal["model", "framework", "dataset", "image", "operator", "recipe"]
Name = NewType("Name", str)

KINDS: tuple[Kind, ...] = get_args(Kind)
LONGEST = 128
"""Longest name, in characters."""

WORD = "[a-z0-9]+([._-][a-z0-9]+)*"
NAME = f"^({WORD}/)?{WORD}$"
_NAME = re.compile(NAME)
LONGEST_TAG = 32
"""Longest tag, in characters."""
TAG = f"^{WORD}$"
_TAG = re.compile(TAG)
_COMPARED = 60


def find_close(word: str, known: Iterable[str]) -> list[str]:
    """Return the nearest known word, if one is near.

    Only the first characters are compared: a text of megabytes would take seconds and gigabytes.
    """
    return get_close_matches(word[:_COMPARED], known, n=1)


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """One published artifact; versions that differ only in build metadata are the same reference."""

    kind: Kind
    name: Name
    version: Version

    def __str__(self) -> str:
        """Return ``KIND/NAME@VERSION``."""
        return f"{self.kind}/{self.name}@{self.version}"

    def __eq__(self, other: object) -> bool:
        """Compare kind, name and version without build metadata."""
        return isinstance(other, Reference) and self._identity() == other._identity()

    def __lt__(self, other: "Reference") -> bool:
        """Order by kind, then name, then version."""
        return self._identity() < other._identity()

    def __hash__(self) -> int:
        """Hash kind, name and version without build metadata."""
        return hash(self._identity())

    def _identity(self) -> tuple[str, str, str]:
        return (self.kind, self.name, key(self.version))


def parse_name(text: str) -> Name:
    """Parse a name, with or without a namespace.

    Raises:
        InvalidInputError: The text is not a name.
    """
    if len(text) > LONGEST or not _NAME.fullmatch(text):
        raise InvalidInputError(
            f"invalid name {text[:LONGEST]!r}",
            next_step="write lower-case letters and digits, joined by single . _ or -, optionally after NAMESPACE/",
        )
    return Name(text)


def parse_tag(text: str) -> str:
    """Parse a tag of an artifact: one word of a name.

    Raises:
        InvalidInputError: The text is not a tag.
    """
    if len(text) > LONGEST_TAG or not _TAG.fullmatch(text):
        raise InvalidInputError(
            f"invalid tag {text[:LONGEST]!r}",
            next_step=f"write at most {LONGEST_TAG} lower-case letters and digits, joined by single . _ or -",
        )
    return text


def parse_kind(text: str) -> Kind:
    """Parse a kind of artifact.

    Raises:
        InvalidInputError: The text is not one of the kinds.
    """
    for kind in KINDS:
        if kind == text:
            return kind
    hint = "".join(f"did you mean {near!r}? " for near in find_close(text, KINDS))
    raise InvalidInputError(f"unknown kind {text!r}", next_step=f"{hint}the kinds are {', '.join(KINDS)}")


def parse_target(text: str) -> tuple[Kind, Name, str | None]:
    """Parse ``KIND/NAME[@CONSTRAINT]`` into kind, name and the text of the constraint.

    Raises:
        InvalidInputError: The text has another form.
    """
    path, at, constraint = text.partition("@")
    kind, slash, name = path.partition("/")
    if not slash or (at and not constraint.strip()):
        raise InvalidInputError(
            f"invalid reference {text!r}", next_step="write KIND/NAME or KIND/NAME@VERSION, such as model/resnet8@1.0.0"
        )
    return parse_kind(kind), parse_name(name), constraint.strip() if at else None


def parse_reference(text: str) -> Reference:
    """Parse ``KIND/NAME@VERSION``.

    Raises:
        InvalidInputError: The text has another form, or no single version.
    """
    kind, name, version = parse_target(text)
    if version is None:
        raise InvalidInputError(f"missing version in {text!r}", next_step=f"write {text}@VERSION")
    return Reference(kind, name, parse_version(version))
