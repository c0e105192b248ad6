"""The gate of continuous integration: fail if a candidate is proven worse than its baseline.

Both locks run interleaved on this machine (``compare.interleave``), also if the baseline is given as a run: metrics of
other machines or other days decide nothing. Metrics of time are decided by ``statistics.non_inferiority``, quality that
is equal in every run by its value. A gate of quality alone runs each lock once by default: an evaluation without chance
gives the same values again.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from benchlock.artifacts.errors import InvalidInputError, RefusedError
from benchlock.evaluator.records.run_comparison import describe_offered
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.statistics.equivalence import MAX_RUNS, centre, is_exact
from benchlock.evaluator.statistics.metric_types import Finding, format_change
from benchlock.evaluator.statistics.non_inferiority import Decision, RegressionTest, decide_regression, divide_level
from benchlock.evaluator.workflows.compare import (
    Arm,
    Comparison,
    Margins,
    Pair,
    check_question,
    default_rounds,
    drop_disturbed_rounds,
    find_restrictions,
    interleave,
)
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests.metric_definitions import DEFINITIONS, MetricDefinition, is_quality

Conclusion = Literal["passed", "regression", "undecided", "not comparable"]

_NO_DIRECTION = "none"
_FEWEST_TIMED_ROUNDS = 3


class GatedMetric(Struct, frozen=True, kw_only=True):
    """The decision on one metric.

    Attributes:
        metric: The name of the metric, with its batch size in a sweep.
        unit: The unit of the values.
        baseline: The median over the baseline's runs; None if a run has no such metric.
        candidate: The same of the candidate.
        change: The relative change of the candidate; None if it has no value.
        margin: The margin.
        answer: The decision.
        reason: The reason in words.
        is_exact: Whether the values are equal in several runs of each lock, so that no chance is involved.
        test: The test behind the decision; None if the value decides, or nothing does.
        self_reported: Whether code of a model could have made a value, so that it decides nothing.
    """

    metric: str
    unit: str
    baseline: float | None
    candidate: float | None
    change: float | None
    margin: float
    answer: Decision
    reason: str
    is_exact: bool = False
    test: RegressionTest | None = None
    self_reported: bool = False


class GateResult(Struct, frozen=True, kw_only=True):
    """The result of a gate.

    Attributes:
        verdict: The verdict over all metrics.
        comparison: The interleaved runs.
        metrics: The decisions, one per metric.
        rounds: The number of rounds whose times are usable.
        tests: The number of metrics that are decided by a test, over which the level is divided.
        level: The level of each test.
    """

    verdict: Conclusion
    comparison: Comparison
    metrics: tuple[GatedMetric, ...]
    rounds: int
    tests: int
    level: float

    @property
    def is_single_round(self) -> bool:
        """Whether each lock ran once, so that no run shows whether its values would be the same again."""
        return len(self.comparison.arms[0].runs) == 1

    @property
    def false_positive_rate(self) -> float | None:
        """The probability of a regression in any metric if the candidate is no worse, at most; None if unknown."""
        if self.is_single_round:
            return None
        return divide_level(1) if self.tests else 0.0


def default_gate_rounds(margins: Margins) -> int:
    """Return the number of rounds for margins: one if all are of quality, whose values runs repeat exactly."""
    return 1 if all(map(is_quality, margins)) else default_rounds(2)


def check_gate(locks: Sequence[Lock], margins: Margins, rounds: int | None = None) -> None:
    """Raise unless the margins can be decided by interleaved runs of both locks.

    Args:
        locks: The baseline and the candidate.
        margins: The relative margins by metric.
        rounds: The number of rounds; None for ``default_gate_rounds``.

    Raises:
        InvalidInputError: There is no margin, a metric cannot be gated, or there are too few rounds.
        RefusedError: The locks measure different things; the message lists them.
    """
    if not margins:
        raise InvalidInputError(
            "a gate needs the margin of at least one metric",
            next_step="state a margin for each metric to gate, or the same `equivalence` in both requests",
        )
    check_question(locks, margins)
    scenarios = [str(lock.scenario["name"]) for lock in locks]
    for name in margins:
        if DEFINITIONS[name].direction == _NO_DIRECTION:
            raise InvalidInputError(
                f"{name} cannot be gated: neither higher nor lower values are better",
                where=name,
                next_step="gate a latency, a throughput or a quality metric",
            )
        if offered := describe_offered(name, *scenarios):
            raise InvalidInputError(
                f"{name} cannot be gated: {offered}", where=name, next_step="gate latencies or `peak_qps`"
            )
    timed = next((name for name in margins if not is_quality(name)), None)
    if timed is not None and rounds is not None and rounds < _FEWEST_TIMED_ROUNDS:
        raise InvalidInputError(
            f"{timed} cannot be gated with {rounds} round{'s' if rounds > 1 else ''}: the spread needs at least 3",
            where=timed,
            next_step=f"use {default_rounds(2)} rounds or more, or gate quality metrics only",
        )


def run_gate(
    locks: tuple[Lock, Lock],
    once: Callable[[Lock, Mapping[str, Any]], Run],
    rounds: int | None,
    margins: Margins,
    pair: Pair | None = None,
) -> GateResult:
    """Run both locks interleaved, and return the verdict. A single round has no second run of the baseline.

    Args:
        locks: The baseline and the candidate.
        once: As for ``compare.interleave``.
        rounds: The number of rounds; None for ``default_gate_rounds``.
        margins: The relative margins by metric.
        pair: As for ``compare.compare_runs``.

    Raises:
        RefusedError: A run did not complete.
    """

    def completed(lock: Lock, part_of: Mapping[str, Any]) -> Run:
        run = once(lock, part_of)
        if run.end is None or run.end.outcome != "done":
            failure = "" if run.end is None or not run.end.failure_class else f" ({run.end.failure_class})"
            outcome = "did not end" if run.end is None else f"ended as {run.end.outcome}{failure}"
            role = "candidate" if part_of["arm"] else "baseline"
            raise RefusedError(
                f"the gate has no verdict: {run.id} of the {role} {lock.subject.name} {lock.subject.version} {outcome}",
                where=run.id,
                next_step="show the run for its log, and fix the cause",
            )
        return run

    number = rounds or default_gate_rounds(margins)
    return judge_gate(interleave(locks, completed, number, margins, pair, control=number > 1), margins)


def judge_gate(comparison: Comparison, margins: Margins) -> GateResult:
    """Return the verdict on the second lock of an interleaved comparison of two locks.

    Args:
        comparison: The comparison of completed runs, as ``compare.interleave`` returns it.
        margins: The margins that were stated before the runs.
    """
    ((_, findings),) = comparison.findings
    gated = [finding for finding in findings if finding.metric.partition("@")[0] in margins]
    baseline, candidate, *_ = drop_disturbed_rounds(comparison.arms)
    in_all_rounds = (comparison.arms[0], comparison.arms[1])
    exact = {finding.metric for finding in gated if _is_exact(finding.metric, *in_all_rounds)}
    tests = len(gated) - len(exact)
    metrics = [
        _judge_metric(
            finding,
            in_all_rounds if is_quality(finding.metric) else (baseline, candidate),
            divide_level(tests),
            exact=finding.metric in exact,
        )
        for finding in gated
    ]
    measured = {metric.metric.partition("@")[0] for metric in metrics}
    metrics += [_without_value(name, margin) for name, margin in margins.items() if name not in measured]
    if comparison.reasons:
        metrics, tests = list(map(_withhold, metrics)), 0
    return GateResult(
        verdict=_conclude(comparison, metrics),
        comparison=comparison,
        metrics=tuple(metrics),
        rounds=len(baseline.runs),
        tests=tests,
        level=divide_level(tests),
    )


def _conclude(comparison: Comparison, metrics: Sequence[GatedMetric]) -> Conclusion:
    if comparison.reasons or not comparison.interleaved:
        return "not comparable"
    answers = {metric.answer for metric in metrics}
    if "regression" in answers:
        return "regression"
    return "undecided" if "undecided" in answers else "passed"


def _withhold(metric: GatedMetric) -> GatedMetric:
    """Return the metric without a decision, because the runs are not comparable."""
    return replace(
        metric, change=None, answer="undecided", reason="the runs are not comparable", is_exact=False, test=None
    )


def _is_exact(metric: str, baseline: Arm, candidate: Arm) -> bool:
    return is_exact(metric, baseline.values(metric)) and is_exact(metric, candidate.values(metric))


def _without_value(name: str, margin: float) -> GatedMetric:
    """Return the undecided entry of a metric that a run lacks."""
    return GatedMetric(
        metric=name,
        unit=DEFINITIONS[name].unit,
        baseline=None,
        candidate=None,
        change=None,
        margin=margin,
        answer="undecided",
        reason="not every run has it",
    )


def _judge_metric(finding: Finding, arms: tuple[Arm, Arm], level: float, *, exact: bool) -> GatedMetric:
    baseline, candidate = (centre(arm.values(finding.metric)) for arm in arms)
    assert finding.margin is not None
    answer, reason, test = _decide(finding, arms, level, exact=exact)
    return GatedMetric(
        metric=finding.metric,
        unit=_definition(finding.metric).unit,
        baseline=baseline,
        candidate=candidate,
        change=None if finding.ratio.value is None else finding.ratio.value - 1,
        margin=finding.margin,
        answer=answer,
        reason=reason,
        is_exact=exact and len(arms[0].runs) > 1,
        test=test,
        self_reported=finding.self_reported,
    )


def _decide(
    finding: Finding, arms: tuple[Arm, Arm], level: float, *, exact: bool
) -> tuple[Decision, str, RegressionTest | None]:
    """Return the decision on a metric, its reason, and its test."""
    definition = _definition(finding.metric)
    is_time = not is_quality(definition.name)
    assert finding.margin is not None
    if finding.self_reported or (is_time and any(find_restrictions(finding.metric, *arms))):
        return "undecided", finding.reason, None
    if exact:
        first, second = (arm.values(finding.metric)[0] for arm in arms)
        is_worse = second < first if definition.direction == "higher" else second > first
        return "regression" if finding.answer == "different" and is_worse else "passed", finding.reason, None
    test = decide_regression(finding.ratio, definition.direction, finding.margin, level)
    if test is None or finding.ratio.value is None:
        return "undecided", finding.reason, None
    return test.answer, _describe(test, finding.ratio.value - 1, finding.margin), test


def _definition(metric: str) -> MetricDefinition:
    return DEFINITIONS[metric.partition("@")[0]]


def _describe(test: RegressionTest, change: float, margin: float) -> str:
    """Describe a decision and, if there is none, the number of rounds that would decide."""
    interval = f"{format_change(change)}, and the {100 * (1 - 2 * test.level):.3g} % interval"
    if test.answer == "passed":
        return f"{interval} excludes a regression of {margin:.1%}"
    if test.answer == "regression":
        return f"{interval} excludes that the candidate is no worse"
    sentence = f"{interval} includes both no regression and one of {margin:.1%}"
    if test.rounds is None:
        return (
            f"{sentence}; at this spread, even {MAX_RUNS} rounds would not decide: use a wider margin or a quieter host"
        )
    each = default_rounds(2)
    return f"{sentence}; at this spread, about {each * math.ceil(test.rounds / each)} rounds would decide"
