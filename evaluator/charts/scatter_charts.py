"""Points with two values, intervals and an area, such as accuracy over latency."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchlock.evaluator.charts.axes import linear_axis, log_axis
from benchlock.evaluator.charts.labels import Box, Label
from benchlock.evaluator.charts.plots import Plot
from benchlock.evaluator.charts.svg import MUTED, Chart, line, marker

_LARGEST, _SMALLEST = 26.0, 4.0
_WIDE = 12
_IN_LEGEND = 6
"""The largest number of points with a legend; more have labels beside them, as far as these have room."""

Ends = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Point:
    """A point.

    Attributes:
        name: Its name.
        x: Its horizontal value.
        y: Its vertical value.
        x_interval: The interval of that value.
        y_interval: The interval of this value.
        area: Proportional to the area of its marker; None for markers of one size.
        series: Its number among the series of the page, as of ``number_series``; None for its place in the chart.
    """

    name: str
    x: float
    y: float
    x_interval: Ends | None = None
    y_interval: Ends | None = None
    area: float | None = None
    series: int | None = None


def draw_points(
    name: str,
    title: str,
    description: str,
    points: Sequence[Point],
    *,
    x_title: str,
    y_title: str,
    y_is_share: bool,
) -> Chart:
    """Draw the points with their names: in a legend, by color and shape, or beside the markers of many.

    Args:
        name: The name of the chart.
        title: Its title.
        description: Its finding.
        points: The points.
        x_title: The title of the horizontal axis.
        y_title: The title of the vertical axis.
        y_is_share: Whether the vertical values are shares.
    """
    xs = [value for point in points for value in (point.x, *(point.x_interval or ()))]
    ys = [value for point in points for value in (point.y, *(point.y_interval or ()))]
    is_wide = max(xs) > _WIDE * min(xs) > 0
    x = log_axis(f"{x_title}, logarithmic", [*xs, max(xs) * 1.3]) if is_wide else linear_axis(x_title, xs)
    legend = [point.name for point in points] if 1 < len(points) <= _IN_LEGEND else []
    places = [place if point.series is None else point.series for place, point in enumerate(points)]
    numbers = places if len(points) <= _IN_LEGEND else [0] * len(points)
    y = linear_axis(y_title, ys, zero=False, is_share=y_is_share)
    plot = Plot(x, y, legend, numbers=numbers if legend else ())
    largest = max((point.area for point in points if point.area), default=1.0)
    labels, lines = [], list[Box]()
    for point in sorted(points, key=lambda point: -(point.area or 0)):
        left, top = plot.at_x(point.x), plot.at_y(point.y)
        radius = 6.0 if point.area is None else max(_SMALLEST, _LARGEST * (point.area / largest) ** 0.5)
        for ends, is_horizontal in ((point.x_interval, True), (point.y_interval, False)):
            if ends is not None:
                low, high = (plot.at_x(end) if is_horizontal else plot.at_y(end) for end in ends)
                x_ends, y_ends = ((low, high), (top, top)) if is_horizontal else ((left, left), (low, high))
                caps = [
                    ((end, end), (top - 4, top + 4)) if is_horizontal else ((left - 4, left + 4), (end, end))
                    for end in (low, high)
                ]
                plot.elements += [line(*ends, color=MUTED, width=1.2) for ends in ((x_ends, y_ends), *caps)]
                lines.append(Box(min(x_ends) - 1, min(y_ends) - 1, max(x_ends) + 1, max(y_ends) + 1))
        plot.elements.append(marker(left, top, numbers[points.index(point)], radius, opacity="0.55"))
        labels.append(Label(left, top, point.name, radius))
    rest = "" if legend else plot.draw_labels(labels, lines)
    return plot.finish(name, title, description + rest)
