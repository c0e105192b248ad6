"""The page of a run's provenance: from its claims down to the sources of every file, as one nested list."""

from dataclasses import dataclass
from typing import Final

import msgspec

from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.web.links import artifact_path, find_downloads, lock_path, run_path
from benchlock.api.web.page import Page
from benchlock.artifacts.errors import BenchlockError
from benchlock.evaluator.harness_releases import is_released
from benchlock.evaluator.records.run_texts import describe_subject
from benchlock.evaluator.records.run_types import Run, RunId
from benchlock.registry.artifact_names import Kind, Reference, parse_name
from benchlock.registry.lock.lockfile import Lock, LockedArtifact
from benchlock.registry.versions.semantic_version import parse_version

_FILES: Final = 50
"""The number of sources of an artifact that are listed."""


@dataclass(frozen=True, slots=True)
class Node:
    """An item of a provenance: its text, digest, page or file, and sources."""

    words: str
    digest: str = ""
    path: str | None = None
    parts: tuple["Node", ...] = ()


def make_provenance(registry: LocalRegistry, id_: RunId) -> Page:
    """Make the page of a run's provenance.

    Raises:
        UnknownNameError: There is no such run.
    """
    run = registry.records.get(id_)
    lock = registry.read_lock(run.start.lock)
    path = run_path(run.id)
    title = f"Provenance of {lock.model.name} {lock.model.version} on {lock.dataset.name}"
    context = {"run": run, "summary": describe_subject(lock), "root": _describe_run(registry, run, lock)}
    return Page("provenance", title, context, {}, f"/v1{path}", (("/runs", "Runs"), (path, run.id)))


def _describe_run(registry: LocalRegistry, run: Run, lock: Lock) -> Node:
    blobs = () if run.end is None else sorted(run.end.blobs.items())
    evidence = Node(
        "evidence: the files from which the metrics are recomputed",
        parts=tuple(_describe_file(registry, role, blob.digest) for role, blob in blobs),
    )
    state = "not yet compared with its files" if run.evidence is None else run.evidence.words
    imported = "" if run.imported_at is None else ", imported from another registry"
    return Node(
        f"{run.id} on {run.start.platform_name}, {state}{imported}",
        path=run_path(run.id),
        parts=(evidence, _describe_lock(registry, lock)),
    )


def _describe_file(registry: LocalRegistry, words: str, digest: str) -> Node:
    """Return a file, with the path that downloads it if it is stored."""
    return Node(words, digest, find_downloads(registry.store, [digest] if digest else []).get(digest))


def _describe_lock(registry: LocalRegistry, lock: Lock) -> Node:
    harness = "a released harness" if is_released(lock.harness) else "not a released harness"
    artifacts = tuple(_describe_artifact(registry, kind, artifact) for kind, artifact in lock.artifacts().items())
    return Node(
        "the lock",
        lock.id,
        lock_path(lock.id),
        (*artifacts, _describe_file(registry, f"the harness {lock.harness.version}: {harness}", lock.harness.digest)),
    )


def _describe_artifact(registry: LocalRegistry, kind: Kind, artifact: LockedArtifact) -> Node:
    """Return a locked artifact with the sources of its files, or with what is known if it is not published here."""
    name, path = f"{kind} {artifact.name} {artifact.version}", artifact_path(kind, artifact.name, artifact.version)
    try:
        entry, manifest, sources = registry.catalogue.read(
            Reference(kind, parse_name(artifact.name), parse_version(artifact.version))
        )
    except BenchlockError:
        return Node(f"{name}, not published in this registry", artifact.digest)
    if entry.digest != artifact.digest:
        return Node(f"{name}; this registry has another manifest under this version", artifact.digest)
    digests = {file.get("path"): f"sha256:{file['sha256']}" for file in msgspec.json.decode(manifest).get("files", ())}
    listed = tuple(
        _describe_file(registry, f"{file} from {source}", digests.get(file, ""))
        for file, source in list(sources.items())[:_FILES]
    )
    more = len(sources) - len(listed)
    parts = (*listed, *([Node(f"{more} more files")] if more > 0 else ()))
    yanked = "" if entry.yanked is None else ", yanked"
    return Node(f"{name}, published {entry.published_at:%Y-%m-%d}{yanked}", entry.digest, path, parts)
