"""Samples into batches, answers into predictions, and what is refused on the way."""

from typing import Any

import numpy as np
import pytest

from evaluator.harness.accuracy import batch_size
from evaluator.harness.datasets import Samples
from evaluator.harness.failures import Failure
from evaluator.harness.job import Axes, Model, Output, Step
from evaluator.harness.pipeline import answers, prepared, stack
from evaluator.harness.reading import parse_job

FREE = Axes(0, None, None)


@pytest.fixture
def samples() -> Samples:
    pictures = [np.full((8, 12), number, np.uint8) for number in range(4)]
    return Samples(lambda number: pictures[number], [f"images[{number}]" for number in range(4)], None)


@pytest.fixture
def model(job: dict[str, Any]) -> Model:
    return parse_job(job).model


def output(axes: Axes = FREE, dtype: str | None = None, steps: tuple[Step, ...] = ()) -> Output:
    return Output("scores", "class-scores", dtype, axes, 0, None, steps)


def test_a_sample_is_prepared_as_the_manifest_says(model: Model, samples: Samples) -> None:
    picture = prepared(model, samples, 3)["picture"]
    assert (str(picture.dtype), picture.shape, float(picture.mean())) == ("float32", (1, 8, 12), 3.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"dtype": "float64"}, r"the steps give float32 \[1, 8, 12\] CHW, the manifest says float64"),
        ({"shape": [None, 1, 12, 8]}, r"the manifest says float32 \[1, 12, 8\] CHW"),
        ({"shape": [None, 8, 12]}, r"the manifest says float32 \[8, 12\] CHW"),
        ({"layout": "NHWC"}, r"\[1, 8, 12\] CHW, the manifest says float32 \[1, 8, 12\] HWC"),
        ({"steps": []}, "the first step of a picture is decode"),
        ({"steps": [{"blur": {}}]}, r"steps\[0\].blur: no such step"),
        ({"steps": [{"decode": {"color": "L"}}]}, r"steps\[0\].decode: TypeError: .*'exif'"),
    ],
)
def test_a_result_that_the_manifest_does_not_declare_is_refused(
    job: dict[str, Any], samples: Samples, change: dict[str, Any], message: str
) -> None:
    job["model"]["inputs"][0] |= change
    with pytest.raises(Failure, match=message) as caught:
        prepared(parse_job(job).model, samples, 1)
    assert caught.value.kind == "step"
    assert caught.value.message.startswith("sample 1 (images[1]), input picture")


def test_a_free_batch_is_what_there_is(model: Model, samples: Samples) -> None:
    batch = stack(model, [prepared(model, samples, number) for number in (2, 0, 1)])
    assert batch["picture"].shape == (3, 1, 8, 12)
    assert batch["picture"][:, 0, 0, 0].tolist() == [2, 0, 1]


@pytest.mark.parametrize(
    ("shape", "axis", "expected"), [([4, 1, 8, 12], 0, (4, 1, 8, 12)), ([1, 8, 4, 12], 2, (1, 8, 4, 12))]
)
def test_a_fixed_batch_is_filled_with_the_last_sample_on_its_axis(
    job: dict[str, Any], samples: Samples, shape: list[int], axis: int, expected: tuple[int, ...]
) -> None:
    job["model"]["inputs"][0] |= {"shape": shape, "batch_axis": axis, "layout": None}
    fixed = parse_job(job).model
    batch = stack(fixed, [prepared(fixed, samples, number) for number in (0, 3)])["picture"]
    assert batch.shape == expected
    assert np.moveaxis(batch, axis, 0)[:, 0, 0, 0].tolist() == [0, 3, 3, 3]
    assert batch_size(fixed, 1) == 4


def test_a_tensor_without_a_batch_axis_is_one_sample(job: dict[str, Any], samples: Samples) -> None:
    job["model"]["inputs"][0] |= {"shape": [1, 8, 12], "batch_axis": "none", "layout": "CHW"}
    lone = parse_job(job).model
    assert batch_size(lone, 16) == 1
    assert stack(lone, [prepared(lone, samples, 2)])["picture"].shape == (1, 8, 12)


def test_answers_are_cut_to_the_samples_and_follow_the_output_steps() -> None:
    scores = np.array([[1, 5, 5], [9, 0, 0], [0, 0, 1]], np.float32)
    found = answers([output(steps=(Step("argmax", {"axis": -1}),))], {"scores": scores}, 2, "samples 0 to 1")
    assert [prediction["scores"].tolist() for prediction in found] == [1, 0]


def test_answers_may_have_their_batch_elsewhere_or_nowhere() -> None:
    scores = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
    columns = answers([output(Axes(1, None, None))], {"scores": scores}, 2, "")
    assert [prediction["scores"].tolist() for prediction in columns] == [[1, 3, 5], [2, 4, 6]]
    (whole,) = answers([output(Axes(None, 1, None))], {"scores": scores}, 1, "")
    assert whole["scores"].shape == (3, 2)


@pytest.mark.parametrize(
    ("port", "kind", "message"),
    [
        (output(dtype="float32"), "predict", "the model returns float64, the manifest says float32"),
        (output(Axes(0, None, (5,))), "predict", r"a sample is \[2\], the manifest says \[5\]"),
        (output(Axes(2, None, None)), "predict", r"\[3, 2\] has no 3 samples on axis 2"),
        (output(Axes(1, None, None)), "predict", r"\[3, 2\] has no 3 samples on axis 1"),
        (output(steps=(Step("softmax", {"axis": 4}),)), "step", r"output scores, steps\[0\].softmax: AxisError"),
    ],
)
def test_an_answer_that_the_manifest_does_not_declare_is_refused(port: Output, kind: str, message: str) -> None:
    with pytest.raises(Failure, match=message) as caught:
        answers([port], {"scores": np.zeros((3, 2))}, 3, "samples 0 to 2")
    assert caught.value.kind == kind
