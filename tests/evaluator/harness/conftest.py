"""A job of six classes of pictures that a matrix tells apart, and the harness with two predictors more."""

import json
import os
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from PIL import Image

from benchlock.evaluator.harness_archive import build_harness, compile_harness
from benchlock.evaluator.records.timing_validity import validity_of
from benchlock.evaluator.runner.job_folder import INTERPRETER
from tests.support.evaluator.recorded import DONE, recorded

PREDICTORS = Path(__file__).parent / "predictors"
CELLS = [(row, column) for row in range(2) for column in range(3)]
SAMPLES = 30
# Three labels that are not what the picture shows: 0 is said to be 5, 1 to be 0, 2 to be 4. Beside the bright cell all
# scores tie, so the five best are the true class and then the lowest indices: 5 is not among those of 0.
WRONG = {0: 5, 1: 0, 2: 4}

JOB: dict[str, Any] = {
    "schema": 1,
    "task": "image-classification",
    "model": {
        "format": "npz",
        "predictor": "linear",
        "inputs": [
            {
                "name": "picture",
                "type": "image",
                "dtype": "float32",
                "shape": [None, 1, 8, 12],
                "layout": "NCHW",
                "steps": [
                    {"decode": {"color": "L", "exif": "ignore"}},
                    {"cast": {"dtype": "float32"}},
                    {"transpose": {"layout": "NCHW"}},
                ],
            }
        ],
        "outputs": [
            {"name": "scores", "type": "class-scores", "dtype": "float32", "steps": [{"softmax": {"axis": -1}}]}
        ],
        "files": [{"path": "weights.npz", "role": "graph"}],
    },
    "dataset": {"format": "image-index", "split": {"index": "index.csv", "samples": SAMPLES}},
    "scenario": {"name": "single_stream", "warmup": 4, "min_queries": 70, "min_duration": 0.05},
    "metrics": ["top1", "top5", "latency_p50"],
    "threads": 1,
    "seeds": {"qsl": 1, "sample_index": 2, "schedule": 3},
    "trace": "none",
}


@dataclass(frozen=True, slots=True)
class Finished:
    """A run of the harness: exit code, ``result.json``, its other files, and the lines it wrote."""

    code: int
    result: dict[str, Any]
    output: Path
    lines: list[str]
    errors: str


@pytest.fixture
def job() -> dict[str, Any]:
    return deepcopy(JOB)


@pytest.fixture(scope="session")
def zipapp(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The harness as it runs, with two more predictors laid beside its own."""
    path = tmp_path_factory.mktemp("harness") / "harness.pyz"
    path.write_bytes(compile_harness(build_harness()))
    with zipfile.ZipFile(path, "a") as archive:
        for predictor in sorted(PREDICTORS.glob("*.py")):
            archive.write(predictor, f"harness/predictors/{predictor.name}")
    return path


@pytest.fixture(scope="session")
def ordinary(zipapp: Path, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The job as it stands, run once."""
    return run_in(tmp_path_factory.mktemp("ordinary"), zipapp, JOB)


@pytest.fixture
def run(zipapp: Path, tmp_path: Path) -> Callable[[dict[str, Any]], Finished]:
    return lambda document: run_in(tmp_path, zipapp, document)


def mark(loadgen: dict[str, Any]) -> str:
    """What tables say of a run whose record has this account of LoadGen's."""
    found = validity_of(recorded(replace(DONE, details={"loadgen": loadgen})))
    assert found is not None
    return found.mark


def run_in(place: Path, zipapp: Path, document: dict[str, Any], **variables: str) -> Finished:
    """Run the job in ``place``, as runners do; all paths of the command are relative to it."""
    output = place / "out"
    write_job(place / "job", document)
    command = [sys.executable, os.path.relpath(zipapp, place), "job", "out"]
    told = os.environ | INTERPRETER | variables
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=place, env=told)
    found = output / "result.json"
    result = json.loads(found.read_bytes()) if found.exists() else {}
    return Finished(done.returncode, result, output, done.stdout.splitlines(), done.stderr)


@pytest.fixture
def wait_for() -> Callable[[Callable[[], bool]], None]:
    """Wait until a condition holds; fail after half a minute."""

    def wait(holds: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < end, "waited in vain"
            time.sleep(0.02)

    return wait


@pytest.fixture
def break_at(job: dict[str, Any], tmp_path: Path) -> Callable[[int, str], dict[str, Any]]:
    """A job whose model breaks at its n-th call."""

    def broken(call: int, how: str) -> dict[str, Any]:
        job["model"]["predictor"] = "breaking"
        job["model"]["files"] = [{"path": "how.json", "role": "graph"}]
        (tmp_path / "job" / "model").mkdir(parents=True)
        (tmp_path / "job" / "model" / "how.json").write_text(json.dumps({"call": call, "how": how}))
        return job

    return broken


def write_job(folder: Path, document: dict[str, Any]) -> None:
    """The job folder: its model sums each of six cells, its pictures have one bright cell on a ramp of grey."""
    model, dataset = folder / "model", folder / "dataset"
    for place in (model, dataset / "pictures"):
        place.mkdir(parents=True, exist_ok=True)
    (folder / "job.json").write_text(json.dumps(document))
    weights = np.zeros((8, 12, len(CELLS)), np.float32)
    for number, (row, column) in enumerate(CELLS):
        weights[row * 4 : row * 4 + 4, column * 4 : column * 4 + 4, number] = 0.001
    np.savez(model / "weights.npz", weights=weights.reshape(-1, len(CELLS)), offset=np.zeros(len(CELLS), np.float32))
    rows = ["path,label"]
    for number in range(SAMPLES):
        row, column = CELLS[number % len(CELLS)]
        picture = np.full((8, 12), 20, np.uint8)
        picture[row * 4 : row * 4 + 4, column * 4 : column * 4 + 4] = 100 + number
        Image.fromarray(picture).save(dataset / "pictures" / f"{number}.png")
        rows.append(f"pictures/{number}.png,{WRONG.get(number, number % len(CELLS))}")
    (dataset / "index.csv").write_text("\n".join(rows) + "\n")
