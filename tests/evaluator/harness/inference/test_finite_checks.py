"""Outputs that are not finite are a failure of their own, in every task and every phase, and are never ranked."""

import json
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from benchlock.evaluator.harness.core.failures import Failure
from benchlock.evaluator.harness.core.job_parser import parse_job
from benchlock.evaluator.harness.inference.detections import detect
from benchlock.evaluator.harness.inference.finite_checks import FiniteCheck
from benchlock.evaluator.harness.inference.predictions import PREDICTIONS
from benchlock.evaluator.harness.phases.scoring import score
from benchlock.evaluator.harness.quality.tally import open_tally
from benchlock.evaluator.harness.steps.step_tensor import Geometry
from tests.evaluator.harness.conftest import JOB, Finished

NAN, INF = float("nan"), float("inf")


@pytest.fixture
def unsound(
    run: Callable[[dict[str, Any]], Finished], tmp_path: Path
) -> Callable[[dict[str, Any], str, int], dict[str, Any]]:
    """Run a job whose model answers with a value from a sample on; return the failure."""

    def failure(job: dict[str, Any], value: str, first: int) -> dict[str, Any]:
        job["model"]["predictor"] = "unsound"
        (tmp_path / "job" / "model").mkdir(parents=True)
        (tmp_path / "job" / "model" / "unsound.json").write_text(json.dumps({"value": value, "from": first}))
        result = run(job).result
        return {"outcome": result["outcome"], "quality": result["quality"], **(result["failure"] or {})}

    return failure


@pytest.mark.parametrize(("value", "counts"), [("nan", "(20 NaN, 0 infinite)"), ("inf", "(0 NaN, 20 infinite)")])
@pytest.mark.parametrize("steps", [[], [{"softmax": {"axis": -1}}], [{"argmax": {"axis": -1}}]])
def test_a_run_fails_with_counts_and_the_first_sample(
    value: str,
    counts: str,
    steps: list[Any],
    job: dict[str, Any],
    unsound: Callable[[dict[str, Any], str, int], dict[str, Any]],
) -> None:
    job["metrics"] = ["top1"]
    job["scenario"] = {"name": "accuracy", "warmup": 0, "batch": 4}
    job["model"]["outputs"][0]["steps"] = steps
    if steps and "argmax" in steps[0]:
        job["model"]["outputs"][0]["type"] = "class-index"
    found = unsound(job, value, 10)
    assert (found["outcome"], found["class"], found["quality"]) == ("failed", "non-finite", {})
    said = "output scores: 20 of 180 values are not finite " + counts
    assert found["message"].startswith(f"{said}, in 20 of 30 samples, first in sample 10 (pictures/10.png); ")
    assert "allow_non_finite: true" in found["message"]


def test_a_run_without_a_quality_metric_fails_too(
    job: dict[str, Any], unsound: Callable[[dict[str, Any], str, int], dict[str, Any]]
) -> None:
    job["metrics"] = []
    job["scenario"] = {"name": "accuracy", "warmup": 0, "batch": 1}
    found = unsound(job, "nan", 29)
    assert found["class"] == "non-finite"
    assert (
        "1 of 180 values are not finite (1 NaN, 0 infinite), in 1 of 30 samples, first in sample 29" in found["message"]
    )


def test_a_timed_run_fails_too(
    job: dict[str, Any], unsound: Callable[[dict[str, Any], str, int], dict[str, Any]]
) -> None:
    job["metrics"] = ["latency_p50"]
    job["model"]["outputs"][0]["steps"] = []
    found = unsound(job, "nan", 0)
    assert found["class"] == "non-finite"
    assert found["message"].startswith("output scores in timed answers: 1 of 6 values are not finite")


def test_a_step_that_nan_breaks_is_a_failure_of_the_model_and_not_of_the_step(
    job: dict[str, Any], unsound: Callable[[dict[str, Any], str, int], dict[str, Any]]
) -> None:
    job["metrics"] = ["top1"]
    job["scenario"] = {"name": "accuracy", "warmup": 0, "batch": 1}
    job["model"]["outputs"][0]["steps"] = [{"cast": {"dtype": "int32"}}]
    found = unsound(job, "nan", 4)
    assert found["class"] == "non-finite"
    assert "in 1 of 5 samples, first in sample 4" in found["message"]


def test_where_the_manifest_allows_them_they_are_never_right(
    job: dict[str, Any], unsound: Callable[[dict[str, Any], str, int], dict[str, Any]]
) -> None:
    job["metrics"] = ["top1", "top5"]
    job["scenario"] = {"name": "accuracy", "warmup": 0, "batch": 4}
    job["model"]["outputs"][0] |= {"steps": [], "allow_non_finite": True}
    found = unsound(job, "nan", 10)
    assert found["outcome"] == "done"
    # Of the first ten samples three have another label than what they show, one of which is not among the five best.
    assert found["quality"] == {"top1": {"correct": 7, "n": 30}, "top5": {"correct": 9, "n": 30}}


def stored(tmp_path: Path, tensors: dict[str, NDArray[Any]]) -> Path:
    save_file(tensors, tmp_path / PREDICTIONS)
    return tmp_path / PREDICTIONS


def forged(ordinary: Finished, tmp_path: Path) -> Path:
    scores = load_file(ordinary.output / PREDICTIONS)["scores"].copy()
    scores[3:] = NAN
    return stored(tmp_path, {"scores": scores})


