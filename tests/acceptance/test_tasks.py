"""Detection, segmentation and regression through the real commands: what is found is known beforehand."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray
from pyarrow import parquet
from safetensors.numpy import load_file

from tests.support.api.commands import Commands
from tests.support.evaluator import painted
from tests.support.registry.digits import locked, written

pytestmark = [pytest.mark.engine, pytest.mark.image]

FLOATS = {"dtype": "float32", "batch_axis": 0}
TASKS: dict[str, dict[str, Any]] = {
    "object-detection": {
        "outputs": [
            {"name": "boxes", "type": "boxes", "shape": [1, 16, 4], **FLOATS},
            {"name": "scores", "type": "box-scores", "shape": [1, 16, 3], **FLOATS},
        ],
        "predictions": {
            "type": "detections",
            "boxes": "boxes",
            "scores": "scores",
            "classes": None,
            "count": None,
            "box_format": "xyxy-relative",
            "background": 0,
            "label_offset": 1,
            "score_threshold": 0.5,
            "nms": {"iou": 0.5, "per_class": True},
            "max_detections": 10,
        },
    },
    "semantic-segmentation": {
        "outputs": [
            {"name": "mask", "type": "mask", "shape": [1, 32, 32], **FLOATS, "dtype": "int64", "label_offset": 0}
        ]
    },
    "regression": {"outputs": [{"name": "value", "type": "value", "shape": [1, 1], **FLOATS}]},
}
DATASETS: dict[str, dict[str, Any]] = {
    "object-detection": {
        "format": "coco",
        "splits": {"test": {"annotations": "coco.json", "images": "pictures/", "samples": 4}},
        "labels": "names.txt",
        "files": [{"path": "coco.json", "source": "coco.json"}, {"path": "names.txt", "source": "names.txt"}],
    },
    "semantic-segmentation": {
        "format": "image-index",
        "splits": {"test": {"index": "masks.csv", "samples": 4}},
        "ignore_label": 255,
        "files": [{"path": "masks.csv", "source": "masks.csv"}, {"path": "masks/", "source": "masks"}],
    },
    "regression": {
        "format": "image-index",
        "splits": {"test": {"index": "brightness.csv", "samples": 4}},
        "files": [{"path": "brightness.csv", "source": "brightness.csv"}],
    },
}
TIMED = {"name": "single_stream", "min_queries": 400, "min_duration": "1ms", "warmup": 4}
METRICS = {
    "object-detection": ["map", "map_50", "latency"],
    "semantic-segmentation": ["miou"],
    "regression": ["mae", "rmse"],
}


def model(task: str) -> dict[str, Any]:
    given = {"name": "x", "type": "image", "dtype": "float32", "shape": [1, 3, 32, 32], "batch_axis": 0}
    return {
        "schema": 1,
        "kind": "model",
        "name": task,
        "version": "1.0.0",
        "license": "Apache-2.0",
        "task": task,
        "framework": {"name": "onnxruntime", "version": "*"},
        "format": "onnx",
        "inputs": [given | {"layout": "NCHW", "steps": painted.STEPS}],
        **TASKS[task],
        "files": [{"path": "model.onnx", "role": "graph", "source": f"{task}.onnx"}],
    }


def dataset(task: str) -> dict[str, Any]:
    files = [*DATASETS[task]["files"], {"path": "pictures/", "source": "pictures"}]
    head = {"schema": 1, "kind": "dataset", "name": f"{task}-pictures", "version": "1.0.0", "license": "CC0-1.0"}
    return head | DATASETS[task] | {"files": files}


def request(task: str) -> dict[str, Any]:
    return {
        "schema": 1,
        "kind": "evaluation",
        "name": task,
        "model": {"name": task, "version": "*"},
        "dataset": {"name": f"{task}-pictures", "version": "*", "split": "test"},
        "hardware": {"os": "linux", "arch": "amd64", "device": "cpu"},
        "limits": {"time": "5m", "memory": "2GiB", "cpus": 1, "processes": 64},
        "scenario": TIMED if task == "object-detection" else {"name": "accuracy"},
        "metrics": METRICS[task],
        "seed": 7,
    }


FACES = {"1.jpg": 19, "3.jpg": 16}


class Ran(NamedTuple):
    """The metrics of a run, its predictions, what was kept of each sample, and its details."""

    metrics: Mapping[str, dict[str, Any]]
    predictions: Mapping[str, NDArray[Any]]
    quality: Mapping[str, NDArray[Any]]
    details: Mapping[str, Any]


@pytest.fixture(scope="module")
def folder(registry: Commands, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures, networks and manifests, all published."""
    place = tmp_path_factory.mktemp("painted") / "files"
    painted.write_pictures(place)
    (place / "names.txt").write_text("red\ngreen\n")
    networks = {"object-detection": painted.detector, "semantic-segmentation": painted.outliner}
    for task in TASKS:
        networks.get(task, painted.meter)(place / f"{task}.onnx")
        manifests = (written(place / f"{task}.{kind.__name__}.yaml", kind(task)) for kind in (model, dataset))
        registry.done("publish", *manifests)
    return place


