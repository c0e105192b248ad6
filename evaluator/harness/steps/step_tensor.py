"""The tensors that steps pass on: values, named axes and the geometry of the original image."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

UNKNOWN_GEOMETRY = "its steps do not determine the origin of its pixels"


@dataclass(frozen=True, slots=True)
class Geometry:
    """The relation of an image to its original: a position = the original's position times ``scale`` plus ``offset``.

    ``scale`` and ``offset`` are (x, y), in pixels from the outer corner of the first pixel. ``original`` and ``size``,
    the size of the image now, are (height, width) in pixels; the original's after its stated orientation was applied.
    """

    scale: tuple[float, float]
    offset: tuple[float, float]
    original: tuple[int, int]
    size: tuple[int, int]

    @classmethod
    def identity(cls, height: int, width: int) -> "Geometry":
        """Return the geometry of an unmodified image."""
        return cls((1.0, 1.0), (0.0, 0.0), (height, width), (height, width))

    def resized(self, height: int, width: int) -> "Geometry":
        """Return the geometry after a resize; borders stay borders, whatever pixels the method reads."""
        x, y = width / self.size[1], height / self.size[0]
        return replace(
            self,
            scale=(self.scale[0] * x, self.scale[1] * y),
            offset=(self.offset[0] * x, self.offset[1] * y),
            size=(height, width),
        )

    def cropped(self, top: int, left: int, height: int, width: int) -> "Geometry":
        """Return the geometry of ``height`` x ``width`` pixels after ``top`` rows and ``left`` columns are removed."""
        return replace(self, offset=(self.offset[0] - left, self.offset[1] - top), size=(height, width))

    def padded(self, top: int, bottom: int, left: int, right: int) -> "Geometry":
        """Return the geometry after margins are added, in pixels."""
        height, width = self.size
        return self.cropped(-top, -left, height + top + bottom, width + left + right)

    def to_original(self, corners: NDArray[Any]) -> NDArray[np.float64]:
        """Convert positions [..., 2 k], alternating x and y, to pixels of the original."""
        turns = corners.shape[-1] // 2
        positions: NDArray[np.float64] = (corners - np.tile(self.offset, turns)) / np.tile(self.scale, turns)
        return positions


Source = bytes | str | NDArray[Any]
"""A field of a sample as its dataset stores it: an encoded file, a text, or an array."""

_LONG = 8


class StepError(ValueError):
    """An error of a step that cannot be applied to the tensor."""


class Tensor(NamedTuple):
    """One sample.

    ``layout`` names its axes without the batch (``HWC``); None after a step that removed the names. ``rate`` is that of
    a sound, in hertz; ``geometry`` that of an image. A step keeps what it does not change.
    """

    values: NDArray[Any]
    layout: str | None = None
    rate: int | None = None
    geometry: Geometry | None = None


def as_file(source: Source) -> Source:
    """Return an encoded file as bytes, also if stored as a 1-D array of bytes; other sources unchanged."""
    if isinstance(source, np.ndarray) and source.ndim == 1 and source.dtype == np.uint8:
        return source.tobytes()
    return source


def axis_of(tensor: Tensor, letter: str, step: str) -> int:
    """Return the axis ``letter``; raise ``StepError`` if the layout lacks it."""
    if tensor.layout is None or letter not in tensor.layout:
        raise StepError(f"{step} needs an axis {letter}; the layout here is {tensor.layout}")
    return tensor.layout.index(letter)


def apply_as_hwc(tensor: Tensor, step: str, function: Callable[[NDArray[Any]], NDArray[Any]]) -> Tensor:
    """Apply ``function`` to the values as H x W x C; return them in the tensor's own layout."""
    if tensor.layout == "HWC":
        return tensor._replace(values=function(tensor.values))
    order = [axis_of(tensor, letter, step) for letter in "HWC"]
    result = function(np.transpose(tensor.values, order))
    return tensor._replace(values=np.transpose(result, np.argsort(order)))


def saturate(values: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Convert ``values`` to ``dtype``; integer types round half to even and clip to their range.

    A plain conversion of values out of range differs between CPUs.

    Raises:
        StepError: A value is not a number.
    """
    if dtype.kind not in "iu" or values.dtype == dtype or values.dtype.kind == "b":
        return values.astype(dtype)
    limits = np.iinfo(dtype)
    converted: NDArray[Any]
    if values.dtype.kind != "f":
        source_limits = np.iinfo(values.dtype)
        converted = np.clip(values, max(limits.min, source_limits.min), min(limits.max, source_limits.max)).astype(
            dtype
        )
        return converted
    if np.isnan(values).any():
        raise StepError(f"cannot convert NaN or infinities to {dtype}")
    rounded = np.rint(values.astype(np.float64))
    # float64 cannot represent the greatest 64-bit integers: values above the next lower float64 become the greatest.
    greatest = float(limits.max) if dtype.itemsize < _LONG else np.nextafter(float(limits.max), 0)
    converted = np.clip(rounded, limits.min, greatest).astype(dtype)
    return converted if dtype.itemsize < _LONG else np.where(rounded > greatest, dtype.type(limits.max), converted)


def floating(values: NDArray[Any]) -> NDArray[Any]:
    """Return ``values`` if their type is floating, else as float32."""
    if values.dtype.kind == "f":
        return values
    return values.astype(np.float32)
