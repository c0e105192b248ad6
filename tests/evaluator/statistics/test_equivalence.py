"""Equivalent, different or undecided: every answer, with and without a margin, with and without a control."""

import numpy as np
import pytest
from msgspec.structs import replace

from benchlock.evaluator.statistics.confidence_intervals import UNBOUNDED
from benchlock.evaluator.statistics.equivalence import judge, judge_few, judge_quality, ratio
from benchlock.evaluator.statistics.metric_types import Interval, Metric, PairedTest, Ratio
from benchlock.evaluator.statistics.paired_tests import PairedTests, compare_decisions

QUIET = Ratio(1.001, Interval(0.995, 1.007), Interval(0.996, 1.006), 6, paired=True)
LOUD = Ratio(1.01, Interval(0.90, 1.13), Interval(0.92, 1.11), 6, paired=True)


def found(low: float, high: float) -> Ratio:
    """A ratio between these ends at 95 %, and a little closer at 90 %."""
    middle, closer = (low + high) / 2, (high - low) / 10
    return Ratio(middle, Interval(low, high), Interval(low + closer, high - closer), 6, paired=True)


@pytest.mark.parametrize(
    ("low", "high", "control", "answer", "reason"),
    [
        (0.99, 1.02, QUIET, "equivalent", "within the margin of 5.0%"),
        (0.99, 1.02, None, "equivalent", "within the margin of 5.0%"),
        (0.94, 1.02, QUIET, "undecided", "crosses the margin"),
        (0.99, 1.08, QUIET, "undecided", "runs per side would decide"),
        (0.99, 1.02, LOUD, "undecided", "the noise alone exceeds the margin"),
        (1.08, 1.12, QUIET, "different", "+10.0%, beyond the margin of 5.0%, which is worse"),
        (0.88, 0.92, QUIET, "different", "-10.0%, beyond the margin of 5.0%, which is better"),
        (1.06, 1.10, LOUD, "different", "+8.0%, beyond the margin of 5.0%, which is worse"),
    ],
)
def test_a_margin_is_decided_by_the_whole_interval(
    low: float, high: float, control: Ratio | None, answer: str, reason: str
) -> None:
    judged = judge("latency_p50", "lower", found(low, high), control, 0.05)
    assert judged.answer == answer
    assert reason in judged.reason


@pytest.mark.parametrize(
    ("low", "high", "control", "answer", "reason"),
    [
        (0.99, 1.02, QUIET, "undecided", "prove equality: at this spread, about 34 runs per side would decide"),
        (1.02, 1.04, QUIET, "different", "more than the spread of runs explains, which is better"),
        (0.95, 0.99, None, "different", "which is worse"),
        (1.001, 1.009, QUIET, "different", "more than the spread of runs explains"),
    ],
)
def test_without_a_margin_nothing_is_equivalent(
    low: float, high: float, control: Ratio | None, answer: str, reason: str
) -> None:
    judged = judge("throughput", "higher", found(low, high), control, None)
    assert judged.answer == answer
    assert reason in judged.reason


def test_one_run_each_decides_nothing() -> None:
    judged = judge("latency_p50", "lower", Ratio(2.0, UNBOUNDED, UNBOUNDED, 1, paired=False), None, 0.05)
    assert (judged.answer, judged.reason) == (
        "undecided",
        "+100.0%, in one run each, which does not show how runs vary",
    )


def test_a_metric_without_a_direction_is_no_better_and_no_worse() -> None:
    assert judge("optimal_batch", "none", found(1.9, 2.1), None, None).reason.endswith("explains")


def test_the_noise_floor_is_what_the_control_reaches() -> None:
    assert judge("latency_p50", "lower", found(0.99, 1.01), LOUD, None).noise_floor == pytest.approx(0.13)
    assert judge("latency_p50", "lower", found(0.99, 1.01), None, None).noise_floor is None


