"""Arguments and options of commands that name artifacts, locks and runs, and their completion in shells."""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.output import say
from benchlock.api.client.id_prefixes import Candidates, complete_prefix, find_runs
from benchlock.api.client.user_files import ID_PREFIX, complete_lock_id, load_lock, read_lockfile
from benchlock.api.settings import locate_registry
from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.artifact_names import KINDS
from benchlock.registry.lock.lockfile import Lock

RUN_PREFIX = "run/"
_SUGGESTED_RUNS = 50

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

    def complete(invocation: Invocation, value: str) -> str:
        if not only and Path(value).is_file():
            return value
        return complete_prefix(kind, value, partial(find, invocation), only=only)

    def callback(
        context: click.Context, _parameter: click.Parameter, value: str | tuple[str, ...] | None
    ) -> str | tuple[str, ...] | None:
        if isinstance(value, tuple):
            return tuple(complete(context.obj, text) for text in value)
        return complete(context.obj, value) if value else value

    return callback


def _find_runs(invocation: Invocation, prefix: str, limit: int) -> Candidates:
    return find_runs(invocation.opened, prefix, limit)


complete_run_id = complete_id("run", _find_runs)
complete_run_target = complete_id("run", _find_runs, only=False)
"""The callback of a parameter that also takes artifacts or locks."""


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


def parse_shares(option: str, texts: Sequence[str], metrics: Sequence[str] = ()) -> dict[str, float]:
    """Parse an option's shares by metric: ``latency_p50=2%`` and ``latency_p50=0.02`` are 0.02.

    Args:
        option: The option.
        texts: Its values.
        metrics: The metrics that the next step of an error suggests; empty if unknown.

    Raises:
        InvalidInputError: A text has another form, or a metric is repeated.
    """
    shares: dict[str, float] = {}
    for text in texts:
        match = _SHARE.fullmatch(text)
        share = 0.0 if match is None else float(match["number"]) / (100 if match["percent"] else 1)
        if match is None or not 0 < share < 1 or match["metric"] in shares:
            problem = "incomplete" if text.endswith("=") else "invalid or repeated"
            example = f"use {option} {metrics[0] if metrics else 'latency_p50'}=2%"
            raise InvalidInputError(
                f"{problem} value {text!r}: expected METRIC=SHARE with a share below 100%",
                where=f"{option} {text}",
                next_step=f"{example}; metrics: {', '.join(metrics)}" if metrics else example,
            )
        shares[match["metric"]] = share
    return shares


def read_lock(invocation: Invocation, text: str) -> Lock:
    """Load the lock in the file ``text``, or in the registry by the beginning of its id, and print its warnings."""
    name = complete_lock_id(text)
    is_id = name.startswith(ID_PREFIX)  # a lockfile is read without opening the registry
    lock = load_lock(invocation.opened.catalogue, name) if is_id else read_lockfile(Path(name))
    for warning in lock.warnings:
        say(f"warning: {warning}")
    return lock
