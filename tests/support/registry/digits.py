"""The digits example's ONNX model as manifests and requests that a test may vary."""

import json
from pathlib import Path
from typing import Any

from tests.support.api.commands import Commands

DIGITS = Path(__file__).resolve().parents[3] / "examples" / "digits"
GRAPH = DIGITS / "models" / "digits.onnx"


def model(name: str, /, *, graph: Path = GRAPH, **changes: object) -> dict[str, Any]:
    """The manifest of ``name``; ``changes`` replace fields of its input."""
    given = {
        "name": "input",
        "type": "image",
        "dtype": "float32",
        "shape": [None, 1, 8, 8],
        "layout": "NCHW",
        "steps": [
            {"decode": {"color": "L", "exif": "ignore"}},
            {"cast": {"dtype": "float32"}},
            {"transpose": {"layout": "NCHW"}},
        ],
    }
    return {
        "schema": 1,
        "kind": "model",
        "name": name,
        "version": "1.0.0",
        "license": "Apache-2.0",
        "task": "image-classification",
        "framework": {"name": "onnxruntime", "version": "*"},
        "format": "onnx",
        "inputs": [given | changes],
        "outputs": [{"name": "scores", "type": "class-scores", "dtype": "float32", "label_offset": 0}],
        "files": [{"path": "digits.onnx", "role": "graph", "source": str(graph)}],
    }


def request(
    name: str, dataset: str = "digits", *, time: str = "5m", memory: str = "2GiB", duration: str = "100ms"
) -> dict[str, Any]:
    """A request for the model ``name`` on the test split of ``dataset``, measured for ``duration`` or longer."""
    return {
        "schema": 1,
        "kind": "evaluation",
        "name": name,
        "model": {"name": name, "version": "*"},
        "dataset": {"name": dataset, "version": "*", "split": "test"},
        "hardware": {"os": "linux", "arch": "amd64", "device": "cpu"},
        "limits": {"time": time, "memory": memory, "cpus": 1, "processes": 64},
        "scenario": {"name": "single_stream", "min_queries": 64, "min_duration": duration, "warmup": 4},
        "metrics": ["top1", "latency"],
        "seed": 7,
    }


def written(path: Path, document: dict[str, Any]) -> Path:
    """``document`` in a file, as JSON, which is YAML too."""
    path.write_text(json.dumps(document))
    return path


def locked(commands: Commands, folder: Path, asked: dict[str, Any]) -> Path:
    """The lock that answers the request ``asked``."""
    lock = folder / f"{asked['name']}.lock"
    commands.done("lock", written(folder / f"{asked['name']}.request.yaml", asked), "-o", lock)
    return lock
