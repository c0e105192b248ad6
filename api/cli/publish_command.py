"""The command publish, and drafts of manifests."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import click

from benchlock.api.cli import output
from benchlock.api.cli.command_group import Invocation
from benchlock.api.local.container_registry_access import look_up_leniently
from benchlock.api.local.local_registry import open_empty_registry, source_access
from benchlock.artifacts.blob_store import BlobStore
from benchlock.registry.catalogue.catalogue_protocol import CatalogueProtocol, PublishResult
from benchlock.registry.publishing import drafts
from benchlock.registry.publishing.publication import Draft, dry_run_publish_all, publish_all
from benchlock.registry.text.collected_problems import Problems

MANIFEST = "manifest.yaml"
_MAX_LISTED = 10
_HEAD_BYTES = 4096
"""Bytes at the start of a file that are searched for a manifest's ``kind``."""


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
def _open_contents(invocation: Invocation, *, creates: bool) -> Iterator[tuple[CatalogueProtocol, BlobStore]]:
    """Open the catalogue and store of the registry, or temporary empty ones if there is none and none is created."""
    registry = invocation.opened if creates else invocation.find_registry()
    if registry is not None:
        yield registry.catalogue, registry.store
        return
    output.say(f"no registry in {invocation.registry} yet: checking against an empty one")
    with open_empty_registry() as empty:
        yield empty


def read_draft(path: Path) -> Draft:
    """Read and check the manifest at ``path``, or in the folder ``path``."""
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
