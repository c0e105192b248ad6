"""Commands for locks: resolve, lock, diff and why."""

import re
from pathlib import Path
from typing import Any

import click
from msgspec import UNSET
from msgspec.structs import asdict

from benchlock.api.cli import output
from benchlock.api.cli.artifact_commands import find_artifact
from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.output import say, say_lines
from benchlock.api.cli.run_options import read_lock, suggest_files, suggest_targets
from benchlock.api.client.user_files import (
    ID_PREFIX,
    LOCK_ID_LINE,
    complete_lock_id,
    default_lock_path,
    read_request,
    read_text,
    write_text,
)
from benchlock.api.error_codes import EXIT_REFUSED
from benchlock.api.schemas.run_documents import lock_document
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.records.run_texts import describe_training, list_initial_weights
from benchlock.registry.artifact_names import Kind, parse_target
from benchlock.registry.lock.lock_assembly import preferences_of
from benchlock.registry.lock.lock_creation import known_manifests
from benchlock.registry.lock.lock_diff import Change
from benchlock.registry.lock.lock_diff import diff as difference
from benchlock.registry.lock.lockfile import Lock, dataset_of, dump
from benchlock.registry.manifests import Model, plain
from benchlock.registry.requests.evaluation_request import Request
from benchlock.registry.resolution.resolver_types import Resolution

_YAML_KEY = re.compile(r"""^\s*\{?\s*["']?[a-z_]+["']?\s*:""", re.MULTILINE)
REQUEST = click.argument("request", metavar="REQUEST", type=click.Path(path_type=Path), help="Request file.")
AS_OF = click.option(
    "--as-of", metavar="TIME", default="", help="Use the catalogue at this time, such as 2026-11-20T12:00:00Z."
)


@click.command()
@REQUEST
@AS_OF
@click.pass_obj
def resolve(invocation: Invocation, request: Path, as_of: str) -> None:
    """Show the versions that satisfy a request.

    Explains the conflict if there are none. Writes nothing.

    Example: benchlock resolve digits.yaml
    """
    with invocation.progress.task("resolving versions"):
        resolution = invocation.opened.resolve(read_request(request, as_of), {})
    document = resolution_document(resolution)
    if invocation.as_json:
        output.print_json(document)
    else:
        fields = resolution.describe()
        platforms = fields.pop("platforms")
        output.print_fields(fields)
        output.print_fields({"platforms": platforms})


def resolution_document(resolution: Resolution) -> dict[str, Any]:
    """Return the JSON document of the chosen versions and platforms."""
    chosen = {
        str(kind): {"name": candidate.name, "version": str(candidate.version), "digest": candidate.digest}
        for kind, candidate in resolution.chosen().items()
    }
    keys = ("os", "arch", "device", "python")
    return chosen | {"platforms": [dict(zip(keys, offer[:4], strict=True)) for offer in resolution.platforms]}


@click.command()
@REQUEST
@click.option(
    "-o",
    "--output",
    "out",
    metavar="LOCK",
    type=click.Path(path_type=Path),
    help="Lockfile; default: NAME.lock beside the request.",
)
@click.option("--upgrade", metavar="KIND/NAME", multiple=True, help="Upgrade this artifact; may be repeated.")
@AS_OF
@click.option("--check", is_flag=True, help="Check whether the lock satisfies the request; write nothing.")
@click.pass_obj
def lock(
    invocation: Invocation, request: Path, out: Path | None, upgrade: tuple[str, ...], as_of: str, *, check: bool
) -> None:
    """Resolve a request and write a lockfile.

    Example: benchlock lock digits.yaml
    """
    question = read_request(request, as_of)
    path = out or default_lock_path(request, question)
    if check:
        _check(invocation, question, path, upgrade)
        return
    replaced = read_lock(invocation, str(path)) if path.exists() else None
    moved = _parse_upgrades(upgrade, path, replaced)
    preferences = {} if replaced is None else preferences_of(replaced, moved)
    with invocation.progress.task("resolving versions"):
        result = invocation.opened.lock(question, preferences)
    new_lock = result.lock
    write_text(path, dump(new_lock))
    for warning in result.warnings:
        say(f"warning: {warning}")
    changes = [] if replaced is None else _tell_changes(invocation, replaced, new_lock)
    if invocation.as_json:
        details = {"path": str(path), "replaced": replaced and replaced.id, "changes": changes}
        output.print_json(lock_document(new_lock) | details)
    else:
        output.echo(f"{path}  {new_lock.id}")
        output.print_fields(
            {str(kind): f"{artifact.name} {artifact.version}" for kind, artifact in new_lock.artifacts().items()}
        )


def _parse_upgrades(targets: tuple[str, ...], path: Path, replaced: Lock | None) -> list[tuple[Kind, str]]:
    """Parse the artifacts in ``--upgrade``.

    Raises:
        InvalidInputError: A target has a constraint, or there is no lock to upgrade.
    """
    moved: list[tuple[Kind, str]] = []
    for target in targets:
        kind, name, constraint = parse_target(target)
        if constraint is not None:
            raise InvalidInputError(
                f"--upgrade takes no constraint: {target}",
                where=f"--upgrade {target}",
                next_step=f"write {constraint} in the request and use --upgrade {kind}/{name}",
            )
        moved.append((kind, name))
    if moved and replaced is None:
        raise InvalidInputError(
            f"no lock to upgrade: {path} does not exist",
            where=str(path),
            next_step="omit --upgrade (a new lock gets the newest versions), or give the lock with -o",
        )
    return moved


