"""Manifests of candidates, to publish what a test says as plain values."""

from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import msgspec
from sqlalchemy import Connection, Table, insert

from benchlock.artifacts.digest import digest_bytes, to_hex
from benchlock.registry.catalogue.version_rows import key_of, rows_of_version
from benchlock.registry.database.registry_schema import versions
from benchlock.registry.manifests import Manifest
from benchlock.registry.manifests.manifest_content import reference_of
from benchlock.registry.resolution.resolver_types import Candidate

BLOB = digest_bytes(b"blob")
FILE = {"sha256": to_hex(BLOB), "size": 4}
INPUT = {
    "name": "x",
    "type": "image",
    "dtype": "float32",
    "shape": [None, 8, 8, 1],
    "layout": "NHWC",
    "steps": [{"decode": {"color": "L", "exif": "ignore"}}, {"cast": {"dtype": "float32"}}],
}


def manifest(candidate: Candidate) -> Manifest:
    """A manifest of which the catalogue makes ``candidate``, but for its digest and whether it is yanked."""
    parts = {"model": _model, "dataset": _dataset, "framework": _framework, "image": _image}[candidate.kind]
    version = str(candidate.version)
    document = {"schema": 1, "kind": candidate.kind, "name": candidate.name, "version": version, "license": "MIT"}
    made: Manifest = msgspec.convert(document | parts(candidate), Manifest)
    return made


def _model(candidate: Candidate) -> dict[str, Any]:
    ((_, framework, versions),) = candidate.requires
    return {
        "task": "image-classification",
        "framework": {"name": framework, "version": versions},
        "format": "onnx",
        "inputs": [INPUT],
        "outputs": [{"name": "y", "type": "class-scores", "dtype": "float32", "label_offset": 0}],
        "files": [{"path": "net.onnx", "role": "graph", **FILE}],
    }


def _dataset(_: Candidate) -> dict[str, Any]:
    splits = {"test": {"samples": 1, "images": "images.idx"}}
    return {"format": "idx", "splits": splits, "files": [{"path": "images.idx", **FILE}]}


def _framework(_: Candidate) -> dict[str, Any]:
    return {"predictor": "onnxruntime", "distributions": ["onnxruntime"]}


def _image(candidate: Candidate) -> dict[str, Any]:
    assert candidate.provides is not None
    framework, version = candidate.provides
    platforms = [
        {"os": os, "arch": arch, "device": device, "python": python}
        | ({"config": BLOB, "layers": [BLOB]} if layered else {})
        for os, arch, device, python, layered in candidate.platforms
    ]
    return {"provides": {"framework": framework, "version": str(version)}, "platforms": platforms}


def fill(connection: Connection, candidates: Iterable[Candidate], at: datetime) -> None:
    """Publish many at once, without their manifests; ``candidates`` have each a digest of its own."""
    for table, rows in rows_of(candidates, at):
        if rows:
            connection.execute(insert(table), rows)


def rows_of(candidates: Iterable[Candidate], at: datetime) -> list[tuple[Table, list[dict[str, Any]]]]:
    """The rows by which they are published, table by table in the order in which these are written."""
    found: defaultdict[Table, list[dict[str, Any]]] = defaultdict(list)
    for candidate in candidates:
        published = manifest(candidate)
        place, version, parts = key_of(reference_of(published)), *rows_of_version(published)
        for table, some in parts:
            found[table] += [place | row for row in some]
        found[versions].append(place | version | {"digest": candidate.digest, "published_at": at})
    return sorted(found.items(), key=lambda rows: rows[0] is versions)
