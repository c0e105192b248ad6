"""Top-1 and top-5 of scores, of indices and of one binary score."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from evaluator.harness.datasets import Samples
from evaluator.harness.failures import Failure
from evaluator.harness.job import Axes, Output
from evaluator.harness.pipeline import Prepared
from evaluator.harness.quality import decisions, open_tally
from evaluator.harness.reading import parse_job


def output(kind: str = "class-scores", offset: int = 0, threshold: float | None = None) -> Output:
    return Output("scores", kind, None, Axes(0, None, None), offset, threshold, ())


def test_right_samples_are_counted_after_the_label_offset(job: dict[str, Any]) -> None:
    job["model"]["outputs"][0]["label_offset"] = 1
    labels = (6, 7, 2, 1)
    samples = Samples(lambda _number: {}, [str(label) for label in labels], labels, frozenset())
    tally = open_tally(parse_job(job), samples)
    scores = np.arange(8, dtype=np.float32)  # class 7 first, then 6, 5, 4, 3
    for label in labels:
        tally.add({"scores": scores}, label, Prepared((), {}))
    assert tally.document() == {"top1": {"correct": 1, "n": 4}, "top5": {"correct": 2, "n": 4}}


def test_ties_go_to_the_lowest_index() -> None:
    scores = np.array([0, 4, 9, 9, 4, 4, 4, 4], np.int8)
    assert decisions(output(), scores, 1).tolist() == [2]
    assert decisions(output(), scores, 5).tolist() == [2, 3, 1, 4, 5]


def test_axes_of_length_one_are_no_matter_and_fewer_classes_are_all_of_them() -> None:
    assert decisions(output(), np.array([[[1.0, 3.0, 2.0]]]), 5).tolist() == [1, 2, 0]


@pytest.mark.parametrize(("score", "expected"), [(0.7, [1, 0]), (0.5, [1, 0]), (0.4999, [0, 1])])
def test_one_score_is_class_1_from_its_threshold_on(score: float, expected: list[int]) -> None:
    assert decisions(output(threshold=0.5), np.array([score]), 2).tolist() == expected
    assert decisions(output(threshold=0.5), np.array([score]), 1).tolist() == expected[:1]


def test_indices_are_taken_as_they_are() -> None:
    assert decisions(output("class-index"), np.array(4), 1).tolist() == [4]
    assert decisions(output("class-index"), np.array([4, 2, 9, 1, 0, 3]), 5).tolist() == [4, 2, 9, 1, 0]


@pytest.mark.parametrize(
    ("port", "values", "ranks", "message"),
    [
        (output("class-index"), np.array(4), 5, "1 classes a sample, top5 needs 5"),
        (output(), np.zeros((2, 3)), 1, r"\[2, 3\] are no classes of one sample"),
        (output(), np.zeros(1), 1, "needs a threshold"),
    ],
)
def test_what_holds_no_classes_is_refused(port: Output, values: NDArray[np.float64], ranks: int, message: str) -> None:
    with pytest.raises(Failure, match=message):
        decisions(port, values, ranks)
