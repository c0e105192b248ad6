"""Charts without a vertical axis of numbers: heat maps, bars and timelines."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from benchlock.evaluator.charts.axes import linear_axis
from benchlock.evaluator.charts.labels import measure, shorten
from benchlock.evaluator.charts.plots import WIDTH, draw_legend, draw_title
from benchlock.evaluator.charts.svg import MUTED, NORMAL, SMALL, Chart, line, rectangle, text

_LIGHT, _MIDDLE, _DARK = (228, 239, 248), (107, 174, 214), (8, 69, 148)
_NAMES_WIDTH = 280.0
_START = 16.0
"""The room for the title of the rows."""
_TOP = 44.0
_MANY = 15
"""The number of rows from which rows are low."""
_DARK_FROM = 0.75
"""The share of the scale from which text on a cell is white: its contrast is then at least 4.5:1."""
_BAR, _GAP = 20.0, 8.0


def shade(share: float) -> str:
    """Return the color of a share of the scale: a sequence of blues from light to dark."""
    low, high, part = (_LIGHT, _MIDDLE, share * 2) if share < 0.5 else (_MIDDLE, _DARK, share * 2 - 1)  # noqa: PLR2004 - the middle
    return "#" + "".join(f"{round(a + (b - a) * part):02x}" for a, b in zip(low, high, strict=True))


@dataclass(frozen=True, slots=True)
class HeatMap:
    """A matrix, row by row.

    Attributes:
        rows: The names of the rows.
        columns: The names of the columns.
        values: A value per cell; None for a cell without one.
        texts: The text of each cell; without them, the value with two decimals, or a dash.
        scale: The values of the lightest and of the darkest color; None for the least and the greatest.
    """

    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    texts: tuple[tuple[str, ...], ...] = ()
    scale: tuple[float, float] | None = None


def draw_heat_map(
    name: str, title: str, description: str, heat_map: HeatMap, *, columns_title: str, rows_title: str = ""
) -> Chart:
    """Draw a cell per value, with its text in it; the text becomes smaller where cells are narrow.

    Args:
        name: The name of the chart.
        title: Its title.
        description: Its finding.
        heat_map: The matrix.
        columns_title: What the columns are.
        rows_title: What the rows are; empty if their names say it.
    """
    known = [value for row in heat_map.values for value in row if value is not None]
    if not all(map(math.isfinite, known)):
        raise ValueError("a chart needs finite numbers")
    low, high = heat_map.scale or (min(known, default=0.0), max(known, default=1.0))
    texts = heat_map.texts or [["-" if value is None else f"{value:.2f}" for value in row] for row in heat_map.values]
    start = _START if rows_title else 0.0
    left = start + 24 + min(_NAMES_WIDTH, max(measure(row, NORMAL) for row in heat_map.rows))
    width, height = (
        min((WIDTH - left - 24) / len(heat_map.columns), 110.0),
        34.0 if len(heat_map.rows) < _MANY else 24.0,
    )
    size, name_size = (_fit(words, width - 3) for words in ([word for row in texts for word in row], heat_map.columns))
    elements = [draw_title(title)]
    for number, (row, values) in enumerate(zip(heat_map.rows, heat_map.values, strict=True)):
        y = _TOP + number * height
        base = y + height / 2 + 4
        elements.append(text(left - 8, base, shorten(row, NORMAL, _NAMES_WIDTH), align="right"))
        for column, value in enumerate(values):
            x = left + column * width
            color = MUTED
            if value is not None:
                share = min(max((value - low) / (high - low), 0.0), 1.0) if high > low else 0.0
                elements.append(rectangle(x + 1, y + 1, width - 2, height - 2, fill=shade(share)))
                color = "#ffffff" if share >= _DARK_FROM else "#000000"
            if words := texts[number][column]:
                elements.append(text(x + width / 2, base, words, size=size, align="middle", color=color))
    bottom = _TOP + len(heat_map.rows) * height
    if rows_title:
        elements.append(text(22, (_TOP + bottom) / 2, rows_title, align="middle", turned=True))
    for column, words in enumerate(heat_map.columns):
        middle = left + (column + 0.5) * width
        elements.append(text(middle, bottom + 18, words, size=name_size, align="middle", color=MUTED))
    elements.append(text(left + len(heat_map.columns) * width / 2, bottom + 40, columns_title, align="middle"))
    return Chart(name, title, description, WIDTH, bottom + 54, tuple(elements))


def _fit(texts: Sequence[str], width: float) -> float:
    """Return the font size at which all texts fit into the width, in tenths of a pixel."""
    widest = max((measure(words, 1) for words in set(texts)), default=0.0)
    return min(float(NORMAL), math.floor(10 * width / widest) / 10) if widest else float(NORMAL)


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
