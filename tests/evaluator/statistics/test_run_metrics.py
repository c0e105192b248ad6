"""Metrics from what a harness leaves: values, units, n, intervals, and what is missing."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.statistics.run_metrics import Conditions, CorrectCount, summarise
from benchlock.evaluator.statistics.time_metrics import Performance, Phases, read_columns, samples_of


@dataclass(frozen=True)
class Defined:
    name: str
    unit: str
    direction: str
    version: int = 1


TOP1 = Defined("top1", "fraction", "higher", version=3)
P50, P99 = Defined("latency_p50", "s", "lower"), Defined("latency_p99", "s", "lower")
THROUGHPUT = Defined("throughput", "samples/s", "higher")


@pytest.fixture
def performance(tmp_path: Path) -> Performance:
    """400 queries of 1 to 400 ms, shuffled, 100 s in all."""
    latency = np.random.default_rng(1).permutation(np.arange(1, 401, dtype=np.int64)) * 1_000_000
    save_file({"latency_ns": latency}, tmp_path / "samples.safetensors")
    return Performance(samples_of(read_columns(tmp_path / "samples.safetensors")), samples_per_query=1, duration=100.0)


def test_a_fraction_carries_its_definition_and_its_interval() -> None:
    (metric,) = summarise([TOP1], {"top1": CorrectCount(751, 1000)}, Phases())
    assert (metric.name, metric.value, metric.unit, metric.direction) == ("top1", 0.751, "fraction", "higher")
    assert (metric.n, metric.version) == (1000, 3)
    assert metric.ci.low == pytest.approx(0.7230, abs=1e-4)
    assert metric.ci.high == pytest.approx(0.7775, abs=1e-4)


def test_latencies_are_seconds_between_order_statistics(performance: Performance) -> None:
    p50, p99 = summarise([P50, P99], {}, Phases(performance))
    assert p50.value == pytest.approx(0.200)
    assert p50.ci.low == pytest.approx(0.180)  # ranks 180 and 221 of 400
    assert p50.ci.high == pytest.approx(0.221)
    assert p99.value == pytest.approx(0.396)
    assert p99.ci.high == pytest.approx(0.400)
    assert p99.n == 400


def test_throughput_counts_every_sample_over_the_whole_phase(performance: Performance) -> None:
    of_eight = Performance(performance.samples, samples_per_query=8, duration=100.0)
    (metric,) = summarise([THROUGHPUT], {}, Phases(of_eight))
    assert metric.value == 32.0
    assert metric.n == 3200
    assert metric.ci.low is not None
    assert metric.ci.high is not None
    assert metric.ci.low < 32.0 < metric.ci.high


def test_metrics_come_in_the_order_asked(performance: Performance) -> None:
    found = summarise([THROUGHPUT, TOP1, P99], {"top1": CorrectCount(1, 2)}, Phases(performance))
    assert [metric.name for metric in found] == ["throughput", "top1", "latency_p99"]


@pytest.mark.parametrize("definition", [TOP1, P50, THROUGHPUT])
def test_a_metric_without_its_measurement_is_refused(definition: Defined) -> None:
    with pytest.raises(InvalidInputError, match=f"no data to compute {definition.name} from"):
        summarise([definition], {"top1": CorrectCount(0, 0)}, Phases())


def test_a_metric_that_no_measurement_gives_is_refused(performance: Performance) -> None:
    with pytest.raises(InvalidInputError, match="no data to compute miou from"):
        summarise([Defined("miou", "fraction", "higher")], {}, Phases(performance))


def test_samples_that_are_no_safetensors_are_refused(tmp_path: Path) -> None:
    (tmp_path / "samples").write_bytes(b"not a tensor")
    with pytest.raises(InvalidInputError, match="cannot read the timing samples"):
        samples_of(read_columns(tmp_path / "samples"))
    with pytest.raises(InvalidInputError, match="cannot read the timing samples"):
        samples_of(read_columns(tmp_path / "absent"))


@pytest.mark.parametrize("latency", [np.zeros((2, 2), np.int64), np.array([1.0]), np.array([-1], np.int64)])
def test_samples_that_are_no_durations_are_refused(tmp_path: Path, latency: np.ndarray) -> None:
    save_file({"latency_ns": latency}, tmp_path / "samples")
    with pytest.raises(InvalidInputError, match="not a series"):
        samples_of(read_columns(tmp_path / "samples"))


def test_throughput_per_core_and_cost_follow_from_the_throughput(performance: Performance) -> None:
    latest = Defined("throughput", "samples/s", "higher", version=2)
    core, cost = Defined("throughput_per_core", "samples/s", "higher"), Defined("cost_per_million", "currency", "lower")
    under = Conditions(cpus=2, price=0.10)
    whole, each, price = summarise([latest, core, cost], {}, Phases(performance), under)
    assert each.value == pytest.approx(whole.value / 2)
    assert price.value == pytest.approx(1e6 / whole.value / 3600 * 0.10)
    assert None not in (whole.ci.low, whole.ci.high, each.ci.low, price.ci.low)
    assert each.ci.low == pytest.approx(whole.ci.low / 2)  # type: ignore[operator]
    assert price.ci.low == pytest.approx(1e6 / whole.ci.high / 3600 * 0.10)  # type: ignore[operator]
    assert price.n == whole.n


def test_a_cost_needs_a_price(performance: Performance) -> None:
    with pytest.raises(InvalidInputError, match="no data to compute cost_per_million"):
        summarise([Defined("cost_per_million", "currency", "lower")], {}, Phases(performance))
