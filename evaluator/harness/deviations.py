"""How far values are from the expected ones: by how much, where, and which fault of a pipeline would explain it."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .job import Tolerance

Array = NDArray[Any]

_CHANNELS = 3
_MOST_AXES = 4
_EXACT = 1e-3  # of the values' range: an explanation leaves no more than this
_ALIKE = 0.9  # the correlation from which two pictures show the same thing


@dataclass(frozen=True, slots=True)
class Deviation:
    """``beyond`` of ``values`` differ by more than the tolerance; ``worst`` is where they exceed it most.

    ``largest`` is the greatest difference of all, infinite where only one of two values is a number.
    """

    values: int
    beyond: int
    largest: float
    worst: tuple[int, ...]
    found: float
    expected: float

    def __str__(self) -> str:
        place = f" at {list(self.worst)}" if self.worst else ""
        return (
            f"{self.beyond} of {self.values} values deviate, most{place}, "
            f"where it is {self.found:.9g} and {self.expected:.9g} is expected"
        )


def deviation(found: Array, expected: Array, tolerance: Tolerance) -> Deviation:
    """How ``found`` differs from ``expected``, which has its shape: ``|f - e| <= absolute + relative * |e|`` is none.

    Two that are no number are equal, and so are two infinities of one sign.
    """
    given, wanted = found.astype(np.float64), expected.astype(np.float64)
    with np.errstate(invalid="ignore"):
        gap = np.abs(given - wanted)
        # By where, not in place: the difference of two values without axes is a number.
        gap = np.where((given == wanted) | (np.isnan(given) & np.isnan(wanted)), 0.0, gap)
        gap = np.where(np.isnan(gap), np.inf, gap)
        allowed = tolerance.absolute + tolerance.relative * np.where(np.isfinite(wanted), np.abs(wanted), 0.0)
        excess = gap - allowed
    if not gap.size:
        return Deviation(0, 0, 0.0, (), 0.0, 0.0)
    worst = tuple(int(index) for index in np.unravel_index(int(np.argmax(excess)), gap.shape))
    beyond = int(np.count_nonzero(excess > 0))
    return Deviation(gap.size, beyond, float(gap.max()), worst, float(given[worst]), float(wanted[worst]))


def explanation(found: Array, expected: Array) -> str:
    """What would make one of the other, as advice where to look; empty where nothing here does.

    Tried are the faults that evaluations have: another order of axes or channels, a picture turned or mirrored,
    another scale and offset, another sampling.
    """
    given, wanted = found.astype(np.float64), expected.astype(np.float64)
    if not (given.size and np.isfinite(given).all() and np.isfinite(wanted).all()):
        return ""
    if given.shape == wanted.shape and np.array_equal(given, wanted):
        return "the values are the expected ones: look at cast"
    slack = _EXACT * float(np.ptp(wanted) or 1.0)
    for word, other in _rearranged(wanted, given):
        if float(np.abs(other.reshape(-1) - given.reshape(-1)).max()) <= slack:
            return word
    if given.shape != wanted.shape:
        return ""
    return _scaled(given, wanted) or _resampled(given, wanted)


def _rearranged(wanted: Array, given: Array) -> Iterator[tuple[str, Array]]:
    """The expected values in other orders, each as many as were found, with the fault that leads there."""
    if wanted.size != given.size or wanted.ndim > _MOST_AXES:
        return
    yield from _other_axes(wanted, given)
    if wanted.shape == given.shape:
        yield from _other_sides(wanted)


def _other_axes(wanted: Array, given: Array) -> Iterator[tuple[str, Array]]:
    if wanted.shape != given.shape:
        yield "the values are the expected ones under another shape: look at reshape and transpose", wanted
    for order in permutations(range(wanted.ndim)):
        if order != tuple(range(wanted.ndim)):
            yield (
                f"its axes are in the order {list(order)}: look at layout, transpose and reshape",
                wanted.transpose(order),
            )


def _other_sides(wanted: Array) -> Iterator[tuple[str, Array]]:
    for axis, size in enumerate(wanted.shape):
        if size == _CHANNELS:
            yield "the channels are in reverse: look at color, RGB or BGR", np.flip(wanted, axis)
        elif size > 1:
            yield f"axis {axis} is in reverse: look at exif", np.flip(wanted, axis)
    rows, columns = _sides(wanted)
    if columns is not None and wanted.shape[rows] == wanted.shape[columns]:
        for turns in (1, 2, 3):
            turned = np.rot90(wanted, turns, (rows, columns))
            yield "the picture is turned: look at exif", turned
            yield "the picture is turned: look at exif", np.flip(turned, columns)
    elif columns is not None:
        yield "the picture is turned: look at exif", np.rot90(wanted, 2, (rows, columns))


def _sides(values: Array) -> tuple[int, int | None]:
    """The axes of height and width: the two longest, in their order; no second one where there are fewer."""
    if values.ndim < 2:  # noqa: PLR2004 - no picture
        return 0, None
    first, second = sorted(sorted(range(values.ndim), key=lambda axis: -values.shape[axis])[:2])
    return first, second


def _scaled(given: Array, wanted: Array) -> str:
    """Whether one is a straight line of the other, all values or channel by channel (least squares)."""
    line = _line(given, wanted)
    if line is not None:
        factor, offset = line
        added = "" if abs(offset) <= _EXACT * abs(factor) * float(np.abs(wanted).max() or 1.0) else f" {offset:+.6g}"
        return f"it is the expected value times {factor:.6g}{added}: look at scale, normalize, cast and quantize"
    for axis, size in enumerate(given.shape):
        if 1 < size <= _MOST_AXES:
            pairs = zip(np.moveaxis(given, axis, 0), np.moveaxis(wanted, axis, 0), strict=True)
            if all(_line(one, other) is not None for one, other in pairs):
                return "each channel is the expected one on another scale: look at mean and std of normalize"
    return ""


def _line(given: Array, wanted: Array) -> tuple[float, float] | None:
    """Factor and offset that make ``given`` of ``wanted``; None where there are none."""
    centred = wanted - wanted.mean()
    spread = float((centred**2).sum())
    if not spread or not np.ptp(given):
        return None
    factor = float((centred * given).sum()) / spread
    offset = float(given.mean()) - factor * float(wanted.mean())
    rest = float(np.abs(given - (factor * wanted + offset)).max())
    return (factor, offset) if rest <= _EXACT * float(np.ptp(given)) else None


def _resampled(given: Array, wanted: Array) -> str:
    if not np.ptp(given) or not np.ptp(wanted):
        return ""
    likeness = float(np.corrcoef(given.reshape(-1), wanted.reshape(-1))[0, 1])
    if likeness >= _ALIKE:
        return (
            f"both are alike (correlation {likeness:.4f}) and not equal: "
            "look at resize (method, antialias, coordinates), crop, pad and rounding"
        )
    return f"they are not alike (correlation {likeness:.2f}): look at crop, exif and the order of the steps"
