"""Inspection in a child process with limits, which isolates the parsers of foreign files."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final

from benchlock.artifacts.blob_store import BlobReader
from benchlock.artifacts.digest import Descriptor, Digest
from benchlock.artifacts.errors import BenchlockError
from benchlock.artifacts.isolation.child_process import unpack_error
from benchlock.artifacts.isolation.isolated_calls import run_isolated
from benchlock.artifacts.isolation.resource_limits import IsolatedFaultError, LimitExceededError, Limits
from benchlock.registry.inspection.draft_content import DraftContent
from benchlock.registry.inspection.file_inspection import inspect_manifest
from benchlock.registry.inspection.image_inspection import Ask, check_finished
from benchlock.registry.manifests import Image, Manifest, files_of
from benchlock.registry.text.collected_problems import Problems

LIMITS: Final = Limits(memory=3 << 29, cpu_seconds=60, seconds=300.0, files=64, result=16 << 20)
"""The limits of the inspection of one version."""
_SHOWN: Final = 100
_CHILD: Final = "benchlock.registry.inspection.file_inspection"


@dataclass(frozen=True, slots=True)
class InspectionTarget:
    """The files of one version.

    ``name`` is the name of its manifest in errors. ``untaken`` has the paths that could not be ingested.
    """

    manifest: Manifest
    name: str
    store: BlobReader
    files: Mapping[str, Descriptor]
    untaken: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class MissingFiles:
    """Files inside trees that the store lacks: the first paths, all digests, and their number."""

    paths: tuple[str, ...] = ()
    digests: tuple[Digest, ...] = ()
    count: int = 0


def inspect_version(
    version: InspectionTarget, problems: Problems, *, ask: Ask | None, warn: Callable[[str], None], present: bool = True
) -> MissingFiles:
    """Compare a manifest with its files, in a child process if there are any.

    Args:
        version: The manifest, and its files and trees by path.
        problems: Receives what is wrong.
        ask: Looks up the configuration of finished images, in this process; None if that is not allowed.
        warn: Receives what is unusual.
        present: Whether the files inside trees are known to be in the store. Otherwise their presence and sizes are
            checked first, and nothing else if one is missing.

    Returns:
        The files inside trees that are not in the store.

    Raises:
        UnavailableError: No child process can be started, or the store failed.
        InvalidInputError, IntegrityError: A tree is malformed, or a file has another size than declared.
    """
    manifest = version.manifest
    if not files_of(manifest):
        inspect_manifest(manifest, DraftContent(version.name, version.store, {}), problems, ask=ask, warn=warn)
        return MissingFiles()
    if isinstance(manifest, Image) and ask is not None:
        check_finished(manifest, DraftContent(version.name, version.store, {}), problems, ask)
    try:
        report = _run("inspect_files", version, {"present": present})
    except (LimitExceededError, IsolatedFaultError) as error:
        problems.add(error)
        return MissingFiles()
    for packed in report["problems"]:
        problems.add(unpack_error(packed))
    for warning in report["warnings"]:
        warn(warning)
    missing = report["missing"]
    return MissingFiles(tuple(missing["paths"]), tuple(map(Digest, missing["digests"])), missing["count"])


def find_code(version: InspectionTarget, paths: Collection[str]) -> BenchlockError | None:
    """Return the error about the first file at ``paths``, or in a tree there, that executes code when it is read.

    Raises:
        LimitExceededError: A file is too large or too deeply nested to be inspected.
        UnavailableError: No child process can be started, or the store failed.
    """
    packed = _run("find_code", version, {"paths": list(paths)})
    return None if packed is None else unpack_error(packed)


def _run(function: str, version: InspectionTarget, more: dict[str, Any]) -> Any:  # noqa: ANN401 - plain values
    """Call a function of ``file_inspection`` in a child process."""
    arguments = {
        "manifest": version.manifest,
        "name": version.name,
        "files": [(path, blob.digest, blob.size) for path, blob in version.files.items()],
        "untaken": sorted(version.untaken),
        **more,
    }
    try:
        return run_isolated(
            f"{_CHILD}:{function}",
            arguments,
            limits=LIMITS,
            subject=f"the inspection of {version.manifest.kind} {version.manifest.name[:_SHOWN]}",
            blobs=version.store,
        )
    except (LimitExceededError, IsolatedFaultError) as error:
        path = next((path for path, blob in version.files.items() if blob.digest == error.blob), None)
        error.where = version.name if path is None else f"{path} ({version.name})"
        raise
