"""What is published of a release: a whole manifest, whose files are the same few bytes for every version of a kind."""

import hashlib
from functools import cache
from typing import Any

from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.json_codec import encode_canonical
from benchlock.registry.artifact_names import Kind
from benchmarks.resolving.universes import FORMATS, Ask, Release, version

LAYER = bytes(1024)  # the end of a tar, and so an empty one
WHEEL = b"This is no wheel.\n"
WHEEL_PATH = "wheels/framework-1.0.0-py3-none-any.whl"
PYLOCK = f"""\
lock-version = "1.0"
created-by = "hand"

[[packages]]
name = "framework"
version = "1.0.0"
wheels = [{{path = "{WHEEL_PATH}", size = {len(WHEEL)}, hashes = {{sha256 = "{hashlib.sha256(WHEEL).hexdigest()}"}}}}]
""".encode()
CONFIG = encode_canonical({"rootfs": {"type": "layers", "diff_ids": [digest_bytes(LAYER)]}})
LABELS = b"zero\none\ntwo\n"
FILES: dict[Kind, dict[str, tuple[str, bytes]]] = {
    "model": {"graph": ("graph", b"the graph"), "labels.txt": ("labels", LABELS)},
    "dataset": {"images.idx": ("", b"pictures"), "labels.idx": ("", b"digits"), "labels.txt": ("", LABELS)},
    "framework": {},
    "image": {
        "pylock.toml": ("wheels", PYLOCK),
        WHEEL_PATH: ("wheels", WHEEL),
        "config.json": ("config", CONFIG),
        "layers/0.tar": ("layer", LAYER),
    },
}
"""By kind: path, role and bytes of each file."""

_NAME, _VERSION, _RANGE, _PROVIDED = (f"@{word}@" for word in ("name", "version", "range", "provided"))


def content(release: Release) -> bytes:
    """The canonical JSON of the release's manifest: that of its sort, with its own name and versions put in."""
    reader = release.requires[0] if release.requires else ""
    text = _template(release.kind, reader, release.provides[0] if release.provides else "", release.arches)
    text = text.replace(_NAME, release.name).replace(_VERSION, version(release.number))
    if release.requires:
        text = text.replace(_RANGE, str(release.requires[1]))
    elif release.provides:
        text = text.replace(_PROVIDED, version(release.provides[1]))
    return text.encode()


@cache
def _template(kind: Kind, required: str, provided: str, arches: tuple[str, ...]) -> str:
    document: dict[str, Any] = {"schema": 1, "kind": kind, "name": _NAME, "version": _VERSION, "license": "MIT"}
    match kind:
        case "model":
            document |= _model(required)
        case "dataset":
            split = {"images": "images.idx", "labels": "labels.idx", "samples": 2}
            document |= {"format": "idx", "splits": {"test": split}, "labels": "labels.txt"}
        case "framework":
            document |= {"predictor": "onnxruntime", "distributions": ["framework"]}
        case "image":
            document |= {"provides": {"framework": provided, "version": _PROVIDED}}
            document["platforms"] = [_platform(arch) for arch in arches]
    if FILES[kind]:
        document["files"] = [_file(path, *FILES[kind][path]) for path in FILES[kind]]
    return encode_canonical(document).decode()


def _model(required: str) -> dict[str, Any]:
    tensor = {"name": "input", "type": "image", "dtype": "float32", "shape": [None, 8, 8, 1], "layout": "NHWC"}
    steps = [{"decode": {"color": "L", "exif": "ignore"}}, {"cast": {"dtype": "float32"}}]
    scores = {"name": "scores", "type": "class-scores", "dtype": "float32", "labels": "labels.txt", "label_offset": 0}
    return {
        "task": "image-classification",
        "framework": {"name": required, "version": _RANGE},
        "format": FORMATS[required],
        "inputs": [tensor | {"steps": steps}],
        "outputs": [scores],
    }


def _platform(arch: str) -> dict[str, Any]:
    platform = {"os": "linux", "arch": arch, "device": "cpu", "python": "3.11", "wheels": "pylock.toml"}
    return platform | {"config": digest_bytes(CONFIG), "layers": [digest_bytes(LAYER)]}


def _file(path: str, role: str, held: bytes) -> dict[str, Any]:
    file = {"path": path, "sha256": hashlib.sha256(held).hexdigest(), "size": len(held)}
    return file | {"role": role} if role else file


def request(ask: Ask, seed: int) -> dict[str, Any]:
    """The request as a file holds it; another seed makes another lock of the same versions."""
    document: dict[str, Any] = {
        "schema": 1,
        "kind": "evaluation",
        "name": ask.title.replace(" ", "-"),
        "model": {"name": ask.model, "version": str(ask.versions)},
        "dataset": {"name": ask.dataset, "version": "*", "split": "test"},
        "hardware": {"os": "linux", "arch": ask.arch, "device": "cpu"},
        "limits": {"time": "10m", "memory": "2GiB", "cpus": 1, "processes": 256},
        "scenario": {"name": "single_stream", "min_queries": 100, "min_duration": "1s", "warmup": 8},
        "metrics": ["top1", "latency"],
        "seed": seed,
    }
    if ask.framework is not None:
        document["framework"] = {"version": str(ask.framework)}
    if ask.image is not None:
        document["image"] = {"name": ask.image[0], "version": str(ask.image[1])}
    return document
