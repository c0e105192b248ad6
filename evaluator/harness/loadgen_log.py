"""LoadGen's detail log, read without LoadGen itself."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_MARK = ":::MLLOG "
SEPARATOR = b"--- probe ---\n"
"""What is before each log in a file of several."""
_EFFECTIVE = "effective_"
_RESULT_KEYS = ("result_", "early_stopping_")
_MINIMA = ("result_min_duration_met", "result_min_queries_met")


@dataclass(frozen=True, slots=True)
class Log:
    """LoadGen's own account. ``valid`` is its judgement, early stopping included; ``errors`` its lines of error."""

    version: str
    valid: bool
    errors: tuple[str, ...]
    settings: dict[str, Any]
    results: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the log."""

    key: str
    value: Any
    is_error: bool


def read_log(path: Path) -> Log:
    """The detail log of one run. ``ValueError`` if it is not complete."""
    return summarize_log([_parse_entry(text) for _, text in split_entries(path.read_text(encoding="utf-8"))])


def split_entries(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number of each line that is an entry, counted from 1, and its JSON."""
    for number, line in enumerate(text.split("\n"), start=1):
        if line.startswith(_MARK):
            yield number, line.removeprefix(_MARK)


def _parse_entry(text: str) -> Entry:
    entry = json.loads(text)
    return Entry(entry["key"], entry["value"], bool(entry["metadata"].get("is_error")))


def summarize_log(entries: Sequence[Entry]) -> Log:
    """Summarize the entries of a log, in their order.

    Raises:
        ValueError: The log is not complete.
    """
    values = {entry.key: entry.value for entry in entries}
    if "result_validity" not in values:
        raise ValueError("LoadGen left no result_validity")
    errors = [f"{entry.key}: {entry.value}" for entry in entries if entry.is_error]
    errors += [f"{key}: false" for key in _MINIMA if not values.get(key)]
    return Log(
        version=str(values.get("loadgen_version")),
        valid=values["result_validity"] == "VALID",
        errors=tuple(errors),
        settings={key.removeprefix(_EFFECTIVE): value for key, value in values.items() if key.startswith(_EFFECTIVE)},
        results={key: value for key, value in values.items() if key.startswith(_RESULT_KEYS)},
    )
