"""Traces of real frameworks: the rows, operators, FLOPs and evidence of runs, with the known facts of the models."""

import json
import shutil
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import load_file

from benchlock.evaluator.analysis.call_profiles import Subject
from benchlock.evaluator.analysis.inspection import analyze
from benchlock.evaluator.analysis.trace_file import read_trace
from tests.acceptance.real_cases import CASES, dataset_manifest
from tests.support.api.commands import Commands
from tests.support.registry.digits import request

pytestmark = [pytest.mark.engine, pytest.mark.image]

DIGITS = Path(__file__).parents[2] / "examples" / "digits"
RESNET8, MOBILENET, RESNET20 = 25_003_264, 82_061_056, 81_102_080
"""The FLOPs of a call, which are the same in every framework."""
TFLITE = {"CONV_2D": 9, "ADD": 3, "AVERAGE_POOL_2D": 1, "RESHAPE": 1, "FULLY_CONNECTED": 1, "SOFTMAX": 1}
TFLITE_MOBILENET = {"CONV_2D": 15, "DEPTHWISE_CONV_2D": 13, "AVERAGE_POOL_2D": 1, "SOFTMAX": 1}
XNNPACK = {"Convolution IGEMM": 9, "Fully Connected GEMM": 1, "Clamp": 3, "Add": 3, "Static Reshape": 2}
XNNPACK_MOBILENET = {"Convolution IGEMM": 1, "Convolution DWConv": 13, "Fully Connected GEMM": 14}
TENSORFLOW = {"Conv2D": 9, "MatMul": 1, "Relu": 7, "AvgPool": 1, "Softmax": 1}
FUSED = {"_MklNativeFusedConv2D": 9, "_MklNativeFusedMatMul": 1}
ONEDNN = {"convolution": 9, "pooling": 1, "inner_product": 1, "softmax": 1}


@dataclass(frozen=True, slots=True)
class Facts:
    """What does not depend on the machine, with batch 1 and one thread.

    Attributes:
        rows: The rows of layers of a call.
        layers: How many of them have a type, and variant after a space.
        operators: Operators of the graph by type.
        flops: The FLOPs of a call.
        parameters: The parameters of the graph.
        kernels: The rows of kernels by type; None if the level is ``framework``.
        executed: The FLOPs of a call as executed, where the runtime pads channels.
        kinds: How many rows of layers are of a kind.
        convolutions: At least this share of the time of all layers is that of convolutions.
    """

    rows: int
    layers: Mapping[str, int]
    operators: Mapping[str, int]
    flops: int
    parameters: int | None = None
    kernels: Mapping[str, int] | None = None
    executed: int | None = None
    kinds: Mapping[str, int] = field(default_factory=dict)
    convolutions: float = 0.0


SAME = {"conv": 9, "dense": 1}
"""The kinds of ResNet-8 in every framework."""
CONV_9, CONV_28 = {"Conv": 9}, {"Conv": 28}
KNOWN = {
    "resnet8-onnx-nhwc": Facts(
        15,
        {"Conv nchwc": 9, "Gemm": 1},
        {"Conv": 9, "Relu": 7, "Add": 4, "MatMul": 1},
        RESNET8,
        77_708,
        kinds=SAME,
        convolutions=0.8,
    ),
    "resnet8-onnx-nchw": Facts(
        32, {"Conv nchwc": 9}, {"Constant": 56, "Pad": 7, **CONV_9}, RESNET8, kinds=SAME | {"layout": 20}
    ),
    "mobilenet-onnx": Facts(37, {"Conv nchwc": 28}, {"Clip": 27, **CONV_28}, MOBILENET, 467_601, executed=89_289_984),
    "mobilenet-onnx-nchw": Facts(75, {"Conv nchwc": 28}, {"Constant": 166, **CONV_28}, MOBILENET, executed=89_289_984),
    "resnet20-onnx": Facts(51, {"Conv nchwc": 19}, {"Conv": 19}, RESNET20),
    "resnet8-torchscript": Facts(
        29,
        {"pad": 7, "_convolution": 9, "relu": 7, "add": 3, "linear": 1},
        {"_convolution": 9, "linear": 1},
        RESNET8,
        kinds=SAME,
    ),
    "mobilenet-torchscript": Facts(
        72,
        {"pad": 14, "_convolution": 28, "relu6": 27},
        {"_convolution": 28},
        MOBILENET,
        kernels={"convolution": 14},
    ),
    "resnet20-torchscript": Facts(
        78, {"_convolution": 19, "batch_norm": 19, "slice": 8, "pad": 2}, {"_convolution": 19, "linear": 1}, RESNET20
    ),
    "resnet8-tflite": Facts(20, {**XNNPACK, "Softmax": 1}, TFLITE, RESNET8, kernels={}, kinds=SAME),
    "resnet8-tflite-int8": Facts(20, {**XNNPACK, "AVERAGE_POOL_2D": 1, "SOFTMAX": 1}, TFLITE, RESNET8, kinds=SAME),
    "mobilenet-tflite": Facts(31, {**XNNPACK_MOBILENET, "SQUEEZE": 1}, {**TFLITE_MOBILENET, "SQUEEZE": 1}, MOBILENET),
    "mobilenet-tflite-uint8": Facts(
        31,
        {**XNNPACK_MOBILENET, "Static Reshape": 1, "AVERAGE_POOL_2D": 1, "SOFTMAX": 1},
        {**TFLITE_MOBILENET, "RESHAPE": 1},
        MOBILENET,
    ),
    "resnet8-frozen": Facts(
        81, {**FUSED, "Const": 37, "AddV2": 9, "Mul": 7, "Relu": 7}, TENSORFLOW, RESNET8, kernels=ONEDNN, kinds=SAME
    ),
    "resnet8-savedmodel": Facts(277, {**FUSED, "ReadVariableOp": 48}, TENSORFLOW, RESNET8, kinds=SAME),
}


