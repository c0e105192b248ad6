"""Charts: valid and accessible SVG, inside its frame, without overlaps, the same each time, with enough contrast."""

import itertools
import math
import re
from itertools import combinations
from xml.etree import ElementTree as ET

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchlock.evaluator.charts.axes import linear_axis, log_axis
from benchlock.evaluator.charts.icicle_charts import Frame, draw_icicle, find_view
from benchlock.evaluator.charts.labels import THEME, Box, Label, measure, place_labels, shorten
from benchlock.evaluator.charts.line_charts import (
    BatchCurve,
    Distribution,
    Histogram,
    Mark,
    Rate,
    Roof,
    RooflinePoint,
    draw_batches,
    draw_distributions,
    draw_histogram,
    draw_roofline,
)
from benchlock.evaluator.charts.matrix_charts import Bar, HeatMap, draw_bars, draw_heat_map, shade
from benchlock.evaluator.charts.plots import number_series
from benchlock.evaluator.charts.png import render_png
from benchlock.evaluator.charts.scatter_charts import Point, draw_points
from benchlock.evaluator.charts.svg import SERIES, Chart

NASTY = "<script>alert(1)</script>\"'&]]>\x00\x1b\u202e"
SVG = "{http://www.w3.org/2000/svg}"
KINDS = ("conv", "dense", "pool", "softmax", "norm")
DARK = "#14181d"


def distribution(name: str, *seconds: float) -> Distribution:
    shares = tuple((rank + 1) / len(seconds) for rank in range(len(seconds)))
    low, high = (tuple(min(1.0, max(0.0, share + reach)) for share in shares) for reach in (-0.1, 0.1))
    return Distribution(name, seconds, shares, low, high)


def roofline(name: str, peak: float = 1e11) -> Chart:
    points = [RooflinePoint(f"{n} {name}", 0.5 + n % 4, 1e9 * (1 + n), KINDS[n % 5]) for n in range(12)]
    return draw_roofline("roofline", name, name, points, [Roof(name, 3e10), Roof("far", 1e10)], peak=peak)


def every_chart(name: str) -> list[Chart]:
    points = [Point(f"{name}{n}", 1.0 + n % 3, 0.5, (0.9, 1.2), (0.4, 0.6), float(n)) for n in range(9)]
    heat_map = HeatMap((name, "b"), ("1", "2"), ((1.0, 2.5), (1.0, None)))
    bars = [Bar(name, (1.0, 2.0), name), Bar("below", (-1.0,), "-1 s")]
    classes = tuple(map(str, range(30)))
    counts = tuple(tuple(str(10 ** (number % 5)) for number in range(30)) for _ in classes)
    confusion = HeatMap(classes, classes, tuple(tuple(number / 29 for number in range(30)) for _ in classes), counts)
    marks = [Mark(f"p{number}", number / 1000, f"{number} ms") for number in (50, 90, 99)]
    curves = [BatchCurve(f"{name}{n}", (Rate(1, 9.0 + n), Rate(64, 90.0, (80.0, 99.0))), 64) for n in range(3)]
    return [
        draw_distributions("cdf", name, name, [distribution(name, 1e-4, 2e-4, 9e-2), distribution("b", 1e-4)]),
        roofline(name),
        draw_heat_map("heat", name, name, heat_map, columns_title=name),
        draw_points("points", name, name, points, x_title=name, y_title=name, y_is_share=True),
        draw_bars("bars", name, name, bars, unit="s", parts=(name, "load")),
        draw_heat_map("confusion", name, name, confusion, columns_title=name, rows_title=name),
        draw_histogram("histogram", name, name, Histogram((0.05, 0.075, 0.1), (3, 7), 2), marks),
        draw_histogram("one", name, name, Histogram((1e-3, 1e-3), (1,)), marks[:1]),
        draw_batches("batches", name, name, curves),
    ]


