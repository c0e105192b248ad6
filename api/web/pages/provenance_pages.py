"""The page of a run's provenance: from its claims down to the sources of every file, as one nested list."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from msgspec import UNSET

from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.web.links import artifact_path, find_downloads, lock_path, name_run_file, run_path
from benchlock.api.web.page import Page
from benchlock.api.web.pages.lock_pages import list_image_files
from benchlock.artifacts.errors import BenchlockError
from benchlock.artifacts.size_limits import WORD
from benchlock.evaluator.analysis.tables import Column, Table
from benchlock.evaluator.evidence.recomputation import list_metric_roles
from benchlock.evaluator.harness_releases import is_released
from benchlock.evaluator.records.run_texts import describe_subject, name_question
from benchlock.evaluator.records.run_types import Run, RunId
from benchlock.evaluator.runner.job_folder import fingerprint_lock
from benchlock.evaluator.workflows.claim_verdicts import claims_of
from benchlock.registry.artifact_names import Kind, Reference, parse_name
from benchlock.registry.lock.lockfile import Lock, LockedArtifact
from benchlock.registry.manifests.metric_definitions import COST, is_quality
from benchlock.registry.versions.semantic_version import parse_version

_FILES: Final = 50
"""The number of files of an artifact that are listed."""

_DEEP: Final = 300
"""The number of items from which the lowest level is folded."""
_LOCAL: Final = "a local file"
_REMOTE: Final = ("https://", "http://", "hf://", "dvc://", "bundle:")
_DVC_LOCAL: Final = ("dvc:///", "dvc://.", "dvc://file:")
"""The beginnings of sources in a DVC repository of the machine that published."""

_SOURCES: Final = (
    Column("metrics", None, "The metrics."),
    Column("file", None, "The role of a file of the run, or a part of the lock."),
    Column("digest", None, "Its digest; of labels that of the dataset's manifest."),
)
_COLUMNS: Final = (
    Column("name", None, "The name of the array."),
    Column("of", None, "What has a value."),
    Column("unit", None, "The unit of the values."),
    Column("meaning", None, "What they are."),
)
_ROWS: Final = (
    ("latency_ns", "each query or call", "ns", "its latency"),
    ("cpu_ns", "each query or call", "ns", "the CPU time of the process during it"),
    ("preempted", "each query or call", "", "how often another process took its CPU"),
    ("start_ns, end_ns", "each query or call", "ns", "when it was requested, and when its answer was there"),
    ("before_ns", "each query or call", "ns", "how long after the request the clock of its latency started"),
    ("samples", "each query or call", "samples", "its number of samples"),
    ("index", "each sample", "", "its place in the split, in the order of the queries"),
    ("warmup_ns", "each warm-up call", "ns", "its latency, which no metric includes"),
)


@dataclass(frozen=True, slots=True)
class Node:
    """An item of a provenance: its text, digest, page or file, and sources."""

    words: str
    digest: str = ""
    path: str | None = None
    parts: tuple["Node", ...] = ()

    @property
    def count(self) -> int:
        """The number of items, with this one and all below it."""
        return 1 + sum(part.count for part in self.parts)


def make_provenance(registry: LocalRegistry, id_: RunId) -> Page:
    """Make the page of a run's provenance.

    Raises:
        UnknownNameError: There is no such run.
    """
    run = registry.records.get(id_)
    lock = registry.read_lock(run.start.lock)
    path = run_path(run.id)
    title = f"Provenance of {name_question(lock)}"
    root = _describe_run(registry, run, lock)
    context = {
        "run": run,
        "summary": describe_subject(lock),
        "root": root,
        "folds": root.count >= _DEEP,
        "fingerprint": fingerprint_lock(lock),
        "statements": tuple(_list_statements(registry, run, lock)),
    }
    tables = {
        "metrics": _tabulate_sources(run, lock),
        "columns": Table("columns", "Columns of samples", _COLUMNS, _ROWS),
    }
    return Page("provenance", title, context, tables, f"/v1{path}", (("/runs", "Runs"), (path, run.id)))


def _list_statements(registry: LocalRegistry, run: Run, lock: Lock) -> Iterator[str]:
    """Yield who states what about the run, and what this registry could check of it."""
    imported = (
        "" if run.imported_at is None else f"; it was imported on {run.imported_at:%Y-%m-%d} from another registry"
    )
    yield f"The record of the run is a statement of the machine that ran it{imported}. It is not signed."
    if run.evidence is None:
        yield "The metrics were not yet recomputed from the evidence."
    else:
        yield f"This registry on the metrics: the record {run.evidence.sentence}."
    yield "The lock states versions and digests. It is not signed; its id is the digest of its content, checked here."
    try:
        verdicts = claims_of(lock, run, registry.store)
    except BenchlockError as error:
        yield f"The claims of the model could not be compared with this run: {error.what}"
        return
    for verdict in verdicts:
        claim = verdict.claim
        what = f"{claim.metric} of {claim.value:g} ± {claim.tolerance:g}"
        yield f"The author of the model claims a {what}, unsigned; judged by this run: {verdict.answer}."


def describe_source(source: str) -> str:
    """Describe the source of a file for pages: of a local file, its name alone, as paths tell of a machine."""
    lower = source.lower()
    if lower.startswith(_REMOTE) and not lower.startswith(_DVC_LOCAL):
        return source
    name = source.rstrip("/").rpartition("/")[2]
    return f"{_LOCAL}, {name}" if name.strip(".") else _LOCAL


def _tabulate_sources(run: Run, lock: Lock) -> Table:
    """Return a row for each file of each group of metrics that are computed from the same files."""
    groups: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for metric in () if run.end is None else run.end.metrics:
        groups.setdefault(tuple(_list_sources(metric.name, run, lock)), []).append(metric.key)
    rows = tuple((", ".join(names), *source) for sources, names in groups.items() for source in sources)
    return Table("metrics", "From which files each metric is recomputed", _SOURCES, rows)


def _list_sources(metric: str, run: Run, lock: Lock) -> Iterator[tuple[str, str]]:
    """Yield the files and documents from which a metric is recomputed, each with its digest."""
    blobs = {} if run.end is None else run.end.blobs
    if lock.dataset is UNSET:  # every metric of an operator is recomputed from all files of the run
        yield from ((role, blob.digest) for role, blob in sorted(blobs.items()))
        yield f"the manifest of operator {lock.subject.name} {lock.subject.version}", lock.subject.digest
        return
    yield from ((role, blobs[role].digest) for role in list_metric_roles(metric) if role in blobs)
    if is_quality(metric):
        dataset = lock.dataset
        yield f"the labels of split {dataset.split} of {dataset.name} {dataset.version}", dataset.digest
    if metric in {COST, "throughput_per_core"}:
        yield f"the {'price' if metric == COST else 'number of CPUs'} in the lock", lock.id


def _describe_run(registry: LocalRegistry, run: Run, lock: Lock) -> Node:
    blobs = () if run.end is None else sorted(run.end.blobs.items())
    evidence = Node(
        "evidence: the files from which the metrics are recomputed",
        parts=tuple(_describe_file(registry, role, blob.digest, name_run_file(run.id, role)) for role, blob in blobs),
    )
    state = "not yet compared with its files" if run.evidence is None else run.evidence.words
    imported = "" if run.imported_at is None else ", imported from another registry"
    return Node(
        f"{run.id} on {run.start.platform_name}, {state}{imported}",
        path=run_path(run.id),
        parts=(evidence, _describe_lock(registry, lock)),
    )


def _describe_file(registry: LocalRegistry, words: str, digest: str, name: str) -> Node:
    """Return a file, with the path that downloads it under a name if it is stored."""
    downloads = find_downloads(registry.store, [digest] if digest else [], {digest: name})
    return Node(words, digest, downloads.get(digest))


def _describe_lock(registry: LocalRegistry, lock: Lock) -> Node:
    harness = "a released harness" if is_released(lock.harness) else "not a released harness"
    words = f"the harness {lock.harness.version}: {harness}"
    artifacts = tuple(_describe_artifact(registry, lock, kind, artifact) for kind, artifact in lock.artifacts().items())
    return Node(
        "the lock",
        lock.id,
        lock_path(lock.id),
        (*artifacts, _describe_file(registry, words, lock.harness.digest, f"harness-{lock.harness.version}.zip")),
    )


def _describe_artifact(registry: LocalRegistry, lock: Lock, kind: Kind, artifact: LockedArtifact) -> Node:
    """Return a locked artifact with the sources of its files, or with what is known if it is not published here."""
    name, path = f"{kind} {artifact.name} {artifact.version}", artifact_path(kind, artifact.name, artifact.version)
    try:
        entry, _, sources = registry.catalogue.read(
            Reference(kind, parse_name(artifact.name), parse_version(artifact.version))
        )
    except BenchlockError:
        return Node(f"{name}, not published in this registry", artifact.digest)
    if entry.digest != artifact.digest:
        return Node(f"{name}; this registry has another manifest under this version", artifact.digest)
    locked = list_image_files(lock) if kind == "image" else artifact.files
    digests = {file.path: f"sha256:{file.sha256}" for file in locked}
    files = tuple(dict.fromkeys((*digests, *sources)))
    listed = tuple(
        _describe_file(
            registry,
            f"{file} from {describe_source(sources[file])}" if file in sources else file,
            digests.get(file, ""),
            PurePosixPath(file).name[-WORD:],
        )
        for file in files[:_FILES]
    )
    more = len(files) - len(listed)
    parts = (*listed, *([Node(f"{more} more files")] if more > 0 else ()))
    yanked = "" if entry.yanked is None else ", yanked"
    return Node(f"{name}, published {entry.published_at:%Y-%m-%d}{yanked}", entry.digest, path, parts)