@dataclass(frozen=True, slots=True)
class Traced:
    """The files of a traced run."""

    folder: Path
    run: dict[str, Any]
    document: dict[str, Any]
    tensors: dict[str, NDArray[Any]]

    def experiment(self, name: str) -> dict[str, Any]:
        return next(entry for entry in self.document["experiments"] if entry["deepest"] == name)

    def rows(self, experiment: str, level: str) -> list[dict[str, Any]]:
        return [row for row in self.experiment(experiment)["rows"] if row["level"] == level]

    def check_layers(self) -> None:
        """Layers lie inside their call, and with the remainder add up to it."""
        about, layers = self.experiment("framework"), [row["index"] for row in self.rows("framework", "layer")]
        starts, durations = (self.tensors[f"framework.{name}"] for name in ("start", "duration"))
        assert about["incomplete"] is None
        assert all(row["parent"] == 1 for row in self.rows("framework", "layer"))
        assert (durations[:, layers] >= 0).all()
        assert (durations[:, 1] - durations[:, layers].sum(axis=1) >= 0).all()
        tick = about["resolution_ns"] + abs(self.document["clock"]["drift_ns"]) + 50_000
        assert (starts[:, layers] >= starts[:, 1:2] - tick).all()
        assert (starts[:, layers] + durations[:, layers] <= starts[:, 1:2] + durations[:, 1:2] + tick).all()


def run_request(commands: Commands, document: dict[str, Any], folder: Path, *options: str) -> tuple[Any, Path]:
    """Lock and run a request; the run as printed, and the folder of its files."""
    folder.mkdir(exist_ok=True)
    path, lock = folder / "request.json", folder / "request.lock"
    path.write_text(json.dumps(document))
    commands.done("lock", path, "-o", lock)
    run = commands.done("run", lock, *options)
    assert run["end"]["outcome"] == "done", run
    commands.done("get", run["run"], "-o", folder / "files")
    return run, folder / "files"


def trace(commands: Commands, document: dict[str, Any], folder: Path, *options: str) -> Traced:
    run, files = run_request(commands, document, folder, *options)
    with safe_open(files / "trace.safetensors", framework="numpy") as file:
        metadata = json.loads(file.metadata()["trace"])
    return Traced(files, run, metadata, load_file(files / "trace.safetensors"))


def check_untraced(commands: Commands, traced: Traced, document: dict[str, Any], folder: Path, *options: str) -> None:
    """A run of ``full`` and the same without a trace are verified, and their predictions are bit-equal."""
    plain, files = run_request(commands, document | {"trace": "none"}, folder, *options)
    for run, count in ((traced.run, 3), (plain, 0)):
        names = {metric["name"] for metric in run["end"]["metrics"]}
        assert len([name for name in names if name.startswith("trace_overhead_")]) == count
        assert commands.done("verify", run["run"])
    one, other = (load_file(path / "predictions.safetensors") for path in (traced.folder, files))
    assert {name: values.tobytes() for name, values in one.items()} == {
        name: values.tobytes() for name, values in other.items()
    }
    assert not (files / "trace.safetensors").exists()


