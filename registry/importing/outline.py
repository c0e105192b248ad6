"""Lines of YAML with comments, in the order in which they are put; read back, they give the same values."""

import json
import re
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any

from benchlock.registry.scalars import resolve

Lines = list[str]

WIDTH = 112
"""Characters of a folded line, before its indent."""

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./+-]*([ :][A-Za-z0-9_./+-]+)*")
_BARE_LINE = re.compile(r"(\S(.*\S)?)?")


def entry(key: str, value: Any) -> Lines:  # noqa: ANN401 - any JSON value
    """A key with its value: collections as blocks, a long text folded."""
    if isinstance(value, dict) and value:
        return block(key, [line for inner, kept in value.items() for line in entry(inner, kept)])
    if isinstance(value, list) and any(isinstance(one, dict | list | str) for one in value):
        return block(key, [line for one in value for line in _element(one)])
    if isinstance(value, str) and len(value) > WIDTH and value.isprintable() and value == " ".join(value.split()):
        words = textwrap.wrap(value, WIDTH, break_on_hyphens=False, break_long_words=False)
        return [f"{flow(key)}: >-", *indented(words)]
    if isinstance(value, str) and "\n" in value and _is_literal(value):
        return [f"{flow(key)}: |-", *(line.rstrip() for line in indented(value.split("\n")))]
    return [f"{flow(key)}: {flow(value)}"]


def block(key: str, lines: Iterable[str]) -> Lines:
    """A key whose value stands below it."""
    return [f"{flow(key)}:", *indented(lines)]


def element(lines: Sequence[str]) -> Lines:
    """An element of a list; comments before its first key stand above its dash."""
    first = next((index for index, line in enumerate(lines) if not line.startswith("#")), None)
    if first is None:
        return [*lines, "-"]
    return [*lines[:first], f"- {lines[first]}", *indented(lines[first + 1 :])]


def indented(lines: Iterable[str]) -> Lines:
    return [f"  {line}" for line in lines]


def flow(value: Any) -> str:  # noqa: ANN401
    """A value on one line: JSON, with quotes only where a text needs them."""
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and isinstance(resolve(value), str)
        return value if plain else json.dumps(value, ensure_ascii=not value.isprintable())
    if isinstance(value, dict):
        return "{" + ", ".join(f"{flow(key)}: {flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(flow(inner) for inner in value) + "]"
    return json.dumps(value, allow_nan=False)


def _element(value: Any) -> Lines:  # noqa: ANN401
    if isinstance(value, dict) and value:
        return element([line for key, inner in value.items() for line in entry(key, inner)])
    return [f"- {flow(value)}"]


def _is_literal(text: str) -> bool:
    """Whether a literal block holds exactly this text: printable lines without space around them."""
    lines = text.split("\n")
    return bool(lines[0] and lines[-1]) and all(line.isprintable() and _BARE_LINE.fullmatch(line) for line in lines)
