"""Steps for numeric tensors: arithmetic, layout, quantization, softmax and ranking."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .step_tensor import StepError, Tensor, axis_of, floating, saturate


def cast(tensor: Tensor, *, dtype: str) -> Tensor:
    """Convert to ``dtype``; integer types round half to even and saturate."""
    return tensor._replace(values=saturate(tensor.values, np.dtype(dtype)))


def scale(tensor: Tensor, *, factor: float) -> Tensor:
    """Return ``x * factor`` in the tensor's floating type, float32 for integers."""
    values = floating(tensor.values)
    return tensor._replace(values=values * values.dtype.type(factor))


def normalize(tensor: Tensor, *, mean: Sequence[float], std: Sequence[float]) -> Tensor:
    """Return ``(x - mean) / std`` along the axis C in the tensor's floating type, float32 for integers."""
    values, axis = floating(tensor.values), 0
    if len(mean) != len(std):
        raise StepError(f"{len(mean)} means, but {len(std)} standard deviations")
    if len(mean) > 1:
        axis = axis_of(tensor, "C", "normalize with more than one mean")
        if values.shape[axis] != len(mean):
            raise StepError(f"{len(mean)} means for {values.shape[axis]} channels")
    result = values - _spread(tuple(mean), values.dtype, values.shape, axis)
    result /= _spread(tuple(std), values.dtype, values.shape, axis)
    return tensor._replace(values=result)


@lru_cache(maxsize=64)
def _spread(channels: tuple[float, ...], dtype: np.dtype[Any], shape: tuple[int, ...], axis: int) -> NDArray[Any]:
    """Return ``channels`` along ``axis`` of ``shape``, repeated along a row of pixels where that is the last axis.

    NumPy takes five times as long where its innermost loop is as short as a pixel.
    """
    values = np.asarray(channels, dtype)
    if values.size == 1:
        return values.reshape([1] * len(shape))
    values = values.reshape([-1 if index == axis else 1 for index in range(len(shape))])
    if axis != len(shape) - 1:
        return values
    return np.ascontiguousarray(np.broadcast_to(values, (*[1] * (len(shape) - 2), *shape[-2:])))


def transpose(tensor: Tensor, *, layout: str) -> Tensor:
    """Permute the axes to the order of ``layout``; its N, the batch, is not an axis of a sample."""
    target = layout.replace("N", "")
    if tensor.layout is None or sorted(target) != sorted(tensor.layout):
        raise StepError(f"cannot convert layout {tensor.layout} to {layout}")
    order = [tensor.layout.index(letter) for letter in target]
    return tensor._replace(values=np.transpose(tensor.values, order), layout=target)


def reshape(tensor: Tensor, *, shape: Sequence[int]) -> Tensor:
    """Give the values another shape in row-major order; the axes lose their names."""
    return tensor._replace(values=np.reshape(tensor.values, tuple(shape)), layout=None)


def pad(  # noqa: PLR0913 - two forms: four borders of an image, or a length and a side
    tensor: Tensor,
    *,
    value: float,
    top: int | None = None,
    bottom: int | None = None,
    left: int | None = None,
    right: int | None = None,
    length: int | None = None,
    side: str | None = None,
) -> Tensor:
    """Add borders of ``value`` to an image, in pixels; or pad or cut the first axis to ``length`` at ``side``."""
    values, geometry = tensor.values, None
    fill = np.asarray(value).astype(values.dtype)
    if fill != value and values.dtype.kind != "f":
        raise StepError(f"{value} is not of type {values.dtype}")
    widths = [(0, 0)] * values.ndim
    if top is not None and bottom is not None and left is not None and right is not None:
        widths[axis_of(tensor, "H", "pad")] = (top, bottom)
        widths[axis_of(tensor, "W", "pad")] = (left, right)
        geometry = tensor.geometry and tensor.geometry.padded(top, bottom, left, right)
    elif length is not None and side in ("start", "end"):
        missing = max(0, length - len(values))
        widths[0] = (0, missing) if side == "end" else (missing, 0)
        values = values[:length] if side == "end" else values[max(0, len(values) - length) :]
    else:
        raise StepError("pad needs top, bottom, left and right, or length and side")
    return tensor._replace(values=np.pad(values, widths, constant_values=fill), geometry=geometry)


def quantize(tensor: Tensor, *, scale: float, zero_point: int, dtype: str) -> Tensor:
    """Return ``clip(round(x / scale) + zero_point)``, divided in the tensor's floating type, float32 for integers."""
    values = floating(tensor.values)
    steps = np.rint(values / values.dtype.type(scale)).astype(np.float64)
    return tensor._replace(values=saturate(steps + zero_point, np.dtype(dtype)))


def dequantize(tensor: Tensor, *, scale: float, zero_point: int, dtype: str) -> Tensor:
    """Return ``(x - zero_point) * scale`` in the floating type ``dtype``."""
    target = np.dtype(dtype)
    if target.kind != "f":
        raise StepError(f"dequantize returns a floating-point type, not {dtype}")
    steps = (tensor.values.astype(np.float64) - zero_point).astype(target)
    return tensor._replace(values=steps * target.type(scale))


def softmax(tensor: Tensor, *, axis: int) -> Tensor:
    """Return ``exp(x) / sum(exp(x))`` along ``axis``.

    The computation is in float64, so that differences of exponentials between CPUs hardly ever change the rounded
    result.
    """
    values = floating(tensor.values)
    wide = values.astype(np.float64)
    powers = np.exp(wide - wide.max(axis=axis, keepdims=True))
    return tensor._replace(values=(powers / powers.sum(axis=axis, keepdims=True)).astype(values.dtype))


def sigmoid(tensor: Tensor) -> Tensor:
    """Return ``1 / (1 + exp(-x))``, computed in float64 without overflow."""
    values = floating(tensor.values)
    small = np.exp(-np.abs(values.astype(np.float64)))
    return tensor._replace(values=np.where(values >= 0, 1 / (1 + small), small / (1 + small)).astype(values.dtype))


def argmax(tensor: Tensor, *, axis: int) -> Tensor:
    """Return the index of the largest value along ``axis``, as int64."""
    return tensor._replace(values=np.argmax(tensor.values, axis=axis).astype(np.int64), layout=None)


def topk(tensor: Tensor, *, k: int) -> Tensor:
    """Return the indices of the ``k`` largest values along the last axis, the largest first, as int64."""
    return tensor._replace(values=ranking(tensor.values, k), layout=None)


def ranking(values: NDArray[Any], k: int) -> NDArray[np.int64]:
    """Return the indices of the ``k`` largest values along the last axis; equal values in index order."""
    return np.argsort(-values.astype(np.float64), axis=-1, kind="stable")[..., :k].astype(np.int64)
