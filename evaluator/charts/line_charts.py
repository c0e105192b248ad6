"""Distributions of times as curves and histograms, throughput by batch size, and rooflines."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from benchlock.evaluator.charts.axes import Axis, linear_axis, log_axis, pick_time_unit
from benchlock.evaluator.charts.labels import Box, Label, measure
from benchlock.evaluator.charts.plots import Plot, dash_of, number_series
from benchlock.evaluator.charts.svg import INK, MUTED, SMALL, Chart, line, marker, path, rectangle, ring, text

_WIDE = 12
"""The ratio of the greatest to the least time above which their axis is logarithmic."""
_HEADROOM: Final = 1.25
"""The height of the axis over the highest bar, so that the marks are above all bars."""
_FEWEST: Final = 4.0
"""The least height of the axis in calls, so that its ticks are whole numbers."""
_MARK: Final = 17.0
_ONLY: Final = 8.0
"""The width of the bar of times that are all equal."""
_MARGIN: Final = 1.2
"""The ratio of the ends of the axis of batch sizes to the least and the greatest size."""
_RING: Final = 9.0


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


def draw_distributions(
    name: str,
    title: str,
    description: str,
    distributions: Sequence[Distribution],
    *,
    share_title: str = "share of calls within the time",
    order: Sequence[str] = (),
) -> Chart:
    """Draw the share of times up to each time, with a band per distribution.

    Args:
        name: The name of the chart.
        title: Its title.
        description: Its finding.
        distributions: The distributions, at least one.
        share_title: The title of the vertical axis.
        order: The names of all series of the page, as for ``number_series``.
    """
    times = [second for entry in distributions for second in entry.seconds]
    unit, factor = pick_time_unit(times)
    known = [second * factor for second in times]
    is_wide = max(known) > _WIDE * min(known) > 0
    axis = (log_axis if is_wide else linear_axis)(f"time ({unit}{', logarithmic' if is_wide else ''})", known)
    shares = linear_axis(share_title, (0.0, 1.0), is_share=True)
    names = [entry.name for entry in distributions]
    numbers = number_series(names, order)
    plot = Plot(axis, shares, names, has_lines=True, numbers=numbers)
    for area in (True, False):
        for series, entry in zip(numbers, distributions, strict=True):
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
    _draw_marks(plot, [plot.at_x(mark.seconds * factor) for mark in marks], marks)
    return plot.finish(name, title, description)


def _draw_marks(plot: Plot, places: Sequence[float], marks: Sequence[Mark]) -> None:
    """Draw the lines of marks, then their labels on top: one a row, on a side that crosses no line if there is one."""
    for number, at in enumerate(places):
        plot.elements.append(line((at, at), (plot.top, plot.bottom), color=INK, width=1.4, dash=dash_of(number)))
    for number, (at, mark) in enumerate(zip(places, marks, strict=True)):
        words = f"{mark.name} {mark.words}"
        width = measure(words, SMALL)
        sides = [left for left in (at + 6, at - width - 6) if plot.left < left and left + width + 2 <= plot.right]
        free = [left for left in sides if not any(left - 2 <= other <= left + width + 2 for other in places)]
        plot.draw_note(next(iter((*free, *sides)), at + 6), plot.top + _MARK * (number + 0.8), words)


@dataclass(frozen=True, slots=True)
class Rate:
    """The throughput at a batch size, and its interval if both ends are known."""

    batch: int
    value: float
    interval: tuple[float, float] | None = None


@dataclass(frozen=True, slots=True)
class BatchCurve:
    """The throughput of a system by batch size, in ascending order; ``advised`` is the size to use, if it is known."""

    name: str
    rates: tuple[Rate, ...]
    advised: int | None


def draw_batches(
    name: str,
    title: str,
    description: str,
    curves: Sequence[BatchCurve],
    order: Sequence[str] = (),
    *,
    y_title: str = "samples/s",
) -> Chart:
    """Draw throughput or another value over batch size, with a ring around the size to use.

    Args:
        name: The name of the chart.
        title: Its title.
        description: Its finding.
        curves: The curves, at least one.
        order: The names of all series of the page, as for ``number_series``.
        y_title: The title of the vertical axis.
    """
    sizes = sorted({rate.batch for curve in curves for rate in curve.rates})
    values = [end for curve in curves for rate in curve.rates for end in (rate.value, *(rate.interval or ()))]
    ticks = tuple(map(float, sizes))
    x = Axis("samples per call, logarithmic", ticks[0] / _MARGIN, ticks[-1] * _MARGIN, ticks, is_log=True)
    names = [curve.name for curve in curves]
    numbers = number_series(names, order)
    plot = Plot(x, linear_axis(y_title, values), names, has_lines=True, numbers=numbers)
    for series, curve in zip(numbers, curves, strict=True):
        points = [(plot.at_x(rate.batch), plot.at_y(rate.value)) for rate in curve.rates]
        plot.elements.append(path(points, series, dash=dash_of(series)))
        for rate, (left, top) in zip(curve.rates, points, strict=True):
            if rate.interval is not None:
                ends = (plot.at_y(rate.interval[0]), plot.at_y(rate.interval[1]))
                plot.elements.append(line((left, left), ends, color=INK, width=1.2))
            plot.elements.append(marker(left, top, series, 4))
            if rate.batch == curve.advised:
                plot.elements.append(ring(left, top, _RING))
    return plot.finish(name, title, description)
