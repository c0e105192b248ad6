"""The gate: verdicts from interleaved runs of two locks, on time and on quality, and what gives no verdict."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from benchlock.artifacts.errors import InvalidInputError, RefusedError
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.records.timing_validity import calls_document
from benchlock.evaluator.statistics.metric_types import Calls
from benchlock.evaluator.workflows.gate import GatedMetric, GateResult, check_gate
from benchlock.registry.lock.lockfile import Lock
from tests.support.evaluator.gated import MARGINS, A, B, bench, gate, lock
from tests.support.evaluator.recorded import DONE, metric, recorded


def of(result: GateResult, name: str) -> GatedMetric:
    return next(entry for entry in result.metrics if entry.metric == name)


def test_a_candidate_that_is_alike_passes() -> None:
    result = gate(bench())
    assert result.verdict == "passed"
    assert {entry.answer for entry in result.metrics} == {"passed"}
    assert of(result, "top1").is_exact
    assert (result.tests, result.false_positive_rate, result.rounds) == (1, 0.05, 6)
    assert result.level == pytest.approx(0.05)


def test_a_slower_candidate_is_a_regression() -> None:
    result = gate(bench(slowness=1.2))
    assert result.verdict == "regression"
    entry = of(result, "latency_p50")
    assert (entry.answer, entry.baseline) == ("regression", 0.001)
    assert entry.change == pytest.approx(0.2, abs=0.01)
    assert entry.test is not None
    assert entry.test.power > 0.9
    assert "excludes that the candidate is no worse" in entry.reason
    assert of(result, "top1").answer == "passed"


def test_a_faster_candidate_passes_however_much_faster() -> None:
    assert gate(bench(slowness=0.5)).verdict == "passed"


@pytest.mark.parametrize(
    ("top1", "verdict"), [(0.75, "passed"), (0.90, "passed"), (0.743, "passed"), (0.74, "regression")]
)
def test_quality_that_is_equal_in_all_runs_is_decided_by_its_value(top1: float, verdict: str) -> None:
    """The margin of 1 % is relative to 0.75."""
    result = gate(bench(top1=top1), {"top1": 0.01})
    assert result.verdict == verdict
    assert (result.tests, result.false_positive_rate) == (0, 0.0)


def test_quality_alone_is_decided_by_one_run_of_each_lock() -> None:
    made: list[int] = []

    def once(run_lock: Lock, part_of: Mapping[str, Any]) -> Run:
        made.append(part_of["arm"])
        assert not part_of["control"]
        return bench(top1=0.5)(run_lock, part_of)

    result = gate(once, {"top1": 0.01}, rounds=None)
    assert sorted(made) == [0, 1]
    entry = of(result, "top1")
    assert (result.verdict, entry.is_exact, entry.test) == ("regression", False, None)
    assert (result.tests, result.rounds, result.false_positive_rate) == (0, 1, None)


def test_margins_of_time_need_rounds_of_both_locks_and_a_control() -> None:
    result = gate(bench(), MARGINS, rounds=None)
    assert (result.rounds, len(result.comparison.arms), result.false_positive_rate) == (6, 3, 0.05)


@pytest.mark.parametrize("rounds", [1, 2])
def test_times_cannot_be_gated_in_few_rounds(rounds: int) -> None:
    check_gate((A, B), {"top1": 0.01}, rounds)
    check_gate((A, B), MARGINS, 3)
    with pytest.raises(InvalidInputError, match=f"latency_p50 cannot be gated with {rounds} round"):
        check_gate((A, B), MARGINS, rounds)


def test_quality_that_varies_between_rounds_is_tested() -> None:
    def once(run_lock: Lock, part_of: Mapping[str, Any]) -> Run:
        return bench(top1=(0.76, 0.75, 0.74)[part_of["round"] - 1])(run_lock, part_of)

    result = gate(once, {"top1": 0.01}, rounds=3)
    assert (of(result, "top1").is_exact, result.tests, result.false_positive_rate) == (False, 1, 0.05)


def test_noise_leaves_a_gate_undecided_with_the_number_of_rounds_that_would_decide() -> None:
    result = gate(bench(noise=(0.97, 1.10, 0.98, 1.08, 0.96, 1.06)))
    assert result.verdict == "undecided"
    entry = of(result, "latency_p50")
    assert entry.test is not None
    assert entry.test.rounds is not None
    assert entry.reason.endswith("rounds would decide")
    number = int(entry.reason.split("about ")[1].split(" rounds")[0])
    assert number >= entry.test.rounds
    assert number % 6 == 0


def test_a_regression_of_one_metric_outweighs_an_undecided_one() -> None:
    assert gate(bench(noise=(0.97, 1.10, 0.98, 1.08, 0.96, 1.06), top1=0.5)).verdict == "regression"


def test_runs_on_different_hosts_give_no_verdict() -> None:
    result = gate(bench(slowness=1.2, top1=0.5, cpu_model="Another CPU"))
    assert result.verdict == "not comparable"
    assert {entry.answer for entry in result.metrics} == {"undecided"}
    assert all(entry.change is None and entry.test is None and not entry.is_exact for entry in result.metrics)
    assert result.tests == 0
    assert "cpu model" in "; ".join(result.comparison.reasons)


def test_unusable_times_decide_nothing() -> None:
    def once(run_lock: Lock, part_of: Mapping[str, Any]) -> Run:
        made = bench(slowness=1.2)(run_lock, part_of)
        assert made.end is not None
        details = {**made.end.details, "calls": calls_document(Calls(100, 50, "thread"))}
        return structs.replace(made, end=structs.replace(made.end, details=details))

    result = gate(once)
    assert result.verdict == "undecided"
    assert "unusable times" in of(result, "latency_p50").reason
    assert of(result, "top1").answer == "passed"


def test_quality_that_varies_is_not_exact_in_the_only_undisturbed_round() -> None:
    """Quality counts in all rounds, since other work on the host does not affect it."""

    def once(run_lock: Lock, part_of: Mapping[str, Any]) -> Run:
        made = bench(top1=(0.76, 0.75, 0.74, 0.75, 0.76, 0.73)[part_of["round"] - 1])(run_lock, part_of)
        assert made.end is not None
        if part_of["round"] == 6:
            return made
        details = {**made.end.details, "calls": calls_document(Calls(100, 50, "thread"))}
        return structs.replace(made, end=structs.replace(made.end, details=details))

    result = gate(once)
    entry = of(result, "top1")
    assert (result.rounds, entry.is_exact, entry.answer) == (1, False, "undecided")
    assert entry.test is not None
    assert of(result, "latency_p50").test is None


def test_self_reported_metrics_decide_nothing() -> None:
    def once(run_lock: Lock, part_of: Mapping[str, Any]) -> Run:
        made = bench(slowness=1.2, top1=0.5)(run_lock, part_of)
        assert made.end is not None
        metrics = tuple(structs.replace(entry, self_reported=True) for entry in made.end.metrics)
        return structs.replace(made, end=structs.replace(made.end, metrics=metrics))

    result = gate(once)
    assert result.verdict == "undecided"
    assert all(entry.self_reported and entry.test is None for entry in result.metrics)


def test_a_metric_that_a_run_lacks_is_undecided() -> None:
    def once(run_lock: Lock, part_of: Mapping[str, Any]) -> Run:
        made = bench()(run_lock, part_of)
        assert made.end is not None
        return structs.replace(made, end=structs.replace(made.end, metrics=made.end.metrics[:1]))

    result = gate(once)
    assert result.verdict == "undecided"
    assert of(result, "latency_p50").reason == "not every run has it"


def test_the_first_failed_run_ends_the_gate() -> None:
    made: list[int] = []

    def once(run_lock: Lock, part_of: Mapping[str, Any]) -> Run:
        made.append(part_of["arm"])
        if part_of["arm"] == 1:
            broken = structs.replace(DONE, outcome="failed", failure_class="crash", failure_message="broken")
            return recorded(broken, lock=run_lock.id)
        return bench()(run_lock, part_of)

    with pytest.raises(RefusedError, match=r"of the candidate candidate 1\.0\.0 ended as failed \(crash\)"):
        gate(once)
    assert made.count(1) == 1


def test_the_level_is_divided_over_metrics_that_are_tested() -> None:
    def once(run_lock: Lock, part_of: Mapping[str, Any]) -> Run:
        made = bench()(run_lock, part_of)
        assert made.end is not None
        more = tuple(metric(name, made.end.metrics[1].value) for name in ("latency_p90", "latency_p99"))
        return structs.replace(made, end=structs.replace(made.end, metrics=(*made.end.metrics, *more)))

    result = gate(once, dict.fromkeys(("latency_p50", "latency_p90", "latency_p99", "top1"), 0.05))
    assert result.tests == 3
    assert result.level == pytest.approx(0.05 / 3)
    tests = [entry.test for entry in result.metrics if entry.test is not None]
    assert [test.level for test in tests] == [result.level] * 3


@pytest.mark.parametrize(
    ("margins", "message"),
    [
        ({}, "needs the margin of at least one metric"),
        ({"miou": 0.05}, "not every lock measures miou"),
        ({"accuracy": 0.05}, "unknown metric 'accuracy'"),
    ],
)
def test_margins_that_cannot_be_gated_are_invalid(margins: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        check_gate((A, B), margins)


def test_a_throughput_that_is_the_arrival_rate_cannot_be_gated() -> None:
    scenario = {
        "name": "server",
        "target_qps": 10,
        "target_latency": "100ms",
        "min_queries": 64,
        "min_duration": "1s",
        "warmup": 8,
    }
    locks = [lock(name, scenario=scenario, metrics=["throughput"]) for name in ("baseline", "candidate")]
    with pytest.raises(InvalidInputError, match="arrival rate"):
        check_gate(locks, {"throughput": 0.05})


def test_locks_of_different_requests_are_refused() -> None:
    with pytest.raises(RefusedError, match="limits"):
        check_gate(
            (A, lock("candidate", limits={"time": "9m", "memory": "2GiB", "cpus": 1, "processes": 64})),
            {"latency_p50": 0.05},
        )


@pytest.mark.parametrize(("slowness", "at_most"), [(1.0, 0.05), (1.1, 1.0)])
def test_simulated_gates_state_their_error_rates(slowness: float, at_most: float) -> None:
    """Whole gates on a noisy host; with a regression of the margin, the power that they state is the rate found."""
    random, times = np.random.default_rng(11), 150

    def once(run_lock: Lock, part_of: Mapping[str, Any]) -> Run:
        seconds = 0.001 * float(np.exp(random.normal(scale=0.06))) * (slowness if part_of["arm"] == 1 else 1.0)
        end = structs.replace(DONE, metrics=(metric("latency_p50", seconds),), details={"part_of": dict(part_of)})
        return recorded(end, lock=run_lock.id)

    results = [gate(once, {"latency_p50": 0.1}) for _ in range(times)]
    found = sum(result.verdict == "regression" for result in results) / times
    stated = float(np.mean([result.metrics[0].test.power for result in results if result.metrics[0].test]))
    three_errors = 3 * (0.05 * 0.95 / times) ** 0.5
    assert all(result.false_positive_rate == 0.05 for result in results)
    assert found <= at_most + three_errors
    if slowness > 1:
        assert abs(found - stated) <= 0.05 + 3 * (stated * (1 - stated) / times) ** 0.5
