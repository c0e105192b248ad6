"""Repeated runs of a lock until its metrics are precise enough."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.statistics.equivalence import FEWEST, centre, find_interval_over_runs, is_exact, width
from benchlock.evaluator.statistics.metric_types import Metric
from benchlock.registry.lock.lockfile import Lock

Widths = Mapping[str, float]
"""For each metric the maximum half-width of its interval, as a fraction of its value."""


@dataclass(frozen=True, slots=True)
class RepeatedMetric:
    """A metric over several runs.

    Attributes:
        metric: Its centre, the number of runs and the interval between runs. A quality metric that is equal in every
            run is that of each run, with the number of samples.
        width: The relative half-width, as in ``Widths``; infinite if there are too few runs.
        wanted: The requested half-width; None if none was requested.
    """

    metric: Metric
    width: float
    wanted: float | None

    @property
    def narrow(self) -> bool:
        """Whether the interval is as narrow as requested; self-reported metrics are never narrow."""
        return self.wanted is None or (self.width <= self.wanted and not self.metric.self_reported)


@dataclass(frozen=True, slots=True)
class Repetition:
    """The runs in their order, of which the last may have failed, and the reason why they ended."""

    runs: tuple[Run, ...]
    metrics: tuple[RepeatedMetric, ...]
    reason: str

    @property
    def narrow(self) -> bool:
        """Whether every run is done and every metric is as narrow as requested."""
        return _is_done(self.runs[-1]) and all(metric.narrow for metric in self.metrics)


def check_wanted(lock: Lock, wanted: Widths, most: int) -> None:
    """Raise unless ``wanted`` are metrics of ``lock`` and ``most`` runs can decide them.

    Raises:
        InvalidInputError: The lock does not have a metric, or the runs are too few.
    """
    for name in wanted:
        if name not in lock.metrics:
            raise InvalidInputError(
                f"the lock does not measure {name}", where=name, next_step=f"use one of {', '.join(lock.metrics)}"
            )
    if wanted and most < FEWEST:
        raise InvalidInputError(
            f"{most} runs are too few to estimate the spread between runs",
            next_step=f"make at least {FEWEST} runs, better 20",
        )


def repeat(once: Callable[[Mapping[str, Any]], Run], wanted: Widths, most: int) -> Repetition:
    """Call ``once`` up to ``most`` times; stop earlier when every interval is as narrow as ``wanted``.

    Widths are checked from the fifth run on, and the intervals allow for a check after each run. The repetition ends
    with a run that is not done. Self-reported metrics do not end it.

    Args:
        once: Makes a run; its argument goes into the run's record and contains ``wanted``.
        wanted: The requested widths.
        most: The maximum number of runs.
    """
    runs: list[Run] = []
    reason = f"all {most} runs completed"
    for number in range(1, most + 1):
        runs.append(once({"kind": "repetition", "number": number, "most": most, "until": dict(wanted)}))
        if not _is_done(runs[-1]):
            reason = f"{runs[-1].id} did not complete"
            break
        if wanted and number >= FEWEST and all(metric.narrow for metric in summarize_metrics(runs, wanted)):
            reason = f"all intervals are within the requested widths after {number} runs"
            break
    done = [run for run in runs if _is_done(run)]
    metrics = tuple(summarize_metrics(done, wanted)) if done else ()
    wide = [metric for metric in metrics if not metric.narrow]
    if wide and len(done) == most:
        reason = f"intervals still too wide after {most} runs: {', '.join(map(_describe_shortfall, wide))}"
    return Repetition(tuple(runs), metrics, reason)


def summarize_metrics(runs: list[Run], wanted: Widths) -> Iterator[RepeatedMetric]:
    """Yield each metric of ``runs`` with its interval over them; ``wanted`` has the widths to reach."""
    values: dict[str, list[float]] = {}
    reported: set[str] = set()
    for run in runs:
        for metric in run.end.metrics if run.end is not None else ():
            values.setdefault(metric.key, []).append(metric.value)
            reported |= {metric.key} if metric.self_reported else set()
    assert runs[-1].end is not None
    for last in runs[-1].end.metrics:
        metric = replace(last, self_reported=last.key in reported)
        samples = values[metric.key]
        value, ci = centre(samples), find_interval_over_runs(samples, watched=bool(wanted))
        is_known = is_exact(metric.name, samples)
        over = metric if is_known else replace(metric, value=value, n=len(samples), ci=ci)
        yield RepeatedMetric(over, 0.0 if is_known else width(value, ci), wanted.get(metric.name))


def _describe_shortfall(repeated: RepeatedMetric) -> str:
    mark = " (self-reported, so informational)" if repeated.metric.self_reported else ""
    return f"{repeated.metric.key} ± {repeated.width:.1%}{mark}, requested {repeated.wanted:.1%}"


def _is_done(run: Run) -> bool:
    return run.end is not None and run.end.outcome == "done"
