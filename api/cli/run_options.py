"""Arguments and options of commands that name locks and runs."""

import re
from collections.abc import Sequence

import click

from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.output import say
from benchlock.api.client.user_files import load_lock
from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.database.ids_and_timestamps import is_id
from benchlock.registry.lock.lockfile import Lock

RUN_PREFIX = "run/"
_DIGITS = 26
_BEGINNING = re.compile(rf"{RUN_PREFIX}[0-9a-hjkmnp-tv-z]{{8,20}}")
"""Beginnings with more characters could be the padded id itself, which the query excludes."""


def complete_run_id(context: click.Context, _parameter: click.Parameter, value: str) -> str:
    """Complete a run id: add ``run/`` to an id, and the rest to an unambiguous beginning.

    A beginning is ``run/`` with 8 to 20 characters. Any other value is returned unchanged.

    Raises:
        InvalidInputError: Several runs begin with ``value``.
    """
    if not _BEGINNING.fullmatch(value):
        return f"{RUN_PREFIX}{value}" if is_id(value) else value
    last = value.ljust(len(RUN_PREFIX) + _DIGITS, "z")
    entries = context.obj.opened.records.list_entries(before=last, limit=2, examine=False)
    ids = [entry.id for entry in entries if entry.id.startswith(value)]
    if len(ids) > 1:
        raise InvalidInputError(f"ambiguous run id {value}", where=", ".join(ids), next_step="write more characters")
    return ids[0] if ids else value


def complete_run_ids(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    """Complete each of ``values`` as ``complete_run_id`` does."""
    return tuple(complete_run_id(context, parameter, value) for value in values)


ISOLATION = click.option(
    "--isolation",
    metavar="container|process",
    default="",
    help="How to isolate the run; default: a container if possible.",
)
ALLOW_CODE = click.option("--allow-code", is_flag=True, help="Allow code of the model to run without a container.")
_SHARE = re.compile(r"(?P<metric>[a-z0-9_]+)=(?P<number>[0-9]+(\.[0-9]+)?)(?P<percent> ?%)?")


def parse_shares(option: str, texts: Sequence[str]) -> dict[str, float]:
    """Parse an option's shares by metric: ``latency_p50=2%`` and ``latency_p50=0.02`` are 0.02.

    Raises:
        InvalidInputError: A text has another form, or a metric is repeated.
    """
    shares: dict[str, float] = {}
    for text in texts:
        match = _SHARE.fullmatch(text)
        share = 0.0 if match is None else float(match["number"]) / (100 if match["percent"] else 1)
        if match is None or not 0 < share < 1 or match["metric"] in shares:
            raise InvalidInputError(
                f"invalid or repeated value {text!r}: expected METRIC=SHARE with a share below 100%",
                where=f"{option} {text}",
                next_step=f"use {option} latency_p50=2%",
            )
        shares[match["metric"]] = share
    return shares


def read_lock(invocation: Invocation, text: str) -> Lock:
    """Load the lock in the file ``text``, or in the registry by the beginning of its id, and print its warnings."""
    lock = load_lock(invocation.opened.catalogue, text)
    for warning in lock.warnings:
        say(f"warning: {warning}")
    return lock
