"""An icicle is as wide as its durations, each part under its own, and has as many rectangles as can be seen."""

import re
from xml.etree import ElementTree as ET

from hypothesis import given
from hypothesis import strategies as st

from benchlock.evaluator.charts.icicle_charts import Frame, draw_icicle

SVG = "{http://www.w3.org/2000/svg}"
TIMES = st.floats(1e-9, 10, allow_nan=False)
LEAVES = st.builds(Frame, st.text(max_size=20), TIMES, st.just(()), st.integers(0, 20))


def nested(parts: list[Frame]) -> Frame:
    return Frame("all", sum(part.seconds for part in parts), tuple(parts))


FRAMES = st.lists(st.one_of(LEAVES, st.lists(LEAVES, min_size=1, max_size=30).map(nested)), max_size=40)


@given(FRAMES)
def test_every_rectangle_is_inside_and_the_levels_are_as_wide_as_their_durations(frames: list[Frame]) -> None:
    chart = draw_icicle("x", "t", "d", frames)
    root = ET.fromstring(chart.svg())
    assert "style=" not in chart.svg()
    rectangles = [rectangle for group in root.iter(f"{SVG}g") for rectangle in group.iter(f"{SVG}rect")]
    rows: dict[str, list[tuple[float, float]]] = {}
    for rectangle in rectangles:
        x, width = float(rectangle.attrib["x"]), float(rectangle.attrib["width"])
        assert x >= 24 - 0.1
        assert x + width <= chart.width - 24 + 0.7
        assert float(rectangle.attrib["y"]) < chart.height
        rows.setdefault(rectangle.attrib["y"], []).append((x, x + width))
    for row in rows.values():
        assert all(a[1] <= b[0] + 0.7 for a, b in zip(sorted(row), sorted(row)[1:], strict=False))
    assert len(rectangles) <= 2000
    assert bool(rectangles) == bool(frames)


def test_parts_that_cannot_be_seen_are_one() -> None:
    frames = [Frame("long", 1.0), *(Frame(f"short {number}", 1e-6) for number in range(500))]
    names = re.findall(r"<g><title>([^<:]*)", draw_icicle("x", "t", "d", frames).svg())
    assert names == ["long", "500 short parts"]


def test_names_are_text() -> None:
    svg = draw_icicle("x", "t", "d", [Frame("<script>&", 1.0)]).svg()
    assert "<script>" not in svg
    assert "&lt;script&gt;&amp;: 1,000,000.0 µs" in svg
