"""Every scenario that is timed in queries, batches or processes: a real model in a container, what is told and kept."""

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file

from tests.support.api.commands import Commands
from tests.support.registry.digits import DIGITS, locked, model, request, written

pytestmark = [pytest.mark.engine, pytest.mark.image]

PERCENTILES = {"latency_p50": 0.5, "latency_p90": 0.9, "latency_p99": 0.99}
PHASES = ("start", "import", "load", "prepare", "predict", "outputs")
BATCHES = (1, 2, 4)
LITTLE = {"min_duration": "1ms", "warmup": 3}

# 400 queries bound a 99th percentile on both sides. Nothing is asked of the machine: a bound on latency is one that
# any machine keeps, and a server that did not would be done all the same.
SCENARIOS: dict[str, tuple[dict[str, Any], list[str]]] = {
    "multi_stream": ({"min_queries": 400, "samples_per_query": 3, **LITTLE}, ["top1", "latency", "throughput"]),
    "server": (
        {"min_queries": 460, "target_qps": 500, "target_latency": "10s", **LITTLE},
        ["latency", "throughput", "pipeline_latency"],
    ),
    "offline": ({"min_samples": 700, "batch": 7, **LITTLE}, ["top1", "throughput", "pipeline_throughput"]),
    "batch_sweep": ({"batches": BATCHES, "warmup": 3}, ["optimal_batch", "throughput", "latency_p50"]),
    "cold_start": ({"repeats": 6, "warmup": 1}, ["cold_start"]),
}


@dataclass(frozen=True)
class Ran:
    """A run as the command told it, as ``show`` tells it, and the folder that ``get`` wrote."""

    told: Mapping[str, Any]
    details: Mapping[str, Any]
    folder: Path
    files: int

    def metrics(self) -> dict[str, dict[str, Any]]:
        """By name, and of a sweep ``NAME@BATCH``."""
        return {
            one["name"] + (f"@{one['batch']}" if one["batch"] else ""): one for one in self.told["end"]["metrics"]
        }  # fmt: skip

    def samples(self, name: str = "samples") -> dict[str, NDArray[Any]]:
        return load_file(self.folder / f"{name}.safetensors")


@pytest.fixture(scope="module")
def runs(registry: Commands, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ran]:
    """A run of each scenario."""
    folder = tmp_path_factory.mktemp("scenarios")
    registry.done("publish", DIGITS / "dataset.yaml", written(folder / "model.yaml", model("timed")))
    return {name: ran(registry, folder, name, *asked) for name, asked in SCENARIOS.items()}


def ran(registry: Commands, folder: Path, name: str, settings: dict[str, Any], metrics: list[str]) -> Ran:
    """Lock the scenario, run it in a container, and take out what is kept of it."""
    asked = request("timed") | {"name": name, "scenario": {"name": name, **settings}, "metrics": metrics}
    if name == "offline":  # so that a second thread prepares ahead, where the machine has a second processor
        asked["limits"] |= {"cpus": processors()}
    told = registry.done("run", locked(registry, folder, asked), "--isolation", "container")
    assert (told["end"]["outcome"], told["start"]["isolation"]) == ("done", "container"), told
    written_out = registry.done("get", told["run"], "-o", folder / name)
    return Ran(told, registry.done("show", told["run"])["end"]["details"], folder / name, written_out["files"])


def processors() -> int:
    return min(2, len(os.sched_getaffinity(0)))


EACH = pytest.mark.parametrize("name", SCENARIOS)


@EACH
def test_every_metric_has_a_unit_a_direction_an_n_and_an_interval(runs: dict[str, Ran], name: str) -> None:
    for metric in runs[name].told["end"]["metrics"]:
        low, high = metric["ci"]
        assert metric["unit"], metric
        assert metric["direction"] == directed(metric["name"]), metric
        assert metric["n"] > 0, metric
        # Of so few calls it may not be known how they depend on each other; a batch goes by the rates.
        assert low is None or low <= metric["value"] * (1 + 1e-9), metric
        assert high is None or metric["value"] <= high * (1 + 1e-9), metric
        if metric["name"] == "top1" or metric["name"].startswith("cold_start"):
            assert None not in (low, high), metric


def directed(metric: str) -> str:
    if metric == "optimal_batch":
        return "none"
    return "higher" if metric in ("top1", "throughput", "pipeline_throughput") else "lower"


