"""Histograms of latencies: every call counts once, in at most 60 bars, by the rule that is stated."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from benchlock.evaluator.report.histogram_sections import MOST_BARS, describe_histogram, find_histogram

TIMES = st.lists(st.integers(1, 10**10), min_size=1, max_size=300)


@given(TIMES)
@example([5])
@example([5] * 40)
@example([5] * 200 + [9])
@example([5] * 100 + [10**10])
@example([1, *[10**9] * 300])
@example([1] * 150 + [2] * 150)
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
