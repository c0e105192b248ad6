"""The histogram counts every call once, in at most 60 bars; the confusion matrix has the numbers of the record."""

import re
from typing import Any
from xml.etree import ElementTree as ET

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec.structs import replace

from benchlock.evaluator.evidence.class_details import ClassDetails, read_classes
from benchlock.evaluator.report.single_run import (
    MOST_BARS,
    chart_confusion,
    describe_histogram,
    find_histogram,
    tabulate_calls,
)
from benchlock.evaluator.statistics.metric_types import Calls, Interval, Metric

TIMES = st.lists(st.integers(1, 10**10), min_size=1, max_size=300)


@given(TIMES)
@example([5])
@example([5] * 40)
@example([5] * 200 + [9])
@example([5] * 100 + [10**10])
@example([1, *[10**9] * 300])
@example([1] * 150 + [2] * 150)
@example([10**9, 2 * 10**9, 3 * 10**9] * 10)
def test_every_call_counts_once_in_at_most_60_bars(nanoseconds: list[int]) -> None:
    ordered = np.sort(np.array(nanoseconds)) * 1e-9
    histogram = find_histogram(ordered)
    edges, counts = histogram.edges, histogram.counts
    assert sum(counts) + histogram.longer == len(ordered)
    assert len(edges) == len(counts) + 1
    assert len(counts) + bool(histogram.longer) <= MOST_BARS
    assert edges[0] == ordered[0]
    assert histogram.longer == int((ordered > edges[-1]).sum())
    assert histogram.longer <= len(ordered) / 100  # the last bar begins at the 99th percentile or later
    for number, count in enumerate(counts[:-1]):
        assert count == int(((ordered >= edges[number]) & (ordered < edges[number + 1])).sum())
    section = describe_histogram(ordered)
    assert section.table is not None
    assert sum(map(int, section.table.column("calls"))) == len(ordered)  # type: ignore[arg-type] # numbers
    assert section.charts[0].svg().count('class="fill0"') == sum(count > 0 for count in counts)


def test_the_number_of_longer_calls_is_true_of_the_edge_as_it_is_written() -> None:
    nanoseconds = np.sort(17_100 + np.random.default_rng(3).exponential(4_000, 60_000).astype(int))
    answer = describe_histogram(nanoseconds * 1e-9).answer[0]
    found = re.search(r"([\d,]+) calls took more than ([\d.]+) µs", answer)
    assert found is not None
    assert int(found[1].replace(",", "")) == int((nanoseconds > float(found[2]) * 1000).sum())


def test_bars_are_as_wide_as_freedman_and_diaconis_say() -> None:
    ordered = np.linspace(0.0, 1.0, 1000)
    width = 2 * 0.5 / 10
    histogram = find_histogram(ordered)
    assert np.diff(histogram.edges) == pytest.approx(width, rel=0.01)
    assert histogram.counts == pytest.approx((100,) * 10, abs=1)


def test_a_million_calls_are_a_light_chart() -> None:
    random = np.random.default_rng(1)
    ordered = np.sort(np.append(np.exp(random.normal(0, 0.2, 999_000)), random.exponential(100, 1000)))
    section = describe_histogram(ordered)
    assert len(section.charts[0].svg()) < 12_000
    assert "calls took more than" in section.answer[0]
    assert all(f"p{number} " in section.charts[0].svg() for number in (50, 90, 99))


def details(classes: int, *cells: tuple[int, int | None, int]) -> ClassDetails:
    right = [(label, label, 20_000) for label in range(classes)]
    wrong = {label: sum(cell[2] for cell in cells if cell[0] == label) for label in range(classes)}
    per_class = [[label, 20_000 + wrong[label], 20_000, 20_000] for label in range(classes)]
    part: dict[str, Any] = {"per_class": per_class, "confusion": sorted([*right, *cells], key=str)}
    return read_classes({"classes": part})


def test_each_cell_has_its_number_and_the_color_of_its_share() -> None:
    chart = chart_confusion(details(3, (0, 2, 5000), (1, None, 7)))
    assert chart is not None
    assert chart.description.startswith("Most often, label 0 is decided as 2: 5000 of 25000 samples.")
    texts = [entry.text for entry in ET.fromstring(chart.svg()).iter("{http://www.w3.org/2000/svg}text")]
    assert texts.count("20k") == 3
    assert {"5000", "7", "none", "decided as", "label"} < {*texts}
    assert len(re.findall(r'<rect [^>]*fill="#[^"]*"/>', chart.svg())) == 5  # an empty cell has no color
    colors = dict(re.findall(r'fill="(#\w+)"/>\n<text[^>]*>(5000|7)<', chart.svg()))
    assert len(colors) == 2


def test_without_mistakes_the_chart_says_so() -> None:
    chart = chart_confusion(details(30))
    assert chart is not None
    assert chart.description.startswith("No sample is taken for another class.")


def test_there_is_no_chart_of_more_classes_or_without_a_matrix() -> None:
    assert chart_confusion(details(31, (0, 1, 5))) is None
    assert chart_confusion(ClassDetails()) is None


def test_latencies_of_all_calls_are_beside_those_of_undisturbed_ones() -> None:
    p50, p90 = (Metric(f"latency_{name}", 0.002, "s", "lower", 100, Interval(None, None), 1) for name in ("p50", "p90"))
    calm, cpu = replace(p50, value=0.001, n=90), replace(p50, name="cpu_time_p50", value=0.0009)
    calls = Calls(100, 10, "thread", (calm, replace(p90, n=90)), (cpu,), wall=1.0, cpu=0.75)
    table = tabulate_calls((p50,), calls)
    assert [column.name for column in table.columns] == [
        "metric", "all calls", "undisturbed calls", "n", "CPU time of all calls",
    ]  # fmt: skip
    assert table.rows == (("latency_p50", 0.002, 0.001, 90, 0.0009), ("latency_p90", None, 0.002, 90, None))
    assert table.notes[0].startswith("10 of 100 calls were pre-empted.")
    assert "off-CPU for 25.0%" in table.notes[1]
    late = tabulate_calls((p50,), Calls(100, 0, "process", undelayed=(replace(calm, self_reported=True),)))
    assert late.rows == (("latency_p50", 0.002, None, None, None, 0.001),)
    assert len(late.columns) == 6
