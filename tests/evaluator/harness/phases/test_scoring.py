"""Quality is a function of the stored predictions and the labels: no model, and no trust in the file."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from safetensors.numpy import load_file, save_file

from benchlock.evaluator.harness.core.failures import Failure
from benchlock.evaluator.harness.core.job_parser import parse_job
from benchlock.evaluator.harness.inference.predictions import PREDICTIONS, PredictionRecorder, StoredPredictions
from benchlock.evaluator.harness.phases.scoring import score
from benchlock.evaluator.harness.steps.step_tensor import Geometry
from tests.evaluator.harness.conftest import Finished

Tensors = dict[str, NDArray[Any]]


def test_the_score_needs_predictions_and_labels_alone(ordinary: Finished, job: dict[str, Any], tmp_path: Path) -> None:
    shutil.copytree(ordinary.output.parent / "job" / "dataset", tmp_path / "dataset")
    found = score(parse_job(job), tmp_path / "dataset", ordinary.output / PREDICTIONS)
    assert (
        found.quality
        == ordinary.result["quality"]
        == {"top1": {"correct": 27, "n": 30}, "top5": {"correct": 29, "n": 30}}
    )
    assert found.measures == {}


@pytest.mark.parametrize(
    ("forge", "message"),
    [
        (lambda tensors: {"scores": tensors["scores"][:-1]}, "scores has .* samples, but the dataset has 30"),
        (lambda tensors: {"other": tensors["scores"]}, "no tensor 'scores'"),
        (lambda tensors: tensors | {"scores.rows": np.full(30, 2)}, "scores.rows does not add up"),
        (lambda tensors: tensors | {"scores.rows": np.array([-1] * 29 + [59])}, "are not sizes of samples"),
        (lambda tensors: tensors | {"scores.shapes": np.full((30, 3), 1 << 62)}, "scores.shapes does not add up"),
    ],
)
def test_predictions_of_other_samples_are_refused(
    forge: Callable[[Tensors], Tensors], message: str, ordinary: Finished, job: dict[str, Any], tmp_path: Path
) -> None:
    save_file(forge(load_file(ordinary.output / PREDICTIONS)), tmp_path / PREDICTIONS)
    with pytest.raises(Failure, match=message) as caught:
        score(parse_job(job), ordinary.output.parent / "job" / "dataset", tmp_path / PREDICTIONS)
    assert caught.value.kind == "predict"


def test_a_file_that_holds_no_tensors_is_refused(ordinary: Finished, job: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / PREDICTIONS).write_bytes(b"{}")
    with pytest.raises(Failure, match=PREDICTIONS):
        score(parse_job(job), ordinary.output.parent / "job" / "dataset", tmp_path / PREDICTIONS)


def test_a_split_without_labels_has_no_score(ordinary: Finished, job: dict[str, Any], tmp_path: Path) -> None:
    dataset = tmp_path / "dataset"
    shutil.copytree(ordinary.output.parent / "job" / "dataset", dataset)
    index = (dataset / "index.csv").read_text().splitlines()
    (dataset / "index.csv").write_text("\n".join(line.partition(",")[0] for line in index))
    with pytest.raises(Failure, match="the split has no labels, which quality metrics need") as caught:
        score(parse_job(job), dataset, ordinary.output / PREDICTIONS)
    assert caught.value.kind == "load"


def test_masks_keep_where_their_pixels_came_from(job: dict[str, Any], tmp_path: Path) -> None:
    job["metrics"] = ["miou"]
    job["model"]["outputs"] = [{"name": "mask", "type": "mask", "label_offset": 0}]
    model = parse_job(job).model
    ways = [Geometry.identity(20, 30).resized(7, 9).cropped(1, 0, 5, 9), None]
    masks = [np.zeros((5, 9), np.uint8), np.ones((4, 4), np.uint8)]
    recorder = PredictionRecorder(model)
    for mask, way in zip(masks, ways, strict=True):
        recorder.add({"mask": mask}, way)
    save_file(recorder.tensors(), tmp_path / PREDICTIONS)
    read = list(StoredPredictions(tmp_path / PREDICTIONS, model, ["mask"], 2))
    assert [way for _, way in read] == ways
    for mask, (tensors, _) in zip(masks, read, strict=True):
        np.testing.assert_array_equal(tensors["mask"], mask)


@pytest.mark.parametrize("sample", [-1.0, 2.0, 0.5])
def test_detections_of_no_sample_are_refused(sample: float, job: dict[str, Any], tmp_path: Path) -> None:
    boxes = {"type": "detections", "boxes": "scores", "scores": "scores", "box_format": "xyxy-absolute"}
    job["model"]["predictions"] = boxes | {"label_offset": 0, "score_threshold": 0.1}
    job["metrics"] = ["map"]
    save_file({"detections": np.array([[sample, 1, 0.5, 0, 0, 1, 1]])}, tmp_path / PREDICTIONS)
    with pytest.raises(Failure, match="detections: "):
        StoredPredictions(tmp_path / PREDICTIONS, parse_job(job).model, ["detections"], 2)


@pytest.mark.parametrize(("forged", "message"), [(False, None), (True, "contradicts the steps of the model")])
def test_code_cannot_say_that_a_picture_was_cropped(
    forged: bool, message: str | None, job: dict[str, Any], tmp_path: Path
) -> None:
    """A mask that is right in one corner alone is said to lie over that corner."""
    (tmp_path / "masks").mkdir()
    truth = np.zeros((8, 12), np.uint8)
    truth[:2, :2] = 1
    Image.fromarray(truth).save(tmp_path / "masks" / "0.png")
    Image.fromarray(np.zeros((8, 12), np.uint8)).save(tmp_path / "0.png")
    (tmp_path / "index.csv").write_text("path,mask\n0.png,masks/0.png\n")
    job["dataset"] = {"format": "image-index", "split": {"index": "index.csv", "samples": 1}}
    job |= {"metrics": ["miou"], "task": "semantic-segmentation"}
    job["model"]["outputs"] = [{"name": "mask", "type": "mask", "label_offset": 0}]
    job["model"]["inputs"][0]["steps"].append({"python": {"file": "cheat.py", "function": "step"}})
    asked = parse_job(job)
    whole = Geometry.identity(8, 12)
    recorder = PredictionRecorder(asked.model)
    recorder.add({"mask": np.ones((8, 12), np.uint8)}, whole.cropped(0, 0, 2, 2) if forged else whole)
    save_file(recorder.tensors(), tmp_path / PREDICTIONS)
    if message is None:
        assert score(asked, tmp_path, tmp_path / PREDICTIONS).quality["miou"]["value"] < 0.1
        return
    with pytest.raises(Failure, match=message):
        score(asked, tmp_path, tmp_path / PREDICTIONS)
