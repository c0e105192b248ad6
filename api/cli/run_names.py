"""Ids of runs as command-line arguments: the 26 characters alone name a run, and so does their beginning."""

import re

import click

from benchlock.artifacts.errors import InvalidInputError

_PREFIX = "run/"
_DIGITS = 26
_BEGINNING = re.compile(rf"{_PREFIX}[0-9a-z]{{8,{_DIGITS - 1}}}")


def complete_run_id(context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Return ``value`` with ``run/`` before it if it is an id alone, else unchanged.

    The first 8 characters or more after ``run/`` are completed if they are of one listed run alone.

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
        raise InvalidInputError(f"several runs begin with {value}", where=", ".join(ids), next_step="write more of it")
    return ids[0] if ids else value


def complete_run_ids(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Return ``values``, each as ``complete_run_id`` returns it."""
    return tuple(complete_run_id(context, parameter, value) for value in values)
