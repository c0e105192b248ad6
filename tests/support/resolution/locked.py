"""What a lock names, one of each sort, and damage to it."""

import hashlib
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchlock.artifacts.digest import Digest, from_hex
from benchlock.artifacts.file_trees import parse_listing
from benchlock.artifacts.stores.local_store import LocalStore
from tests.support.api.commands import Commands

SORTS = (
    "model file",
    "tree",
    "file in a tree",
    "wheel",
    "lock of the wheels",
    "configuration",
    "layer",
    "harness",
    "manifest of the model",
    "manifest of the dataset",
    "manifest of the framework",
    "manifest of the image",
)


def named(commands: Commands, lock: Path) -> Mapping[str, tuple[str, Digest]]:
    """By sort, what messages call the file, and its digest. The dataset's first file is a tree."""
    document = tomllib.loads(lock.read_text())
    platform = document["image"]["platforms"][0]
    kinds = ("model", "dataset", "framework", "image")
    title = {kind: f"{kind}/{document[kind]['name']}@{document[kind]['version']}" for kind in kinds}
    graph, tree = document["model"]["files"][0], document["dataset"]["files"][0]
    wheel, layer = platform["wheels"][0], platform["layers"][-1]["digest"]
    inside = parse_listing(place(commands, from_hex(tree["sha256"])).read_bytes(), "the tree")[0]
    return {
        "model file": (f"{title['model']} {graph['path']}", from_hex(graph["sha256"])),
        "tree": (f"{title['dataset']} {tree['path']}", from_hex(tree["sha256"])),
        "file in a tree": (f"{title['dataset']} {tree['path']}{inside.path}", inside.digest),
        "wheel": (wheel["path"], from_hex(wheel["sha256"])),
        "lock of the wheels": (platform["wheels_lock"]["path"], from_hex(platform["wheels_lock"]["sha256"])),
        "configuration": ("configuration", platform["image_id"]),
        "layer": (layer, layer),
        "harness": (f"harness {document['harness']['version']}", document["harness"]["digest"]),
    } | {f"manifest of the {kind}": (title[kind], document[kind]["digest"]) for kind in kinds}


def place(commands: Commands, digest: Digest) -> Path:
    return LocalStore(commands.registry / "blobs").path(digest)


def flip(path: Path) -> Digest:
    """Flip one bit of a file's middle byte, in a new file of the same name and mode: other links keep their bytes."""
    content, mode = bytearray(path.read_bytes()), path.stat().st_mode
    content[len(content) // 2] ^= 1
    draft = path.with_suffix(".draft")
    draft.write_bytes(content)
    draft.chmod(mode)
    draft.replace(path)
    return Digest(f"sha256:{hashlib.sha256(content).hexdigest()}")


@contextmanager
def flipped(path: Path) -> Iterator[Digest]:
    """As ``flip``, and as it was afterwards."""
    kept = path.with_suffix(".kept")
    kept.hardlink_to(path)
    try:
        yield flip(path)
    finally:
        kept.replace(path)