def test_stored_predictions_are_looked_at_again(ordinary: Finished, job: dict[str, Any], tmp_path: Path) -> None:
    dataset = ordinary.output.parent / "job" / "dataset"
    with pytest.raises(
        Failure, match=r"162 of 180 values are not finite .*in 27 of 30 samples, first in sample 3 "
    ) as e:
        score(parse_job(job), dataset, forged(ordinary, tmp_path))
    assert e.value.kind == "non-finite"


def test_predictions_of_earlier_harnesses_are_scored_as_these_did(
    ordinary: Finished, job: dict[str, Any], tmp_path: Path
) -> None:
    dataset = ordinary.output.parent / "job" / "dataset"
    found = score(parse_job(job), dataset, forged(ordinary, tmp_path), admits_non_finite=True)
    # All that is NaN is class 0, which every sixth sample has, sample 1 by mistake.
    assert found.quality["top1"] == {"correct": 4, "n": 30}


@pytest.mark.parametrize("several", [False, True])
def test_no_decision_is_made_of_nan_where_it_is_allowed(*, several: bool, job: dict[str, Any]) -> None:
    job["model"]["outputs"] = [
        {"name": "scores", "type": "class-scores", "threshold": 0.5, "allow_non_finite": True}
        | ({"reduce": "none"} if several else {})
    ]
    job["metrics"] = ["top1"]
    for ranks_nan, correct in ((False, 1), (True, 2)):
        tally = open_tally(parse_job(deepcopy(job)), ranks_nan=ranks_nan)
        for value in (NAN, 0.1):  # a score below the threshold is class 0
            tally.add({"scores": np.array([value], np.float32)}, 0, None)
        found = tally.document()["top1"]
        assert found.get("correct", found.get("value", 0) * 2) == correct


@pytest.mark.parametrize(
    ("metric", "output", "label"),
    [("mae", {"type": "value"}, 1.0), ("miou", {"type": "mask", "label_offset": 0}, np.zeros((2, 2), np.uint8))],
)
def test_no_error_and_no_mask_is_made_of_nan_even_where_it_is_allowed(
    metric: str, output: dict[str, Any], label: float | NDArray[Any], job: dict[str, Any]
) -> None:
    job["metrics"] = [metric]
    job["model"]["outputs"] = [{"name": "answer", "allow_non_finite": True, **output}]
    shape = np.shape(label) or (1,)
    with pytest.raises(Failure) as caught:
        open_tally(parse_job(job)).add({"answer": np.full(shape, NAN, np.float32)}, label, None)
    assert caught.value.kind == "non-finite"


def detector(**more: bool) -> dict[str, Any]:
    job = deepcopy(JOB)
    job["task"] = "object-detection"
    job["metrics"] = ["map"]
    job["model"]["outputs"] = [{"name": "boxes", "type": "boxes"}, {"name": "scores", "type": "box-scores", **more}]
    job["model"]["predictions"] = {
        "type": "detections",
        "boxes": "boxes",
        "scores": "scores",
        "classes": None,
        "count": None,
        "box_format": "xyxy-absolute",
        "background": None,
        "label_offset": 0,
        "score_threshold": 0.1,
        "nms": None,
        "max_detections": None,
    }
    return job


@pytest.mark.parametrize("value", [NAN, -INF])
def test_scores_of_boxes_do_not_vanish(value: float) -> None:
    model = parse_job(detector()).model
    answer = {"boxes": np.zeros((2, 1, 4), np.float32), "scores": np.array([[0.9], [value]], np.float32)}
    finite = FiniteCheck(model, ["a", "b"])
    finite.add_call(answer, 0, 2)
    with pytest.raises(Failure, match=r"output scores: 1 of 2 values .* in 1 of 2 samples, first in sample 1 \(b\)"):
        finite.check()
    allowed = FiniteCheck(parse_job(detector(allow_non_finite=True)).model)
    allowed.add_call(answer, 0, 2)
    allowed.check()


def test_a_box_that_is_not_finite_is_no_detection_even_where_it_is_allowed() -> None:
    terms = parse_job(detector(allow_non_finite=True)).model.detections
    assert terms is not None
    answer = {"boxes": np.full((1, 4), NAN, np.float32), "scores": np.array([0.9], np.float32)}
    with pytest.raises(Failure) as caught:
        detect(terms, answer, Geometry.identity(4, 4))
    assert caught.value.kind == "non-finite"


def test_every_call_of_a_sample_counts_and_the_sample_once(job: dict[str, Any]) -> None:
    finite = FiniteCheck(parse_job(job).model)
    for _ in range(3):
        finite.add_call({"scores": np.array([[NAN, 1.0]], np.float32)}, 0, 1)
    finite.add_call({"scores": np.array([[INF, 1.0]], np.float32)}, 1, 1)
    with pytest.raises(Failure, match=r"4 of 8 values are not finite \(3 NaN, 1 infinite\), in 2 of 2 samples"):
        finite.check()


@pytest.mark.parametrize("values", [np.array([[1, 2]]), np.array([[True, False]]), np.ones((1, 2), np.float16)])
def test_finite_values_of_every_type_pass(values: NDArray[Any], job: dict[str, Any]) -> None:
    finite = FiniteCheck(parse_job(job).model)
    finite.add_call({"scores": values, "calls": np.array([[NAN]])}, 0, 1)
    finite.check()
