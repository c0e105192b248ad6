"""Commands for artifacts: publish, list, show, get and yank."""

import os
import re
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchlock.api.cli import output
from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.run_options import complete_run_id
from benchlock.artifacts.errors import InvalidInputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchlock.artifacts.blob_store import BlobStore
    from benchlock.registry.catalogue.catalogue_protocol import CatalogueProtocol, Entry, PublishResult
    from benchlock.registry.publishing.publication import Draft

MANIFEST = "manifest.yaml"
RUN_PREFIX = "run/"
_MAX_LISTED = 10
_HEAD_BYTES = 4096
"""Bytes at the start of a file that are searched for a manifest's ``kind``."""


TARGET = click.argument(
    "target", metavar="KIND/NAME[@CONSTRAINT]|RUN", callback=complete_run_id, help="Artifact or run."
)


@click.command()
@click.argument(
    "paths",
    metavar="PATH...",
    nargs=-1,
    required=True,
    type=click.Path(path_type=Path),
    help="Manifests, or folders with a manifest.yaml.",
)
@click.option("--dry-run", is_flag=True, help="Check everything without publishing.")
@click.pass_obj
def publish(invocation: Invocation, paths: tuple[Path, ...], *, dry_run: bool) -> None:
    """Publish artifacts to the registry.

    Files are stored under their digests; a published version never changes.

    Example: benchlock publish models/digits/manifest.yaml
    """
    from benchlock.api.local.container_registry_access import look_up_leniently  # noqa: PLC0415
    from benchlock.registry.publishing.publication import dry_run_publish_all, publish_all  # noqa: PLC0415
    from benchlock.registry.text.problems import Problems  # noqa: PLC0415

    problems, drafts, warnings = Problems(), list["Draft"](), list[str]()
    for path in paths:
        with problems.noted():
            drafts.append(read_draft(path))
    rehearses = dry_run or bool(problems.found)  # after an error in one manifest, the others are still checked
    with _open_contents(invocation, creates=not rehearses) as (catalogue, store):
        drafts = [replace(draft, ask=partial(look_up_leniently, store, output.say)) for draft in drafts]
        progress = invocation.progress
        with problems.noted():
            if rehearses:
                results = dry_run_publish_all(drafts, catalogue, store, progress=progress, warn=warnings.append)
            else:
                results = publish_all(drafts, store, catalogue, progress=progress, warn=warnings.append)
    for warning in warnings:
        output.say(f"warning: {warning}")
    problems.refuse()
    if invocation.as_json:
        documents = [published_document(published) for published in results]
        output.print_json({"published": documents, "dry_run": dry_run, "warnings": warnings})
        return
    for published in results:
        output.echo(published_line(published, dry_run=dry_run))


@contextmanager
def _open_contents(invocation: Invocation, *, creates: bool) -> "Iterator[tuple[CatalogueProtocol, BlobStore]]":
    """Open the catalogue and store of the registry, or temporary empty ones if there is none and none is created."""
    from benchlock.api.local.local_registry import open_empty_registry  # noqa: PLC0415

    registry = invocation.opened if creates else invocation.find_registry()
    if registry is not None:
        yield registry.catalogue, registry.store
        return
    output.say(f"no registry in {invocation.registry} yet: checking against an empty one")
    with open_empty_registry() as empty:
        yield empty


def read_draft(path: Path) -> "Draft":
    """Read and check the manifest at ``path``, or in the folder ``path``."""
    from benchlock.api.local.local_registry import source_access  # noqa: PLC0415
    from benchlock.registry.publishing import drafts  # noqa: PLC0415

    file = path / MANIFEST if path.is_dir() else path
    others = [] if file.exists() else _find_manifests(path)
    text = output.read_text(
        file,
        next_step=f"use {', '.join(others) or f'a manifest, or a folder with a {MANIFEST}'}",
        recode=f"save it as UTF-8; to create a manifest of a model file, run benchlock init model {file}",
    )
    return drafts.read_draft(text, str(file), file.absolute(), source_access())


