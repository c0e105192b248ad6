"""Arguments and options of commands that name artifacts, locks and runs, and their completion in shells."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.output import read_text, say
from benchlock.api.settings import locate_registry
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.records.run_types import Isolation
from benchlock.registry.artifact_names import KINDS
from benchlock.registry.database.ids_and_timestamps import is_id
from benchlock.registry.lock.lockfile import Lock, load

RUN_PREFIX = "run/"
ID_PREFIX = "sha256:"
_DIGITS = 26
_SUGGESTED_RUNS = 50
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


def suggest_kinds(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """Suggest the kinds of artifacts to a shell."""
    return [kind for kind in KINDS if kind.startswith(incomplete)]


def suggest_files(_context: click.Context, _parameter: click.Parameter, incomplete: str) -> "list[CompletionItem[str]]":
    """Let the shell suggest files, such as lockfiles."""
    return [CompletionItem(incomplete, type="file")]


def suggest_targets(
    context: click.Context, _parameter: click.Parameter, incomplete: str
) -> "list[CompletionItem[str]]":
    """Suggest artifacts and recent runs of a registry in a folder to a shell; else files, such as lockfiles.

    Nothing is changed, and no request is sent to a server.
    """
    try:
        names = list(_list_targets(context.find_root().params.get("registry") or locate_registry(), incomplete))
    except Exception:  # noqa: BLE001 - a message would garble the line that the user edits
        names = []
    items = [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return items or [CompletionItem(incomplete, type="file")]


def _list_targets(location: str, incomplete: str) -> Iterator[str]:
    """Yield artifacts, with versions after ``@``, and runs if ``incomplete`` may be the beginning of one."""
    from benchlock.api.local.local_registry import folder_of, now  # noqa: PLC0415 - SQL code, used by completion only
    from benchlock.api.local.registry_database import open_existing  # noqa: PLC0415 - as above
    from benchlock.evaluator.records.run_store import Records  # noqa: PLC0415 - as above
    from benchlock.registry.catalogue.catalogue import Catalogue  # noqa: PLC0415 - as above

    database = open_existing(folder_of(location))
    try:
        references = [entry.reference for entry in Catalogue(database, now).list()]
        has_version = "@" in incomplete
        yield from dict.fromkeys(str(name) if has_version else f"{name.kind}/{name.name}" for name in references)
        if incomplete.startswith(RUN_PREFIX[: len(incomplete)]):
            yield from (entry.id for entry in Records(database).list_entries(limit=_SUGGESTED_RUNS, examine=False))
    finally:
        database.dispose()


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


def read_lock(invocation: Invocation, text: str) -> Lock:
    """Load the lock in the file ``text``, or in the registry by the beginning of its id, and print its warnings."""
    if text.startswith(ID_PREFIX):
        catalogue = invocation.opened.catalogue
        lock = load(catalogue.get_lock(catalogue.find_lock(text)), text)
    else:
        lock = load(read_text(Path(text), next_step="give a lockfile or a lock id"), text)
    for warning in lock.warnings:
        say(f"warning: {warning}")
    return lock
