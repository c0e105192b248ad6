"""Locks that differ from the shelf's in what a case file says: manifests, bytes, environments, requests."""

import io
import json
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from msgspec import structs

from benchlock.artifacts.blob_store import BlobStore
from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.artifacts.json_codec import encode_canonical
from benchlock.registry.artifact_names import Kind
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.catalogue.catalogue_protocol import Provenance
from benchlock.registry.lock.lock_feasibility import ChosenManifests
from benchlock.registry.lock.lockfile import Lock, LockedHarness, from_content, read
from benchlock.registry.manifests import Manifest, parse_published, plain
from benchlock.registry.manifests.manifest_content import content, manifest_digest
from benchlock.registry.resolution.resolver_types import ORDER
from tests.support.registry.authored import read_authored
from tests.support.resolution.locks import DATASET, FILES, FRAMEWORK, MODEL, Shelf, request

Patch = Mapping[str, Any]
"""Values by path, ``{"inputs.0.steps.1.cast.dtype": "float16"}``; null takes what stands there away."""

_TEMPLATES = {
    "model": MODEL.format(version="1.0.0", offset=0),
    "dataset": DATASET.format(version="1.0.0"),
    "framework": FRAMEWORK.format(version="1.31.1"),
}
_ENVIRONMENT = {
    "version": "1.0.0",
    "python": "3.11",
    "platforms": ["linux/amd64/cpu"],
    "wheels": ["numpy-2.3.0-py3-none-any.whl", "onnxruntime-1.31.1-py3-none-any.whl"],
    "layers": ["base", "numpy", "onnxruntime"],
    "config": "config",
}


@dataclass(frozen=True)
class Variant:
    """A lock, the manifests that it names, and the bytes of their files by kind and path."""

    lock: Lock
    manifests: Mapping[Digest, Manifest]
    files: Mapping[str, Mapping[str, bytes]]

    def publish(self, catalogue: Catalogue, store: BlobStore, kinds: Iterable[Kind] = ORDER) -> None:
        """Publish the artifacts of ``kinds``, in that order."""
        manifests = {manifest.kind: manifest for manifest in self.manifests.values()}
        for kind in kinds:
            for blob in (content(manifests[kind]), *self.files[kind].values()):
                store.put(io.BytesIO(blob))
            catalogue.publish(manifests[kind], Provenance("", {}))


def variant(case: Mapping[str, Any]) -> Variant:
    """The lock that ``case`` describes.

    ``model``, ``dataset`` and ``framework`` are patches of manifests (``files`` lists paths and roles); ``image``
    replaces parts of an environment; ``files`` has texts, or bytes, by ``KIND/PATH``; ``request`` replaces
    keys of the request; ``harness`` is its text; ``lock`` is a patch of the lock itself.
    """
    held = {kind: dict(FILES[kind]) for kind in ("model", "dataset", "framework")}
    for target, text in case.get("files", {}).items():
        kind, _, path = target.partition("/")
        held[kind][path] = text.encode() if isinstance(text, str) else text
    image, held["image"] = _image(_ENVIRONMENT | case.get("image", {}))
    documents = {kind: _patched(_authored(kind), case.get(kind, {})) for kind in _TEMPLATES} | {"image": image}
    made: dict[str, Any] = {kind: _published(documents[kind], held[kind]) for kind in documents}
    shelf = Shelf(ChosenManifests(made["model"], made["dataset"], made["framework"], made["image"]), held, {})
    lock = shelf.lock(request(**{key: json.dumps(value) for key, value in case.get("request", {}).items()}))
    if text := case.get("harness", "").encode():
        harness = LockedHarness(version=lock.harness.version, digest=digest_bytes(text), size=len(text))
        lock = from_content(structs.replace(lock, harness=harness))
    lock = read(_patched(deepcopy(lock.document), case.get("lock", {})), "case")
    return Variant(lock, {manifest_digest(one): one for one in shelf.chosen.all()}, {"framework": {}, **held})


def _authored(kind: str) -> dict[str, Any]:
    document: dict[str, Any] = plain(read_authored(_TEMPLATES[kind], "manifest.yaml"))
    return document


def _published(document: dict[str, Any], held: Mapping[str, bytes]) -> Manifest:
    for file in document.get("files", ()):
        file.pop("source", None)
        content = held[file["path"]]
        file |= {"sha256": sha256(content).hexdigest(), "size": len(content)}
    return parse_published(encode_canonical(document))


def _patched(document: dict[str, Any], patch: Patch) -> dict[str, Any]:
    for path, value in patch.items():
        *above, last = (int(part) if part.isdecimal() else part for part in path.split("."))
        place: Any = document
        for part in above:
            place = place[part]
        if value is None:
            del place[last]
        elif isinstance(place, list) and last == len(place):
            place.append(value)
        else:
            place[last] = value
    return document


def _image(environment: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, bytes]]:
    """The manifest of an image, its files without digests, and their bytes: a wheel or layer holds its own name."""
    layers = None if environment["layers"] is None else [str(name).encode() for name in environment["layers"]]
    config = str(environment["config"]).encode()
    wheels = {f"wheels/{name}": str(name).encode() for name in environment["wheels"]}
    pylock = _pylock(wheels, environment.get("created_by", "benchlock"))
    files: dict[str, tuple[str, bytes]] = {"pylock.toml": ("wheels", pylock)}
    files |= {path: ("wheels", content) for path, content in wheels.items()}
    platform: dict[str, Any] = {"python": environment["python"], "wheels": "pylock.toml"}
    if layers is not None:
        platform |= {"config": digest_bytes(config), "layers": [digest_bytes(layer) for layer in layers]}
        files |= {"config.json": ("config", config)}
        files |= {f"layers/{layer.decode()}.tar": ("layer", layer) for layer in layers}
    names = ("os", "arch", "device")
    platforms = [dict(zip(names, text.split("/"), strict=True)) | platform for text in environment["platforms"]]
    document = {
        "schema": 1,
        "kind": "image",
        "name": environment.get("name", "onnxruntime-cpu"),
        "version": environment["version"],
        "license": "various",
        "provides": {"framework": "onnxruntime", "version": environment.get("provides", "1.31.1")},
        "platforms": platforms,
        "files": [{"path": path, "role": role} for path, (role, _) in files.items()],
    }
    return document, {path: content for path, (_, content) in files.items()}


def _pylock(wheels: Mapping[str, bytes], created_by: str) -> bytes:
    lines = ['lock-version = "1.0"', f'created-by = "{created_by}"']
    for path, wheel in wheels.items():
        name, version, *_ = path.removeprefix("wheels/").split("-")
        hashes = f'hashes = {{sha256 = "{sha256(wheel).hexdigest()}"}}'
        row = f'wheels = [{{path = "{path}", size = {len(wheel)}, {hashes}}}]'
        lines += ["[[packages]]", f'name = "{name}"', f'version = "{version}"', row]
    return "\n".join(lines).encode()
