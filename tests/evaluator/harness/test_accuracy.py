"""What is stored of the accuracy phase."""

from typing import Any

import numpy as np
import pytest

from evaluator.harness.accuracy import stored
from evaluator.harness.failures import Failure
from evaluator.harness.reading import parse_job


def test_calls_that_are_kept_apart_follow_one_another_where_samples_have_more_or_fewer(job: dict[str, Any]) -> None:
    job["model"]["outputs"][0]["reduce"] = "none"
    model = parse_job(job).model
    two, three = np.ones((2, 4), np.float32), np.zeros((3, 4), np.float32)
    found = stored(model, [{"scores": two}, {"scores": three}])
    assert found["scores"].shape == (5, 4)
    assert found["scores.calls"].tolist() == [2, 3]
    assert stored(model, [{"scores": two}, {"scores": two}])["scores"].shape == (2, 2, 4)


def test_predictions_of_different_shapes_are_a_failure(job: dict[str, Any]) -> None:
    with pytest.raises(Failure, match="output scores of all samples") as caught:
        stored(parse_job(job).model, [{"scores": np.ones(2)}, {"scores": np.ones(3)}])
    assert caught.value.kind == "predict"
