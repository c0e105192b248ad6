"""Steps of outputs. Equal values rank by their index, the lowest first."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .tensor import Tensor, floating


def softmax(tensor: Tensor, *, axis: int) -> Tensor:
    """``exp(x) / sum(exp(x))`` along ``axis``.

    Computed in float64, so that the exponential of another processor hardly ever changes the rounded result.
    """
    values = floating(tensor.values)
    wide = values.astype(np.float64)
    powers = np.exp(wide - wide.max(axis=axis, keepdims=True))
    return tensor._replace(values=(powers / powers.sum(axis=axis, keepdims=True)).astype(values.dtype))


def sigmoid(tensor: Tensor) -> Tensor:
    """``1 / (1 + exp(-x))``, computed in float64 without overflow."""
    values = floating(tensor.values)
    small = np.exp(-np.abs(values.astype(np.float64)))
    return tensor._replace(values=np.where(values >= 0, 1 / (1 + small), small / (1 + small)).astype(values.dtype))


def argmax(tensor: Tensor, *, axis: int) -> Tensor:
    """The index of the largest value along ``axis``, as int64."""
    return tensor._replace(values=np.argmax(tensor.values, axis=axis).astype(np.int64), layout=None)


def topk(tensor: Tensor, *, k: int) -> Tensor:
    """The indices of the ``k`` largest values along the last axis, the largest first, as int64."""
    return tensor._replace(values=ranking(tensor.values, k), layout=None)


def ranking(values: NDArray[Any], k: int) -> NDArray[np.int64]:
    """The indices of the ``k`` largest along the last axis; equal values in the order of their indices."""
    return np.argsort(-values.astype(np.float64), axis=-1, kind="stable")[..., :k].astype(np.int64)