@pytest.fixture(scope="module")
def run(registry: Commands, folder: Path) -> Any:  # noqa: ANN401 - a function
    """Lock and run a task in a container, once."""
    done: dict[str, Ran] = {}

    def run_of(task: str) -> Ran:
        if task not in done:
            ran = registry.done("run", locked(registry, folder, request(task)), "--isolation", "container")
            assert ran["end"]["outcome"] == "done", ran
            out = folder / f"{task}.out"
            registry.done("get", ran["run"], "-o", out)
            predictions, quality = (load_file(out / f"{name}.safetensors") for name in ("predictions", "quality"))
            details = registry.done("show", ran["run"])["end"]["details"]
            metrics = {metric["name"]: metric for metric in ran["end"]["metrics"]}
            done[task] = Ran(metrics, predictions, quality, details)
        return done[task]

    return run_of


def test_every_field_is_found_where_it_was_painted(run: Any) -> None:  # noqa: ANN401
    predictions = run("object-detection").predictions
    assert list(predictions) == ["detections"]
    expected = [
        [number, colour + 1, x, y, x + wide, y + high]
        for number in range(len(painted.PICTURES))
        for colour, x, y, wide, high in painted.boxes_of(number)
    ]
    found = predictions["detections"]
    np.testing.assert_allclose(np.delete(found, 2, axis=1), expected, atol=1e-3)
    assert (found[:, 2] > 0.8).all()


def test_average_precision_knows_the_field_that_is_not_there(run: Any) -> None:  # noqa: ANN401
    """All red fields are found, and two of three green ones: 67 of COCO's 101 recalls are reached."""
    metrics = run("object-detection").metrics
    for name in ("map", "map_50"):
        assert metrics[name]["value"] == pytest.approx((1 + 67 / 101) / 2)
        assert (metrics[name]["n"], metrics[name]["unit"]) == (4, "fraction")
        low, high = metrics[name]["ci"]
        assert low < metrics[name]["value"] <= high


def test_masks_are_compared_in_the_pixels_of_the_pictures(run: Any) -> None:  # noqa: ANN401
    metrics, predictions, kept, _ = run("semantic-segmentation")
    assert predictions["mask"].shape == (4, 32, 32)
    assert metrics["miou"]["value"] == 1.0
    compared = sum((painted.mask_of(number) != 255).sum() for number in range(4))
    assert kept["miou"][:, 2].sum() == kept["miou"][:, 3].sum() == compared


def test_numbers_miss_by_what_was_added(run: Any) -> None:  # noqa: ANN401
    metrics = run("regression").metrics
    for name in ("mae", "rmse"):
        assert metrics[name]["value"] == pytest.approx(0.5, abs=0.01)
        assert (metrics[name]["n"], metrics[name]["unit"]) == (4, "label")
        low, high = metrics[name]["ci"]
        assert low <= metrics[name]["value"] <= high


def test_pictures_in_the_rows_of_a_parquet_file_are_measured_as_those_of_an_index(
    registry: Commands,
    folder: Path,
    run: Any,  # noqa: ANN401
    tmp_path: Path,
) -> None:
    """Columns as the Hugging Face Hub has them: the bytes of a picture and its path, and a number."""
    rows = [row.split(",") for row in (folder / "brightness.csv").read_text().splitlines()[1:]]
    pictures = [{"bytes": (folder / path).read_bytes(), "path": path} for path, _ in rows]
    table = pa.table({"image": pictures, "brightness": [float(label) for _, label in rows]})
    parquet.write_table(table, tmp_path / "rows.parquet", row_group_size=3)
    fields = {"picture": "image.bytes", "label": "brightness"}
    document = dataset("regression") | {
        "name": "rows",
        "format": "parquet",
        "splits": {"test": {"file": "rows.parquet", "fields": fields, "samples": len(rows)}},
        "files": [{"path": "rows.parquet", "source": "rows.parquet"}],
    }
    registry.done("publish", written(tmp_path / "rows.yaml", document))
    asked = request("regression") | {"name": "rows", "dataset": {"name": "rows", "version": "*", "split": "test"}}
    ran = registry.done("run", locked(registry, tmp_path, asked), "--isolation", "container")
    assert ran["end"]["outcome"] == "done"
    assert {metric["name"]: metric for metric in ran["end"]["metrics"]} == run("regression").metrics


