"""Arguments and options of commands that name locks and runs."""

import re
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import click

from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.output import read_text, say
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import BenchlockError, InvalidInputError, UnknownNameError
from benchlock.evaluator.records.run_types import DamagedRun, Isolation, RunFilter
from benchlock.registry.database.ids_and_timestamps import (
    DIGITS,
    SHORTEST_PREFIX,
    SHOWN_CANDIDATES,
    ambiguous_prefix_error,
)
from benchlock.registry.lock.lockfile import Lock, load

RUN_PREFIX = "run/"
ID_PREFIX = "sha256:"
_LOCK_DIGITS = re.compile(rf"[0-9a-f]{{{SHORTEST_PREFIX},64}}")
_DIGITS = rf"[0-9a-hjkmnp-tv-z]{{{SHORTEST_PREFIX},{DIGITS}}}"

Candidates = Sequence[tuple[str, str]]
"""Ids, each with a description that distinguishes it: the time and more."""
FindCandidates = Callable[[Invocation, str, int], Candidates]
"""Returns at most so many ids that begin with a text."""


def complete_id(kind: str, find: FindCandidates, *, only: bool = True) -> Callable[..., Any]:
    """Return the callback of a click parameter whose ids may be abbreviated to an unambiguous beginning.

    The part before ``/`` may be missing. A text in another form is returned unchanged.

    Args:
        kind: What the ids are: ``run``, ``job`` or ``token``.
        find: Finds the candidates.
        only: Whether the parameter takes nothing else. Otherwise, a text without ``kind`` that no id begins with is
            returned unchanged, too.
    """
    form = re.compile(f"({kind}/)?{_DIGITS}")

    def complete(invocation: Invocation, value: str) -> str:
        if not form.fullmatch(value) or (not only and Path(value).is_file()):
            return value
        prefix = f"{kind}/{value.removeprefix(f'{kind}/')}"
        if len(prefix) == len(f"{kind}/") + DIGITS:
            return prefix
        candidates = find(invocation, prefix, SHOWN_CANDIDATES + 1)
        if len(candidates) > 1:
            raise ambiguous_prefix_error(prefix, candidates)
        if not candidates and (only or value == prefix):
            raise UnknownNameError(f"no {kind} id begins with {prefix}", next_step=f"list the {kind}s, or write the id")
        return candidates[0][0] if candidates else value

    def callback(
        context: click.Context, _parameter: click.Parameter, value: str | tuple[str, ...] | None
    ) -> str | tuple[str, ...] | None:
        if isinstance(value, tuple):
            return tuple(complete(context.obj, text) for text in value)
        return complete(context.obj, value) if value else value

    return callback


def describe_moment(at: datetime) -> str:
    """Return a time as tables have it."""
    return at.strftime("%Y-%m-%d %H:%M")


def describe_model(invocation: Invocation, lock: Digest) -> str:
    """Return the model of a lock and its version; the lock's id if it cannot be read."""
    try:
        model = load(invocation.opened.catalogue.get_lock(lock), lock).model
    except BenchlockError:
        return f"lock {lock}"
    return f"{model.name} {model.version}"


def _find_runs(invocation: Invocation, prefix: str, limit: int) -> Candidates:
    entries = invocation.opened.records.list_entries(chosen=RunFilter(prefix=prefix), limit=limit, examine=False)
    return [
        (entry.id, "damaged")
        if isinstance(entry, DamagedRun)
        else (entry.id, f"{describe_moment(entry.start.started_at)}, {describe_model(invocation, entry.start.lock)}")
        for entry in entries
    ]


complete_run_id = complete_id("run", _find_runs)
complete_run_target = complete_id("run", _find_runs, only=False)
"""The callback of a parameter that also takes artifacts or locks."""


ISOLATION = click.option(
    "--isolation",
    metavar="container|process",
    default="",
    help="How to isolate the run; default: a container if possible.",
)
ALLOW_CODE = click.option("--allow-code", is_flag=True, help="Allow code of the model to run without a container.")
_SHARE = re.compile(r"(?P<metric>[a-z0-9_]+)=(?P<number>[0-9]+(\.[0-9]+)?)(?P<percent> ?%)?")


def parse_isolation(text: str) -> Isolation | None:
    """Parse an isolation; return None for an empty text.

    Raises:
        InvalidInputError: It is unknown.
    """
    if not text:
        return None
    if text == "container":
        return "container"
    if text == "process":
        return "process"
    raise InvalidInputError(f"unknown isolation {text!r}", next_step="use container or process")


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


def complete_lock_id(text: str) -> str:
    """Add ``sha256:`` to the digits of a lock id, complete or not; return the name of a file unchanged."""
    return f"{ID_PREFIX}{text}" if _LOCK_DIGITS.fullmatch(text) and not Path(text).exists() else text


def read_lock(invocation: Invocation, text: str) -> Lock:
    """Load the lock in the file ``text``, or in the registry by the beginning of its id, and print its warnings."""
    name = complete_lock_id(text)
    if name.startswith(ID_PREFIX):
        catalogue = invocation.opened.catalogue
        lock = load(catalogue.get_lock(catalogue.find_lock(name)), name)
    else:
        lock = load(read_text(Path(name), next_step="give a lockfile or a lock id"), name)
    for warning in lock.warnings:
        say(f"warning: {warning}")
    return lock
