"""What a plain scalar of YAML 1.2 means by the core schema (YAML 1.2.2, section 10.3.2)."""

import re

GREATEST = 2**53 - 1
"""The greatest integer that canonical JSON holds exactly."""

NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")

_NULL = re.compile(r"null|Null|NULL|~|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_PREFIXES = {"0o": 8, "0x": 16}


def resolve(text: str) -> str | float | bool | None:
    """The value of a plain scalar; an integer of too many digits to be exact is ``GREATEST + 1``."""
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text.lower() == "true"
    if _INTEGER.fullmatch(text):
        base = _PREFIXES.get(text[:2], 10)
        digits = text[2:] if base != 10 else text  # noqa: PLR2004 - decimal
        return int(digits, base) if len(digits) <= len(str(GREATEST)) + 1 else GREATEST + 1
    if _FLOAT.fullmatch(text):
        return float(text)
    return text
