"""References of the operators in float64, with NumPy alone: the inputs by name, then the arguments of the case."""

from typing import Any

import numpy as np

Arrays = dict[str, np.ndarray[Any, np.dtype[np.float64]]]


def conv(inputs: Arrays, arguments: dict[str, Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the convolution of ``X`` (NCHW) with ``W`` (OIHW)."""
    x, w = inputs["X"], inputs["W"]
    top, left, bottom, right = arguments["pads"]
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    vertical, horizontal = arguments["strides"]
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2:], axis=(2, 3))
    windows = windows[:, :, ::vertical, ::horizontal]
    return np.ascontiguousarray(np.einsum("nchwij,ocij->nohw", windows, w, optimize=True))


def gemm(inputs: Arrays, arguments: dict[str, Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return the product of ``A`` and ``B``, each transposed where the arguments say so."""
    a = inputs["A"].T if arguments["transA"] else inputs["A"]
    b = inputs["B"].T if arguments["transB"] else inputs["B"]
    return a @ b
