"""The paths of pages and of stored files, and which cells of tables lead to them."""

from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from types import MappingProxyType
from urllib.parse import quote, urlencode

from benchlock.artifacts.blob_store import BlobStore
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import UnavailableError
from benchlock.evaluator.analysis.tables import Cell
from benchlock.evaluator.runner.run_outcome import FILES
from benchlock.registry.artifact_names import KINDS

_PREFIXES = {
    "run": ("run/", "/runs/"),
    "job": ("job/", "/jobs/"),
    "lock": ("sha256:", "/locks/sha256:"),
    "samples": ("sha256:", "/v1/blobs/sha256:"),
    "comparison": ("", "/comparisons/"),
    "matrix": ("sha256:", "/matrices/sha256:"),
}


def artifact_path(kind: str, name: str, version: str | None = None) -> str:
    """Return the path of the page of an artifact: its newest version, or one version."""
    return f"/{kind}/{quote(name)}" + ("" if version is None else f"@{quote(version)}")


def run_path(run: str) -> str:
    """Return the path of the page of a run."""
    return f"/runs/{run.removeprefix('run/')}"


def job_path(job: str) -> str:
    """Return the path of the page of a job."""
    return f"/jobs/{job.removeprefix('job/')}"


def lock_path(lock: str) -> str:
    """Return the path of the page of a lock."""
    return f"/locks/{lock}"


def lock_diff_path(before: str, after: str) -> str:
    """Return the path of the differences between two locks, given by their ids or the beginnings of them."""
    return f"/locks/{quote(before, safe=':')}...{quote(after, safe=':')}"


def compare_path(runs: Iterable[str], *, anyway: bool = False) -> str:
    """Return the path of the comparison of runs; with ``anyway``, even if they are not comparable."""
    return f"/compare?{urlencode([*(('run', run) for run in runs), *([('anyway', '1')] if anyway else [])], safe='/')}"


def comparison_path(comparison: str) -> str:
    """Return the path of the page of an interleaved comparison."""
    return f"/comparisons/{comparison}"


def matrix_path(matrix: str) -> str:
    """Return the path of the page of a matrix."""
    return f"/matrices/{matrix}"


def used_by_path(target: str, versions: str = "", locks: str = "") -> str:
    """Return the path of what uses ``KIND/NAME@VERSION``, at the places of two cursors."""
    return with_query("/used-by", target=target, versions=versions, locks=locks)


def leaderboard_path(dataset: str, split: str) -> str:
    """Return the path of the leaderboards of a dataset, ``NAME@VERSION``, and one of its splits."""
    return with_query("/leaderboards", dataset=dataset, split=split)


def find_downloads(
    store: BlobStore, digests: Iterable[str], names: Mapping[str, str] = MappingProxyType({})
) -> Mapping[str, str]:
    """Return the paths of those files that are stored, by digest.

    Args:
        store: The store.
        digests: The digests, with or without the algorithm.
        names: The names of the downloaded files, by digest as given; a file without one is named by its digest.
    """
    full = {text: Digest(text if ":" in text else f"sha256:{text}") for text in digests}
    try:
        return {
            text: with_query(f"/v1/blobs/{digest}", name=names.get(text))
            for text, digest in full.items()
            if store.exists(digest)
        }
    except UnavailableError:
        return {}


def name_run_file(run: str, role: str) -> str:
    """Return the name under which a file of a run is downloaded: its role, the id of the run and its type."""
    suffix = PurePosixPath(FILES.get(role, f"{role}.txt")).suffix
    return f"{role}-{run.removeprefix('run/')}{suffix}"


def with_query(path: str, **parameters: str | None) -> str:
    """Return a path with the parameters that have a value."""
    given = {name: value for name, value in parameters.items() if value}
    return f"{path}?{urlencode(given)}" if given else path


def link_cell(column: str, value: Cell) -> str | None:
    """Return the path of the page that a cell names; None if it names none."""
    if not isinstance(value, str):
        return None
    if column in _PREFIXES:
        prefix, path = _PREFIXES[column]
        return path + value.removeprefix(prefix) if value.startswith(prefix) else None
    if column == "leaderboard":
        name, _, rest = value.partition("@")
        version, _, split = rest.partition("/")  # a split may contain a slash
        return leaderboard_path(f"{name}@{version}", split)
    kind, _, name = value.partition("/")
    if column in ("artifact", "trained on") and kind in KINDS:
        name, _, version = name.partition("@")
        return artifact_path(kind, name, version or None)
    return None
