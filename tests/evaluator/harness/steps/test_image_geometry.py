"""Where pixels came from: a bright spot is put through the steps, and is where the geometry says."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from benchlock.evaluator.harness.steps import STEPS, Tensor
from benchlock.evaluator.harness.steps.step_tensor import Geometry

HEIGHT, WIDTH = 120, 200
SPOT = (130.0, 52.0, 150.0, 64.0)  # x1, y1, x2, y2
TO_NCHW: dict[str, Any] = {"transpose": {"layout": "NCHW"}}
BIG: dict[str, Any] = {"resize": {"size": [240, 600], "method": "bilinear", "antialias": True}}
SMALL: dict[str, Any] = {"resize": {"shorter": 60, "method": "area", "antialias": True}}
ROUGH: dict[str, Any] = {
    "resize": {"size": [90, 300], "method": "bilinear", "antialias": False, "coordinates": "half_pixel"}
}
MARGINS: dict[str, Any] = {"pad": {"top": 7, "bottom": 3, "left": 12, "right": 0, "value": 0}}
CROP: dict[str, Any] = {"center_crop": {"size": [63, 120]}}


def picture() -> NDArray[np.uint8]:
    values = np.zeros((HEIGHT, WIDTH, 3), np.uint8)
    values[int(SPOT[1]) : int(SPOT[3]), int(SPOT[0]) : int(SPOT[2])] = 250
    return values


def followed(steps: list[dict[str, Any]]) -> Tensor:
    tensor = STEPS["image"]["decode"](picture(), color="RGB", exif="ignore")
    for step in steps:
        ((name, arguments),) = step.items()
        tensor = STEPS["image"][name](tensor, **arguments)
    return tensor


@pytest.mark.parametrize(
    "steps",
    [
        [],
        [BIG],
        [SMALL, {"center_crop": {"size": [60, 90]}}],
        [{"center_crop": {"fraction": 0.875}}, ROUGH],
        [MARGINS, BIG, {"cast": {"dtype": "float32"}}, TO_NCHW, {"scale": {"factor": 0.5}}],
        [{"cast": {"dtype": "float32"}}, TO_NCHW, ROUGH, MARGINS, {"center_crop": {"size": [95, 290]}}],
        [CROP, MARGINS, SMALL, {"normalize": {"mean": [0, 0, 0], "std": [2, 2, 2]}}],
    ],
)
def test_a_spot_is_where_the_geometry_says(steps: list[dict[str, Any]]) -> None:
    tensor = followed(steps)
    assert tensor.geometry is not None
    assert tensor.layout is not None
    values = np.transpose(tensor.values, [tensor.layout.index(letter) for letter in "HWC"]).max(axis=2)
    assert tensor.geometry.size == values.shape
    assert tensor.geometry.original == (HEIGHT, WIDTH)
    rows, columns = (np.flatnonzero(values.max(axis=axis) > values.max() / 2) for axis in (1, 0))
    here = np.array([columns[0], rows[0], columns[-1] + 1, rows[-1] + 1], np.float64)
    # What seeing the border costs: half a pixel of the picture as it is now, and a little for rounded values.
    within = 0.6 / min(tensor.geometry.scale)
    np.testing.assert_allclose(tensor.geometry.to_original(here), SPOT, atol=within)


def test_the_way_of_a_picture_whose_first_axis_was_cut_is_lost() -> None:
    cut = STEPS["image"]["pad"](followed([]), value=0, length=50, side="end")
    assert cut.geometry is None
    assert STEPS["image"]["resize"](cut, size=[10, 10], method="area", antialias=True).geometry is None
    assert STEPS["image"]["center_crop"](cut, size=[10, 10]).geometry is None


def test_a_corner_goes_back_exactly() -> None:
    there = Geometry.identity(100, 80).resized(50, 160).cropped(-5, 10, 60, 120)
    corners = np.array([[0.0, 0.0, 80.0, 100.0], [10.5, 20.0, 30.0, 99.0]])
    forth = corners * [2, 0.5, 2, 0.5] + [-10, 5, -10, 5]
    np.testing.assert_allclose(there.to_original(forth), corners, atol=1e-12)
