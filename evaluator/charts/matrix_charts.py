"""Charts without a vertical axis of numbers: heat maps, bars and timelines."""

from collections.abc import Sequence
from dataclasses import dataclass

from benchlock.evaluator.charts.axes import linear_axis
from benchlock.evaluator.charts.labels import measure, shorten
from benchlock.evaluator.charts.plots import WIDTH, draw_legend, draw_title
from benchlock.evaluator.charts.svg import MUTED, NORMAL, SMALL, Chart, line, rectangle, text

_LIGHT, _MIDDLE, _DARK = (228, 239, 248), (107, 174, 214), (8, 69, 148)
_NAMES_WIDTH = 280.0
_TOP = 44.0
_DARK_FROM = 0.75
"""The share of the scale from which text on a cell is white: its contrast is then at least 4.5:1."""
_BAR, _GAP = 20.0, 8.0


def shade(share: float) -> str:
    """Return the color of a share of the scale: a sequence of blues from light to dark."""
    low, high, part = (_LIGHT, _MIDDLE, share * 2) if share < 0.5 else (_MIDDLE, _DARK, share * 2 - 1)  # noqa: PLR2004 - the middle
    return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in zip(low, high, strict=True))


@dataclass(frozen=True, slots=True)
class HeatMap:
    """A matrix: names of rows and columns, and a value or None per cell, row by row."""

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]


def draw_heat_map(name: str, title: str, description: str, heat_map: HeatMap, *, columns_title: str) -> Chart:
    """Draw a cell per value, with the value in it.

    Args:
        name: The name of the chart.
        title: Its title.
        description: Its finding.
        heat_map: The matrix.
        columns_title: What the columns are.
    """
    known = [value for row in heat_map.values for value in row if value is not None]
    low, high = min(known, default=0.0), max(known, default=1.0)
    left = 24 + min(_NAMES_WIDTH, max(measure(row, NORMAL) for row in heat_map.rows))
    width, height = min((WIDTH - left - 24) / len(heat_map.columns), 110.0), 34.0
    elements = [draw_title(title)]
    for number, (row, values) in enumerate(zip(heat_map.rows, heat_map.values, strict=True)):
        y = _TOP + number * height
        elements.append(text(left - 8, y + 21, shorten(row, NORMAL, _NAMES_WIDTH), align="right"))
        for column, value in enumerate(values):
            x = left + column * width
            if value is None:
                elements.append(text(x + width / 2, y + 21, "-", align="middle", color=MUTED))
                continue
            share = (value - low) / (high - low) if high > low else 0.0
            elements.append(rectangle(x + 1, y + 1, width - 2, height - 2, fill=shade(share)))
            color = "#ffffff" if share >= _DARK_FROM else "#000000"
            elements.append(text(x + width / 2, y + 21, f"{value:.2f}", align="middle", color=color))
    bottom = _TOP + len(heat_map.rows) * height
    for column, words in enumerate(heat_map.columns):
        elements.append(text(left + (column + 0.5) * width, bottom + 18, words, align="middle", color=MUTED))
    elements.append(text(left + len(heat_map.columns) * width / 2, bottom + 40, columns_title, align="middle"))
    return Chart(name, title, description, WIDTH, bottom + 54, tuple(elements))


@dataclass(frozen=True, slots=True)
class Bar:
    """A bar of one part or more, with a text at its end."""

    name: str
    parts: tuple[float, ...]
    words: str


def draw_bars(
    name: str, title: str, description: str, bars: Sequence[Bar], *, unit: str, parts: Sequence[str] = ()
) -> Chart:
    """Draw horizontal bars from 0, the parts of each one end to end.

    Args:
        name: The name of the chart.
        title: Its title.
        description: Its finding.
        bars: The bars.
        unit: The title of the axis.
        parts: The names of the parts; none if bars have one part each.
    """
    legend, top = draw_legend(parts, 34)
    top += 8
    left = 24 + min(_NAMES_WIDTH, max(measure(bar.name, NORMAL) for bar in bars))
    room = max(measure(bar.words, SMALL) for bar in bars) + 14
    axis, right = linear_axis(unit, [sum(bar.parts) for bar in bars]), WIDTH - 24 - room
    bottom = top + len(bars) * (_BAR + _GAP)
    elements = [draw_title(title), *legend]
    for tick in axis.ticks:
        x = axis.place(tick, left, right)
        elements.append(line((x, x), (top, bottom)))
        elements.append(text(x, bottom + 17, axis.label(tick), size=SMALL, align="middle", color=MUTED))
    for number, bar in enumerate(bars):
        y = top + number * (_BAR + _GAP) + _GAP / 2
        elements.append(text(left - 8, y + 14, shorten(bar.name, NORMAL, _NAMES_WIDTH), align="right"))
        start, end = axis.place(0, left, right), axis.place(0, left, right)
        total = 0.0
        for series, part in enumerate(bar.parts):
            total += part
            start, end = end, axis.place(total, left, right)
            elements.append(rectangle(min(start, end), y, abs(end - start), _BAR, series=series))
        elements.append(text(max(end, start) + 6, y + 14, bar.words, size=SMALL, color=MUTED))
    elements.append(text((left + right) / 2, bottom + 38, unit, align="middle"))
    return Chart(name, title, description, WIDTH, bottom + 52, tuple(elements))