@EACH
def test_all_that_is_kept_has_a_file_of_its_own(registry: Commands, runs: dict[str, Ran], name: str) -> None:
    run = runs[name]
    files = {str(path.relative_to(run.folder)) for path in run.folder.rglob("*") if path.is_file()}
    assert len(files) == run.files == len(registry.done("show", run.told["run"])["end"]["blobs"])
    assert "samples.safetensors" in files
    assert ("pipeline-samples.safetensors" in files) is (name in ("server", "offline"))
    assert ("loadgen/mlperf_log_summary.txt" in files) is (name in ("multi_stream", "server", "offline"))
    assert ("loadgen-pipeline/mlperf_log_summary.txt" in files) is (name in ("server", "offline"))


@pytest.mark.parametrize("name", ["multi_stream", "server"])
def test_percentiles_are_those_of_the_samples(runs: dict[str, Ran], name: str) -> None:
    pairs = [("samples", "")] + ([("pipeline-samples", "pipeline_")] if name == "server" else [])
    for file, prefix in pairs:
        ordered = np.sort(runs[name].samples(file)["latency_ns"])
        for percentile, share in PERCENTILES.items():
            metric = runs[name].metrics()[prefix + percentile]
            assert metric["n"] == len(ordered) >= SCENARIOS[name][0]["min_queries"]
            assert metric["value"] == pytest.approx(ordered[math.ceil(share * len(ordered)) - 1] * 1e-9)


def test_a_query_of_multi_stream_has_several_samples(runs: dict[str, Ran]) -> None:
    run = runs["multi_stream"]
    columns = run.samples()
    assert set(columns["samples"]) == {3}
    assert run.metrics()["throughput"]["n"] == len(columns["index"]) == 3 * len(columns["latency_ns"])
    assert run.metrics()["top1"]["n"] == 359
    assert run.details["audits"]["answers"]["answers"] > 0


def test_a_server_is_timed_from_the_scheduled_arrival(runs: dict[str, Ran]) -> None:
    columns = runs["server"].samples()
    assert (columns["latency_ns"] >= columns["issue_delay_ns"] + columns["service_ns"]).all()
    settings = runs["server"].details["loadgen"]["settings"]
    assert settings["scenario"] == "Server"


def test_offline_prepares_ahead_with_as_many_threads_as_processors(runs: dict[str, Ran]) -> None:
    run = runs["offline"]
    for file, metric in (("samples", "throughput"), ("pipeline-samples", "pipeline_throughput")):
        columns = run.samples(file)
        assert run.metrics()[metric]["n"] == columns["samples"].sum() >= 700
        assert columns["samples"].max() == 7
    whole = run.samples("pipeline-samples")
    assert {"prepare_ns", "predict_ns", "outputs_ns"} <= whole.keys()
    assert run.details["pipeline"]["preparing_threads"] == (2 if processors() == 2 else 0)
    assert len(run.details["cpus"]) == processors()


def test_a_sweep_has_figures_of_every_batch(runs: dict[str, Ran]) -> None:
    run = runs["batch_sweep"]
    of_batches = {f"{name}@{batch}" for name in ("throughput", "latency_p50") for batch in BATCHES}
    assert run.metrics().keys() == of_batches | {"optimal_batch"}
    columns = run.samples()
    for batch in BATCHES:
        calls = int((columns["batch"] == batch).sum())
        assert calls >= 50
        assert run.metrics()[f"latency_p50@{batch}"]["n"] == calls
        assert run.metrics()[f"throughput@{batch}"]["n"] == calls * batch
    best = run.metrics()["optimal_batch"]
    assert best["value"] in BATCHES
    assert best["n"] == len(BATCHES)


def test_a_cold_start_is_split_by_phase(runs: dict[str, Ran]) -> None:
    run = runs["cold_start"]
    assert run.metrics().keys() == {"cold_start", *(f"cold_start_{phase}" for phase in PHASES)}
    assert {metric["n"] for metric in run.metrics().values()} == {6}
    columns = run.samples()
    assert (columns["latency_ns"] == sum(columns[f"{phase}_ns"] for phase in PHASES)).all()
    assert columns["warmup_ns"].shape == (1,)
    assert all((columns[f"{phase}_ns"] > 0).all() for phase in PHASES)
