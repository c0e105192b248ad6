"""Tables of ``job.json``: what a key must hold, and the path of the one that is wrong."""

from collections.abc import Mapping
from typing import Any, TypeVar

_Number = TypeVar("_Number", int, float)


class JobError(Exception):
    """The job cannot be understood: a fault of what wrote it, so no result of a run."""


def demanded(table: Mapping[str, Any], key: str, kind: Any, where: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    """What stands under ``key``, of the type ``kind``; ``JobError`` if nothing does, or something of another type."""
    value = optional(table, key, kind, where)
    if value is None:
        raise JobError(f"{path(where, key)}: absent")
    return value


def optional(table: Any, key: str, kind: Any, where: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    """As ``demanded``, but None if nothing stands there."""
    if not isinstance(table, dict):
        raise JobError(f"{where}: no table")
    value = table.get(key)
    wrong = isinstance(value, bool) and kind is not bool
    if value is not None and (wrong or not isinstance(value, kind)):
        raise JobError(f"{path(where, key)}: {value!r} is of a wrong type")
    return value


def at_least(least: _Number, value: _Number, where: str) -> _Number:
    if value < least:
        raise JobError(f"{where}: {value} is less than {least}")
    return value


def path(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
