"""Datasets without their labels: the same inputs in another order, in the same format, and nothing else."""

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file

from benchlock.evaluator.harness.core.job import Dataset, sample_path
from benchlock.evaluator.harness.core.job_parser import parse_job
from benchlock.evaluator.harness.datasets import open_samples
from benchlock.evaluator.harness.inference.predictions import PREDICTIONS, restore_order, save_tensors
from benchlock.evaluator.harness.phases.label_removal import FILES, ORDER, UNLABELLED, read_order, run, shuffle
from benchlock.evaluator.harness.steps.step_tensor import Source
from tests.evaluator.harness.conftest import write_job

COUNT = 40
LABELS = [number % 6 for number in range(COUNT)]


def pictures() -> np.ndarray[Any, Any]:
    return np.arange(COUNT * 12, dtype=np.int64).reshape(COUNT, 4, 3).astype(np.uint8)


def write_npz(folder: Path) -> dict[str, Any]:
    np.savez(folder / "all.npz", x=pictures(), y=np.asarray(LABELS), secret=np.asarray(LABELS))
    return {"file": "all.npz", "fields": {"x": "x", "label": "y", "other": "secret"}}


def write_jsonl(folder: Path) -> dict[str, Any]:
    lines = [json.dumps({"x": pictures()[n].tolist(), "y": LABELS[n], "why": "label"}) for n in range(COUNT)]
    (folder / "all.jsonl.gz").write_bytes(gzip.compress("\n\n".join(lines).encode()))
    return {"file": "all.jsonl.gz", "fields": {"x": "x", "label": "y"}}


def write_parquet(folder: Path) -> dict[str, Any]:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    parts = [{"bytes": pictures()[n].tobytes(), "name": f"class-{LABELS[n]}"} for n in range(COUNT)]
    table = pyarrow.table({"image": parts, "y": LABELS})
    parquet.write_table(table, folder / "all.parquet", row_group_size=7)
    return {"file": "all.parquet", "fields": {"x": "image.bytes", "label": "y"}}


def write_idx(folder: Path) -> dict[str, Any]:
    for name, values in (("pictures", pictures()), ("labels", np.asarray(LABELS, np.uint8))):
        head = bytes((0, 0, 8, values.ndim)) + np.asarray(values.shape, ">u4").tobytes()
        (folder / f"{name}.idx.gz").write_bytes(gzip.compress(head + values.tobytes()))
    return {"images": "pictures.idx.gz", "labels": "labels.idx.gz"}


WRITERS = {"npz": write_npz, "jsonl": write_jsonl, "parquet": write_parquet, "idx": write_idx}


def plain(fields: Mapping[str, Source]) -> dict[str, Any]:
    return {name: value.tolist() if isinstance(value, np.ndarray) else value for name, value in fields.items()}


@pytest.mark.parametrize("kind", list(WRITERS))
def test_inputs_stay_what_they_were_and_labels_go(kind: str, job: dict[str, Any], tmp_path: Path) -> None:
    source = tmp_path / "dataset"
    source.mkdir()
    split = WRITERS[kind](source) | {"samples": COUNT}
    port = job["model"]["inputs"][0]
    port |= {"type": "tensor", "steps": [], "shape": [None, 4, 3]}
    if kind != "idx":
        port["field"] = "x"
    job |= {"dataset": {"format": kind, "split": split}, "stage": "unlabel", "order_seed": "a lock"}
    asked = parse_job(job)
    output = tmp_path / "out"
    output.mkdir()
    run(asked, tmp_path, output)
    table = json.loads((output / UNLABELLED).read_text())
    shown = open_samples(Dataset(table["format"], table["split"], None), output / "dataset")
    whole = open_samples(asked.dataset, source)
    order = read_order(output / ORDER).tolist()
    assert shown.labels is None
    assert sorted(order) == list(range(COUNT)) != order
    field = next(iter(shown.fields))
    assert shown.fields == {"image" if kind == "idx" else "x"}
    for place, number in enumerate(order):
        assert plain(shown.read(place)) == {field: plain(whole.read(number))[field]}
    content = b"".join(path.read_bytes() for path in (output / "dataset").iterdir())
    assert not any(word in content for word in (b"class-", b"secret", b"label", b"why"))


