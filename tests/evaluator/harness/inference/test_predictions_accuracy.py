"""What is stored of the accuracy phase."""

import numpy as np
import pytest

from benchlock.evaluator.harness.core.failures import Failure
from benchlock.evaluator.harness.inference.predictions import join_outputs


def test_calls_that_are_kept_apart_follow_one_another_where_samples_have_more_or_fewer() -> None:
    two, three = np.ones((2, 4), np.float32), np.zeros((3, 4), np.float32)
    found = join_outputs([{"scores": two}, {"scores": three}])
    assert found["scores"].shape == (5, 4)
    assert found["scores.rows"].tolist() == [2, 3]
    assert join_outputs([{"scores": two}, {"scores": two}])["scores"].shape == (2, 2, 4)


def test_predictions_that_are_no_tensor_are_a_failure() -> None:
    with pytest.raises(Failure, match="output scores of all samples") as caught:
        join_outputs([{"scores": np.ones(2)}, {"scores": np.ones((3, 1))}])
    assert caught.value.kind == "predict"