def check_analyses(path: Path, facts: Facts) -> None:
    """The analyses have the work and the kinds that are known, by the code that users run."""
    layers, kinds = analyze(Subject(read_trace(path)), ("A2", "A6"))
    counted = Counter(str(kind) for kind in layers.column("kind"))
    assert len(layers.rows) == facts.rows
    assert layers.facts["flops_model"] == facts.flops
    assert layers.facts["flops_executed"] == (facts.executed or facts.flops)
    assert {kind: counted[kind] for kind in facts.kinds} == facts.kinds
    share = kinds.facts["conv_share_of_layers"]
    assert isinstance(share, float)
    assert share >= facts.convolutions


@pytest.fixture(scope="module")
def digits(registry: Commands) -> Commands:
    registry.done("publish", DIGITS / "dataset.yaml", DIGITS / "models" / "digits-onnx.yaml")
    return registry


def test_a_full_trace_changes_no_prediction_and_is_verified(digits: Commands, tmp_path: Path) -> None:
    traced = trace(digits, request("digits-onnx") | {"trace": "full"}, tmp_path / "full")
    check_untraced(digits, traced, request("digits-onnx"), tmp_path / "none")
    traced.check_layers()
    assert [row["type"] for row in traced.rows("framework", "layer")].count("Conv") == 3
    assert not traced.rows("system", "kernel")
    counters = traced.experiment("system")["counters"]
    assert (counters["cycles"] is None) == bool(counters["reason"])
    assert counters["task_clock_ns"] > 0


def test_a_trace_is_refused_for_a_scenario_without_timed_calls(digits: Commands, tmp_path: Path) -> None:
    untimed = {"trace": "framework", "scenario": {"name": "accuracy", "warmup": 0, "batch": 1}, "metrics": ["top1"]}
    (tmp_path / "request.json").write_text(json.dumps(request("digits-onnx") | untimed))
    error = digits.error(2, "lock", tmp_path / "request.json", "-o", tmp_path / "request.lock")
    assert (error["where"], "single_stream" in error["next"]) == ("trace", True)


@pytest.mark.parametrize("name", KNOWN)
def test_a_real_model_has_the_rows_and_the_work_that_are_known(
    images: Commands, cases: Path, tmp_path: Path, name: str
) -> None:
    facts, case = KNOWN[name], next(one for one in CASES if one.name == name)
    for path, document in (("dataset", dataset_manifest(case.dataset)), ("model", case.manifest())):
        (tmp_path / f"{path}.json").write_text(json.dumps(document))
    shutil.copytree(cases / "data" / case.dataset, tmp_path / case.dataset)
    source, target = cases / "models" / case.file, tmp_path / case.file.split("/")[-1]
    (shutil.copytree if source.is_dir() else shutil.copy)(source, target)
    images.call("publish", tmp_path / "dataset.json")  # another case may have published it
    images.call("publish", tmp_path / "model.json")
    metrics = ["latency"] if facts.kernels is None else ["top1", "latency"]
    timed = case.request() | {"name": f"{name}-traced", "metrics": metrics}
    traced = trace(images, timed | {"trace": "framework" if facts.kernels is None else "full"}, tmp_path / "run")
    traced.check_layers()
    layers, graph = traced.rows("framework", "layer"), traced.document["graph"]
    assert len(layers) == facts.rows
    assert traced.document["notes"] == []  # the answers of all experiments are bit-equal
    named = Counter(" ".join(filter(None, (row["type"], row["variant"]))) for row in layers)
    assert {key: named[key] for key in facts.layers} == facts.layers
    assert {type_: graph["operators"].get(type_) for type_ in facts.operators} == facts.operators
    check_analyses(traced.folder / "trace.safetensors", facts)
    assert graph["framework_flops"] in (None, facts.flops)
    assert facts.parameters in (None, graph["parameters"])
    if facts.kernels is not None:
        check_untraced(images, traced, timed, tmp_path / "none")
        kernels = Counter(row["type"] for row in traced.rows("system", "kernel"))
        assert {kind: kernels[kind] for kind in facts.kernels} == facts.kernels
        assert bool(kernels) == bool(facts.kernels)
