"""The audit of answers, of outputs that are no predictions themselves: boxes are made of them."""

from collections.abc import Callable
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchlock.evaluator.harness.core.failures import Failure
from benchlock.evaluator.harness.core.job import Axes, Model, Output
from benchlock.evaluator.harness.inference.mlperf_audits import (
    UNKEPT_OUTPUTS,
    UnkeptOutputs,
    check_answers,
    check_caching,
)
from benchlock.evaluator.harness.inference.predictions import join_outputs, save_tensors

NAMES = ("boxes", "scores")
DETECTOR = Model(
    format="onnx",
    predictor="onnxruntime",
    task="object-detection",
    signature=None,
    inputs=(),
    outputs=tuple(Output(name, name, "float32", Axes(0, None, None), 0, None, ()) for name in NAMES),
    files=(),
)


def answer(sample: int) -> dict[str, NDArray[Any]]:
    return {"boxes": np.full((3, 4), sample, np.float32), "scores": np.full((3, 1), sample / 10, np.float32)}


@pytest.fixture
def predictions(tmp_path: Path) -> Path:
    """The file of a phase that answered two samples and kept the boxes that it made, which the audit does not read."""
    unkept = UnkeptOutputs(NAMES)
    for sample in range(2):
        unkept.take(answer(sample))
    save_tensors(tmp_path / UNKEPT_OUTPUTS, join_outputs(unkept.predictions))
    save_tensors(tmp_path / "predictions.safetensors", {"detections": np.zeros((0, 7))})
    return tmp_path / "predictions.safetensors"


def test_what_boxes_are_made_of_is_compared(predictions: Path) -> None:
    """A sample that was not kept, the third, counts as none that was compared."""
    found = check_answers([(number, answer(number)) for number in (0, 1, 1, 2)], DETECTOR, predictions)
    assert found == {"answers": 3, "outputs": ["boxes", "scores"], "caught": False}


def test_other_boxes_where_it_is_timed_are_caught(predictions: Path) -> None:
    with pytest.raises(Failure, match=r"TEST01.*sample 1, output boxes: .*answer \[0, 0, 0, 0, …\]"):
        check_answers([(0, answer(0)), (1, answer(0))], DETECTOR, predictions)


def test_nothing_compared_is_no_audit(predictions: Path) -> None:
    assert check_answers([(2, answer(2))], DETECTOR, predictions) is None
    assert check_answers([(0, answer(0))], DETECTOR, predictions.with_name("absent") / "absent") is None


def halved(_sample: int) -> Callable[[], int]:
    """A millisecond for the first time, and half of it ever after."""
    times = chain([1_000_000], repeat(500_000))
    return lambda: next(times)


def test_a_sample_that_takes_less_time_again_is_caught() -> None:
    with pytest.raises(Failure, match=r"TEST04.* takes 50% of its first time .*, median of 6 samples"):
        check_caching(halved, bool, 6)


class Drowsy:
    """An honest model on a machine whose threads fall asleep, and that is slow for some calls in between too."""

    def __init__(self) -> None:
        self._asleep = 0
        self._calls = 0

    def prepared(self, _sample: int) -> Callable[[], int]:
        self._asleep = 2
        return self.ask

    def ask(self) -> int:
        self._asleep = max(0, self._asleep - 1)
        self._calls += 1
        return 1_000_000 * (1 + bool(self._asleep)) * (1 + (self._calls // 24) % 2)


def test_what_slows_the_calls_after_preparing_is_no_cache() -> None:
    drowsy = Drowsy()
    found = check_caching(drowsy.prepared, drowsy.ask, 64)
    assert (found["samples"], found["again"]["share"], found["repeated"]["share"]) == (64, 1.0, 1.0)


def test_samples_that_tell_nothing_are_left_out() -> None:
    assert check_caching(lambda sample: halved(sample) if sample < 4 else None, bool, 40)["samples"] == 4


def test_an_infinity_excuses_nothing(predictions: Path) -> None:
    expected = answer(0)
    expected["boxes"][0, 0] = -np.inf
    save_tensors(predictions.with_name(UNKEPT_OUTPUTS), join_outputs([expected]))
    other = {**expected, "boxes": expected["boxes"] + 1}
    model = replace(DETECTOR, outputs=tuple(replace(port, allow_non_finite=True) for port in DETECTOR.outputs))
    assert check_answers([(0, expected)], model, predictions) is not None
    with pytest.raises(Failure, match="TEST01"):
        check_answers([(0, other)], model, predictions)
    with pytest.raises(Failure, match="output boxes in timed answers") as caught:
        check_answers([(0, expected)], DETECTOR, predictions)
    assert caught.value.kind == "non-finite"


def test_a_few_samples_are_not_judged() -> None:
    found = check_caching(halved, bool, 5)
    assert (found["samples"], found["again"]["share"], found["caught"]) == (5, 0.5, False)
