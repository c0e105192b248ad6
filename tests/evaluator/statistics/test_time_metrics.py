"""Metrics of time from the samples of every scenario, against figures derived by hand."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

from benchlock.evaluator.statistics.confidence_intervals import quantile
from benchlock.evaluator.statistics.metric_types import Interval
from benchlock.evaluator.statistics.time_metrics import (
    MetricValue,
    Peak,
    Performance,
    Phases,
    Samples,
    list_time_metrics,
    optimal_batch,
    read_columns,
    samples_of,
)

MS = 1_000_000


def phase(folder: Path, duration: float, **columns: Any) -> Performance:  # noqa: ANN401 - what becomes an array
    made = {name: np.asarray(values, np.int64) for name, values in columns.items()}
    save_file(made, folder / "samples.safetensors")
    return Performance(samples_of(read_columns(folder / "samples.safetensors")), samples_per_query=1, duration=duration)


def figures(name: str, phases: Phases, version: int = 1) -> dict[int | None, MetricValue]:
    """By the definitions that take calls for independent, whose intervals can be derived by hand."""
    return dict(list_time_metrics(name, phases, version))


def test_a_throughput_counts_the_samples_of_every_call(tmp_path: Path) -> None:
    """Fifty calls of four samples and one of two, a tenth of a second from one answer to the next."""
    ends = (np.arange(1, 52) * 100 * MS).tolist()
    offline = phase(
        tmp_path,
        5.1,
        latency_ns=[60 * MS] * 51,
        start_ns=[0, *ends[:-1]],
        end_ns=ends,
        samples=[4] * 50 + [2],
        index=range(202),
    )
    value, n, ci = figures("throughput", Phases(offline))[None]
    assert (value, n) == pytest.approx((202 / 5.1, 202))
    # Answers come like clockwork, whatever the calls took: the interval has no width.
    assert ci.low == pytest.approx(202 / 5.1)
    assert ci.high == pytest.approx(202 / 5.1)


def test_the_pipelines_metrics_are_of_its_own_samples(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    phases = Phases(
        performance=phase(tmp_path / "a", 1.0, latency_ns=[1 * MS] * 5),
        pipeline=phase(tmp_path / "b", 2.0, latency_ns=[7 * MS] * 4),
    )
    assert figures("latency_p50", phases)[None][:2] == pytest.approx((0.001, 5))
    assert figures("pipeline_latency_p50", phases)[None][:2] == pytest.approx((0.007, 4))
    assert figures("pipeline_throughput", phases)[None][:2] == (2.0, 4)


def test_a_sweep_gives_each_metric_once_a_batch(tmp_path: Path) -> None:
    """Calls of one sample take 10 ms, of two 12 ms, of four 23 ms; turns are mixed, and only their own time counts."""
    batch = [1] * 50 + [2] * 50 + [4] * 50
    latency = [10 * MS] * 50 + [12 * MS] * 50 + [23 * MS] * 50
    swept = Phases(
        phase(tmp_path, 99.0, latency_ns=latency, before_ns=[0] * 150, batch=batch, samples=batch, end_ns=range(150))
    )
    found = figures("throughput", swept)
    assert {size: (round(value, 3), n) for size, (value, n, _) in found.items()} == {
        1: (100.0, 50),
        2: (166.667, 100),
        4: (173.913, 200),
    }
    assert figures("latency_p50", swept)[4][0] == pytest.approx(0.023)
    # From two to four it gains 4 %.
    assert figures("optimal_batch", swept) == {None: (2.0, 3, Interval(2.0, 2.0))}


def at(value: float, width: float = 0.0) -> MetricValue:
    return value, 50, Interval(value - width, value + width)


@pytest.mark.parametrize(
    ("throughputs", "expected"),
    [
        ([(1, at(100)), (2, at(90)), (4, at(200))], 1),  # batching hurts at once
        ([(1, at(100)), (2, at(150)), (4, at(120))], 2),  # and later
        ([(1, at(100)), (2, at(200)), (4, at(400))], 4),  # every doubling still gains
        ([(1, at(100)), (4, at(109))], 1),  # 9 % in two doublings is 4.4 % in each
        ([(1, at(100)), (4, at(112))], 4),  # 12 % in two is 5.8 % in each
        ([(3, at(100))], 3),
    ],
)
def test_the_optimal_batch_is_the_smallest_whose_doubling_gains_little(
    throughputs: list[tuple[int, MetricValue]], expected: int
) -> None:
    assert optimal_batch(throughputs)[:2] == (expected, len(throughputs))


def test_the_interval_of_the_optimal_batch_is_what_the_throughputs_leave_open() -> None:
    wide = [(1, at(100, 4)), (2, at(108, 4)), (4, at(110, 4)), (8, at(108, 1))]
    assert optimal_batch(wide) == (2, 4, Interval(1.0, 4.0))
    unbounded: list[tuple[int, MetricValue]] = [
        (1, (100.0, 5, Interval(None, None))),
        (2, (300.0, 5, Interval(None, None))),
    ]
    assert optimal_batch(unbounded) == (2, 2, Interval(1.0, None))


def test_a_cold_start_and_its_phases_are_medians_over_processes(tmp_path: Path) -> None:
    cold = Phases(
        phase(tmp_path, 9.0, latency_ns=np.arange(1, 10) * 1000 * MS, load_ns=np.arange(9, 0, -1) * MS, warmup_ns=[1])
    )
    assert figures("cold_start", cold)[None][:2] == (5.0, 9)
    value, n, ci = figures("cold_start_load", cold)[None]
    assert (value, n) == pytest.approx((0.005, 9))
    # Of nine samples the second and the eighth bound the median.
    assert ci.low == pytest.approx(0.002)
    assert ci.high == pytest.approx(0.008)
    assert figures("cold_start_absent", cold) == {}


def test_a_peak_lies_between_what_was_answered_and_what_was_not() -> None:
    assert figures("peak_qps", Phases(peak=Peak(120.0, 125.0, 7))) == {None: (120.0, 7, Interval(120.0, 125.0))}
    assert figures("peak_qps", Phases()) == {}


def test_the_version_of_a_definition_says_how_its_interval_is_made() -> None:
    """The first takes calls for independent; the second sees that neighbours are alike."""
    latency = np.repeat(np.random.default_rng(7).exponential(size=100), 20)
    phases = Phases(Performance(Samples(latency), samples_per_query=1, duration=float(latency.sum())))
    for name in ("latency_p50", "throughput"):
        (_, _, first), (_, _, second) = (figures(name, phases, version)[None] for version in (1, 2))
        assert None not in (first.low, first.high, second.low, second.high)
        if name == "latency_p50":
            assert second.high - second.low > 2 * (first.high - first.low)  # type: ignore[operator]
    assert figures("latency_p50", phases, 1)[None][2] == quantile(np.sort(latency), 0.5)[1]
