"""Calls with and without pre-emption: what is flagged, and what the undisturbed ones took."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.statistics.metric_types import Calls
from benchlock.evaluator.statistics.run_metrics import describe_calls, find_undelayed
from benchlock.evaluator.statistics.time_metrics import Performance, Phases, Samples, read_columns, samples_of

MILLISECOND = 1_000_000


@pytest.fixture
def samples(tmp_path: Path) -> Samples:
    """100 calls: 90 of 1 ms that nobody disturbed, then 10 of 5 ms that were; each took 0.8 ms of CPU."""
    preempted = np.repeat(np.array([0, 1], np.uint8), (90, 10))
    columns: dict[str, np.ndarray] = {
        "latency_ns": np.where(preempted, 5, 1).astype(np.int64) * MILLISECOND,
        "cpu_ns": np.full(100, 800_000, np.int64),
        "preempted": preempted,
    }
    save_file(columns, tmp_path / "samples")
    return samples_of(read_columns(tmp_path / "samples"))


def test_the_figures_of_undisturbed_calls_stand_beside_all_of_them(samples: Samples) -> None:
    found = describe_calls(samples, "thread", "cpu", 1)
    assert found is not None
    assert (found.n, found.preempted, found.share, found.flagged, found.scope) == (100, 10, 0.1, True, "thread")
    assert [(one.name, one.n) for one in found.undisturbed] == [
        ("latency_p50", 90), ("latency_p90", 90), ("latency_p99", 90)
    ]  # fmt: skip
    assert [one.value for one in found.undisturbed] == pytest.approx([0.001] * 3)
    assert [one.value for one in found.cpu_time] == pytest.approx([0.0008] * 3)
    assert found.cpu_time[0].ci.low is not None
    assert found.cpu_time[2].ci.high is None  # p99 of 100 has no upper end


@pytest.mark.parametrize(("preempted", "flagged"), [(5, False), (6, True)])
def test_more_than_five_in_a_hundred_are_flagged(preempted: int, *, flagged: bool) -> None:
    assert Calls(100, preempted, "thread").flagged is flagged


@pytest.mark.parametrize(("cpu", "flagged"), [(0.96, False), (0.94, True), (1.1, False)])
def test_more_than_five_in_a_hundred_of_the_time_without_the_cpu_is_flagged(cpu: float, *, flagged: bool) -> None:
    assert Calls(100, 1, "thread", wall=1.0, cpu=cpu).flagged is flagged


def test_short_calls_of_which_one_lost_the_cpu_for_long_are_flagged() -> None:
    latency = np.where(np.arange(100) == 0, 0.1, 0.001)
    found = describe_calls(Samples(latency, np.full(100, 0.001), np.arange(100) == 0), "thread", "cpu", 1)
    assert found is not None
    assert (found.share, found.flagged) == (0.01, True)
    assert found.without_cpu == pytest.approx(0.099 / 0.199)


def test_what_the_reading_of_clocks_adds_to_many_calls_hides_nothing_that_one_of_them_lost() -> None:
    """CPU time of 40 µs calls that is 1 µs more than they lasted, and one of them was away for 300 µs."""
    latency = np.where(np.arange(100) == 0, 340e-6, 40e-6)
    found = describe_calls(Samples(latency, np.full(100, 41e-6), np.arange(100) == 0), "thread", "cpu", 1)
    assert found is not None
    assert found.without_cpu == pytest.approx(299 / 4300)
    assert found.flagged


def test_a_cpu_clock_that_ticks_in_milliseconds_tells_of_all_calls_together_alone() -> None:
    ticks = np.where(np.arange(100) % 10 == 0, 0.01, 0.0)
    found = describe_calls(Samples(np.full(100, 0.001), ticks, np.zeros(100, np.bool_)), "thread", "cpu", 1)
    assert found is not None
    assert found.without_cpu == pytest.approx(0)
    assert not found.flagged


@pytest.mark.parametrize(("scope", "device"), [("process", "cpu"), ("thread", "cuda")])
def test_where_others_work_for_a_call_nothing_is_said_of_its_time_without_the_cpu(scope: str, device: str) -> None:
    waiting = Samples(np.ones(100), np.full(100, 0.1), np.zeros(100, np.bool_))
    found = describe_calls(waiting, scope, device, 1)
    assert found is not None
    assert (found.wall, found.cpu, found.without_cpu, found.flagged) == (None, None, None, False)


def test_the_wait_of_a_query_of_a_server_is_no_time_in_a_call() -> None:
    served = Samples(
        np.full(4, 2.0), np.full(4, 1.0), np.zeros(4, np.bool_), {"service_ns": np.full(4, 1_000_000_000, np.int64)}
    )
    found = describe_calls(served, "thread", "cpu", 1)
    assert found is not None
    assert [found.wall, found.without_cpu] == pytest.approx([4.0, 0.0])


def served(*queries: tuple[int, int, int]) -> Performance:
    """Queries of a server, one after the other: milliseconds of their arrival, their issue and their answer."""
    start, issued, end = np.array(queries, np.int64).T * MILLISECOND
    more = {"start_ns": start, "end_ns": end, "issue_delay_ns": issued - start}
    return Performance(Samples((end - start) / 1e9, more=more), 1, 1.0)


@pytest.mark.parametrize(
    ("queries", "undelayed"),
    [
        ([(0, 5, 6), (10, 10, 11)], 1),  # nobody is before the first one: the host was late
        ([(0, 0, 9), (1, 9, 10)], 9),  # the second one waits for the model
        ([(0, 5, 7), (4, 7, 9)], 2),  # the first one's delay is what the second one waits for
        ([(0, 3, 7), (1, 7, 11)], 7),  # without the delay of 3 it would wait for the model all the same
        ([(0, 0, 4), (1, 6, 7)], 6),  # a delay behind another query counts as the model's
    ],
)
def test_the_delay_of_the_host_is_taken_from_the_latencies_of_a_server(
    queries: list[tuple[int, int, int]], undelayed: int
) -> None:
    (found,) = find_undelayed(Phases(served(*queries)), {"latency_p99": 2, "throughput": 2})
    assert (found.key, found.n) == ("latency_p99", 2)
    assert found.value == pytest.approx(undelayed / 1000)


def test_the_pipeline_of_a_server_has_its_own_delay() -> None:
    phases = Phases(served((0, 5, 6)), served((0, 5, 7)))
    found = find_undelayed(phases, {"pipeline_latency_p50": 2, "latency_p50": 2})
    assert {one.key: one.value for one in found} == pytest.approx({"latency_p50": 0.001, "pipeline_latency_p50": 0.002})


def test_no_other_scenario_has_a_delay(samples: Samples) -> None:
    assert not [*find_undelayed(Phases(Performance(samples, 1, 1.0)), {"latency_p50": 2, "pipeline_latency_p50": 2})]


def test_where_every_call_was_disturbed_none_is_left() -> None:
    every = Samples(np.ones(3), None, np.ones(3, np.bool_))
    found = describe_calls(every, "process", "cpu", 1)
    assert found == Calls(3, 3, "process")


def test_the_batches_of_a_sweep_are_not_mixed() -> None:
    batch = np.repeat(np.array([1, 8]), 10)
    swept = Samples(batch * 0.001, batch * 0.001, np.arange(20) % 10 == 0, {"batch": batch})
    found = describe_calls(swept, "thread", "cpu", 1)
    assert found is not None
    assert [(one.key, one.n, one.value) for one in found.undisturbed] == [
        ("latency_p50@1", 9, 0.001), ("latency_p50@8", 9, 0.008)
    ]  # fmt: skip
    assert [one.key for one in found.cpu_time] == ["cpu_time_p50@1", "cpu_time_p50@8"]


def test_without_the_counts_nothing_is_said() -> None:
    assert describe_calls(Samples(np.ones(3)), "process", "cpu", 1) is None


@pytest.mark.parametrize(
    ("column", "reason"),
    [
        ({"cpu_ns": np.ones(2, np.int64)}, "cpu_ns and latency_ns differ in length"),
        ({"cpu_ns": np.ones(3, np.float64)}, "cpu_ns is not a series"),
        ({"preempted": np.ones(4, np.uint8)}, "preempted and latency_ns differ in length"),
        ({"preempted": np.ones(3, np.float32)}, "preempted is not a series"),
    ],
)
def test_columns_that_contradict_each_other_are_refused(
    tmp_path: Path, column: dict[str, np.ndarray], reason: str
) -> None:
    save_file({"latency_ns": np.ones(3, np.int64)} | column, tmp_path / "samples")
    with pytest.raises(InvalidInputError, match=reason):
        samples_of(read_columns(tmp_path / "samples"))
