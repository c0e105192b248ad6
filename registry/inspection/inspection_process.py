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
from benchlock.registry.inspection.image_files import Ask, check_finished
from benchlock.registry.manifests import Image, Manifest, files_of
from benchlock.registry.manifests.manifest_content import plain
from benchlock.registry.text.problems import Problems

LIMITS: Final = Limits(memory=3 << 29, cpu_seconds=60, seconds=300.0, files=64, result=16 << 20)
"""The limits of the inspection of one version."""
_SHOWN: Final = 100
_CHILD: Final = "benchlock.registry.inspection.file_inspection"


@dataclass(frozen=True, slots=True)
class InspectionTarget:
    """The files of one version. ``name`` is what errors call its manifest; ``untaken`` are paths without bytes."""

    manifest: Manifest
    name: str
    store: BlobReader
    files: Mapping[str, Descriptor]
    untaken: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class MissingFiles:
    """Files inside trees that the store does not have: the first paths, and all digests that were listed."""

    paths: tuple[str, ...] = ()
    digests: tuple[Digest, ...] = ()
    count: int = 0


def inspect_version(
    version: InspectionTarget, problems: Problems, *, ask: Ask | None, warn: Callable[[str], None], present: bool = True
) -> MissingFiles:
    """Compare a manifest with its files, in a child process where there are any.

    Args:
        version: The manifest, and its files and trees by path.
        problems: What is wrong goes there.
        ask: Looks finished images up, in this process; None where it may not.
        warn: Is told what is odd.
        present: Whether the files inside trees are known to be in the store. Where they are not, their presence and
            sizes are checked first, and nothing else is if one is missing.

    Returns:
        The files inside trees that are not in the store.

    Raises:
        UnavailableError: no child process can be started, or the store failed.
        InvalidInputError, IntegrityError: a tree is malformed, or a file has another size than it says.
    """
    manifest = version.manifest
    if not files_of(manifest):
        inspect_manifest(manifest, DraftContent(version.name, version.store, {}), problems, ask=ask, warn=warn)
        return MissingFiles()
    if isinstance(manifest, Image) and ask is not None:
        check_finished(manifest, DraftContent(version.name, version.store, {}), problems, ask)
    try:
        found = _run("inspect_files", version, {"present": present})
    except (LimitExceededError, IsolatedFaultError) as error:
        problems.add(error)
        return MissingFiles()
    for packed in found["problems"]:
        problems.add(unpack_error(packed))
    for warning in found["warnings"]:
        warn(warning)
    missing = found["missing"]
    return MissingFiles(tuple(missing["paths"]), tuple(map(Digest, missing["digests"])), missing["count"])


def find_code(version: InspectionTarget, paths: Collection[str]) -> BenchlockError | None:
    """Find the first of the files at ``paths``, and in trees there, that runs code when it is read.

    Raises:
        LimitExceededError: a file is too large or too deep to be looked into.
        UnavailableError: no child process can be started, or the store failed.
    """
    found = _run("find_code", version, {"paths": list(paths)})
    return None if found is None else unpack_error(found)


def _run(function: str, version: InspectionTarget, more: dict[str, Any]) -> Any:  # noqa: ANN401 - plain values
    arguments = {
        "manifest": plain(version.manifest),
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
            what=f"the inspection of {version.manifest.kind} {version.manifest.name[:_SHOWN]}",
            blobs=version.store,
        )
    except (LimitExceededError, IsolatedFaultError) as error:
        path = next((path for path, blob in version.files.items() if blob.digest == error.blob), None)
        error.where = version.name if path is None else f"{path} ({version.name})"
        raise
