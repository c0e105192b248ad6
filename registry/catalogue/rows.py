"""What the catalogue writes of a manifest or a lock: pure functions from the types to rows."""

from collections.abc import Iterable
from typing import Any

from msgspec import UNSET
from sqlalchemy import Table

from benchlock.artifacts.digest import Digest, from_hex
from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.catalogue.tables import environments, files, platforms, requirements
from benchlock.registry.lockfile import Lock
from benchlock.registry.manifests import File, Image, Manifest, Model, files_of
from benchlock.registry.named import named
from benchlock.registry.names import Reference
from benchlock.registry.versions import key, parse_version

Values = dict[str, Any]


def key_of(reference: Reference) -> Values:
    """The key of the reference's rows: equal for versions that differ only in build metadata."""
    return {"kind": reference.kind, "name": reference.name, "precedence": key(reference.version)}


def rows_of_version(manifest: Manifest) -> tuple[Values, Iterable[tuple[Table, list[Values]]]]:
    """The manifest's own columns of its version's row; then the rows that belong to it, without the version's key."""
    provides: Values = {"framework": None, "framework_version": None}
    if isinstance(manifest, Image):
        provides = {"framework": manifest.provides.framework, "framework_version": manifest.provides.version}
    parts = (
        (files, [_file(file) for file in files_of(manifest)]),
        (requirements, _requirements(manifest)),
        (platforms, _platforms(manifest)),
        (environments, _environments(manifest)),
    )
    return {"version": manifest.version} | provides, parts


def rows_of_lock(lock: Lock) -> tuple[Values, list[Values]]:
    """The lock's columns but for its text and time, and a row for each blob that it names, without the lock's key."""
    row: dict[str, Any] = {"id": lock.id, "request": lock.request.get("name", "")}
    for kind, artifact in lock.artifacts().items():
        row |= {kind: artifact.name, f"{kind}_version": artifact.version}
    trees: dict[Digest, bool] = {}
    for one in named(lock):
        trees[one.digest] = trees.get(one.digest, False) or one.sort == "tree"
    return row, [{"digest": digest, "tree": tree} for digest, tree in sorted(trees.items())]


def _is_tree(path: str) -> bool:
    return path.endswith("/")


def _file(file: File) -> Values:
    if file.sha256 is UNSET or file.size is UNSET:
        raise InvalidInputError(f"{file.path} has no digest", next_step="publish it from its source")
    return {
        "path": file.path,
        "digest": from_hex(file.sha256),
        "size": file.size,
        "tree": _is_tree(file.path),
    }


def _requirements(manifest: Manifest) -> list[Values]:
    if not isinstance(manifest, Model):
        return []
    framework = manifest.framework
    return [{"required_kind": "framework", "required_name": framework.name, "range": framework.version}]


def _platforms(manifest: Manifest) -> list[Values]:
    if not isinstance(manifest, Image):
        return []
    return [
        {
            "os": platform.os,
            "arch": platform.arch,
            "device": platform.device,
            "python": platform.python,
            "layered": platform.layers is not UNSET or platform.reference is not UNSET,
        }
        for platform in manifest.platforms
    ]


def _environments(manifest: Manifest) -> list[Values]:
    if not isinstance(manifest, Image):
        return []
    provided = manifest.provides
    framework = {"framework": provided.framework, "framework_precedence": key(parse_version(provided.version))}
    places = dict.fromkeys((one.os, one.arch, one.device) for one in manifest.platforms)
    return [{"os": os, "arch": arch, "device": device} | framework for os, arch, device in places]
