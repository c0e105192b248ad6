"""TOML writer whose output depends on the content alone, and a reader with limits.

The writer is part of this project because the bytes of a lockfile must not change with a release of a library.
Top-level tables are ``[tables]``, and their lists of tables are ``[[rows]]``. Deeper values are inline; deeper lists of
tables have one table per line.
"""

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

_BARE = re.compile(r"[A-Za-z0-9_-]+")
_TOKEN: Final = re.compile(r""""[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"|'[^'\n]*+'|#[^\n]*+""")
MAX_KEY_PARTS: Final = 16
_DOT_WEIGHT: Final = 8
"""Memory of one part of a dotted key, in units of other values."""
_DEEP_KEY: Final = re.compile(rf"(?<![A-Za-z0-9_-])(?:[A-Za-z0-9_-]++[ \t]*+\.[ \t]*+){{{MAX_KEY_PARTS}}}")

Order = Sequence[str]
"""Keys in the order of writing; other keys follow by name."""


def loads(text: str, most: int | None = None) -> dict[str, Any]:
    """Parse TOML whose dotted keys have at most 16 parts, without multi-line strings.

    The memory and time of ``tomllib`` grow with the square of the parts of a key. No file read here needs many.

    Args:
        text: The document.
        most: The largest number of values. Keys, commas and brackets count; a dot outside of strings counts eight
            times.

    Raises:
        ValueError: The text is not such TOML, is nested too deeply, or has more values.
    """
    structure = _TOKEN.sub(_without_text, text)
    if _DEEP_KEY.search(structure):
        raise ValueError(f"a key has more than {MAX_KEY_PARTS} parts")
    values = sum(map(structure.count, ",=[{")) + _DOT_WEIGHT * structure.count(".")
    if most is not None and values > most:
        raise ValueError(f"it has more than {most} values")
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error


def _without_text(token: re.Match[str]) -> str:
    """Replace a string or a comment, so that only keys and punctuation remain."""
    text = token[0]
    if text in ('""', "''") and token.string[token.end() : token.end() + 1] == text[0]:
        raise ValueError("multi-line strings are not supported")
    return "" if text.startswith("#") else "_"


def dumps(document: Mapping[str, Any], order: Order, rows: Sequence[str]) -> str:
    """Encode plain values without null as TOML; lists of tables under the keys ``rows`` become ``[[rows]]``."""
    lines = [f"{_key(key)} = {_value(document[key], order)}" for key in _keys(document, order, tables=False)]
    for key in _keys(document, order, tables=True):
        lines += ["", f"[{_key(key)}]", *_body(document[key], order, _key(key), rows)]
    return "\n".join((*lines, ""))


def _keys(table: Mapping[str, Any], order: Order, *, tables: bool) -> list[str]:
    return _sorted((key for key in table if isinstance(table[key], Mapping) == tables), order)


def _sorted(keys: Iterator[str], order: Order) -> list[str]:
    return sorted(keys, key=lambda key: (order.index(key) if key in order else len(order), key))


def _body(table: Mapping[str, Any], order: Order, name: str, rows: Sequence[str]) -> Iterator[str]:
    as_rows = [key for key in rows if _is_rows(table.get(key))]
    for key in _sorted((key for key in table if key not in as_rows), order):
        yield f"{_key(key)} = {_value(table[key], order)}"
    for key in as_rows:
        for row in table[key]:
            yield ""
            yield f"[[{name}.{_key(key)}]]"
            yield from _body(row, order, name, ())


def _is_rows(value: object) -> bool:
    return isinstance(value, Sequence) and bool(value) and all(isinstance(row, Mapping) for row in value)


def _value(value: object, order: Order) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return repr(value)
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case Mapping():
            pairs = (f"{_key(key)} = {_value(value[key], order)}" for key in _sorted(iter(value), order))
            return f"{{{', '.join(pairs)}}}"
        case Sequence():
            parts = [_value(part, order) for part in value]
            return (
                "\n".join(("[", *(f"  {part}," for part in parts), "]")) if _is_rows(value) else f"[{', '.join(parts)}]"
            )
        case _:
            raise TypeError(f"TOML has no {type(value).__name__}")


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _value(key, ())
