"""Manifests of users: read as drafts, checked and published."""

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from benchlock.api.client.user_files import read_text
from benchlock.api.local.container_registry_access import look_up_leniently
from benchlock.api.local.local_registry import source_access
from benchlock.artifacts.blob_store import BlobStore
from benchlock.artifacts.user_output import Progress
from benchlock.registry.catalogue.catalogue_protocol import CatalogueProtocol, PublishResult
from benchlock.registry.publishing import drafts
from benchlock.registry.publishing.publication import Draft, dry_run_publish_all, publish_all

MANIFEST: Final = "manifest.yaml"
_MAX_LISTED: Final = 10
_HEAD_BYTES: Final = 4096
"""Bytes at the start of a file that are searched for a manifest's ``kind``."""


@dataclass(frozen=True, slots=True)
class Publisher:
    """Publishes drafts into a registry.

    Attributes:
        catalogue: The catalogue of the registry.
        store: The store for the files.
        progress: Shows the progress of long steps.
        say: Gets messages for people.
        warn: Gets messages about oddities that do not prevent publishing.
    """

    catalogue: CatalogueProtocol
    store: BlobStore
    progress: Progress
    say: Callable[[str], None]
    warn: Callable[[str], None]

    def publish(self, drafts: Sequence[Draft], *, dry_run: bool) -> tuple[PublishResult, ...]:
        """Publish drafts, or with ``dry_run`` check everything without publishing. Raise as ``publish_all``."""
        drafts = [replace(draft, ask=partial(look_up_leniently, self.store, self.say)) for draft in drafts]
        if dry_run:
            return dry_run_publish_all(drafts, self.catalogue, self.store, progress=self.progress, warn=self.warn)
        return publish_all(drafts, self.store, self.catalogue, progress=self.progress, warn=self.warn)


def read_draft(path: Path) -> Draft:
    """Read and check the manifest at ``path``, or in the folder ``path``."""
    file = path / MANIFEST if path.is_dir() else path
    others = [] if file.exists() else _find_manifests(path)
    text = read_text(
        file,
        next_step=f"use {', '.join(others) or f'a manifest, or a folder with a {MANIFEST}'}",
        recode=f"save it as UTF-8; to create a manifest of a model file, run benchlock init model {file}",
    )
    return drafts.read_draft(text, str(file), file.absolute(), source_access())


def _find_manifests(folder: Path) -> list[str]:
    """Return the first manifests in a folder, whatever their names."""

    def is_manifest(path: Path) -> bool:
        with path.open("rb") as file:
            return re.search(rb"^kind:(?! *(evaluation|matrix))", file.read(_HEAD_BYTES), re.MULTILINE) is not None

    paths = (path for path in sorted(folder.glob("*.y*ml")) if path.is_file() and os.access(path, os.R_OK))
    return [str(path) for path in islice(filter(is_manifest, paths), _MAX_LISTED)]