def boxes_of_texts(root: ET.Element) -> list[tuple[str, Box]]:
    """Where each level text is, by the font that is measured with."""
    boxes = []
    for entry in root.iter(f"{SVG}text"):
        if "transform" in entry.attrib:
            continue
        x, y, size = (float(entry.attrib[key]) for key in ("x", "y", "font-size"))
        width = measure(entry.text or "", size)
        left = x - {"start": 0.0, "middle": 0.5, "end": 1.0}[entry.attrib["text-anchor"]] * width
        boxes.append((entry.text or "", Box(left, y - size * 0.72, left + width, y)))
    return boxes


def luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(first: str, second: str) -> float:
    """The contrast of two colors, by WCAG 2.2."""
    low, high = sorted(map(luminance, (first, second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("chart", every_chart(NASTY), ids=lambda chart: chart.name)
def test_hostile_text_stays_text_and_nothing_needs_an_inline_style(chart: Chart) -> None:
    text = chart.svg()
    root = ET.fromstring(text)
    assert {entry.tag.removeprefix(SVG) for entry in root.iter()} <= {
        *("svg", "title", "desc", "rect", "line", "text", "circle", "polygon", "polyline")
    }
    assert not [key for entry in root.iter() for key in entry.attrib if key == "style" or key.startswith("on")]
    assert "\x00" not in text
    assert "\u202e" not in text
    assert root.attrib["aria-labelledby"].split() == [f"{chart.name}-title", f"{chart.name}-description"]
    assert "alert(1)" in (root.findtext(f"{SVG}title") or "")


@pytest.mark.parametrize("chart", every_chart("a rather long name of a model 1.0.0"), ids=lambda chart: chart.name)
def test_texts_overlap_neither_each_other_nor_the_frame(chart: Chart) -> None:
    boxes = boxes_of_texts(ET.fromstring(chart.svg()))
    frame = Box(0, 0, chart.width, chart.height)
    assert [words for words, box in boxes if not frame.contains(box)] == []
    assert [(a, b) for (a, one), (b, other) in combinations(boxes, 2) if one.overlaps(other)] == []


@pytest.mark.parametrize("chart", every_chart("a"), ids=lambda chart: chart.name)
def test_every_coordinate_is_inside_the_frame(chart: Chart) -> None:
    found = 0
    for entry in ET.fromstring(chart.svg()).iter():
        for keys, most in ((("x", "cx", "x1", "x2"), chart.width), (("y", "cy", "y1", "y2"), chart.height)):
            numbers = [float(entry.attrib[key]) for key in keys if key in entry.attrib]
            assert all(0 <= number <= most for number in numbers)
            found += len(numbers)
        for corner in entry.attrib.get("points", "").split():
            x, y = map(float, corner.split(","))
            assert 0 <= x <= chart.width
            assert 0 <= y <= chart.height
    assert found > 10


def test_a_chart_is_the_same_each_time_and_becomes_a_picture() -> None:
    first, second = (draw_bars("bars", "t", "d", [Bar("a", (1.0,), "1 µs")], unit="µs") for _ in range(2))
    assert first.svg() == second.svg()
    assert render_png(first) == render_png(second)
    empty = Chart("bars", "t", "d", first.width, first.height, ())
    assert render_png(first).startswith(b"\x89PNG")
    assert len(render_png(first)) > len(render_png(empty))  # its texts are drawn, by the font that ships


def test_labels_without_room_are_counted_in_the_description() -> None:
    labels = [Label(50, 50, "twenty characters ok")] * 30
    places = place_labels(labels, 11, Box(0, 0, 200, 100))
    known = [place for place in places if place is not None]
    assert 0 < len(known) < 30
    assert not any(one.overlaps(other) for one, other in combinations(known, 2))
    points = [Point(f"the same place {n}", 1.0, 0.5) for n in range(60)]
    chart = draw_points("p", "t", "Found.", points, x_title="x", y_title="y", y_is_share=False)
    assert re.search(r"Found\. \d+ of 60 points have no label", chart.description)


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=5))
@example([5e-324])
@example([-5e-324])
@example([1e-299])
def test_a_linear_axis_contains_its_values_between_round_ticks(values: list[float]) -> None:
    axis = linear_axis("x", values)
    invisible = 1e-8 * (axis.high - axis.low)
    assert axis.low <= min(values) + invisible
    assert axis.high >= max(values) - invisible
    assert 2 <= len(axis.ticks) <= 9
    assert 0 <= axis.place(values[0], 0, 100) <= 100


@given(st.lists(st.floats(1e-9, 1e12), min_size=1, max_size=5))
def test_a_logarithmic_axis_contains_its_values(values: list[float]) -> None:
    axis = log_axis("x", values)
    assert axis.low < min(values) <= max(values) < axis.high
    assert all(axis.low <= tick <= axis.high for tick in axis.ticks)


def test_numbers_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ValueError, match="finite"):
        draw_bars("bars", "t", "d", [Bar("a", (float("nan"),), "?")], unit="s")
    with pytest.raises(ValueError, match="finite"):
        draw_heat_map("h", "t", "d", HeatMap(("a",), ("1",), ((float("nan"),),)), columns_title="x")
    with pytest.raises(ValueError, match="finite"):
        draw_histogram("h", "t", "d", Histogram((0.0, float("nan")), (1,)), [])
    with pytest.raises(ValueError, match="finite"):
        draw_batches("b", "t", "d", [BatchCurve("a", (Rate(1, float("inf")),), 1)])


