"""Column types with bytewise text order, and the sort key of versions in columns named ``precedence``."""

import re
from typing import Final

from sqlalchemy import BigInteger, Integer, String, Text

_BYTEWISE = "C"

TEXT = Text().with_variant(Text(collation=_BYTEWISE), "postgresql")
WHOLE = Integer().with_variant(BigInteger(), "postgresql")


def letters(most: int) -> String:
    """Make the type of a text of at most ``most`` characters."""
    return String(most).with_variant(String(most, collation=_BYTEWISE), "postgresql")


DIGEST = letters(len("sha256:") + 64)


_NUMBER: Final = r"(0|[1-9][0-9]*)"
_VERSION: Final = re.compile(rf"{_NUMBER}\.{_NUMBER}\.{_NUMBER}(?:-([0-9A-Za-z.-]+))?(?:\+[0-9A-Za-z.-]+)?")
_DIGITS: Final = 3


def precedence(version: str) -> str:
    """Return the sort key of ``version``: numbers prefixed by their length, a release after its pre-releases.

    Raises:
        ValueError: The text is not a version.
    """
    found = _VERSION.fullmatch(version)
    if found is None:
        raise ValueError(f"invalid version {version!r}")
    *numbers, tag = found.groups()
    release = ".".join(map(_number, numbers))
    if tag is None:
        return f"{release}~"
    parts = (f"0{_number(part)}" if part.isdecimal() else f"1{part}" for part in tag.split("."))
    return f"{release}-{'!'.join(parts)}"


def _number(digits: str) -> str:
    return f"{len(digits):0{_DIGITS}d}{digits}"