def _find_manifests(folder: Path) -> list[str]:
    """Return the first manifests in a folder, whatever their names."""

    def is_manifest(path: Path) -> bool:
        with path.open("rb") as file:
            return re.search(rb"^kind:", file.read(_HEAD_BYTES), re.MULTILINE) is not None

    paths = (path for path in sorted(folder.glob("*.y*ml")) if path.is_file() and os.access(path, os.R_OK))
    return [str(path) for path in islice(filter(is_manifest, paths), _MAX_LISTED)]


def published_line(published: "PublishResult", *, dry_run: bool = False) -> str:
    """Describe the result of a publication in one line."""
    verb = {(True, False): "published", (True, True): "would publish"}.get(
        (published.changed, dry_run), "already published:"
    )
    return f"{verb} {published.reference}  {published.digest}"


def published_document(published: "PublishResult") -> dict[str, Any]:
    """Return the JSON document of a published version."""
    reference = published.reference
    return {
        "kind": reference.kind,
        "name": reference.name,
        "version": str(reference.version),
        "digest": published.digest,
        "changed": published.changed,
    }


@click.command("list")
@click.argument("kind", metavar="[KIND]", default="", help="Only this kind: model, framework, dataset or image.")
@click.pass_obj
def list_artifacts(invocation: Invocation, kind: str) -> None:
    """List published artifacts.

    Example: benchlock list model
    """
    from benchlock.registry.names import parse_kind  # noqa: PLC0415

    entries = invocation.opened.catalogue.list(parse_kind(kind) if kind else None)
    if invocation.as_json:
        output.print_json({"artifacts": [entry_document(entry) for entry in entries]})
        return
    rows = [
        (
            f"{entry.reference.kind}/{entry.reference.name}",
            str(entry.reference.version),
            entry.published_at.strftime("%Y-%m-%d %H:%M"),
            f"yanked: {entry.yanked}" if entry.yanked is not None else "",
        )
        for entry in entries
    ]
    output.print_table(("artifact", "version", "published", ""), rows)


def entry_document(entry: "Entry") -> dict[str, Any]:
    """Return the JSON document of an entry of the catalogue."""
    return {
        "kind": entry.reference.kind,
        "name": entry.reference.name,
        "version": str(entry.reference.version),
        "digest": entry.digest,
        "published_at": entry.published_at.isoformat(),
        "yanked": entry.yanked,
    }


@click.command()
@TARGET
@click.pass_obj
def show(invocation: Invocation, target: str) -> None:
    """Show an artifact or a run.

    Example: benchlock show model/digits@1.0.0
    """
    if target.startswith(RUN_PREFIX):
        from benchlock.api.cli.run_history_commands import show_run  # noqa: PLC0415

        show_run(invocation, target)
        return
    _refuse_lock(target)
    _show_artifact(invocation, target)


def _refuse_lock(target: str) -> None:
    from benchlock.api.cli.lock_commands import ID_PREFIX  # noqa: PLC0415

    if target.startswith(ID_PREFIX) or (target.endswith(".lock") and Path(target).is_file()):
        step = f"benchlock runs --lock {target} lists its runs"
        raise InvalidInputError(
            f"{target} is a lock, not an artifact",
            where=target,
            next_step=step if target.startswith(ID_PREFIX) else f"open it in a text editor; {step}",
        )


