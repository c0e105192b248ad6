"""The frame of a chart with two axes: title, grid, ticks and legend."""

from collections.abc import Sequence
from dataclasses import replace

from benchlock.evaluator.charts.axes import Axis
from benchlock.evaluator.charts.labels import Box, Label, measure, place_labels, shorten
from benchlock.evaluator.charts.svg import (
    DASHES,
    LARGE,
    MUTED,
    NORMAL,
    SERIES,
    SMALL,
    Chart,
    element,
    line,
    marker,
    path,
    text,
)

WIDTH = 760.0
_EDGE = 16.0
_LEGEND_LINE = 20.0
_TITLE = 34.0
_SWATCH = 26.0


def dash_of(series: int) -> str:
    """Return the dash of the line of a series."""
    return DASHES[(series + series // len(SERIES)) % len(DASHES)]


def add_caption(chart: Chart, lines: Sequence[str]) -> Chart:
    """Return the chart with lines of text below it, shortened to its width."""
    elements = tuple(
        text(24, chart.height + 14 + 17 * number, shorten(words, SMALL, chart.width - 48), size=SMALL, color=MUTED)
        for number, words in enumerate(lines)
    )
    return replace(chart, height=chart.height + 17 * len(elements) + 6, elements=(*chart.elements, *elements))


def draw_title(title: str) -> str:
    """Return the title at the top of a chart."""
    return text(_EDGE, 24, shorten(title, LARGE, WIDTH - 2 * _EDGE), size=LARGE)


def number_series(names: Sequence[str], order: Sequence[str] = ()) -> tuple[int, ...]:
    """Return the number of each series, from which its color and mark follow.

    Args:
        names: The names of the series in a chart.
        order: The names of all series of the page, so that one looks alike in every chart; without one of the names,
            the series are numbered by their place in the chart.
    """
    places = {name: place for place, name in enumerate(order)}
    return tuple(places.get(name, place) if set(names) <= set(places) else place for place, name in enumerate(names))


def draw_legend(
    names: Sequence[str], top: float, *, has_lines: bool = False, numbers: Sequence[int] = ()
) -> tuple[list[str], float]:
    """Return the legend, in as many lines as it needs, and the position below it.

    Args:
        names: The names of the series in order; none for a single series.
        top: Where the legend begins.
        has_lines: Whether series are lines rather than markers.
        numbers: The number of each series; empty for their places.
    """
    elements, x, y = [], _EDGE, top + 8
    for series, name in zip(numbers or range(len(names)), names, strict=True):
        words = shorten(name, NORMAL, WIDTH / 2)
        width = _SWATCH + measure(words, NORMAL) + 18
        if x + width > WIDTH - _EDGE / 2 and x > _EDGE:
            x, y = _EDGE, y + _LEGEND_LINE
        sample = path([(x, y), (x + 20, y)], series, dash=dash_of(series)) if has_lines else marker(x + 10, y, series)
        elements += [sample, text(x + _SWATCH, y + 4, words)]
        x += width
    return elements, y + _LEGEND_LINE if names else top


class Plot:
    """A chart with two axes that is being drawn."""

    def __init__(
        self,
        x: Axis,
        y: Axis,
        legend: Sequence[str] = (),
        *,
        has_lines: bool = False,
        numbers: Sequence[int] = (),
    ) -> None:
        """Draw the axes and the legend.

        Args:
            x: The horizontal axis.
            y: The vertical axis.
            legend: The names of the series; none for a single one.
            has_lines: Whether series are lines.
            numbers: The number of each series in the legend; empty for their places.
        """
        self.x, self.y, self.elements = x, y, list[str]()
        drawn, self.top = draw_legend(legend, _TITLE, has_lines=has_lines, numbers=numbers)
        self.top += 10
        self.left = 30 + max((measure(y.label(tick), SMALL) for tick in y.ticks), default=0) + 14
        self.right, self.bottom = WIDTH - 36, self.top + 320
        self.elements += drawn
        self._draw_axes()

    def _draw_axes(self) -> None:
        reach = -1.0
        for tick in self.x.ticks:
            x, words = self.at_x(tick), self.x.label(tick)
            half = measure(words, SMALL) / 2
            self.elements.append(line((x, x), (self.top, self.bottom)))
            if x - half > reach:
                self.elements.append(text(x, self.bottom + 17, words, size=SMALL, align="middle", color=MUTED))
                reach = x + half + 6
        for tick in self.y.ticks:
            y = self.at_y(tick)
            self.elements.append(line((self.left, self.right), (y, y)))
            self.elements.append(text(self.left - 7, y + 4, self.y.label(tick), size=SMALL, align="right", color=MUTED))
        self.elements.append(line((self.left, self.right), (self.bottom, self.bottom), color=MUTED))
        middle = (self.left + self.right) / 2
        self.elements.append(text(middle, self.bottom + 38, self.x.title, align="middle"))
        self.elements.append(text(22, (self.top + self.bottom) / 2, self.y.title, align="middle", turned=True))

    def at_x(self, value: float) -> float:
        """Return the horizontal pixel of a value."""
        return self.x.place(value, self.left, self.right)

    def at_y(self, value: float) -> float:
        """Return the vertical pixel of a value."""
        return self.y.place(value, self.bottom, self.top)

    def draw_labels(self, labels: Sequence[Label], obstacles: Sequence[Box] = ()) -> str:
        """Draw the labels that have room beside their points, and return a sentence on the others, if any."""
        bounds = Box(self.left, self.top, WIDTH - 4, self.bottom)
        places = place_labels(labels, SMALL, bounds, obstacles)
        for label, place in zip(labels, places, strict=True):
            if place is not None:
                self.elements.append(text(place.left, place.bottom - 3.5, label.words, size=SMALL))
        hidden = (
            f" {places.count(None)} of {len(places)} points have no label, as labels would overlap; the table has all."
        )
        return hidden if None in places else ""

    def draw_note(self, x: float, y: float, words: str) -> Box:
        """Draw a text on top of lines, and return where it is."""
        box = Box(x - 2, y - 11, x + measure(words, SMALL) + 2, y + 4)
        size: dict[str, str | float] = {"x": box.left, "y": box.top, "width": box.right - box.left, "height": 15.0}
        self.elements.append(element("rect", {**size, "fill": "#ffffff", "class": "cover"}))
        self.elements.append(text(x, y, words, size=SMALL, color=MUTED))
        return box

    def finish(self, name: str, title: str, description: str) -> Chart:
        """Return the chart."""
        return Chart(name, title, description, WIDTH, self.bottom + 52, (draw_title(title), *self.elements))
