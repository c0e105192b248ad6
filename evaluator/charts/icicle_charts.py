"""Icicles: what a duration consists of, each part under the one that it belongs to.

A place names a part: the numbers of the parts on the way to it, such as ``3.5``; ``3.5-40`` are the parts 5 to 40 of
part 3. A focus is the place that the picture shows, empty for all.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final
from xml.sax.saxutils import escape

from benchlock.evaluator.charts.labels import measure, shorten
from benchlock.evaluator.charts.plots import WIDTH, draw_title
from benchlock.evaluator.charts.svg import SERIES, SMALL, Chart, clean, element, rectangle, text

_LEFT: Final = 24.0
_TOP: Final = 40.0
_HEIGHT: Final = 24.0
_NARROWEST: Final = 2.5
"""Parts with fewer pixels are drawn as one with their neighbors, up to ``_JOINED`` pixels."""
_JOINED: Final = 8.0
_LEVELS: Final = 2
"""The levels below the first. A level has at most 284 wide parts and joined ones between them, a picture 2,000."""
_LABELED: Final = 24.0
_WHITE, _BLACK, _BLACK_ON = "#ffffff", "#000000", 1
"""The colors of names, each with a contrast of 4.5:1; white has too little on the second series."""
_PLACE: Final = re.compile(r"(?:(?P<path>\d{1,7}(?:\.\d{1,7}){0,7})\.)?(?P<first>\d{1,7})(?:-(?P<last>\d{1,7}))?")


@dataclass(frozen=True, slots=True)
class Frame:
    """A part of a duration, in seconds; ``series`` gives its color, so that parts of a kind have the same."""

    name: str
    seconds: float
    parts: tuple["Frame", ...] = ()
    series: int = 0


@dataclass(frozen=True, slots=True)
class Part:
    """A rectangle of the picture.

    Attributes:
        frame: What it shows.
        place: Its place.
        level: Its level from the top, from 0.
        left: Its left edge as a share of the width.
        share: Its width as a share of the width.
        inside: The name of the frame above it; empty on the first level.
        has_more: Whether a picture with this place as its focus shows more.
    """

    frame: Frame
    place: str
    level: int
    left: float
    share: float
    inside: str
    has_more: bool


@dataclass(frozen=True, slots=True)
class View:
    """What a picture shows: its focus, the name of that, the focus one level out, and the rectangles."""

    focus: str
    name: str
    out: str
    parts: tuple[Part, ...]


def find_view(frames: Sequence[Frame], focus: str = "") -> View | None:
    """Return the view of the frames at a focus; None if they have no such place."""
    if not focus:
        return _view(frames, "", "", "", range(len(frames)))
    match = _PLACE.fullmatch(focus)
    if match is None:
        return None
    path, siblings, above = match["path"] or "", frames, ""
    for number in map(int, path.split(".") if path else ()):
        if number >= len(siblings):
            return None
        above, siblings = siblings[number].name, siblings[number].parts
    first = int(match["first"])
    last = first if match["last"] is None else int(match["last"])
    if not first <= last < len(siblings):
        return None
    name = siblings[first].name if first == last else f"{last - first + 1} short parts"
    return _view(siblings, focus, f"{name}{f' in {above}' * bool(above)}", path, range(first, last + 1))


def _view(siblings: Sequence[Frame], focus: str, name: str, out: str, shown: range) -> View:
    total = sum(siblings[number].seconds for number in shown)
    parts = () if total <= 0 else tuple(_lay_out(siblings, shown, (focus, 1 / total), f"{out}." if out else ""))
    return View(focus, name, out, parts)


def _lay_out(
    frames: Sequence[Frame], shown: range, view: tuple[str, float], prefix: str = "", above: Part | None = None
) -> Iterator[Part]:
    """Yield the shown frames and, below each, its parts; neighbors that are too narrow as one, without their parts.

    Args:
        frames: The frames that have one frame above them.
        shown: The numbers of those in the picture.
        view: Its focus, and the share of its width per second.
        prefix: What their places begin with.
        above: The rectangle above them.
    """
    focus, scale = view
    left, level, inside = (0.0, 0, "") if above is None else (above.left, above.level + 1, above.frame.name)
    for first, last in _join_narrow(frames, shown, scale):
        frame = frames[first] if first == last else _join(frames[first : last + 1])
        place = f"{prefix}{first}" + (f"-{last}" if last > first else "")
        has_more = frame.seconds > 0 and place != focus and bool(frame.parts or last > first)
        part = Part(frame, place, level, left, frame.seconds * scale, inside, has_more)
        yield part
        if level < _LEVELS:
            yield from _lay_out(frame.parts, range(len(frame.parts)), view, f"{place}.", part)
        left += part.share


def _join(frames: Sequence[Frame]) -> Frame:
    return Frame(f"{len(frames)} short parts", sum(frame.seconds for frame in frames), (), frames[0].series)


def _join_narrow(frames: Sequence[Frame], shown: range, scale: float) -> Iterator[tuple[int, int]]:
    """Yield the first and the last number of each rectangle."""
    narrowest, widest = _NARROWEST / (WIDTH - 2 * _LEFT), _JOINED / (WIDTH - 2 * _LEFT)
    first, joined = shown.start, 0.0
    for number in shown:
        share = frames[number].seconds * scale
        if share >= narrowest or joined >= widest:
            if number > first:
                yield first, number - 1
            first, joined = number, 0.0
        if share >= narrowest:
            yield number, number
            first = number + 1
        else:
            joined += share
    if first < shown.stop:
        yield first, shown.stop - 1


def draw_icicle(
    name: str, title: str, description: str, view: View, link: Callable[[str], str] | None = None, *, step: float = 0.0
) -> Chart:
    """Draw the parts of a view from left to right in their order, and the parts of each under it.

    Args:
        name: The name of the chart.
        title: Its title.
        description: Its finding.
        view: What it shows.
        link: Returns the address of the picture with a focus; None for a picture that cannot be zoomed.
        step: The seconds of the clock's step, below which a duration is given as such.
    """
    levels = 1 + max((part.level for part in view.parts), default=-1)
    elements = (draw_title(title), *(_draw_part(part, link, step) for part in view.parts))
    return Chart(
        name, title, description, WIDTH, _TOP + levels * _HEIGHT + 16, elements, is_interactive=link is not None
    )


def _draw_part(part: Part, link: Callable[[str], str] | None, step: float) -> str:
    """Return a rectangle with its name, if there is room for it, and with a tooltip; as a link if it can be zoomed."""
    frame, number = part.frame, part.frame.series % len(SERIES)
    x, y, width = (
        _LEFT + part.left * (WIDTH - 2 * _LEFT),
        _TOP + part.level * _HEIGHT,
        part.share * (WIDTH - 2 * _LEFT),
    )
    is_below, micros = frame.seconds < step, max(frame.seconds, step) * 1e6
    described = clean(f"{frame.name}: {'< ' * is_below}{micros:,.1f} µs")
    content = [
        element("title", {}, escape(described)),
        rectangle(x, y, max(width - 0.5, 0.1), _HEIGHT - 1, series=number),
    ]
    if width >= _LABELED:
        words = shorten(frame.name, SMALL, width - 6)
        if measure(words, SMALL) <= width - 6:
            label = text(x + 3, y + 16, words, size=SMALL, color=_BLACK if number == _BLACK_ON else _WHITE)
            content.append(label.replace("<text ", '<text class="cover" '))
    if link is None:
        return element("g", {}, "".join(content))
    place: dict[str, str | float] = {"data-level": str(part.level), "aria-label": described}
    if part.has_more:
        return element("a", {"href": link(part.place), **place}, "".join(content))
    return element("g", {"role": "img", **place}, "".join(content))