def _tell_changes(invocation: Invocation, replaced: Lock, new_lock: Lock) -> tuple[Change, ...]:
    """Print what moved and what stayed; return the changes."""
    if new_lock.id == replaced.id:
        say("no changes")
        return ()

    changes = difference(replaced, new_lock, known_manifests([replaced, new_lock], invocation.opened.store))
    before = replaced.artifacts()
    unchanged = [
        f"{kind}/{artifact.name} {artifact.version}"
        for kind, artifact in new_lock.artifacts().items()
        if artifact == before[kind]
    ]
    for line in (*map(str, changes), *([f"unchanged: {', '.join(unchanged)}"] if unchanged else [])):
        say_lines(line)
    return changes


def _check(invocation: Invocation, request: Request, path: Path, upgrade: tuple[str, ...]) -> None:
    if upgrade:
        raise InvalidInputError(
            "--check and --upgrade exclude each other",
            where=f"--upgrade {upgrade[0]}",
            next_step="omit one of them",
        )

    lock = read_lock(invocation, str(path))
    freshness = invocation.opened.check(lock, request)
    for warning in freshness.warnings:
        say(f"warning: {warning}")
    if invocation.as_json:
        output.print_json(lock_document(lock) | {"path": str(path)} | asdict(freshness))
    else:
        for reason in freshness.reasons:
            output.echo(f"stale: {reason}", "stale")
        if freshness.fresh:
            output.echo(f"{path} satisfies its request")
    if not freshness.fresh:
        raise click.exceptions.Exit(EXIT_REFUSED)


def read_question(invocation: Invocation, text: str) -> Lock | Request:
    """Load the lock that ``text`` names, or the request in the file of that name."""
    if not complete_lock_id(text).startswith(ID_PREFIX):
        content = read_text(Path(text), next_step="give a lockfile, a lock id or a request file")
        if _YAML_KEY.search(content) and not LOCK_ID_LINE.search(content):
            return read_request(Path(text), "")
    return read_lock(invocation, text)


@click.command()
@click.argument("before", metavar="LOCK", shell_complete=suggest_files, help="Lockfile or lock id.")
@click.argument("after", metavar="LOCK", shell_complete=suggest_files, help="Lock to compare with.")
@click.pass_obj
def diff(invocation: Invocation, before: str, after: str) -> None:
    """Show the differences between two locks.

    Example: benchlock diff old.lock new.lock
    """
    locks = [read_lock(invocation, text) for text in (before, after)]
    changes = difference(locks[0], locks[1], known_manifests(locks, invocation.opened.store))
    if invocation.as_json:
        output.print_json({"changes": changes})
    else:
        for change in changes:
            output.echo_lines(str(change))
        if not changes:
            output.echo("no differences")


@click.command()
@click.argument("target", metavar="KIND/NAME", shell_complete=suggest_targets, help="Artifact of the lock.")
@click.argument("lock", metavar="[LOCK]", required=False, shell_complete=suggest_files, help="Lockfile or lock id.")
@click.pass_obj
def why(invocation: Invocation, target: str, lock: str | None) -> None:
    """Explain a version in a lock, or how a model was trained.

    Without a lock, the model must be promoted from a training.

    Example: benchlock why model/digits digits.lock
    """
    if lock is None:
        _explain_training(invocation, target)
        return
    kind, name, constraint = parse_target(target)
    if constraint is not None:
        raise InvalidInputError(
            f"{target} has a constraint", where=target, next_step=f"use {kind}/{name}: a lock has one version of it"
        )
    answer = invocation.opened.why(read_lock(invocation, lock), kind, name)
    if invocation.as_json:
        output.print_json(answer.why)
    else:
        output.echo_lines(output.append_commands(answer.prose))


def _explain_training(invocation: Invocation, target: str) -> None:
    """Print the training that a model states, whether a run here shows it, and everything that its lock names."""
    from benchlock.evaluator.workflows.promotion import find_origin  # noqa: PLC0415 - it loads what runs a lock

    entry = find_artifact(invocation, target)
    manifest = invocation.opened.catalogue.manifest(entry.reference)
    if not isinstance(manifest, Model) or manifest.trained is UNSET:
        raise InvalidInputError(
            f"{entry.reference} was not promoted from a training", where=target, next_step="name a lock as well"
        )
    trained, lock = manifest.trained, read_lock(invocation, manifest.trained.lock)
    artifacts = {kind: f"{kind}/{artifact.name}@{artifact.version}" for kind, artifact in lock.artifacts().items()}
    splits = {"split": dataset_of(lock).split, "target": plain(lock.target)}
    run = find_origin(invocation.opened.records, trained)
    if invocation.as_json:
        digests = {kind: artifact.digest for kind, artifact in lock.artifacts().items()}
        document = {"model": str(entry.reference), "trained": plain(trained), "artifacts": artifacts, "run": run}
        document["initial_weights"] = list_initial_weights(lock)
        changed = {"settings": lock.request.get("settings", {})}
        output.print_json(document | {"digests": digests} | splits | changed)
        return
    shown = run or "stated by the publisher; no verified run in this registry has these weights"
    output.print_fields(
        {"model": entry.reference, "weights": trained.weights, "lock": trained.lock, "run": shown}
        | {"repeat": trained.repeat, "seed": trained.seed}
        | describe_training(lock)
    )
    output.print_fields({f"  {kind}": name for kind, name in artifacts.items()} | {"  split": splits["split"]})
