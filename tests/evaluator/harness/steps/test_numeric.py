"""Steps of any tensor and of outputs, against Python's numbers and lists, einsum, SciPy and values by hand."""

import numpy as np
import pytest
from scipy.special import expit
from scipy.special import softmax as scipy_softmax

from benchlock.evaluator.harness.steps import StepError, Tensor
from benchlock.evaluator.harness.steps.numeric import (
    argmax,
    cast,
    dequantize,
    normalize,
    pad,
    quantize,
    reshape,
    scale,
    sigmoid,
    softmax,
    topk,
    transpose,
)

INTEGERS = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"]


def test_cast_to_an_integer_rounds_half_to_even_and_clips() -> None:
    values = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 254.5, 255.5, 1e9, -1e9], np.float32)
    assert cast(Tensor(values), dtype="uint8").values.tolist() == [0, 2, 2, 0, 0, 254, 255, 255, 0]
    assert cast(Tensor(values), dtype="int32").values.tolist()[-2:] == [1000000000, -1000000000]
    assert cast(Tensor(np.array([0, 127, 128, 255], np.uint8)), dtype="int8").values.tolist() == [0, 127, 127, 127]
    assert cast(Tensor(np.array([-5, 300], np.int64)), dtype="uint8").values.tolist() == [0, 255]


@pytest.mark.parametrize("given", ["float16", "float32", "float64"])
@pytest.mark.parametrize("dtype", INTEGERS)
def test_cast_takes_what_is_beyond_a_type_to_its_limits_and_no_number_nowhere(dtype: str, given: str) -> None:
    """Also of 64 bits, whose greatest integers no floating type has."""
    limits = np.iinfo(dtype)
    beyond = np.array([np.inf, float(np.finfo(given).max), -np.inf, float(np.finfo(given).min)], given)
    expected = [min(max(value, limits.min), limits.max) for value in (10**400, int(np.finfo(given).max))]
    expected += [min(max(value, limits.min), limits.max) for value in (-(10**400), int(np.finfo(given).min))]
    for values, wanted in ((beyond, expected), (beyond[0], expected[0]), (beyond[:0], [])):
        found = cast(Tensor(np.asarray(values)), dtype=dtype).values
        assert (str(found.dtype), found.tolist()) == (dtype, wanted)
    with pytest.raises(StepError, match=f"cannot convert NaN or infinities to {dtype}"):
        cast(Tensor(np.array([0, np.nan], given)), dtype=dtype)


@pytest.mark.parametrize("dtype", ["int64", "uint64"])
def test_cast_to_64_bits_is_exact_up_to_the_limits(dtype: str) -> None:
    limits = np.iinfo(dtype)
    end = float(limits.max)  # a power of two, one above the limit
    values = [np.nextafter(end, 0), end, np.nextafter(end, np.inf), 2.0**53 + 2, 0.5, -0.5, float(limits.min), -1e30]
    expected = [min(max(round(value), int(limits.min)), int(limits.max)) for value in values]
    assert cast(Tensor(np.array(values)), dtype=dtype).values.tolist() == expected
    step = quantize(Tensor(np.array([1e30, -1e30])), scale=0.5, zero_point=3, dtype=dtype).values
    assert step.tolist() == [limits.max, limits.min]


@pytest.mark.parametrize("given", ["float32", "float64", "int64"])
@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
def test_cast_is_pythons_round_and_the_limits_of_the_type(dtype: str, given: str) -> None:
    """Exactly: every second half on both sides of zero and of each limit, and values from far beyond them."""
    limits = np.iinfo(dtype)
    halves = np.arange(-9, 10) / 2
    far = np.random.default_rng(4).normal(0, 2.0 * limits.max, 200)
    values = np.concatenate([halves, limits.min + halves, limits.max + halves, far]).astype(given)
    expected = [min(max(round(value), int(limits.min)), int(limits.max)) for value in values.tolist()]
    found = cast(Tensor(values), dtype=dtype).values
    assert (str(found.dtype), found.tolist()) == (dtype, expected)


def test_cast_of_truth_values_makes_ones_and_zeros() -> None:
    for dtype in ("uint8", "int64", "float32"):
        found = cast(Tensor(np.array([True, False])), dtype=dtype).values
        assert (str(found.dtype), found.tolist()) == (dtype, [1, 0])


def test_scale_multiplies_in_the_type_of_the_tensor() -> None:
    values = np.array([1.1, 2.2], np.float32)
    scaled = scale(Tensor(values, "C"), factor=1 / 3)
    assert (str(scaled.values.dtype), scaled.layout) == ("float32", "C")
    np.testing.assert_array_equal(scaled.values, values * np.float32(1 / 3))
    # Bytes are made float32 first: 200 * 2 must not become 144.
    assert scale(Tensor(np.array([200], np.uint8)), factor=2).values.tolist() == [400.0]


