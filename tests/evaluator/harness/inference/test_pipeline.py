"""Samples into batches, answers into predictions, and what is refused on the way."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchlock.evaluator.harness.core.failures import Failure
from benchlock.evaluator.harness.core.job_parser import parse_job
from benchlock.evaluator.harness.datasets import Samples
from benchlock.evaluator.harness.inference.pipeline import Pipeline

Piped = Callable[[dict[str, Any]], Pipeline]


@pytest.fixture
def samples() -> Samples:
    pictures = [np.full((8, 12), number, np.uint8) for number in range(4)]
    names = [f"images[{number}]" for number in range(4)]
    return Samples(lambda number: {"image": pictures[number]}, names, None, frozenset(("image",)))


@pytest.fixture
def piped(tmp_path: Path) -> Piped:
    return lambda job: Pipeline(parse_job(job).model, tmp_path)


def test_a_sample_is_prepared_as_the_manifest_says(job: dict[str, Any], piped: Piped, samples: Samples) -> None:
    (call,) = piped(job).prepare(samples, 3).calls
    picture = call["picture"]
    assert (str(picture.dtype), picture.shape, float(picture.mean())) == ("float32", (1, 8, 12), 3.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "float64"}, r"the steps return float32 \[1, 8, 12\] CHW, but the manifest states float64"),
        ({"shape": [None, 1, 12, 8]}, r"but the manifest states float32 \[1, 12, 8\] CHW"),
        ({"shape": [None, 8, 12]}, r"but the manifest states float32 \[8, 12\] CHW"),
        ({"layout": "NHWC"}, r"\[1, 8, 12\] CHW, but the manifest states float32 \[1, 8, 12\] HWC"),
        ({"steps": []}, "the first step for encoded files must be decode"),
        ({"steps": [{"decode": {"color": "L"}}]}, r"steps\[0\].decode: TypeError: .*'exif'"),
    ],
)
def test_a_result_that_the_manifest_does_not_declare_is_refused(
    job: dict[str, Any], piped: Piped, samples: Samples, change: dict[str, Any], message: str
) -> None:
    job["model"]["inputs"][0] |= change
    with pytest.raises(Failure, match=message) as caught:
        piped(job).prepare(samples, 1)
    assert caught.value.kind == "step"
    assert caught.value.message.startswith("sample 1 (images[1]), input picture")


def test_a_step_that_is_none_is_refused_before_the_first_sample(job: dict[str, Any], piped: Piped) -> None:
    job["model"]["inputs"][0]["steps"] = [{"blur": {}}]
    with pytest.raises(Failure, match=r"input picture: StepError: steps\[0\].blur: unknown step") as caught:
        piped(job)
    assert caught.value.kind == "load"


def test_a_free_batch_is_what_there_is(job: dict[str, Any], piped: Piped, samples: Samples) -> None:
    pipeline = piped(job)
    batch = pipeline.stack([pipeline.prepare(samples, number).calls[0] for number in (2, 0, 1)])
    assert batch["picture"].shape == (3, 1, 8, 12)
    assert batch["picture"][:, 0, 0, 0].tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("shape", "axis", "expected"), [([4, 1, 8, 12], 0, (4, 1, 8, 12)), ([1, 8, 4, 12], 2, (1, 8, 4, 12))]
)
def test_a_fixed_batch_is_filled_with_the_last_sample_on_its_axis(
    job: dict[str, Any], piped: Piped, samples: Samples, shape: list[int], axis: int, expected: tuple[int, ...]
) -> None:
    job["model"]["inputs"][0] |= {"shape": shape, "batch_axis": axis, "layout": None}
    fixed = piped(job)
    batch = fixed.stack([fixed.prepare(samples, number).calls[0] for number in (0, 3)])["picture"]
    assert batch.shape == expected
    assert np.moveaxis(batch, axis, 0)[:, 0, 0, 0].tolist() == [0, 3, 3, 3]
    assert fixed.batch_size(1) == 4


@pytest.mark.parametrize(("shape", "axis"), [([None, 3, 8, 12], 0), ([3, 8, None, 12], 2)])
def test_what_a_framework_is_given_lies_in_order_in_memory(
    job: dict[str, Any], piped: Piped, shape: list[int | None], axis: int
) -> None:
    pictures = np.random.default_rng(7).integers(0, 256, (2, 8, 12, 3)).astype(np.uint8)
    colours = Samples(lambda number: {"image": pictures[number]}, ["a", "b"], None, frozenset(("image",)))
    job["model"]["inputs"][0] |= {"shape": shape, "batch_axis": axis, "layout": None}
    job["model"]["inputs"][0]["steps"][0] = {"decode": {"color": "RGB", "exif": "ignore"}}
    pipeline = piped(job)
    calls = [pipeline.prepare(colours, number).calls[0] for number in (0, 1)]
    several = pipeline.stack(calls)["picture"]
    assert all(values.flags.c_contiguous for values in (calls[0]["picture"], several))
    assert np.array_equal(np.moveaxis(several, axis, 0), pictures.transpose(0, 3, 1, 2))


def test_a_tensor_without_a_batch_axis_is_one_sample(job: dict[str, Any], piped: Piped, samples: Samples) -> None:
    job["model"]["inputs"][0] |= {"shape": [1, 8, 12], "batch_axis": "none", "layout": "CHW"}
    lone = piped(job)
    assert lone.batch_size(16) == 1
    assert lone.stack([lone.prepare(samples, 2).calls[0]])["picture"].shape == (1, 8, 12)


def test_answers_are_cut_to_the_samples_and_follow_the_output_steps(job: dict[str, Any], piped: Piped) -> None:
    scores = np.array([[1, 5, 5], [9, 0, 0], [0, 0, 1]], np.float32)
    job["model"]["outputs"][0]["steps"] = [{"argmax": {"axis": -1}}]
    found = piped(job).answers({"scores": scores}, 2, "samples 0 to 1")
    assert [prediction["scores"].tolist() for prediction in found] == [1, 0]


def test_answers_may_have_their_batch_elsewhere_or_nowhere(job: dict[str, Any], piped: Piped) -> None:
    scores = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    job["model"]["outputs"] = [{"name": "scores", "type": "class-scores", "batch_axis": 1}]
    columns = piped(job).answers({"scores": scores}, 2, "")
    assert [prediction["scores"].tolist() for prediction in columns] == [[1, 3, 5], [2, 4, 6]]
    job["model"]["outputs"][0]["batch_axis"] = "none"
    (whole,) = piped(job).answers({"scores": scores}, 1, "")
    assert whole["scores"].shape == (3, 2)


@pytest.mark.parametrize(
    ("change", "kind", "message"),
    [
        ({"dtype": "float32"}, "predict", "the model returns float64, but the manifest states float32"),
        ({"shape": [None, 5]}, "predict", r"a sample is \[2\], but the manifest states \[5\]"),
        ({"shape": [3, 99]}, "predict", r"a sample is \[2\], but the manifest states \[99\]"),
        ({"shape": [3, 2, 1]}, "predict", r"a sample is \[2\], but the manifest states \[2, 1\]"),
        ({"shape": []}, "predict", r"a sample is \[3, 2\], but the manifest states \[\]"),
        (
            {"shape": [99, 2], "batch_axis": "none"},
            "predict",
            r"a sample is \[3, 2\], but the manifest states \[99, 2\]",
        ),
        ({"shape": [4, 2]}, "predict", r"\[3, 2\] has 3 samples on axis 0, but the manifest states 4"),
        ({"batch_axis": 2}, "predict", r"\[3, 2\] has no 3 samples on axis 2"),
        ({"batch_axis": 1}, "predict", r"\[3, 2\] has no 3 samples on axis 1"),
        ({"steps": [{"softmax": {"axis": 4}}]}, "step", r"output scores, steps\[0\].softmax: AxisError"),
    ],
)
def test_an_answer_that_the_manifest_does_not_declare_is_refused(
    job: dict[str, Any], piped: Piped, change: dict[str, Any], kind: str, message: str
) -> None:
    job["model"]["outputs"] = [{"name": "scores", "type": "class-scores", **change}]
    with pytest.raises(Failure, match=message) as caught:
        piped(job).answers({"scores": np.zeros((3, 2))}, 3, "samples 0 to 2")
    assert caught.value.kind == kind


def test_an_answer_that_is_no_tensor_is_refused(job: dict[str, Any], piped: Piped) -> None:
    """ONNX has sequences and maps: the probabilities of scikit-learn's classifiers are a list of dictionaries."""
    with pytest.raises(Failure, match="output scores: the model returns a list, which is not a tensor") as caught:
        piped(job).answers({"scores": [{0: 0.5, 1: 0.5}]}, 1, "sample 0")  # type: ignore[dict-item]
    assert caught.value.kind == "predict"
