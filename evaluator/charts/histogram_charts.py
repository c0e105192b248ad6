"""Histograms of times, with marked values."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchlock.evaluator.charts.axes import linear_axis, pick_time_unit
from benchlock.evaluator.charts.labels import measure
from benchlock.evaluator.charts.plots import Plot, dash_of
from benchlock.evaluator.charts.svg import INK, SMALL, Chart, line, rectangle, text

_HEADROOM: Final = 1.25
"""The height of the axis over the highest bar, so that the marks are above all bars."""
_FEWEST: Final = 4.0
"""The least height of the axis in calls, so that its ticks are whole numbers."""
_MARK: Final = 17.0
_ONLY: Final = 8.0
"""The width of the bar of times that are all equal."""


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of times between consecutive ``edges`` in seconds; ``longer`` times are beyond the last edge."""

    edges: tuple[float, ...]
    counts: tuple[int, ...]
    longer: int = 0


@dataclass(frozen=True, slots=True)
class Mark:
    """A time in seconds with its name, such as a percentile; ``words`` is the time as text."""

    name: str
    seconds: float
    words: str


def draw_histogram(name: str, title: str, description: str, histogram: Histogram, marks: Sequence[Mark]) -> Chart:
    """Draw a bar per count, the times beyond the last edge as a last bar, and a line per mark.

    Args:
        name: The name of the chart.
        title: Its title.
        description: Its finding.
        histogram: The counts.
        marks: The marked times; up to three have room.
    """
    unit, factor = pick_time_unit(histogram.edges)
    edges, counts = [edge * factor for edge in histogram.edges], [*histogram.counts]
    if histogram.longer:
        counts.append(histogram.longer)
        edges.append(edges[-1] + max(edges[-1] - edges[-2], (edges[-1] - edges[0]) / 30))
    x = linear_axis(f"time ({unit})", edges, zero=False)
    y = linear_axis("calls", [0.0, max(max(counts) * _HEADROOM, _FEWEST)])
    plot = Plot(x, y)
    for number, count in enumerate(counts):
        left, right, top = plot.at_x(edges[number]), plot.at_x(edges[number + 1]), plot.at_y(count)
        if edges[0] == edges[-1]:
            left, right = left - _ONLY / 2, right + _ONLY / 2
        series = 1 if histogram.longer and number == len(counts) - 1 else 0
        if count:
            plot.elements.append(rectangle(left, top, max(right - left - 0.5, 1.0), plot.bottom - top, series=series))
    if histogram.longer:
        words = f"{histogram.longer:,} longer"
        plot.elements.append(
            text(plot.at_x(edges[-1]), plot.at_y(histogram.longer) - 5, words, size=SMALL, align="right")
        )
    for number, mark in enumerate(marks):
        at, top = plot.at_x(mark.seconds * factor), plot.top + _MARK * (number + 0.8)
        plot.elements.append(line((at, at), (plot.top, plot.bottom), color=INK, width=1.4, dash=dash_of(number)))
        words = f"{mark.name} {mark.words}"
        width = measure(words, SMALL)
        plot.draw_note(at + 6 if at + width + 8 <= plot.right else at - width - 6, top, words)
    return plot.finish(name, title, description)
