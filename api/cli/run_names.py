"""Ids of runs as command-line arguments: whole, without ``run/``, or ``run/`` and the first 8 to 20 characters."""

import re

import click

from benchlock.artifacts.errors import InvalidInputError

_PREFIX = "run/"
_DIGITS = 26
_BEGINNING = re.compile(rf"{_PREFIX}[0-9a-hjkmnp-tv-z]{{8,20}}")
"""More could end where the list is asked for entries before an id, which leaves that id out."""


def complete_run_id(context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Return ``value`` with ``run/`` before it if it is an id alone, else unchanged.

    The first 8 to 20 characters after ``run/`` are completed if they are of one listed run alone.

    Raises:
        InvalidInputError: Several runs begin with them.
    """
    from benchlock.registry.ids import is_id  # noqa: PLC0415 - the help text needs none of it

    if not _BEGINNING.fullmatch(value):
        return f"{_PREFIX}{value}" if is_id(value) else value
    last = value.ljust(len(_PREFIX) + _DIGITS, "z")
    entries = context.obj.opened.records.list_entries(before=last, limit=2, examine=False)
    ids = [one.id for one in entries if one.id.startswith(value)]
    if len(ids) > 1:
        raise InvalidInputError(f"ambiguous run id {value}", where=", ".join(ids), next_step="write more characters")
    return ids[0] if ids else value


def complete_run_ids(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Return ``values``, each as ``complete_run_id`` returns it."""
    return tuple(complete_run_id(context, parameter, value) for value in values)
