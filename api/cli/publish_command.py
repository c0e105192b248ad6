"""The commands publish and promote."""

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from benchlock.api.cli import output
from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.run_options import read_lock
from benchlock.api.client.draft_publication import Publisher, read_draft
from benchlock.api.local.local_registry import open_empty_registry
from benchlock.artifacts.blob_store import BlobStore
from benchlock.evaluator.records.run_types import parse_run_id
from benchlock.evaluator.workflows.promotion import write_trained_model
from benchlock.registry.artifact_names import parse_reference
from benchlock.registry.catalogue.catalogue_protocol import CatalogueProtocol, PublishResult
from benchlock.registry.publishing.drafts import Draft
from benchlock.registry.text.collected_problems import Problems


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
    problems, drafts, warnings = Problems(), list[Draft](), list[str]()
    for path in paths:
        with problems.noted():
            drafts.append(read_draft(path))
    rehearses = dry_run or bool(problems.found)  # after an error in one manifest, the others are still checked
    registry = invocation.find_registry() if rehearses else invocation.opened
    contents: AbstractContextManager[tuple[CatalogueProtocol, BlobStore]]
    if registry is None:
        output.say(f"no registry in {invocation.registry} yet: checking against an empty one")
        contents = open_empty_registry()
    else:
        contents = nullcontext((registry.catalogue, registry.store))
    with contents as (catalogue, store):
        publisher = Publisher(catalogue, store, invocation.progress, output.say, warnings.append)
        with problems.noted():
            results = publisher.publish(drafts, dry_run=rehearses)
    for warning in warnings:
        output.say(f"warning: {warning}")
    problems.refuse()
    if invocation.as_json:
        documents = [published_document(published) for published in results]
        output.print_json({"published": documents, "dry_run": dry_run, "warnings": warnings})
        return
    for published in results:
        output.echo(published_line(published, dry_run=dry_run))


@click.command()
@click.argument("run", metavar="RUN", help="A finished run of a training.")
@click.option("--as", "target", metavar="NAME@VERSION", required=True, help="Name and version of the new model.")
@click.option("--repeat", type=click.IntRange(min=0), default=0, show_default=True, help="Repeat to publish.")
@click.option("--below-target", is_flag=True, help="Publish also a repeat that missed the target.")
@click.pass_obj
def promote(invocation: Invocation, run: str, target: str, repeat: int, *, below_target: bool) -> None:
    """Publish the model that a run trained.

    The digest of the model contains its weights, the lock, the repeat and the seed.

    Example: benchlock promote run/01j0000000000000000000000a --as digits-cnn@1.0.0
    """
    registry = invocation.opened
    reference = parse_reference(f"model/{target.removeprefix('model/')}")
    record = registry.records.get(parse_run_id(run))
    lock = read_lock(invocation, record.start.lock)
    with TemporaryDirectory(prefix="benchlock-") as folder:
        path = write_trained_model(
            record, lock, registry.store, reference, Path(folder), repeat=repeat, below_target=below_target
        )
        publisher = Publisher(registry.catalogue, registry.store, invocation.progress, output.say, output.say)
        (published,) = publisher.publish([read_draft(path)], dry_run=False)
    if invocation.as_json:
        output.print_json(published_document(published))
    else:
        output.echo(published_line(published))


def published_line(published: PublishResult, *, dry_run: bool = False) -> str:
    """Describe the result of a publication in one line."""
    verb = {(True, False): "published", (True, True): "would publish"}.get(
        (published.changed, dry_run), "already published:"
    )
    return f"{verb} {published.reference}  {published.digest}"


def published_document(published: PublishResult) -> dict[str, Any]:
    """Return the JSON document of a published version."""
    reference = published.reference
    return {
        "kind": reference.kind,
        "name": reference.name,
        "version": str(reference.version),
        "digest": published.digest,
        "changed": published.changed,
    }