def test_a_detector_is_timed_and_answers_then_as_it_did_before(run: Any) -> None:  # noqa: ANN401
    detections: Ran = run("object-detection")
    for name in ("latency_p50", "latency_p90", "latency_p99"):
        metric = detections.metrics[name]
        low, high = (metric["value"] if end is None else end for end in metric["ci"])  # null: too short a run to tell
        assert metric["n"] >= 400
        assert 0 < low <= metric["value"] <= high
    assert detections.details["audits"]["answers"]["answers"] > 0


def test_a_rerun_of_detections_is_bit_equal(registry: Commands, run: Any, folder: Path) -> None:  # noqa: ANN401
    run("object-detection")
    verdict = registry.done("rerun", folder / "object-detection.lock")
    assert (verdict["verdict"], verdict["predictions"]) == ("reproduced", "bit-equal"), verdict


@pytest.mark.parametrize(("task", "labels"), [("object-detection", "regression"), ("regression", "object-detection")])
def test_boxes_are_compared_with_boxes_alone(task: str, labels: str, registry: Commands, folder: Path) -> None:
    asked = request(task) | {"name": "crossed", "dataset": request(labels)["dataset"]}
    error = registry.error(2, "lock", written(folder / "crossed.request.yaml", asked))
    assert "as labels" in error["message"]
    assert error["where"] == "metrics"


def test_ultraface_finds_as_many_faces_as_are_known(cases: Path, registry: Commands, tmp_path: Path) -> None:
    for file in (*FACES, "version-RFB-320.onnx"):
        shutil.copy(cases / "models" / "ultraface_rfb320" / file, tmp_path)
    (tmp_path / "index.csv").write_text("\n".join(["path", *FACES]) + "\n")
    registry.done(
        "publish", written(tmp_path / "model.yaml", ultraface()), written(tmp_path / "data.yaml", portraits())
    )
    asked = request("object-detection") | {"name": "ultraface", "metrics": [], "scenario": {"name": "accuracy"}}
    asked["model"] = {"name": "ultraface", "version": "*"}
    asked["dataset"] = {"name": "portraits", "version": "*", "split": "test"}
    ran = registry.done("run", locked(registry, tmp_path, asked), "--isolation", "container")
    registry.done("get", ran["run"], "-o", tmp_path / "out")
    found = load_file(tmp_path / "out" / "predictions.safetensors")["detections"]
    assert np.bincount(found[:, 0].astype(int)).tolist() == list(FACES.values())
    assert (found[:, 2] > 0.7).all()
    assert set(found[:, 1]) == {1}


def ultraface() -> dict[str, Any]:
    steps: list[dict[str, Any]] = [
        {"decode": {"color": "RGB", "exif": "ignore"}},
        {"resize": {"size": [240, 320], "method": "bilinear", "antialias": True}},
        {"cast": {"dtype": "float32"}},
        {"normalize": {"mean": [127, 127, 127], "std": [128, 128, 128]}},
        {"transpose": {"layout": "NCHW"}},
    ]
    document = json.loads(json.dumps(model("object-detection")))
    document |= {"name": "ultraface", "files": [{"path": "m.onnx", "role": "graph", "source": "version-RFB-320.onnx"}]}
    document["inputs"][0] |= {"name": "input", "shape": [1, 3, 240, 320], "steps": steps}
    document["outputs"][0] |= {"shape": [1, 4420, 4]}
    document["outputs"][1] |= {"shape": [1, 4420, 2]}
    limits = {"score_threshold": 0.7, "nms": {"iou": 0.3, "per_class": True}, "max_detections": None}
    document["predictions"] |= limits
    return document  # type: ignore[no-any-return] # of JSON


def portraits() -> dict[str, Any]:
    return {
        "schema": 1,
        "kind": "dataset",
        "name": "portraits",
        "version": "1.0.0",
        "license": "MIT",
        "format": "image-index",
        "splits": {"test": {"index": "index.csv", "samples": len(FACES)}},
        "files": [{"path": name, "source": name} for name in ("index.csv", *FACES)],
    }
