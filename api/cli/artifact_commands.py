"""Commands for published artifacts: list, show, get and yank."""

from pathlib import Path
from typing import Any, get_args

import click

from benchlock.api.cli import output
from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.run_options import RUN_PREFIX, complete_run_target, suggest_kinds, suggest_targets
from benchlock.api.client.user_files import ID_PREFIX
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.records.run_types import parse_run_id
from benchlock.registry.artifact_names import parse_kind, parse_name, parse_reference, parse_tag, parse_target
from benchlock.registry.catalogue.catalogue_protocol import ContentFilter, Entry
from benchlock.registry.manifests import plain
from benchlock.registry.manifests.manifest_types import Task
from benchlock.registry.manifests.model_card import card_path, read_card
from benchlock.registry.publishing.oci_artifacts import export
from benchlock.registry.versions.version_ranges import Constraint

TARGET = click.argument(
    "target",
    metavar="KIND/NAME[@CONSTRAINT]|RUN",
    shell_complete=suggest_targets,
    callback=complete_run_target,
    help="Artifact or run.",
)


@click.command("list")
@click.argument(
    "kind",
    metavar="[KIND]",
    default="",
    shell_complete=suggest_kinds,
    help="Only this kind: model, framework, dataset, image or operator.",
)
@click.option("--task", type=click.Choice(get_args(Task)), default=None, help="Only models for this task.")
@click.option(
    "--framework", metavar="NAME", default="", help="Only models that need this framework, and images that provide it."
)
@click.option(
    "--search", metavar="TEXT", default="", help="Only artifacts with this text in name, description or tags."
)
@click.option("--tag", metavar="TAG", default="", help="Only artifacts with this tag.")
@click.pass_obj
def list_artifacts(invocation: Invocation, kind: str, task: Task | None, framework: str, search: str, tag: str) -> None:
    """List published artifacts.

    Example: benchlock list model --task image-classification --tag vision
    """
    wanted_tag = parse_tag(tag) if tag else None
    content = ContentFilter(task, parse_name(framework) if framework else None, search or None, wanted_tag)
    entries = invocation.opened.catalogue.list(parse_kind(kind) if kind else None, content)
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
    output.print_table(("artifact", "version", "published", "remarks"), rows)


def entry_document(entry: Entry) -> dict[str, Any]:
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
        from benchlock.api.cli.run_history_commands import show_run  # noqa: PLC0415 - 10 ms that `list` does not need

        show_run(invocation, target)
        return
    _refuse_lock(target)
    _show_artifact(invocation, target)


def _refuse_lock(target: str) -> None:
    if target.startswith(ID_PREFIX) or (target.endswith(".lock") and Path(target).is_file()):
        step = f"benchlock runs --lock {target} lists its runs"
        raise InvalidInputError(
            f"{target} is a lock, not an artifact",
            where=target,
            next_step=step if target.startswith(ID_PREFIX) else f"open it in a text editor; {step}",
        )


def _show_artifact(invocation: Invocation, target: str) -> None:
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


def find_artifact(invocation: Invocation, target: str) -> Entry:
    """Return the newest version that ``target`` admits."""
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
    if target.startswith(RUN_PREFIX):
        from benchlock.evaluator.workflows.blob_inventory import export_run  # noqa: PLC0415 - 20 ms that `list` does not need

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
@click.argument("target", metavar="KIND/NAME@VERSION", shell_complete=suggest_targets, help="Version to yank.")
@click.option("--reason", default="", help="Why the version should not be used.")
@click.option("--undo", is_flag=True, help="Undo the yank.")
@click.pass_obj
def yank(invocation: Invocation, target: str, reason: str, *, undo: bool) -> None:
    """Exclude a version from new resolutions.

    Existing locks keep the version.

    Example: benchlock yank model/digits@1.0.0 --reason "wrong labels"
    """
    reference = parse_reference(target)
    catalogue = invocation.opened.catalogue
    changed = catalogue.unyank(reference) if undo else catalogue.yank(reference, reason)
    if invocation.as_json:
        output.print_json({"target": str(reference), "yanked": not undo, "changed": changed})
    else:
        output.echo(f"{reference} is {'no longer yanked' if undo else 'yanked'}{'' if changed else ' already'}")