def test_a_long_text_keeps_both_ends() -> None:
    text = shorten("a-model-with-a-very-long-name 1.0.0", 12, 120)
    assert text.startswith("a-")
    assert text.endswith(".0")
    assert measure(text, 12) <= 120


def test_series_and_cells_have_the_contrast_that_readers_need() -> None:
    dark = re.findall(r"\.fill\d \{ fill: (#\w+)", THEME.read_text())
    assert len(dark) == len(SERIES)
    assert min(contrast(color, "#ffffff") for color in SERIES) >= 3
    assert min(contrast(color, DARK) for color in dark) >= 3
    for share in [number / 50 for number in range(51)]:
        svg = draw_heat_map(
            "h", "t", "d", HeatMap(("a",), ("1", "2", "3"), ((0.0, share, 1.0),)), columns_title="x"
        ).svg()
        cells = re.findall(r'fill="(#\w+)"/>\n<text[^>]*fill="(#\w+)"', svg)
        assert len(cells) == 3
        assert min(contrast(cell, words) for cell, words in cells) >= 4.5
    assert shade(0.0) != shade(0.5) != shade(1.0)


def test_names_in_an_icicle_have_the_contrast_that_readers_need_on_every_series() -> None:
    frames = [Frame("a name", 1.0, (), number) for number in range(len(SERIES))]
    view = find_view(frames)
    assert view is not None
    pairs = re.findall(
        r'fill="(#\w+)"[^>]*/><text class="cover"[^>]*fill="(#\w+)"', draw_icicle("i", "t", "d", view).svg()
    )
    assert len(pairs) == len(SERIES)
    assert min(contrast(*pair) for pair in pairs) >= 4.5
    dark = re.findall(r"\.fill\d \{ fill: (#\w+)", THEME.read_text())
    (cover,) = re.findall(r"\.cover \{ fill: (#\w+)", THEME.read_text())
    assert min(contrast(color, cover) for color in dark) >= 4.5


def test_the_area_of_a_bubble_is_proportional_to_its_value() -> None:
    points = [Point("a", 1.0, 0.5, area=1e6), Point("b", 2.0, 0.6, area=4e6)]
    svg = draw_points("p", "t", "d", points, x_title="x", y_title="y", y_is_share=False).svg()
    bubbles = [bubble for bubble in re.findall(r"<(?:circle|rect)[^>]*>", svg) if 'fill-opacity="0.55"' in bubble]
    square, circle = (float(re.findall(r' (?:width|r)="([\d.]+)"', bubble)[0]) for bubble in bubbles)
    assert square**2 == pytest.approx(4 * math.pi * circle**2, rel=0.01)


