"""Sampling without antialiasing: each result is a weighted sum of the few pixels around one point.

The sums are written out tap by tap in float64, with no matrix product, so that they do not depend on a BLAS.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .tensor import StepError

# Keys, "Cubic convolution interpolation for digital image processing", 1981, equation 15 with this parameter.
_CUBIC = -0.75

_Taps = tuple[NDArray[np.int64], NDArray[np.float64]]


def interpolate(values: NDArray[Any], size: tuple[int, int], method: str, coordinates: str) -> NDArray[Any]:
    """H x W x C in float64 to ``size``; pixels beyond the border are those of the border."""
    for axis, length in enumerate(size):
        indices, weights = _taps(values.shape[axis], length, method, coordinates)
        shape = [length if index == axis else 1 for index in range(values.ndim)]
        total = np.zeros(())
        for tap in range(indices.shape[1]):
            total = total + np.take(values, indices[:, tap], axis) * weights[:, tap].reshape(shape)
        values = total
    return values


def _taps(source: int, target: int, method: str, coordinates: str) -> _Taps:
    """Indices and weights, each [target, taps]."""
    points = _points(source, target, coordinates)
    if method == "nearest":
        indices, weights = _nearest(points, coordinates), np.ones((target, 1))
    elif method == "bilinear":
        base = np.floor(points)
        indices = base[:, None] + [0, 1]
        weights = np.stack([1 - (points - base), points - base], axis=1)
    elif method == "bicubic":
        indices = np.floor(points)[:, None] + [-1, 0, 1, 2]
        weights = _cubic(np.abs(points[:, None] - indices))
    else:
        raise StepError(f"{method!r} has no form without antialias")
    return np.clip(indices, 0, source - 1).astype(np.int64), weights


def _points(source: int, target: int, coordinates: str) -> NDArray[np.float64]:
    """Where in the source, in pixels from the first one's centre, each result is read."""
    results = np.arange(target, dtype=np.float64)
    if coordinates == "half_pixel":
        return (results + 0.5) * source / target - 0.5
    if coordinates == "asymmetric":
        return results * source / target
    if coordinates == "align_corners":
        return results * (source - 1) / max(target - 1, 1)
    raise StepError(f"no coordinates {coordinates!r}")


def _nearest(points: NDArray[np.float64], coordinates: str) -> NDArray[np.float64]:
    """The pixel that holds the point; with ``align_corners`` the nearest centre, half to even.

    A pixel reaches from half a pixel before its centre in ``half_pixel``, and from its centre on in ``asymmetric``.
    """
    if coordinates == "align_corners":
        return np.rint(points)[:, None]
    shift = 0.5 if coordinates == "half_pixel" else 0.0
    return np.floor(points + shift)[:, None]


def _cubic(distance: NDArray[np.float64]) -> NDArray[np.float64]:
    near = (_CUBIC + 2) * distance**3 - (_CUBIC + 3) * distance**2 + 1
    far = _CUBIC * (distance**3 - 5 * distance**2 + 8 * distance - 4)
    return np.where(distance <= 1, near, np.where(distance < 2, far, 0.0))  # noqa: PLR2004 - two pixels away
