"""Ids of runs as command-line arguments: the 26 characters alone name a run, too."""

import click

_PREFIX = "run/"


def complete_run_id(_context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Return ``value`` with ``run/`` before it if it is an id alone, else unchanged."""
    from registry.ids import is_id  # noqa: PLC0415 - the help text needs none of it

    return f"{_PREFIX}{value}" if is_id(value) else value


def complete_run_ids(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Return ``values``, each as ``complete_run_id`` returns it."""
    return tuple(complete_run_id(context, parameter, value) for value in values)
