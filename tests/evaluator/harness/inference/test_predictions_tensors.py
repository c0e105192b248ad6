"""Predictions of all samples as one tensor, whatever their shapes."""

import numpy as np
import pytest

from benchlock.evaluator.harness.inference.predictions import join_samples


def test_samples_of_one_shape_are_stacked() -> None:
    stored = join_samples("scores", [np.full((2, 3), number) for number in range(4)])
    assert {name: values.shape for name, values in stored.items()} == {"scores": (4, 2, 3)}


def test_samples_that_differ_in_their_first_axis_are_joined_along_it() -> None:
    boxes = [np.full((count, 4), count, np.float32) for count in (2, 0, 3)]
    stored = join_samples("boxes", boxes)
    assert stored["boxes.rows"].tolist() == [2, 0, 3]
    for found, box in zip(np.split(stored["boxes"], [2, 2]), boxes, strict=True):
        np.testing.assert_array_equal(found, box)


def test_samples_that_differ_in_other_axes_are_joined_element_by_element() -> None:
    masks = [np.arange(6).reshape(2, 3), np.arange(8).reshape(4, 2)]
    stored = join_samples("mask", masks)
    assert stored["mask.shapes"].tolist() == [[2, 3], [4, 2]]
    assert stored["mask"].tolist() == [*range(6), *range(8)]


def test_samples_of_other_ranks_are_no_tensor() -> None:
    with pytest.raises(ValueError, match=r"different numbers of axes: \(2,\), \(2, 1\)"):
        join_samples("x", [np.zeros(2), np.zeros((2, 1))])
