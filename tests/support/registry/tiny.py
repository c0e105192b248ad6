"""A registry whose image is a few bytes: locks are made and verified in no time and without a network; runs fail."""

import hashlib
from pathlib import Path
from typing import Any

from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.json_codec import encode_canonical
from benchlock.evaluator.images.wheels import host_target, running_python
from tests.support.api.commands import Commands
from tests.support.api.warm import Warm
from tests.support.registry.digits import DIGITS, model, written

LAYER = bytes(1024)  # the end of a tar, and so an empty one
WHEEL = b"This is no wheel.\n"
WHEEL_PATH = "wheels/onnxruntime-1.31.1-py3-none-any.whl"
PYLOCK = f"""\
lock-version = "1.0"
created-by = "hand"

[[packages]]
name = "onnxruntime"
version = "1.31.1"
wheels = [{{path = "{WHEEL_PATH}", size = {len(WHEEL)}, hashes = {{sha256 = "{hashlib.sha256(WHEEL).hexdigest()}"}}}}]
"""
FRAMEWORK = {
    "schema": 1,
    "kind": "framework",
    "name": "onnxruntime",
    "version": "1.31.1",
    "license": "MIT",
    "predictor": "onnxruntime",
    "distributions": ["onnxruntime"],
}


def publish(folder: Path) -> Commands:
    """Such a registry, in a folder of its own: the manifests lie in ``folder/manifests``."""
    commands = Warm(folder / "registry")
    commands.done("publish", *author(folder / "manifests"))
    return commands


def author(folder: Path) -> tuple[Path, ...]:
    """Manifests beside their files: a framework, its image, the digits as a tree, and a model of them."""
    diff_ids = [digest_bytes(LAYER)]
    config = {"os": "linux", "architecture": host_target().arch, "rootfs": {"type": "layers", "diff_ids": diff_ids}}
    files = {
        "pylock.toml": PYLOCK.encode(),
        WHEEL_PATH: WHEEL,
        "config.json": encode_canonical(config),
        "layers/empty.tar": LAYER,
    }
    for path, content in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    image = _image(digest_bytes(files["config.json"]), diff_ids, files)
    return tuple(
        written(folder / f"{document['kind']}.yaml", document)
        for document in (FRAMEWORK, image, tree_of_digits("digits"), model("digits-onnx"))
    )


def _image(config: str, layers: list[Any], files: dict[str, bytes]) -> dict[str, Any]:
    platform = {"os": "linux", "arch": host_target().arch, "device": "cpu", "python": running_python()}
    roles = ("wheels", "wheels", "config", "layer")
    return {
        "schema": 1,
        "kind": "image",
        "name": "onnxruntime-cpu",
        "version": "1.0.0",
        "license": "various",
        "provides": {"framework": "onnxruntime", "version": "1.31.1"},
        "platforms": [platform | {"wheels": "pylock.toml", "config": config, "layers": layers}],
        "files": [{"path": path, "role": role, "source": path} for path, role in zip(files, roles, strict=True)],
    }


def tree_of_digits(name: str) -> dict[str, Any]:
    """The manifest of the digits' pictures and labels as one folder."""
    return {
        "schema": 1,
        "kind": "dataset",
        "name": name,
        "version": "1.0.0",
        "license": "CC-BY-4.0",
        "format": "idx",
        "splits": {
            "test": {"images": "data/test-images.idx", "labels": "data/test-labels.idx", "samples": 359},
        },
        "files": [{"path": "data/", "source": str(DIGITS / "data")}],
    }
