"""A chart as SVG text, written for a strict Content-Security-Policy.

Nothing has a ``style=`` attribute. Colors are presentation attributes, so a file on its own is complete, and classes,
so the style sheet of a page can replace them (``theme.css``).
"""

from dataclasses import dataclass
from xml.sax.saxutils import escape, quoteattr

INK, MUTED, GRID, PAPER = "#1b1f24", "#57606a", "#e3e6ea", "#ffffff"
SERIES = ("#0072b2", "#d55e00", "#00875f", "#b3478f", "#8c6d1f", "#57606a")
"""Colors of series in the order of use: told apart with any color vision, with a contrast of 3:1 on paper."""
DASHES = ("", "7 3", "2 3", "9 3 2 3")
"""The dashes of lines; color and dash together repeat after 12 series."""
FONT = "DejaVu Sans, Verdana, sans-serif"
SMALL, NORMAL, LARGE = 11, 12, 15
"""Font sizes in pixels."""
_ANCHORS = {"left": "start", "middle": "middle", "right": "end"}


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart.

    Attributes:
        name: A short name, unique in a document; also the name of its files.
        title: The title.
        description: The finding in a sentence, for readers who cannot see the chart.
        width: The width in pixels.
        height: The height in pixels.
        elements: The SVG elements, drawn in order.
        is_interactive: Whether it has links, so that it is a group of them rather than one picture.
    """

    name: str
    title: str
    description: str
    width: float
    height: float
    elements: tuple[str, ...]
    is_interactive: bool = False

    def svg(self) -> str:
        """Return the chart as an SVG document, which is also valid inside HTML."""
        size: dict[str, str | float] = {"width": self.width, "height": self.height}
        head: dict[str, str | float] = {
            "xmlns": "http://www.w3.org/2000/svg",
            "viewBox": f"0 0 {format_number(self.width)} {format_number(self.height)}",
            **size,
            "role": "group" if self.is_interactive else "img",
            "aria-labelledby": f"{self.name}-title {self.name}-description",
            "font-family": FONT,
        }
        content = "\n".join(
            (
                element("title", {"id": f"{self.name}-title"}, escape(clean(self.title))),
                element("desc", {"id": f"{self.name}-description"}, escape(clean(self.description))),
                element("rect", {**size, "fill": PAPER, "class": "paper"}),
                *self.elements,
            )
        )
        return element("svg", head, f"\n{content}\n") + "\n"


def clean(text: str) -> str:
    """Replace the characters that XML cannot contain."""
    return "".join(
        character
        if character in "\t\n" or (character.isprintable() or character == " ")
        else "\N{REPLACEMENT CHARACTER}"
        for character in text
    )


def format_number(value: float) -> str:
    """Format a coordinate with at most one decimal, which is a tenth of a pixel."""
    text = f"{value:.1f}"
    return text.removesuffix(".0").replace("-0", "0") if text in ("-0.0", "0.0") else text.removesuffix(".0")


def element(name: str, attributes: dict[str, str | float], content: str = "") -> str:
    """Return an element; ``content`` is markup, and attributes are escaped."""
    written = "".join(
        f" {key}={quoteattr(clean(value) if isinstance(value, str) else format_number(value))}"
        for key, value in attributes.items()
        if value != ""
    )
    return f"<{name}{written}>{content}</{name}>" if content else f"<{name}{written}/>"


def text(
    x: float, y: float, words: str, *, size: float = NORMAL, align: str = "left", color: str = INK, turned: bool = False
) -> str:
    """Return a line of text.

    Args:
        x: The position of ``align`` on the line.
        y: The base line.
        words: The text.
        size: The font size in pixels.
        align: ``left``, ``middle`` or ``right``.
        color: The color.
        turned: Whether the line runs upwards.
    """
    attributes: dict[str, str | float] = {
        "x": x,
        "y": y,
        "font-size": size,
        "text-anchor": _ANCHORS[align],
        "fill": color,
        "class": {INK: "ink", MUTED: "muted"}.get(color, ""),
    }
    if turned:
        attributes["transform"] = f"rotate(-90 {format_number(x)} {format_number(y)})"
    return element("text", attributes, escape(clean(words)) or " ")


def line(x: tuple[float, float], y: tuple[float, float], *, color: str = GRID, dash: str = "", width: float = 1) -> str:
    """Return a straight line between two points, given as both ends of ``x`` and of ``y``."""
    ends = {"x1": x[0], "y1": y[0], "x2": x[1], "y2": y[1]}
    kind = {GRID: "grid", MUTED: "rule", INK: "rule"}.get(color, "")
    return element("line", {**ends, "stroke": color, "stroke-width": width, "stroke-dasharray": dash, "class": kind})


def path(points: list[tuple[float, float]], series: int, *, dash: str = "", is_area: bool = False) -> str:
    """Return a polyline, or the filled area inside it, in the color of a series."""
    steps = " ".join(f"{format_number(x)},{format_number(y)}" for x, y in points)
    color, number = SERIES[series % len(SERIES)], series % len(SERIES)
    if is_area:
        return element("polygon", {"points": steps, "fill": color, "fill-opacity": "0.18", "class": f"fill{number}"})
    look: dict[str, str | float] = {"stroke": color, "stroke-width": 2, "stroke-dasharray": dash}
    return element("polyline", {"points": steps, "fill": "none", **look, "class": f"line{number}"})


def rectangle(x: float, y: float, width: float, height: float, *, series: int | None = None, fill: str = "") -> str:
    """Return a filled rectangle in the color of a series, or in another color."""
    number = None if series is None else series % len(SERIES)
    look = {"fill": fill} if number is None else {"fill": SERIES[number], "class": f"fill{number}"}
    return element("rect", {"x": x, "y": y, "width": max(width, 0.1), "height": height, **look})


def ring(x: float, y: float, radius: float) -> str:
    """Return a circle around a point, which is not filled."""
    look: dict[str, str | float] = {"fill": "none", "stroke": INK, "stroke-width": 2, "class": "rule"}
    return element("circle", {"cx": x, "cy": y, "r": radius, **look})


def marker(x: float, y: float, series: int, radius: float = 5, *, opacity: str = "") -> str:
    """Return the marker of a series: circle, square, triangle or diamond, each of the same area."""
    number, half = series % len(SERIES), radius * 0.886
    look: dict[str, str | float] = {"fill": SERIES[number], "class": f"fill{number}", "fill-opacity": opacity}
    shape = series % 4
    if shape == 0:
        return element("circle", {"cx": x, "cy": y, "r": radius, **look})
    if shape == 1:
        return element("rect", {"x": x - half, "y": y - half, "width": 2 * half, "height": 2 * half, **look})
    corners = (
        ((0, -1.55), (1.35, 0.78), (-1.35, 0.78)) if shape == 2 else ((0, -1.25), (1.25, 0), (0, 1.25), (-1.25, 0))  # noqa: PLR2004 - the third of four
    )
    points = " ".join(f"{format_number(x + a * radius)},{format_number(y + b * radius)}" for a, b in corners)
    return element("polygon", {"points": points, **look})