def _show_artifact(invocation: Invocation, target: str) -> None:
    from benchlock.registry.manifests import plain  # noqa: PLC0415
    from benchlock.registry.manifests.model_card import card_path, read_card  # noqa: PLC0415

    entry = find_artifact(invocation, target)
    versions = invocation.opened.catalogue.versions(entry.reference.kind, entry.reference.name)
    manifest = invocation.opened.catalogue.manifest(entry.reference)
    document = entry_document(entry) | {
        "versions": [str(other.reference.version) for other in versions],
        "manifest": plain(manifest),
        "sources": dict(invocation.opened.catalogue.content(entry.reference)[1]),
        "card": card_path(manifest),
    }
    if invocation.as_json:
        output.print_json(document)
        return
    fields = {key: document[key] for key in ("digest", "published_at")}
    fields |= {"yanked": document["yanked"]} if document["yanked"] is not None else {}
    output.print_fields({"artifact": str(entry.reference), **fields, "versions": ", ".join(document["versions"])})
    if document["sources"]:
        output.echo()
        output.echo("sources")
        output.print_fields({f"  {path}": source for path, source in document["sources"].items()})
    output.echo()
    output.print_json(document["manifest"])
    card = read_card(manifest, invocation.opened.store)
    if card is not None:
        output.echo()
        output.echo(card.path)
        output.echo()
        output.echo_quoted(card.text.split("\n"))
        if card.cut:
            output.echo(f"… {card.cut} more characters: benchlock get {target}")


def find_artifact(invocation: Invocation, target: str) -> "Entry":
    """Return the newest version that ``target`` admits."""
    from benchlock.registry.names import parse_target  # noqa: PLC0415
    from benchlock.registry.versions.version_ranges import Constraint  # noqa: PLC0415

    kind, name, text = parse_target(target)
    return invocation.opened.catalogue.newest(kind, name, None if text is None else Constraint.parse(text))


@click.command()
@TARGET
@click.option(
    "-o",
    "--output",
    "out",
    metavar="DIR",
    type=click.Path(path_type=Path),
    help="Output folder; default: the name of the target.",
)
@click.pass_obj
def get(invocation: Invocation, target: str, out: Path | None) -> None:
    """Write the files of an artifact or a run to a folder.

    Files of a run are its predictions, samples and logs. Every file is verified.

    Example: benchlock get model/digits@1.0.0 -o digits
    """
    from benchlock.registry.publishing.artifact_export import export  # noqa: PLC0415

    if target.startswith(RUN_PREFIX):
        from benchlock.evaluator.records.run_types import parse_run_id  # noqa: PLC0415
        from benchlock.evaluator.workflows.blob_inventory import export_run  # noqa: PLC0415

        run = invocation.opened.records.get(parse_run_id(target))
        folder = out or Path(target.replace("/", "-"))
        count, more = export_run(run, invocation.opened.store, folder), ""
    else:
        reference = find_artifact(invocation, target).reference
        folder = out or Path(f"{reference.name.replace('/', '-')}-{reference.version}")
        manifest = invocation.opened.catalogue.manifest(reference)
        count, more = export(manifest, invocation.opened.store, folder, invocation.progress), " and their manifest"
    if invocation.as_json:
        output.print_json({"target": target, "folder": str(folder), "files": count})
    else:
        output.echo(f"{count} file{'s' * (count != 1)}{more} in {folder}")


@click.command()
@click.argument("target", metavar="KIND/NAME@VERSION", help="Version to yank.")
@click.option("--reason", default="", help="Why the version should not be used.")
@click.option("--undo", is_flag=True, help="Undo the yank.")
@click.pass_obj
def yank(invocation: Invocation, target: str, reason: str, *, undo: bool) -> None:
    """Exclude a version from new resolutions.

    Existing locks keep the version.

    Example: benchlock yank model/digits@1.0.0 --reason "wrong labels"
    """
    from benchlock.registry.names import parse_reference  # noqa: PLC0415

    reference = parse_reference(target)
    catalogue = invocation.opened.catalogue
    changed = catalogue.unyank(reference) if undo else catalogue.yank(reference, reason)
    if invocation.as_json:
        output.print_json({"target": str(reference), "yanked": not undo, "changed": changed})
    else:
        output.echo(f"{reference} is {'no longer yanked' if undo else 'yanked'}{'' if changed else ' already'}")
