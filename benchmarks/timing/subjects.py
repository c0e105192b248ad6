"""What is measured: one network in three frameworks' formats, and a network that takes photographs."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchlock.registry.text import yaml
from tests.acceptance.real_cases import CASES, Case, dataset_manifest

DIGITS = Path(__file__).resolve().parents[2] / "examples" / "digits"
FRAMEWORKS = {"onnxruntime": "1.31.1", "litert": "2.3.0", "pytorch": "2.13.0"}
NAMES = {"onnxruntime": "resnet8-onnx-nchw", "litert": "resnet8-tflite", "pytorch": "resnet8-torchscript"}
PHOTOGRAPHS = "mobilenet-onnx"
PICTURES = 64
"""Samples of what is called in a loop, all different."""
_DIGITS = {"onnxruntime": "digits.onnx", "litert": "digits.tflite", "pytorch": "digits.torchscript.pt"}


@dataclass(frozen=True, slots=True)
class Subject:
    """A published model: its file, what one call takes and gives. ``manifest`` is its path, ``dataset`` a name."""

    name: str
    framework: str
    format: str
    file: Path
    input: str
    shape: tuple[int, ...]
    outputs: tuple[str, ...]
    manifest: Path
    dataset: str

    def request(self, folder: Path, scenario: Mapping[str, Any], *, split: str = "one", cpus: int = 1) -> Path:
        """A request for it, with a metric that the scenario gives."""
        metrics = {"accuracy": ["top1"], "offline": ["pipeline_throughput"], "single_stream": ["latency"]}
        document = {
            "schema": 1,
            "kind": "evaluation",
            "name": f"{self.name}-{scenario['name']}",
            "model": {"name": self.name, "version": "*"},
            "dataset": {"name": self.dataset, "version": "*", "split": split},
            "hardware": {"os": "linux", "arch": "amd64", "device": "cpu"},
            "limits": {"time": "5m", "memory": "3GiB", "cpus": cpus, "processes": 256},
            "scenario": dict(scenario),
            "metrics": metrics[scenario["name"]],
            "seed": 7,
        }
        path = folder / f"{document['name']}.request.yaml"
        path.write_text(json.dumps(document))
        return path


def networks(folder: Path, cases: Path | None) -> dict[str, Subject]:
    """One network by the framework: ResNet-8 out of the real cases, or the example's own."""
    if cases is None:
        return {framework: _digits(framework, file) for framework, file in _DIGITS.items()}
    return {framework: _real(folder, cases, name, "one") for framework, name in NAMES.items()}


def photographs(folder: Path, cases: Path) -> Subject:
    """MobileNet, of which a sample is a JPEG file."""
    return _real(folder, cases, PHOTOGRAPHS, "imagenet-sample")


def pictures(cases: Path) -> list[Path]:
    return sorted((cases / "data" / "imagenet_sample").glob("*.JPEG"))


def datasets(folder: Path, cases: Path | None) -> list[Path]:
    """The manifests of small pictures, of which one split has one, and of the photographs."""
    names = _pictures(folder, cases)
    for split, several in (("one", names[:1]), ("several", names)):
        (folder / f"{split}.csv").write_text("\n".join(["path,label", *(f"{name},0" for name in several)]) + "\n")
    one = {
        "schema": 1,
        "kind": "dataset",
        "name": "one",
        "version": "1.0.0",
        "license": "CC0-1.0",
        "format": "image-index",
        "splits": {
            "one": {"index": "one.csv", "samples": 1},
            "several": {"index": "several.csv", "samples": len(names)},
        },
        "files": [{"path": name, "source": f"./{name}"} for name in ("one.csv", "several.csv", *names)],
    }
    found = [_written(folder / "one.yaml", one)]
    if cases is not None:
        document = dataset_manifest("imagenet_sample")
        document["files"][0]["source"] = str(cases / "data" / "imagenet_sample")
        found.append(_written(folder / "photographs.yaml", document))
    return found


def _pictures(folder: Path, cases: Path | None) -> list[str]:
    """Pictures of the size that the network takes, all different: a run looks for answers out of a cache."""
    import numpy as np  # noqa: PLC0415 - only what makes one needs them
    from PIL import Image  # noqa: PLC0415

    size = (8, 8) if cases is None else (32, 32, 3)
    random, names = np.random.default_rng(7), [f"{number}.png" for number in range(PICTURES)]
    for name in names:
        pixels = random.integers(0, 16 if cases is None else 256, size)
        Image.fromarray(pixels.astype(np.uint8)).save(folder / name)
    return names


def _digits(framework: str, file: str) -> Subject:
    name = {"onnxruntime": "digits-onnx", "litert": "digits-litert", "pytorch": "digits-torchscript"}[framework]
    manifest = DIGITS / "models" / f"{name}.yaml"
    return _subject(
        yaml.read_yaml(manifest.read_text(), str(manifest)).value, DIGITS / "models" / file, manifest, "one"
    )


def _real(folder: Path, cases: Path, name: str, dataset: str) -> Subject:
    case: Case = next(case for case in CASES if case.name == name)
    document = case.manifest()
    file = cases / "models" / case.file
    document["files"][0]["source"] = str(file)
    return _subject(document, file, _written(folder / f"{name}.yaml", document), dataset)


def _subject(document: Mapping[str, Any], file: Path, manifest: Path, dataset: str) -> Subject:
    port = document["inputs"][0]
    return Subject(
        name=document["name"],
        framework=document["framework"]["name"],
        format=document["format"],
        file=file,
        input=port["name"],
        shape=tuple(size or 1 for size in port["shape"]),
        outputs=tuple(output["name"] for output in document["outputs"]),
        manifest=manifest,
        dataset=dataset,
    )


def _written(path: Path, document: Mapping[str, Any]) -> Path:
    path.write_text(json.dumps(document))
    return path
