"""The real harness leaves, in every scenario, what the table of requirements says; its records are verified."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace
from safetensors import safe_open
from safetensors.numpy import save_file

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.evidence.required_evidence import check_requirements, requirements_of
from benchlock.evaluator.evidence.run_examination import Examiner
from benchlock.evaluator.harness.performance.loadgen_traces import SEPARATOR
from benchlock.evaluator.records.run_types import Run
from benchlock.registry.lock.lockfile import Lock, dump
from tests.evaluator.evaluation import LIMITS, SCENARIO, Evaluation
from tests.evaluator.workflows.test_run import Bench, bare, bench  # noqa: F401

PIPELINE = ("pipeline_latency_p50", "pipeline_throughput")
RATES = ("throughput", "pipeline_throughput")
LATENCY = ("latency_p50", "throughput")
FEW = {"min_queries": 100, "min_duration": 0, "warmup": 3}
CASES: dict[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "single_stream": (FEW, (*LATENCY, *PIPELINE)),
    "multi_stream": ({**FEW, "samples_per_query": 3}, (*LATENCY, *PIPELINE)),
    "offline": (
        {"batch": 4, "min_samples": 100, "min_duration": 0, "warmup": 3},
        ("throughput", "pipeline_throughput"),
    ),
    "server": ({**FEW, "target_qps": 400, "target_latency": 0.3}, (*LATENCY, *PIPELINE)),
    "batch_sweep": ({"batches": [1, 2], "warmup": 3}, RATES),
    "cold_start": ({"repeats": 3, "warmup": 1}, ("cold_start",)),
    "accuracy": ({"batch": 4, "warmup": 0}, ()),
}


@pytest.mark.parametrize("name", CASES)
def test_every_scenario_leaves_what_is_required(
    bench: Bench,  # noqa: F811
    bare: Evaluation,  # noqa: F811
    name: str,
    tmp_path: Path,
) -> None:
    more, metrics = CASES[name]
    bare.scenario = {"name": name, "seeds": SCENARIO["seeds"], **more}
    lock = bench.stored(bare.lock(metrics=("top1", *metrics)))
    run = bench.runner(None).run(lock)
    assert run.end is not None
    assert run.end.outcome == "done", run.end.failure_message
    examiner = Examiner(bench.store, tmp_path / "home", lambda _: dump(lock))
    assert examiner.compare(run, again=True).reasons == ()
    _check_that_nothing_can_be_left_out(lock, run, bench, tmp_path)


def _check_that_nothing_can_be_left_out(lock: Lock, run: Run, bench: Bench, folder: Path) -> None:  # noqa: F811
    assert run.end is not None
    files = {role: bench.store.path(blob.digest) for role, blob in run.end.blobs.items()}
    document = json.loads(files["result"].read_bytes())
    check_requirements(lock, document, files)
    for one in requirements_of(lock):
        for role in one.blobs:
            with pytest.raises(InvalidInputError, match=f"the blob {role}"):
                check_requirements(lock, document, {name: path for name, path in files.items() if name != role})
        for path in (*one.fields, *one.nullable):
            with pytest.raises(InvalidInputError, match=path):
                check_requirements(lock, _without(document, path), files)
        for role, columns in one.columns.items():
            for column in columns:
                with pytest.raises(InvalidInputError, match=f"{column} in the blob {role}"):
                    check_requirements(lock, document, {**files, role: _drop_column(files[role], column, folder)})


def _without(document: dict[str, Any], path: str) -> dict[str, Any]:
    changed: dict[str, Any] = json.loads(json.dumps(document))
    *above, last = path.split(".")
    place = changed
    for key in above:
        place = place[key]
    del place[last]
    return changed


def _drop_column(path: Path, column: str, folder: Path) -> Path:
    with safe_open(path, framework="numpy") as file:
        kept = {name: file.get_tensor(name) for name in file.keys() if name != column}  # noqa: SIM118 - no mapping
        metadata = file.metadata()
    save_file(kept, folder / "columns", metadata)
    return folder / "columns"


def test_a_peak_follows_from_the_logs_of_all_its_probes(bench: Bench, bare: Evaluation, tmp_path: Path) -> None:  # noqa: F811
    """A call sleeps for 2 milliseconds: all at once, 460 queries take three times the bound on every machine."""
    bare.predictor = "cheating"  # an honest one, without `cheat.json`
    settings = {"min_queries": 460, "min_duration": 0, "target_qps": 400, "target_latency": 0.3, "warmup": 3}
    bare.scenario = {"name": "server", "seeds": SCENARIO["seeds"], **settings}
    lock = bench.stored(bare.lock(metrics=("peak_qps",), limits=structs.replace(LIMITS, seconds=600)))
    run = bench.runner(None).run(lock, isolation="process")
    assert run.end is not None
    assert run.end.outcome == "done", run.end.failure_message
    examiner = Examiner(bench.store, tmp_path / "home", lambda _: dump(lock))
    assert examiner.compare(run, again=True).reasons == ()
    (peak,) = (metric for metric in run.end.metrics if metric.name == "peak_qps")
    result = json.loads(bench.store.path(run.end.blobs["result"].digest).read_bytes())
    probes = result["peak"]["probes"]
    assert peak.value == result["peak"]["qps"]
    logs = bench.store.path(run.end.blobs["peak-loadgen-detail"].digest).read_bytes().split(SEPARATOR)[1:]
    assert len(logs) == len(probes) - 1

    def reasons(role: str, content: bytes) -> str:
        assert run.end is not None
        forged = {**run.end.blobs, role: bench.store.put(io.BytesIO(content))}
        status = examiner.compare(replace(run, end=replace(run.end, blobs=forged)), again=True)
        assert status.state == "contradicted"
        return " ".join(status.reasons)

    def joined(parts: list[bytes]) -> bytes:
        return SEPARATOR + SEPARATOR.join(parts)

    assert f"{len(logs)} probes, but wrote {len(logs) - 1} logs" in reasons("peak-loadgen-detail", joined(logs[:-1]))
    assert "log 1" in reasons("peak-loadgen-detail", joined([logs[-1], *logs[1:]]))
    for name in ("completed_qps", "queries"):
        forged = json.loads(json.dumps(result))
        forged["peak"]["probes"][-1][name] += 1
        assert f"the harness reports {name} " in reasons("result", json.dumps(forged).encode())
