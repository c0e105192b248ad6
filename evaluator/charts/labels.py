"""Texts in charts: their width, and places where they overlap nothing."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from PIL.ImageFont import FreeTypeFont

FONT_FILE: Final = Path(__file__).with_name("DejaVuSans.ttf")
"""Latin, Greek and the signs of units, of DejaVu Sans 2.37; the license is in ``DejaVuSans.txt``."""
THEME: Final = Path(__file__).with_name("theme.css")
"""The style sheet of charts in a page: colors on dark."""
_UNITS = 1000


@cache
def _font() -> "FreeTypeFont":
    from PIL import ImageFont  # noqa: PLC0415 - 50 ms, and only drawing needs it

    return ImageFont.truetype(str(FONT_FILE), _UNITS, layout_engine=ImageFont.Layout.BASIC)


def measure(words: str, size: float) -> float:
    """Return the width of a text in pixels. The font is a wide one, so most others need less."""
    return _font().getlength(words) * size / _UNITS


def shorten(words: str, size: float, width: float) -> str:
    """Return the text, its middle replaced by an ellipsis if it is wider than ``width``."""
    if measure(words, size) <= width:
        return words
    for kept in range(len(words) - 1, 1, -1):
        text = f"{words[: kept - kept // 2]}…{words[len(words) - kept // 2 :]}"
        if measure(text, size) <= width:
            return text
    return "…"


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle in pixels."""

    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: "Box") -> bool:
        """Return whether the two have a point in common."""
        is_beside = self.right <= other.left or other.right <= self.left
        return not (is_beside or self.bottom <= other.top or other.bottom <= self.top)

    def contains(self, other: "Box") -> bool:
        """Return whether the other lies inside."""
        is_within = self.left <= other.left and other.right <= self.right
        return is_within and self.top <= other.top and other.bottom <= self.bottom


@dataclass(frozen=True, slots=True)
class Label:
    """A text to place beside a point that is drawn with ``radius``."""

    x: float
    y: float
    words: str
    radius: float = 5


def place_labels(labels: Sequence[Label], size: float, bounds: Box, obstacles: Iterable[Box] = ()) -> list[Box | None]:
    """Return a place for each label, in order; None where every place overlaps something.

    Args:
        labels: The labels, the most important first.
        size: The font size in pixels.
        bounds: Where labels may be.
        obstacles: What labels must not cover, beside the points and other labels.
    """
    occupied = [*obstacles, *(Box(a.x - a.radius, a.y - a.radius, a.x + a.radius, a.y + a.radius) for a in labels)]
    places: list[Box | None] = []
    for label in labels:
        free = (
            box for box in _candidates(label, size) if bounds.contains(box) and not any(map(box.overlaps, occupied))
        )
        place = next(free, None)
        places.append(place)
        occupied += [] if place is None else [place]
    return places


def _candidates(label: Label, size: float) -> Iterator[Box]:
    """Yield places around the point, the nearest first."""
    width, height = measure(label.words, size), size * 1.2
    for gap in (2.0, 6.0):
        reach = label.radius + gap
        for dx, dy in ((1, 0), (-1, 0), (0, -1), (0, 1), (1, -1), (1, 1), (-1, -1), (-1, 1)):
            left = label.x + dx * reach - (width if dx < 0 else width / 2 if dx == 0 else 0)
            middle = label.y + dy * (reach * (0.7 if dx else 1) + (height / 2 if dy else 0))
            yield Box(left, middle - height / 2, left + width, middle + height / 2)
