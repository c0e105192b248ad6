"""Distributions of times with a confidence band, and rooflines."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchlock.evaluator.charts.axes import linear_axis, log_axis, pick_time_unit
from benchlock.evaluator.charts.labels import Box, Label, measure
from benchlock.evaluator.charts.plots import Plot, dash_of
from benchlock.evaluator.charts.svg import MUTED, SMALL, Chart, line, marker, path

_WIDE = 12
"""The ratio of the greatest to the least time above which their axis is logarithmic."""


@dataclass(frozen=True, slots=True)
class Distribution:
    """The empirical distribution of times: ``shares`` of them are at most ``seconds``, between ``low`` and ``high``."""

    name: str
    seconds: tuple[float, ...]
    shares: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RooflinePoint:
    """An operator or kernel: FLOP per byte, FLOP/s, and its kind, which gives its marker."""

    name: str
    intensity: float
    rate: float
    kind: str


@dataclass(frozen=True, slots=True)
class Roof:
    """A memory: its name and its bandwidth in bytes/s."""

    name: str
    bandwidth: float


def draw_distributions(name: str, title: str, description: str, distributions: Sequence[Distribution]) -> Chart:
    """Draw the share of times up to each time, with a band per distribution."""
    times = [second for entry in distributions for second in entry.seconds]
    unit, factor = pick_time_unit(times)
    known = [second * factor for second in times]
    is_wide = max(known) > _WIDE * min(known) > 0
    axis = (log_axis if is_wide else linear_axis)(f"time ({unit}{', logarithmic' if is_wide else ''})", known)
    shares = linear_axis("share of calls within the time", (0.0, 1.0), is_share=True)
    plot = Plot(axis, shares, [entry.name for entry in distributions], has_lines=True)
    for area in (True, False):
        for series, entry in enumerate(distributions):
            if area:
                upper, lower = _steps(plot, entry, entry.high, factor), _steps(plot, entry, entry.low, factor)
                plot.elements.append(path([*upper, *reversed(lower)], series, is_area=True))
            else:
                points = _steps(plot, entry, entry.shares, factor)
                first = (points[0][0], plot.at_y(0))
                plot.elements.append(path([first, *points], series, dash=dash_of(series)))
    return plot.finish(name, title, description)


def _steps(plot: Plot, entry: Distribution, shares: Sequence[float], factor: float) -> list[tuple[float, float]]:
    """Return the corners of a step function in pixels."""
    corners: list[tuple[float, float]] = []
    for second, share in zip(entry.seconds, shares, strict=True):
        x, y = plot.at_x(second * factor), plot.at_y(share)
        if corners and share < 1 and abs(x - corners[-1][0]) < 1 and abs(y - corners[-1][1]) < 1:
            continue  # within a pixel of the last corner
        if corners:
            corners.append((x, corners[-1][1]))
        corners.append((x, y))
    return corners


def draw_roofline(
    name: str, title: str, description: str, points: Sequence[RooflinePoint], roofs: Sequence[Roof], *, peak: float
) -> Chart:
    """Draw FLOP/s over FLOP per byte under the roofs of memory and arithmetic, both axes logarithmic.

    Args:
        name: The name of the chart.
        title: Its title.
        description: Its finding.
        points: The operators with the longest first, which get labels first.
        roofs: The memories.
        peak: The greatest FLOP/s.
    """
    ridges = [peak / roof.bandwidth for roof in roofs]
    x = log_axis(
        "FLOP per byte, an upper bound (logarithmic)",
        [*(point.intensity for point in points), *(ridge * 4 for ridge in ridges), *(ridge / 8 for ridge in ridges)],
    )
    y = log_axis("GFLOP/s (logarithmic)", [*(point.rate / 1e9 for point in points), peak * 4 / 1e9, peak / 2e10])
    kinds = list(dict.fromkeys(point.kind for point in points))
    plot = Plot(x, y, kinds)
    obstacles = _draw_peak(plot, peak, min(ridges))
    for number, roof in enumerate(sorted(roofs, key=lambda roof: -roof.bandwidth)):
        obstacles += _draw_roof(plot, roof, peak, number)
    places = [(plot.at_x(point.intensity), plot.at_y(point.rate / 1e9)) for point in points]
    for point, (left, top) in zip(points, places, strict=True):
        plot.elements.append(marker(left, top, kinds.index(point.kind), opacity="0.85"))
    labels = [Label(*place, point.name, 6) for point, place in zip(points, places, strict=True)]
    return plot.finish(name, title, description + plot.draw_labels(labels, obstacles))


def _draw_peak(plot: Plot, peak: float, ridge: float) -> list[Box]:
    """Draw the roof of arithmetic from its ridge, and return boxes that labels avoid."""
    y = plot.at_y(peak / 1e9)
    plot.elements.append(line((plot.at_x(ridge), plot.right), (y, y), color=MUTED, width=1.6))
    words = f"arithmetic: {peak / 1e9:.3g} GFLOP/s"
    note = plot.draw_note(plot.right - 4 - measure(words, SMALL), plot.top + 14, words)
    return [note, Box(plot.at_x(ridge), y - 2, plot.right, y + 2)]


def _draw_roof(plot: Plot, roof: Roof, peak: float, number: int) -> list[Box]:
    """Draw the slope of a memory, and return boxes along it, which labels avoid."""
    low = max(plot.x.low, plot.y.low * 1e9 / roof.bandwidth)
    ends = (low, peak / roof.bandwidth)
    x = (plot.at_x(ends[0]), plot.at_x(ends[1]))
    y = (plot.at_y(ends[0] * roof.bandwidth / 1e9), plot.at_y(peak / 1e9))
    dash = dash_of(number)
    plot.elements.append(line(x, y, color=MUTED, width=1.6, dash=dash))
    along = [(x[0] + (x[1] - x[0]) * step / 30, y[0] + (y[1] - y[0]) * step / 30) for step in range(31)]
    top = plot.top + 14 + 16 * number  # above all roofs, where no point can be
    plot.elements.append(line((plot.left + 8, plot.left + 32), (top - 4, top - 4), color=MUTED, width=1.6, dash=dash))
    box = plot.draw_note(plot.left + 38, top, f"{roof.name}: {roof.bandwidth / 1e9:.3g} GB/s")
    return [box, *(Box(a - 4, b - 4, a + 4, b + 4) for a, b in along)]