def test_all_fields_are_kept_where_an_input_names_none(job: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "dataset").mkdir()
    split = write_jsonl(tmp_path / "dataset") | {"samples": COUNT}
    job |= {"dataset": {"format": "jsonl", "split": split}, "stage": "unlabel", "order_seed": "a lock"}
    job["model"]["inputs"][0] |= {"type": "tensor", "steps": [], "shape": [None, 4, 3]}
    output = tmp_path / "out"
    output.mkdir()
    run(parse_job(job), tmp_path, output)
    assert json.loads((output / UNLABELLED).read_text())["split"]["fields"] == {"x": "x"}


def test_files_are_listed_under_names_that_say_nothing(job: dict[str, Any], tmp_path: Path) -> None:
    write_job(tmp_path, job)
    output = tmp_path / "out"
    output.mkdir()
    run(parse_job(job | {"stage": "unlabel", "order_seed": "a lock"}), tmp_path, output)
    order = read_order(output / ORDER).tolist()
    assert json.loads((output / FILES).read_text())["files"] == [f"pictures/{number}.png" for number in order]
    index = (output / "dataset" / "index.csv").read_text().splitlines()
    assert index == ["path", *(sample_path(number) for number in range(30))]


def test_an_order_is_the_same_for_a_lock_and_another_for_the_next() -> None:
    one, again, other = (shuffle([1000], seed) for seed in ("sha256:a", "sha256:a", "sha256:b"))
    assert one == again != other
    assert sorted(one) == sorted(other) == list(range(1000))
    assert sum(place == number for place, number in enumerate(one)) < 10
    groups = shuffle([10] * 10, "sha256:a")
    assert {number // 10 for number in groups[:10]} == {groups[0] // 10}


def test_a_state_that_is_never_reset_keeps_the_order(job: dict[str, Any], tmp_path: Path) -> None:
    state = {
        "name": "state",
        "type": "state",
        "dtype": "float32",
        "shape": [None, 2],
        "from": "next",
        "reset": "never",
        "initial": "zeros",
    }
    job["model"]["inputs"].append(state)
    job["model"]["outputs"].append({"name": "next", "type": "state"})
    write_job(tmp_path, job)
    output = tmp_path / "out"
    output.mkdir()
    run(parse_job(job | {"stage": "unlabel", "order_seed": "a lock"}), tmp_path, output)
    assert read_order(output / ORDER).tolist() == list(range(30))


def test_predictions_return_to_the_order_of_the_split(job: dict[str, Any], tmp_path: Path) -> None:
    asked = parse_job(job)
    order = np.asarray([2, 0, 1])
    values = np.arange(6, dtype=np.float32).reshape(3, 2)
    save_tensors(tmp_path / "shown.safetensors", {"scores": values[order], "planted": values})
    restore_order(tmp_path / "shown.safetensors", tmp_path / PREDICTIONS, asked.model, order)

    found = load_file(tmp_path / PREDICTIONS)
    assert list(found) == ["scores"]
    np.testing.assert_array_equal(found["scores"], values)


def test_detections_and_rows_return_to_the_order_of_the_split(job: dict[str, Any], tmp_path: Path) -> None:

    boxes = {"type": "detections", "boxes": "scores", "scores": "scores", "box_format": "xyxy-absolute"}
    job["model"]["predictions"] = boxes | {"label_offset": 0, "score_threshold": 0.1}
    job["model"]["outputs"].append({"name": "mask", "type": "mask", "label_offset": 0})
    job["metrics"] = ["map"]
    model = parse_job(job).model
    rows = np.array([[0, 7, 0.5, 0, 0, 1, 1], [2, 8, 0.5, 0, 0, 1, 1], [2, 9, 0.25, 0, 0, 1, 1]])
    masks = {"mask": np.arange(6), "mask.rows": np.array([1, 2, 3]), "mask.geometry": np.full((3, 8), np.nan)}
    save_tensors(tmp_path / "shown.safetensors", {"detections": rows, **masks})
    restore_order(tmp_path / "shown.safetensors", tmp_path / PREDICTIONS, model, np.asarray([1, 2, 0]))
    found = load_file(tmp_path / PREDICTIONS)
    assert found["detections"][:, :2].tolist() == [[0, 8], [0, 9], [1, 7]]
    assert (found["mask"].tolist(), found["mask.rows"].tolist()) == ([3, 4, 5, 0, 1, 2], [3, 1, 2])
