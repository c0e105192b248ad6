"""Texts about a comparison, for the command line and for web pages: its arms side by side, and its findings."""

from collections import Counter

from msgspec import UNSET

from benchlock.evaluator.records.comparison_types import ConvergenceTest
from benchlock.evaluator.records.run_texts import format_interval, format_mark, format_metric, label_trainings
from benchlock.evaluator.records.timing_validity import explain_unusable_times, validity_of
from benchlock.evaluator.statistics.metric_types import Finding, Interval
from benchlock.evaluator.workflows.compare import Arm, Comparison

FINDING_HEADINGS = ("ratio", "95 % interval", "noise (A/A)", "margin", "answer")
_SHORT = len("run/") + 10
"""The beginning of the id of a run with its time, in characters."""


def format_finding(finding: Finding) -> tuple[str, ...]:
    """Format a finding in the columns of ``FINDING_HEADINGS``."""
    ratio = "-" if finding.ratio.value is None else f"{finding.ratio.value:.4g}"
    return (
        ratio + format_mark(is_reported=finding.self_reported),
        _format_ends(finding.ratio.ci),
        _format_noise(finding),
        _format_share(finding.margin),
        finding.answer,
    )


def format_verdicts(arm: Arm) -> str:
    """Format LoadGen's verdicts on the runs, each with the number of runs if there are several."""
    marks = Counter(validity.mark for validity in map(validity_of, arm.runs) if validity is not None)
    return ", ".join(mark if len(arm.runs) == 1 else f"{number} {mark}" for mark, number in marks.items())


def format_flags(arm: Arm) -> str:
    """Format how many runs have unusable times; empty for none."""
    flagged = [run for run in arm.runs if explain_unusable_times(run) is not None]
    if not flagged:
        return ""
    reported = format_mark(is_reported=any(run.end is not None and run.end.times_self_reported for run in flagged))
    return ("yes" if len(arm.runs) == 1 else f"{len(flagged)} of {len(arm.runs)}") + reported


def format_metrics(arm: Arm) -> dict[str, str]:
    """Format the metrics of an arm with their intervals, by key."""
    return {metric.key: f"{format_metric(metric)} {format_interval(metric)}" for metric in arm.metrics()}


def name_arm(comparison: Comparison, arm: Arm) -> str:
    """Return the locked model with its version, and with the beginning of the run's id if each arm is a run.

    Trainings of one recipe have what differs between their locks in place of the version.
    """
    name = f"{arm.lock.subject.name} {arm.lock.subject.version}"
    locks = {other.lock.id: other.lock for other in comparison.arms}
    if len(locks) > 1 and len({lock.subject.name for lock in locks.values()}) == 1 and arm.lock.recipe is not UNSET:
        label = dict(zip(locks, label_trainings([*locks.values()]), strict=True))[arm.lock.id]
        name = f"{arm.lock.subject.name}, {label}" if label else name
    alike = [other for other in comparison.arms if other.lock.id == arm.lock.id and not other.control]
    return f"{name}, {arm.runs[0].id[:_SHORT]}" if len(alike) > 1 else name


def name_speeds(comparison: Comparison) -> list[tuple[str, ConvergenceTest]]:
    """Return each test of whether one training needs fewer epochs, with a sentence on it."""
    first, *others = (arm for arm in comparison.arms if not arm.control)
    texts = []
    for arm, speed in zip(others, comparison.speeds, strict=False):
        answer = speed.answer + format_mark(is_reported=speed.self_reported)
        names = f"{name_arm(comparison, arm)} against {name_arm(comparison, first)}"
        texts.append((f"{names}: {answer}: {speed.reason}", speed))
    return texts


def _format_ends(ci: Interval) -> str:
    """Format the ends of an interval; a value known exactly on the given samples has none."""
    if ci.low is not None and ci.low == ci.high:
        return "exact"
    ends = ("-" if end is None else f"{end:.4g}" for end in (ci.low, ci.high))
    return f"[{', '.join(ends)}]"


def _format_noise(finding: Finding) -> str:
    return "-" if finding.noise_floor is None else f"± {finding.noise_floor:.2%}"


def _format_share(share: float | None) -> str:
    return "-" if share is None else f"{share:.2%}"
