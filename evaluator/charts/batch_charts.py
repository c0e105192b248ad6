"""Throughput by batch size, with the batch size to use."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from benchlock.evaluator.charts.axes import Axis, linear_axis
from benchlock.evaluator.charts.labels import Box, Label
from benchlock.evaluator.charts.plots import Plot, dash_of
from benchlock.evaluator.charts.svg import INK, Chart, line, marker, path, ring

_MARGIN: Final = 1.2
_RING: Final = 9.0
_STEPS: Final = 20


@dataclass(frozen=True, slots=True)
class Rate:
    """The throughput at a batch size, and its interval if both ends are known."""

    batch: int
    value: float
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class BatchCurve:
    """The throughput of a system by batch size, in ascending order; ``advised`` is the size to use."""

    name: str
    rates: tuple[Rate, ...]
    advised: int


def _box(start: tuple[float, float], end: tuple[float, float], share: float) -> Box:
    """Return a box on a line that labels avoid."""
    x, y = (a + (b - a) * share for a, b in zip(start, end, strict=True))
    return Box(x - 3, y - 3, x + 3, y + 3)


def draw_batches(name: str, title: str, description: str, curves: Sequence[BatchCurve]) -> Chart:
    """Draw throughput over batch size, both from the smallest value on, with a ring around the size to use.

    Args:
        name: The name of the chart.
        title: Its title.
        description: Its finding.
        curves: The curves, at least one.
    """
    sizes = sorted({rate.batch for curve in curves for rate in curve.rates})
    values = [end for curve in curves for rate in curve.rates for end in (rate.value, *(rate.interval or ()))]
    low, high = sizes[0] / _MARGIN, sizes[-1] * _MARGIN
    x = Axis("samples per call, logarithmic", low, high, tuple(map(float, sizes)), is_log=True)
    plot = Plot(x, linear_axis("samples/s", values), [curve.name for curve in curves], has_lines=True)
    labels, lines = list[Label](), list[Box]()
    for series, curve in enumerate(curves):
        points = [(plot.at_x(rate.batch), plot.at_y(rate.value)) for rate in curve.rates]
        plot.elements.append(path(points, series, dash=dash_of(series)))
        lines += (_box(a, b, step / _STEPS) for a, b in pairwise(points) for step in range(_STEPS + 1))
        for rate, (left, top) in zip(curve.rates, points, strict=True):
            if rate.interval is not None:
                low, high = map(plot.at_y, rate.interval)
                plot.elements.append(line((left, left), (low, high), color=INK, width=1.2))
            plot.elements.append(marker(left, top, series, 4))
            if rate.batch == curve.advised:
                plot.elements.append(ring(left, top, _RING))
                labels.append(Label(left, top, f"use {rate.batch}", _RING))
    return plot.finish(name, title, description + plot.draw_labels(labels, lines))
