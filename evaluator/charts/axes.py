"""Axes: positions of values, and ticks at round numbers."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

_STEPS = (1, 2, 2.5, 5, 10)
_DECADES = 8
_NARROWEST = 1e-300
"""Below it, a fifth of a range is not a number of full precision."""
"""The number of decades of a logarithmic axis up to which each is a tick."""


@dataclass(frozen=True, slots=True)
class Axis:
    """An axis from ``low`` to ``high``; ``ticks`` are its labelled values."""

    title: str
    low: float
    high: float
    ticks: tuple[float, ...]
    is_log: bool = False
    is_share: bool = False

    def place(self, value: float, start: float, end: float) -> float:
        """Return the pixel of a value on the axis, which is drawn from ``start`` to ``end``."""
        low, high = (math.log(self.low), math.log(self.high)) if self.is_log else (self.low, self.high)
        share = ((math.log(max(value, self.low)) if self.is_log else value) - low) / (high - low)
        return start + min(max(share, 0.0), 1.0) * (end - start)

    def label(self, tick: float) -> str:
        """Return the text of a tick."""
        if self.is_share:
            return f"{tick * 100:.6g} %"
        return f"{tick:,.6g}" if abs(tick) < 1e6 else f"{tick:.3g}"  # noqa: PLR2004 - longer than seven characters


def linear_axis(title: str, values: Iterable[float], *, zero: bool = True, is_share: bool = False) -> Axis:
    """Return a linear axis that contains the values, and with ``zero`` also 0, and ends at ticks."""
    known = [*_finite(values), *([0.0] if zero else [])]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    if high - low <= 1e-9 * max(abs(high), abs(low)):
        low, high = low - (abs(low) or 1.0) * (0.0 if zero else 0.05), high + (abs(high) or 1.0) * 0.05
    if high - low < _NARROWEST:
        high = low + 1.0
    if is_share and not zero:
        high = min(high + (high - low) * 0.1, 1.0)
    rough = (high - low) / 5
    magnitude = 10.0 ** math.floor(math.log10(rough))
    step = next(step * magnitude for step in _STEPS if step * magnitude >= rough * (1 - 1e-9))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    ticks = tuple(float(f"{number * step:.12g}") for number in range(first, last + 1))
    return Axis(title, ticks[0], ticks[-1], ticks, is_share=is_share)


def log_axis(title: str, values: Iterable[float]) -> Axis:
    """Return a logarithmic axis that contains the positive values."""
    known = [value for value in _finite(values) if value > 0] or [1.0]
    low, high = min(known) / 1.15, max(known) * 1.15
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    factors = (1,) if last - first > _DECADES // 2 else (1, 2, 5)
    ticks = tuple(
        tick
        for exponent in range(first, last + 1)
        for factor in factors
        if low <= (tick := float(f"{factor}e{exponent}")) <= high
    )
    return Axis(title, low, high, ticks, is_log=True)


def _finite(values: Iterable[float]) -> list[float]:
    """Return the values as a list.

    Raises:
        ValueError: One is not finite.
    """
    known = list(values)
    if not all(map(math.isfinite, known)):
        raise ValueError("a chart needs finite numbers")
    return known


def pick_time_unit(seconds: Iterable[float]) -> tuple[str, float]:
    """Return the unit in which the median of the times has one to three digits before the point, and its factor."""
    known = sorted(seconds)
    middle = known[len(known) // 2] if known else 1.0
    return ("µs", 1e6) if middle < 1e-3 else ("ms", 1e3) if middle < 1 else ("s", 1.0)  # noqa: PLR2004 - a millisecond