def test_a_few_points_are_named_in_a_legend_and_overlap_or_not_none_is_unnamed() -> None:
    points = [Point(f"system {n}", 1.0, 0.5, area=1e6) for n in range(3)]
    chart = draw_points("p", "t", "Found.", points, x_title="x", y_title="y", y_is_share=False)
    assert chart.description == "Found."
    assert [chart.svg().count(f">system {n}<") for n in range(3)] == [1, 1, 1]
    assert all(f'class="fill{n}"' in chart.svg() for n in range(3))


def test_the_size_to_use_and_the_percentiles_are_marked() -> None:
    curve = BatchCurve("a", (Rate(1, 10.0), Rate(8, 70.0), Rate(16, 71.0)), 8)
    svg = draw_batches("b", "t", "d", [curve]).svg()
    ring, marker = re.findall(r'<circle cx="([\d.]+)" cy="([\d.]+)" r="(?:9|4)"', svg)[2:0:-1]
    assert ring == marker  # the ring is around the second point
    chart = draw_histogram("h", "t", "d", Histogram((1.0, 2.0, 3.0), (4, 4)), [Mark("p50", 2.0, "2 s")])
    edges = [float(x) for x in re.findall(r'<rect x="([\d.]+)"[^>]*class="fill0"', chart.svg())]
    (mark,) = re.findall(r'<line x1="([\d.]+)"[^>]*stroke="#1b1f24"', chart.svg())
    assert edges[1] == pytest.approx(float(mark), abs=0.1)


@pytest.mark.parametrize("times", [(1.3, 1.32, 1.9), (1.0, 1.02, 1.04), (1.95, 1.98, 2.0), (1.2, 1.5, 1.8)])
def test_labels_of_percentiles_overlap_neither_each_other_nor_a_line(times: tuple[float, float, float]) -> None:
    marks = [Mark(name, time, f"{time} s") for name, time in zip(("p50", "p90", "p99"), times, strict=True)]
    svg = draw_histogram("h", "t", "d", Histogram((1.0, 1.5, 2.0), (4, 4)), marks).svg()
    covers = [
        tuple(map(float, found))
        for found in re.findall(r'<rect x="([\d.]+)" y="([\d.]+)" width="([\d.]+)" height="([\d.]+)"[^>]*"cover"', svg)
    ]
    assert len(covers) == len(marks)
    for (_, above, _, height), (_, below, _, _) in itertools.pairwise(covers):
        assert above + height <= below
    assert svg.rindex('stroke="#1b1f24"') < svg.index('class="cover"')  # every line is under every label


def test_a_series_looks_alike_in_every_chart_of_a_page() -> None:
    """A chart that lacks the first series of the page gives the second one its own look, not that of the first."""
    order, looks = ("a", "b"), []
    for kept in (order, order[1:]):
        curves = [BatchCurve(name, (Rate(1, 2.0), Rate(2, 3.0)), None) for name in kept]
        numbers = number_series(kept, order)
        points = [Point(name, 1.0, 0.5, series=number) for name, number in zip(kept, numbers, strict=True)]
        charts = (
            draw_batches("b", "t", "d", curves, order),
            draw_distributions("c", "t", "d", [distribution(name, 1e-4, 2e-4) for name in kept], order=order),
            draw_points("p", "t", "d", points, x_title="x", y_title="y", y_is_share=True),
        )
        looks.append([set(re.findall(r'class="((?:line|fill)\d)"', chart.svg())) for chart in charts])
    assert looks == [
        [{"line0", "line1", "fill0", "fill1"}] * 2 + [{"fill0", "fill1"}],
        [{"line1", "fill1"}] * 2 + [{"fill1"}],
    ]
    assert number_series(("x", "b"), order) == (0, 1)
