"""Metrics of an operator from its blobs: their values, and evidence that contradicts itself or the lock."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec import UNSET
from msgspec.structs import replace
from numpy.typing import NDArray
from safetensors.numpy import save_file

from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.evidence.operator_evidence import OperatorFailure, measure_operator
from benchlock.evaluator.statistics.confidence_intervals import quantile_of_series
from benchlock.evaluator.statistics.metric_types import Interval, Metric, metric_faults
from benchlock.registry.artifact_names import Kind
from benchlock.registry.lock.lockfile import (
    Lock,
    LockContent,
    LockedArtifact,
    LockedFile,
    LockedHarness,
    LockedImage,
    LockedLimits,
    LockedPlatform,
    from_content,
)
from benchlock.registry.manifests import Framework, Manifest, Operator
from benchlock.registry.manifests.manifest_content import parse_content

BLOCKS = 400
Tensors = dict[str, NDArray[Any]]
DIGEST = digest_bytes(b"any")
OPERATOR = {
    "schema": 1,
    "kind": "operator",
    "name": "gemm",
    "version": "1.0.0",
    "license": "MIT",
    "op": {"type": "MatMul", "opset": 21},
    "dtype": "float32",
    "inputs": [{"name": "A"}, {"name": "B"}],
    "reference": "onnx",
    "fill": {"kind": "normal", "generator": "pcg64"},
    "tolerance": {"l2": 1, "linf": 1, "gradient": 1e-6},
    "cases": [
        {"name": name, "shapes": {"A": [8, 4], "B": [4, 8]}, "arguments": {}, "reduction": 4} for name in ("one", "two")
    ],
}
FRAMEWORK = {
    "schema": 1,
    "kind": "framework",
    "name": "pytorch",
    "version": "2.13.0",
    "license": "MIT",
    "predictor": "pytorch",
    "distributions": ["torch"],
}
METRICS = ("operator_latency", "wrapper_overhead", "wrapper_overhead_share", "error_l2", "error_linf", "gradient_error")


def make_lock(predictor: str = "pytorch") -> tuple[Lock, Mapping[Kind, Manifest]]:
    wheel = LockedFile(path="pylock.toml", sha256="0" * 64, size=1)
    platform = LockedPlatform(os="linux", arch="amd64", device="cpu", python="3.11", wheels_lock=wheel)
    settings = {"blocks": BLOCKS, "calls": 10, "order": "abba", "warmup": 1}
    gradient = {"dtype": "float64", "step": 1e-6, "elements": 4}
    content = LockContent(
        schema="1.1",
        request={"name": "gemm-on-pytorch"},
        operator=LockedArtifact(name="gemm", version="1.0.0", digest=DIGEST),
        framework=LockedArtifact(name="pytorch", version="2.13.0", digest=DIGEST),
        image=LockedImage(name="pytorch-cpu", version="1.0.0", digest=DIGEST, platforms=(platform,)),
        harness=LockedHarness(version="1.5.0", digest=DIGEST, size=1),
        limits=LockedLimits(seconds=60, bytes=1 << 30, cpus=1, processes=64),
        scenario={"name": "paired", **settings, "gradient": gradient, "seeds": {"one": 1, "two": 2}},
        metrics=dict.fromkeys(METRICS, 1),
    )
    operator, framework = parse_content(OPERATOR), parse_content(FRAMEWORK | {"predictor": predictor})
    assert isinstance(operator, Operator)
    assert isinstance(framework, Framework)
    return from_content(content), {"operator": operator, "framework": framework}


@dataclass
class Evidence:
    """The blobs and the result of a run, which a test may change."""

    predictions: Tensors
    reference: Tensors
    samples: Tensors
    document: dict[str, Any]

    def measure(self, folder: Path, lock: Lock, manifests: Mapping[Kind, Manifest]) -> dict[str, Metric]:
        files = {name: folder / name for name in ("predictions", "reference", "samples")}
        for name, path in files.items():
            save_file(getattr(self, name), path)
        measured = measure_operator(lock, manifests, files, self.document)
        return {metric.key: metric for metric in measured.metrics}


def make_evidence(seed: int = 0) -> Evidence:
    """Evidence of calls of 100 µs, with an overhead of 2 µs beneath a drift and noise of 5 µs."""
    generator = np.random.default_rng(seed)
    evidence = Evidence({}, {}, {}, {"operator": {"cases": {}}})
    for case in ("one", "two"):
        reference = generator.standard_normal((8, 8))
        drift = np.linspace(1, 1.5, BLOCKS)[:, None] * 1e6
        native, wrapped = (drift + generator.normal(0, 5e4, (BLOCKS, 2)) for _ in range(2))
        numeric = generator.standard_normal((2, 4))
        evidence.predictions[case] = reference.astype(np.float32)
        evidence.reference[case] = reference
        evidence.samples |= {
            f"{case}/native_ns": native.astype(np.int64),
            f"{case}/wrapped_ns": (wrapped + 2e4).astype(np.int64),
            f"{case}/latency_ns": generator.integers(95_000, 105_000, BLOCKS),
            f"{case}/calls": np.array([10]),
            f"{case}/gradient/A/numeric": numeric[0],
            f"{case}/gradient/A/framework": numeric[0] * (1 + 1e-9),
            f"{case}/gradient/B/numeric": numeric[1],
            f"{case}/gradient/B/framework": numeric[1] * (1 + 1e-8),
        }
        evidence.document["operator"]["cases"][case] = {"calls": 10}
    return evidence


def test_each_case_has_each_metric_with_its_interval(tmp_path: Path) -> None:
    evidence = make_evidence()
    metrics = evidence.measure(tmp_path, *make_lock())
    assert set(metrics) == {f"{name}@{case}" for name in METRICS for case in ("one", "two")}
    samples = evidence.samples
    latency, overhead = metrics["operator_latency@one"], metrics["wrapper_overhead@one"]
    assert (latency.value, latency.ci) == quantile_of_series(samples["one/latency_ns"] * 1e-9, 0.5)
    low, high = overhead.ci.low, overhead.ci.high
    assert low is not None
    assert high is not None
    assert 0 < low < 2e-6 < high
    share = metrics["wrapper_overhead_share@one"]
    assert share.value == pytest.approx(overhead.value / latency.value)
    difference = np.abs(evidence.predictions["one"].astype(np.float64) - evidence.reference["one"])
    linf = float(difference.max() / np.abs(evidence.reference["one"]).max())
    assert (metrics["error_linf@one"].value, metrics["error_linf@one"].ci) == (linf, Interval(linf, linf))
    assert metrics["gradient_error@two"].value == pytest.approx(1e-8, rel=1e-6)
    assert metrics["gradient_error@two"].n == 8


def test_a_framework_without_gradients_has_no_value_for_them(tmp_path: Path) -> None:
    evidence = make_evidence()
    evidence.samples = {name: column for name, column in evidence.samples.items() if "gradient" not in name}
    metrics = evidence.measure(tmp_path, *make_lock("onnxruntime"))
    assert {metric.name for metric in metrics.values()} == set(METRICS) - {"gradient_error"}


def set_output(evidence: Evidence) -> None:
    evidence.predictions["two"] = evidence.predictions["two"] * np.float32(1 + 1e-3)


def set_gradient(evidence: Evidence) -> None:
    evidence.samples["two/gradient/B/framework"] *= 1.001


def set_reference(evidence: Evidence) -> None:
    evidence.reference["two"][0, 0] = np.inf


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (set_output, "case two: error_l2 is"),
        (set_gradient, "case two: the gradient by B has the error 0.001"),
        (set_reference, "the reference of case two is not finite"),
    ],
)
def test_an_error_above_its_tolerance_fails_the_run_whatever_the_result_says(
    tmp_path: Path, change: Callable[[Evidence], None], words: str
) -> None:
    evidence = make_evidence()
    change(evidence)
    with pytest.raises(OperatorFailure, match=words):
        evidence.measure(tmp_path, *make_lock())


def drop_case(evidence: Evidence) -> None:
    del evidence.predictions["two"]


def shorten_blocks(evidence: Evidence) -> None:
    evidence.samples["one/native_ns"] = evidence.samples["one/native_ns"][1:]


def negate_latency(evidence: Evidence) -> None:
    evidence.samples["one/latency_ns"][3] = -1


def state_other_calls(evidence: Evidence) -> None:
    evidence.document["operator"]["cases"]["one"]["calls"] = 11


def use_other_calls(evidence: Evidence) -> None:
    evidence.samples["one/calls"][0] = 11


def lengthen_gradient(evidence: Evidence) -> None:
    for side in ("numeric", "framework"):
        evidence.samples[f"one/gradient/A/{side}"] = np.ones(5)


def drop_gradient(evidence: Evidence) -> None:
    del evidence.samples["one/gradient/A/framework"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (drop_case, "are not those of the operator's cases"),
        (shorten_blocks, r"lack native_ns as integers of the shape \(400, 2\)"),
        (negate_latency, "values of latency_ns out of range"),
        (state_other_calls, "states other calls a block of case one"),
        (use_other_calls, "has 11 calls a block, but the lock has 10"),
        (lengthen_gradient, "gradients by A of another length"),
        (drop_gradient, "lack the gradient by A"),
    ],
)
def test_evidence_that_contradicts_the_lock_or_itself_is_refused(
    tmp_path: Path, change: Callable[[Evidence], None], words: str
) -> None:
    evidence = make_evidence()
    change(evidence)
    with pytest.raises(InvalidInputError, match=words):
        evidence.measure(tmp_path, *make_lock())


def test_the_interval_of_equal_calls_contains_zero_as_often_as_it_should() -> None:
    """Of 100 A/A runs at least 89 are expected to, with a probability above 99 % at a true 95 %."""
    hits = 0
    for seed in range(100):
        generator = np.random.default_rng(seed)
        times = generator.lognormal(0, 0.2, (BLOCKS, 4)) * np.linspace(1, 1.3, BLOCKS)[:, None]
        _, ci = quantile_of_series((times[:, 1:3].sum(axis=1) - times[:, ::3].sum(axis=1)) / 2, 0.5)
        assert ci.low is not None
        assert ci.high is not None
        hits += ci.low <= 0 <= ci.high
    assert hits >= 89


def test_a_metric_of_operators_needs_a_case_and_no_other_has_one() -> None:
    of_case = Metric("error_l2", 1e-7, "ratio", "lower", 8, Interval(1e-7, 1e-7), 1, case="one")
    assert list(metric_faults((of_case, replace(of_case, case="two")))) == []
    assert list(metric_faults((replace(of_case, case=UNSET),))) == ["metrics.error_l2.case (absent)"]
    top1 = Metric("top1", 0.5, "fraction", "higher", 8, Interval(0.1, 0.9), 2, case="one")
    assert list(metric_faults((top1,))) == ["metrics.top1@one.case (one, which top1 cannot have)"]