def test_normalize_follows_the_channel_of_the_layout() -> None:
    picture = np.random.default_rng(1).normal(100, 50, (4, 5, 3)).astype(np.float32)
    mean, std = [123.68, 116.78, 103.94], [58.4, 57.1, 57.4]
    reference = np.einsum("hwc,c->hwc", picture.astype(float) - mean, 1 / np.asarray(std))
    last = normalize(Tensor(picture, "HWC"), mean=mean, std=std)
    first = normalize(Tensor(picture.transpose(2, 0, 1), "CHW"), mean=mean, std=std)
    assert last.values.dtype == np.float32
    np.testing.assert_allclose(last.values, reference, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(first.values, last.values.transpose(2, 0, 1))


def test_normalize_refuses_a_channel_count_that_is_not_the_tensors() -> None:
    with pytest.raises(StepError, match="3 means for 4 channels"):
        normalize(Tensor(np.zeros((2, 2, 4), np.float32), "HWC"), mean=[0] * 3, std=[1] * 3)
    with pytest.raises(StepError, match="needs an axis C"):
        normalize(Tensor(np.zeros((2, 2, 3), np.float32)), mean=[0] * 3, std=[1] * 3)
    with pytest.raises(StepError, match="2 means, but 1 standard deviations"):
        normalize(Tensor(np.zeros((2, 2, 2), np.float32), "HWC"), mean=[0] * 2, std=[1])


def test_transpose_goes_by_names() -> None:
    picture = np.arange(24).reshape(2, 3, 4)
    channels_first = transpose(Tensor(picture, "HWC"), layout="NCHW")
    assert channels_first.layout == "CHW"
    np.testing.assert_array_equal(channels_first.values, np.einsum("hwc->chw", picture))
    np.testing.assert_array_equal(transpose(channels_first, layout="NHWC").values, picture)
    with pytest.raises(StepError, match="cannot convert layout HWC to NTC"):
        transpose(Tensor(picture, "HWC"), layout="NTC")


def test_reshape_is_row_major_and_forgets_the_names() -> None:
    flat = reshape(transpose(Tensor(np.arange(6).reshape(1, 2, 3), "HWC"), layout="NCHW"), shape=[6])
    assert (flat.values.tolist(), flat.layout) == ([0, 3, 1, 4, 2, 5], None)


def test_pad_puts_borders_around_a_picture() -> None:
    picture = np.full((2, 3, 1), 9, np.uint8)
    padded = pad(Tensor(picture, "HWC"), top=1, bottom=0, left=0, right=2, value=114).values[..., 0]
    assert padded.tolist() == [[114] * 5, [9, 9, 9, 114, 114], [9, 9, 9, 114, 114]]
    with pytest.raises(StepError, match="-1 is not of type uint8"):
        pad(Tensor(picture, "HWC"), top=1, bottom=0, left=0, right=2, value=-1)
    with pytest.raises(StepError, match="pad needs"):
        pad(Tensor(picture, "HWC"), top=1, value=0)


@pytest.mark.parametrize(
    ("length", "side", "expected"),
    [(5, "end", [1, 2, 3, 0, 0]), (5, "start", [0, 0, 1, 2, 3]), (2, "end", [1, 2]), (2, "start", [2, 3])],
)
def test_pad_to_a_length_pads_or_cuts_at_its_side(length: int, side: str, expected: list[int]) -> None:
    assert pad(Tensor(np.array([1, 2, 3])), length=length, side=side, value=0).values.tolist() == expected


@pytest.mark.parametrize("side", ["start", "end"])
@pytest.mark.parametrize("length", [1, 3, 7, 8, 20])
def test_pad_to_a_length_is_what_lists_give(length: int, side: str) -> None:
    rows = np.random.default_rng(8).normal(size=(7, 2)).astype(np.float32)
    filling = [[-1.0, -1.0]] * length
    expected = (filling + rows.tolist())[-length:] if side == "start" else (rows.tolist() + filling)[:length]
    assert pad(Tensor(rows), length=length, side=side, value=-1).values.tolist() == expected


def test_quantize_rounds_half_to_even_then_shifts_and_clips() -> None:
    values = np.array([0.25, 0.75, 1.25, -100, 100], np.float32)
    quantized = quantize(Tensor(values), scale=0.5, zero_point=-3, dtype="int8")
    assert (str(quantized.values.dtype), quantized.values.tolist()) == ("int8", [-3, -1, -1, -128, 127])
    bytes_less_128 = quantize(Tensor(np.array([0, 128, 255], np.uint8)), scale=1.0, zero_point=-128, dtype="int8")
    assert bytes_less_128.values.tolist() == [-128, 0, 127]


def test_dequantize_is_its_inverse_on_every_step() -> None:
    steps = np.arange(-128, 128, dtype=np.int8)
    values = dequantize(Tensor(steps), scale=0.0078125, zero_point=-3, dtype="float32")
    assert values.values.dtype == np.float32
    np.testing.assert_array_equal(values.values, (np.arange(-128, 128) + 3) / 128)
    np.testing.assert_array_equal(quantize(values, scale=0.0078125, zero_point=-3, dtype="int8").values, steps)
    with pytest.raises(StepError, match="a floating-point type"):
        dequantize(Tensor(steps), scale=1.0, zero_point=0, dtype="int8")


def test_softmax_is_scipys_and_survives_large_scores() -> None:
    scores = np.random.default_rng(2).normal(0, 300, (3, 7)).astype(np.float32)
    for axis in (0, -1):
        found = softmax(Tensor(scores), axis=axis).values
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, scipy_softmax(scores.astype(float), axis=axis), rtol=1e-6, atol=1e-38)


def test_sigmoid_is_scipys_and_survives_large_scores() -> None:
    scores = np.array([-800, -90, -1, -0.0, 0.5, 90, 800], np.float32)
    with np.errstate(all="raise", under="ignore"):
        np.testing.assert_allclose(sigmoid(Tensor(scores)).values, expit(scores.astype(float)), rtol=1e-6, atol=1e-38)


def test_equal_scores_rank_by_the_lowest_index() -> None:
    scores = Tensor(np.array([3, 7, 7, -128, 7, 5], np.int8))
    assert argmax(scores, axis=-1).values.tolist() == 1
    assert topk(scores, k=4).values.tolist() == [1, 2, 4, 5]
    unsigned = Tensor(np.array([[0, 255, 0], [1, 0, 1]], np.uint8))
    assert topk(unsigned, k=3).values.tolist() == [[1, 0, 2], [0, 2, 1]]