def test_what_differs_by_the_margin_passes_for_equivalent_5_times_in_100_at_most() -> None:
    random = np.random.default_rng(5)
    passed, tries = 0, 2000
    for _ in range(tries):
        a = np.exp(random.normal(scale=0.01, size=6))
        b = np.exp(random.normal(scale=0.01, size=6)) * 1.05
        measured = ratio(list(a), list(b), paired=True)
        assert measured is not None
        passed += judge("latency_p50", "lower", measured, None, 0.05).answer == "equivalent"
    assert passed / tries <= 0.06  # of a truth of 0.05, two standard errors


def quality(value: float, low: float, high: float) -> Metric:
    return Metric("top1", value, "fraction", "higher", 200, Interval(low, high), 1)


@pytest.mark.parametrize(
    ("other", "margin", "answer", "reason"),
    [
        (quality(0.80, 0.74, 0.86), None, "undecided", "equal on these samples"),
        (quality(0.80 * (1 - 1e-14), 0.74, 0.86), None, "undecided", "equal on these samples"),
        (quality(0.80 * (1 - 1e-6), 0.74, 0.86), None, "undecided", "less than 0.01% apart on these samples"),
        (quality(0.82, 0.76, 0.87), None, "undecided", "other samples may not confirm"),
        (quality(0.99, 0.96, 1.00), None, "different", "more than sampling explains"),
        (
            quality(0.82, 0.76, 0.87),
            0.05,
            "equivalent",
            "2.00 points higher (+2.50% relative) on these samples, within the",
        ),
        (
            quality(0.70, 0.63, 0.76),
            0.05,
            "different",
            "10.00 points lower (-12.50% relative) on these samples, beyond the",
        ),
    ],
)
def test_quality_is_exact_on_the_samples(other: Metric, margin: float | None, answer: str, reason: str) -> None:
    judged = judge_quality(quality(0.80, 0.74, 0.86), other, 6, margin)
    assert judged.answer == answer
    assert reason in judged.reason


@pytest.mark.parametrize(
    ("first", "second", "answer", "reason"),
    [
        (300, 200, "different", "300 only the first predicts correctly, 200 only the second (p = 8.9e-06)"),
        (300, 200, "different", "more than sampling explains, and the second is worse"),
        (20, 24, "undecided", "no difference detected, which does not prove equality"),
        (0, 0, "equal", "equal on these samples; both give the same result on each of 10000 samples"),
        (40, 40, "undecided", "equal on these samples; of 10000 samples, 40 only the first predicts correctly"),
        (300, 200, "different", "1.00 points lower (-1.11% relative) on these samples; of 10000"),
        (300, 200, "different", "; 95 % interval of the difference for other samples: [-1.448, -0.559] points"),
        (0, 0, "equal", "; 95 % interval of the difference for other samples: [-0.04787, 0.04787] points"),
    ],
)
def test_quality_is_decided_by_the_pairs_of_samples(first: int, second: int, answer: str, reason: str) -> None:
    """The intervals of both values meet: they speak of other samples, and these are the same of both."""
    number = np.arange(10_000)
    test = compare_decisions(number >= second, (number < second) | (number >= second + first))
    a, b = (quality(value, value - 0.006, value + 0.006) for value in (0.9, 0.9 + test.difference))
    judged = judge_quality(a, b, 1, None, PairedTests({"top1": test}))
    assert (judged.answer, judged.test) == (answer, test)
    assert reason in judged.reason


@pytest.mark.parametrize(
    ("ci", "ends"),
    [
        (Interval(0.01, 0.0625), "the difference for other samples: [0.01, 0.0625]"),
        (UNBOUNDED, "does not prove equality"),
    ],
)
def test_errors_have_no_percentage_points(ci: Interval, ends: str) -> None:
    a, b = (Metric("mae", value, "", "lower", 30, Interval(value, value), 1) for value in (0.5, 0.46))
    test = PairedTest("resampling", 30, -0.04, ci, 0.01, adjusted=0.01)
    reason = judge_quality(a, b, 1, None, PairedTests({"mae": test})).reason
    assert reason.startswith("-8.00% on these samples; ")
    assert reason.endswith(ends)


