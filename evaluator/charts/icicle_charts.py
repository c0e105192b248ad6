"""Icicles: what a duration consists of, each part under the one that it belongs to."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final
from xml.sax.saxutils import escape

from benchlock.evaluator.charts.labels import measure, shorten
from benchlock.evaluator.charts.plots import WIDTH, draw_title
from benchlock.evaluator.charts.svg import SERIES, SMALL, Chart, clean, element, rectangle, text

_LEFT: Final = 24.0
_TOP: Final = 40.0
_HEIGHT: Final = 24.0
_NARROWEST: Final = 1.0
"""Parts with fewer pixels are drawn as one with their neighbors."""
_LABELED: Final = 24.0
_WHITE, _BLACK, _BLACK_ON = "#ffffff", "#000000", 1
"""The colors of names, each with a contrast of 4.5:1; white has too little on the second series."""


@dataclass(frozen=True, slots=True)
class Frame:
    """A part of a duration, in seconds; ``series`` gives its color, so that parts of a kind have the same."""

    name: str
    seconds: float
    parts: tuple["Frame", ...] = ()
    series: int = 0


@dataclass(slots=True)
class _Drawing:
    """The elements so far, and how many levels they have."""

    scale: float
    elements: list[str] = field(default_factory=list)
    levels: int = 0


def draw_icicle(name: str, title: str, description: str, frames: Sequence[Frame]) -> Chart:
    """Draw frames from left to right in their order, and the parts of each under it.

    Args:
        name: The name of the chart.
        title: Its title.
        description: Its finding.
        frames: The frames of the first level; the sum of the parts of a frame is at most its own duration.
    """
    total = sum(frame.seconds for frame in frames)
    drawing = _Drawing((WIDTH - 2 * _LEFT) / total if total > 0 else 0.0)
    _draw(drawing, frames, _LEFT, 0)
    height = _TOP + drawing.levels * _HEIGHT + 16
    return Chart(name, title, description, WIDTH, height, (draw_title(title), *drawing.elements))


def _draw(drawing: _Drawing, frames: Sequence[Frame], left: float, level: int) -> None:
    for frame in _join_narrow(frames, drawing.scale):
        width = frame.seconds * drawing.scale
        drawing.levels = max(drawing.levels, level + 1)
        drawing.elements.append(_draw_frame(frame, left, _TOP + level * _HEIGHT, width))
        _draw(drawing, frame.parts, left, level + 1)
        left += width


def _join_narrow(frames: Sequence[Frame], scale: float) -> Iterator[Frame]:
    """Yield the frames; neighbors that are too narrow to be seen as one, without their parts."""
    narrow: list[Frame] = []
    for frame in frames:
        if frame.seconds * scale < _NARROWEST:
            narrow.append(frame)
            continue
        yield from _join(narrow)
        narrow = []
        yield frame
    yield from _join(narrow)


def _join(frames: Sequence[Frame]) -> Iterator[Frame]:
    if frames:
        yield Frame(f"{len(frames)} short parts", sum(frame.seconds for frame in frames), (), frames[0].series)


def _draw_frame(frame: Frame, x: float, y: float, width: float) -> str:
    """Return a rectangle with its name, if there is room for it, and with a tooltip."""
    number = frame.series % len(SERIES)
    parts = [
        element("title", {}, escape(clean(f"{frame.name}: {frame.seconds * 1e6:,.1f} µs"))),
        rectangle(x, y, max(width - 0.5, 0.1), _HEIGHT - 1, series=number),
    ]
    if width >= _LABELED:
        words = shorten(frame.name, SMALL, width - 6)
        if measure(words, SMALL) <= width - 6:
            parts.append(
                text(x + 3, y + 16, words, size=SMALL, color=_BLACK if number == _BLACK_ON else _WHITE).replace(
                    "<text ", '<text class="cover" '
                )
            )
    return element("g", {}, "".join(parts))
