"""An icicle is as wide as its durations, each part under its own, and has as many rectangles as can be seen."""

import re
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchlock.evaluator.charts.icicle_charts import Frame, View, draw_icicle, find_view

SVG = "{http://www.w3.org/2000/svg}"
TIMES = st.floats(1e-9, 10, allow_nan=False)
LEAVES = st.builds(Frame, st.text(max_size=20), TIMES, st.just(()), st.integers(0, 20))


def nested(parts: list[Frame]) -> Frame:
    return Frame("all", sum(part.seconds for part in parts), tuple(parts))


def view_of(frames: list[Frame], focus: str = "") -> View:
    view = find_view(frames, focus)
    assert view is not None
    return view


FRAMES = st.lists(st.one_of(LEAVES, st.lists(LEAVES, min_size=1, max_size=30).map(nested)), max_size=40)


@given(FRAMES)
def test_every_rectangle_is_inside_and_the_levels_are_as_wide_as_their_durations(frames: list[Frame]) -> None:
    chart = draw_icicle("x", "t", "d", view_of(frames))
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
    names = re.findall(r"<g><title>([^<:]*)", draw_icicle("x", "t", "d", view_of(frames)).svg())
    assert names == ["long", "500 short parts"]


def test_names_are_text() -> None:
    svg = draw_icicle("x", "t", "d", view_of([Frame("<script>&", 1.0)])).svg()
    assert "<script>" not in svg
    assert "&lt;script&gt;&amp;: 1,000,000.0 µs" in svg


@given(FRAMES)
def test_every_link_shows_more_of_its_part_and_leads_out_again(frames: list[Frame]) -> None:
    view = view_of(frames)
    for part in (part for part in view.parts if part.has_more):
        closer = view_of(frames, part.place)
        assert sum(below.frame.seconds for below in closer.parts if below.level == 0) == pytest.approx(
            part.frame.seconds
        )
        shown = {below.frame.name for below in closer.parts}
        assert len(closer.parts) > 1 or shown != {part.frame.name}
        assert part.place not in {below.place for below in closer.parts if below.has_more}
        assert find_view(frames, closer.out) is not None


def test_a_picture_of_many_parts_has_at_most_2000_rectangles_of_which_links_find_each() -> None:
    kernels = tuple(Frame(f"kernel {number}", 1.0) for number in range(5))
    frames = [Frame("layer", 5.0, kernels, number) for number in range(20_000)]
    view = view_of(frames)
    assert 50 < len(view.parts) <= 2000
    steps = 0
    while (part := next((part for part in view.parts if part.has_more), None)) is not None:
        view, steps = view_of(frames, part.place), steps + 1
    assert [part.frame.name for part in view.parts] == ["layer", *(kernel.name for kernel in kernels)]
    assert steps <= 4


def test_parts_with_more_inside_are_links_and_every_part_says_what_it_is() -> None:
    frames = [Frame('a"<b>', 2.0, (Frame("part", 2.0),)), Frame("leaf", 1.0)]
    chart = draw_icicle("x", "t", "d", view_of(frames), lambda place: f"?focus=x.{place}#x")
    root = ET.fromstring(chart.svg())
    assert root.attrib["role"] == "group"  # a picture has no links
    assert [link.attrib["href"] for link in root.iter(f"{SVG}a")] == ["?focus=x.0#x"]
    labels = [entry.attrib["aria-label"] for entry in root.iter() if "data-level" in entry.attrib]
    assert labels == ['a"<b>: 2,000,000.0 µs', "part: 2,000,000.0 µs", "leaf: 1,000,000.0 µs"]


@pytest.mark.parametrize("focus", ["x", "1", "0.1", "0-1", "1-0", "0.", "-1", "0-", "9" * 99, "0" + ".0" * 50, "٣"])
def test_an_unknown_place_has_no_view(focus: str) -> None:
    assert find_view([Frame("a", 1.0, (Frame("b", 1.0),))], focus) is None