def test_why_no_pairs_were_compared_is_said() -> None:
    a, b = quality(0.80, 0.74, 0.86), quality(0.82, 0.76, 0.87)
    judged = judge_quality(a, b, 1, None, PairedTests(reason="the predictions of run/x are missing"))
    assert judged.test is None
    assert judged.reason.endswith("not compared sample by sample: the predictions of run/x are missing")


def test_a_margin_of_quality_is_decided_by_the_values_whatever_the_test_says() -> None:
    test = replace(compare_decisions(np.ones(500, bool), np.arange(500) >= 20), adjusted=1e-6)
    a, b = quality(1.0, 0.99, 1.0), quality(0.96, 0.94, 0.98)
    judged = judge_quality(a, b, 1, 0.05, PairedTests({"top1": test}))
    assert (judged.answer, judged.test) == ("equivalent", test)


@pytest.mark.parametrize(
    ("value", "margin", "answer", "reason"),
    [
        (0.5, None, "different", "+0.5 from 0 (no ratio) on these samples, more than"),
        (0.5, 0.1, "different", "+0.5 from 0 (no ratio) on these samples, beyond the margin"),
        (0.0, 0.1, "equivalent", "equal on these samples, within the margin"),
        (0.0, None, "undecided", "equal on these samples, which other samples may not confirm"),
    ],
)
def test_quality_that_is_zero_has_a_difference_and_no_ratio(
    value: float, margin: float | None, answer: str, reason: str
) -> None:
    judged = judge_quality(quality(0.0, 0.0, 0.02), quality(value, value, value + 0.02), 1, margin)
    assert (judged.answer, judged.ratio.value, judged.ratio.ci) == (answer, None, UNBOUNDED)
    assert reason in judged.reason


@pytest.mark.parametrize(
    ("adjusted", "comparisons", "reason"),
    [
        (0.09, 3, "(p = 0.09 after Holm's correction for 3 comparisons, 0.03 before): no difference detected"),
        (0.03, 1, "(p = 0.03, but the 95 % interval of the difference includes 0): no difference detected"),
    ],
)
def test_why_a_small_p_finds_no_difference_is_said(adjusted: float, comparisons: int, reason: str) -> None:
    test = PairedTest("resampling", 200, 0.02, Interval(-0.01, 0.05), 0.03, None, None, comparisons, adjusted)
    judged = judge_quality(quality(0.8, 0.7, 0.9), quality(0.82, 0.7, 0.9), 1, None, PairedTests({"top1": test}))
    assert judged.answer == "undecided"
    assert reason in judged.reason


@pytest.mark.parametrize(("earlier", "new"), [(1, 6), (2, 12), (5, 6), (5, 40)])
def test_few_earlier_runs_seldom_confirm_what_lies_at_the_margin(earlier: int, new: int) -> None:
    """The host drifts between both times by 1.5 standard deviations of a run, which no number of new runs shows."""
    generator, spread, margin, draws = np.random.default_rng(1), 0.01, 0.1, 1000
    false = 0
    for _ in range(draws):
        drift = generator.normal(0, 1.5 * spread)
        first = np.exp(generator.normal(0, spread, earlier))
        second = (1 + margin) * np.exp(drift + generator.normal(0, spread, new))
        found = judge_few("latency_p50", first.tolist(), second.tolist(), margin)
        assert found is not None
        assert found.answer != "different"
        false += found.answer == "equivalent"
    assert false <= 0.065 * draws


def test_few_earlier_runs_confirm_equal_times() -> None:
    generator = np.random.default_rng(1)
    first, second = (np.exp(generator.normal(0, 0.005, count)).tolist() for count in (2, 12))
    found = judge_few("latency_p50", first, second, 0.1)
    assert found is not None
    assert found.answer == "equivalent"
    assert judge_few("latency_p50", [0.0], second, 0.1) is None
