"""The harness as it ships, over samples of every sort of file; and where a library is missing that few need."""

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from PIL import Image
from pyarrow import parquet

from tests.evaluator.harness.conftest import CELLS, SAMPLES, WRONG, Finished, write_job

Run = Callable[[dict[str, Any]], Finished]
RIGHT = SAMPLES - len(WRONG)


@pytest.fixture
def measured(tmp_path: Path, job: dict[str, Any]) -> tuple[NDArray[np.uint8], list[int]]:
    """The job's pictures as rows of numbers, and their labels."""
    write_job(tmp_path / "job", job)
    with (tmp_path / "job" / "dataset" / "index.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    pictures = [np.asarray(Image.open(tmp_path / "job" / "dataset" / row["path"])).reshape(-1) for row in rows]
    return np.stack(pictures), [int(row["label"]) for row in rows]


def write_npz(path: Path, rows: NDArray[np.uint8], labels: list[int]) -> None:
    np.savez(path, x=rows, y=np.asarray(labels))


def write_jsonl(path: Path, rows: NDArray[np.uint8], labels: list[int]) -> None:
    path.write_text("".join(json.dumps({"x": x.tolist(), "y": y}) + "\n" for x, y in zip(rows, labels, strict=True)))


def write_parquet(path: Path, rows: NDArray[np.uint8], labels: list[int]) -> None:
    parquet.write_table(pa.table({"x": list(rows), "y": labels}), path, row_group_size=7)


def of_rows(job: dict[str, Any], form: str) -> dict[str, Any]:
    """The job with a tensor for an input, fed from a file of rows."""
    job["model"]["inputs"] = [
        {"name": "picture", "type": "tensor", "dtype": "float32", "shape": [None, 8 * 12], "field": "cells"}
        | {"steps": [{"cast": {"dtype": "float32"}}]}
    ]
    split = {"file": f"rows.{form}", "fields": {"cells": "x", "label": "y"}, "samples": SAMPLES}
    return job | {
        "dataset": {"format": form, "split": split},
        "scenario": {"name": "accuracy", "warmup": 0, "batch": 4},
        "metrics": ["top1"],
    }


@pytest.mark.parametrize(("form", "write"), [("npz", write_npz), ("jsonl", write_jsonl), ("parquet", write_parquet)])
def test_rows_of_a_file_are_samples(
    form: str,
    write: Callable[[Path, NDArray[np.uint8], list[int]], None],
    run: Run,
    tmp_path: Path,
    job: dict[str, Any],
    measured: tuple[NDArray[np.uint8], list[int]],
) -> None:
    assert len(measured[0]) == SAMPLES
    assert max(measured[1]) < len(CELLS)
    write(tmp_path / "job" / "dataset" / f"rows.{form}", *measured)
    result = run(of_rows(job, form)).result
    assert (result["outcome"], result["failure"]) == ("done", None)
    assert result["quality"]["top1"]["correct"] == RIGHT


def test_a_library_that_only_some_jobs_need_may_be_missing(
    run: Run, tmp_path: Path, job: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a finished image whose maker put in what the harness needs for pictures, and nothing else."""
    absent = "import sys; sys.modules.update(dict.fromkeys(('pyarrow', 'pycocotools', 'tokenizers')))\n"
    (tmp_path / "sitecustomize.py").write_text(absent)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert run(job | {"scenario": {"name": "accuracy", "warmup": 0, "batch": 4}}).result["outcome"] == "done"
    failure = run(of_rows(job, "parquet")).result["failure"]
    assert failure["class"] == "load"
    assert failure["message"].startswith("a dataset in parquet needs pyarrow, which is not installed: build the image")
