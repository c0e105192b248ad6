"""The phase ``trace`` of a whole run of the harness, with a predictor of numpy alone."""

import json
import subprocess
import sys
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file

from benchlock.evaluator.harness.tracing.trace_levels import TRACE_TENSORS
from tests.evaluator.harness.conftest import Finished, write_job

Run = Callable[[dict[str, Any]], Finished]


@pytest.fixture
def traced(job: dict[str, Any], run: Run) -> Finished:
    job |= {"trace": "model", "lock_fingerprint": "of a lock"}
    return run(job)


def read(finished: Finished) -> tuple[dict[str, Any], dict[str, Any]]:
    with safe_open(finished.output / "trace.safetensors", framework="numpy") as file:
        metadata = file.metadata()
        assert metadata["lock_fingerprint"] == "of a lock"
        return json.loads(metadata["trace"]), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


def test_experiments_are_interleaved_and_never_overlap(traced: Finished) -> None:
    assert traced.result["outcome"] == "done", traced.errors
    document, tensors = read(traced)
    assert {name.partition(".")[2] for name in tensors} == set(TRACE_TENSORS)
    calls = document["caps"]["calls"]
    assert calls == 200 or document["caps"]["reason"]
    assert document["caps"]["processes"] == 4
    spans = []
    for name in ("none", "model"):
        assert np.unique(tensors[f"{name}.process"]).tolist() == list(range(4))
        starts, durations, blocks = (tensors[f"{name}.{part}"] for part in ("call_start", "call_duration", "block"))
        assert len(starts) == calls
        assert np.unique(blocks, return_counts=True)[1].tolist() == [document["block_calls"]] * len(
            set(blocks.tolist())
        )
        spans += [
            (start, start + length, block) for start, length, block in zip(starts, durations, blocks, strict=True)
        ]
    spans.sort()
    assert all(one[1] <= other[0] for one, other in pairwise(spans))
    rounds = [block for _, _, block in spans]
    assert rounds == sorted(rounds)  # every experiment ends its block of a round before the next round begins


def test_the_parts_of_a_call_are_spans(traced: Finished) -> None:
    document, tensors = read(traced)
    none, model = document["experiments"]
    assert (none["rows"], [row["name"] for row in model["rows"]]) == ([], ["prepare", "predict", "outputs"])
    starts, durations = tensors["model.start"], tensors["model.duration"]
    assert (durations[:, 1] >= 0).all()
    assert (starts[:, 1] >= tensors["model.call_start"]).all()
    assert (durations[:, 1] <= tensors["model.call_duration"]).all()
    number = np.arange(len(durations)) % (len(durations) // document["caps"]["processes"])
    assert (durations[number < 10, 0] > 0).all()  # each different call of a process is prepared once
    assert (durations[number >= 10, 0] == -1).all()
    assert (durations[:, 2] > 0).all()
    assert set(document["phases"]) == {"import_ns", "load_ns", "first_call_ns", "second_call_ns"}
    assert document["notes"] == []  # the answers of both experiments are bit-equal


def test_a_framework_without_a_description_of_its_graph_leaves_a_gap(traced: Finished) -> None:
    document, _ = read(traced)
    assert document["graph"] is None
    (gap,) = document["gaps"]
    assert (gap["experiment"], "could not be described" in gap["reason"]) == ("graph", True)
    assert traced.result["trace"]["gaps"] == ["graph"]


def test_a_level_without_a_profiler_fails_with_the_reason_before_anything_is_timed(
    job: dict[str, Any], run: Run
) -> None:
    job["trace"] = "framework"
    result = run(job).result
    failure = result["failure"]
    assert (failure["class"], failure["phase"]) == ("load", "trace-probe")
    assert "the profiler of linear" in failure["message"]
    assert (result["accuracy"] is None, result["performance"]) == (False, None)


def test_a_trace_changes_no_prediction_and_leaves_nothing_else(traced: Finished, ordinary: Finished) -> None:
    assert ordinary.result["trace"] is None
    assert not list(ordinary.output.glob("trace*"))
    assert [path.name for path in traced.output.glob("trace*")] == ["trace.safetensors"]
    one, other = (load_file(finished.output / "predictions.safetensors") for finished in (traced, ordinary))
    assert all(np.array_equal(one[name], other[name]) for name in other)


def test_nothing_of_tracing_is_imported_in_a_run_without_a_trace(
    zipapp: Path, tmp_path: Path, job: dict[str, Any]
) -> None:
    write_job(tmp_path / "job", job)
    program = """
import os, sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from harness.core.job_parser import read_job
from harness.phases.phase_process import PhaseArguments, execute_phase
from harness import main
for phase in ("accuracy", "performance"):
    execute_phase(phase, read_job(Path("job/job.json")), Path("job").absolute(), Path().absolute(), PhaseArguments())
names = ("tracing", "opentelemetry", "perfetto", "matplotlib", "torch.profiler")
print([name for name in sys.modules if any(part in name for part in names)])
print([name for name in os.environ if name.startswith(("ONEDNN", "DNNL", "KINETO"))])
"""
    command = [sys.executable, "-c", program, str(zipapp)]
    variables = {"OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=tmp_path, env=variables)
    assert done.stdout.splitlines()[-2:] == ["[]", "[]"], done.stderr
    for phase in ("accuracy", "performance"):
        assert json.loads((tmp_path / f"phase-{phase}.json").read_text())["failure"] is None
