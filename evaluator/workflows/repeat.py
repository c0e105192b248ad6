"""Repeated runs of a lock until its metrics are precise enough."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.records.run_model import Run
from benchlock.evaluator.statistics.equivalence import FEWEST, centre, find_interval_over_runs, is_exact, width
from benchlock.evaluator.statistics.metric_model import Metric
from benchlock.registry.lock.lockfile import Lock

Widths = Mapping[str, float]
"""By metric, how far its interval may reach from its value, as a fraction of it."""


@dataclass(frozen=True, slots=True)
class RepeatedMetric:
    """A metric over several runs: its centre, n runs and the interval between runs; ``width`` as ``Widths`` say.

    One of quality that every run gives alike is that of each run, with its samples for n. ``wanted`` is None where
    nothing was asked of it, ``width`` is infinite where so few runs bound nothing.
    """

    metric: Metric
    width: float
    wanted: float | None

    @property
    def narrow(self) -> bool:
        """Whether it is known as closely as was asked; what is self-reported decides nothing."""
        return self.wanted is None or (self.width <= self.wanted and not self.metric.self_reported)


@dataclass(frozen=True, slots=True)
class Repetition:
    """The runs in their order, the last one perhaps failed; why no more were made."""

    runs: tuple[Run, ...]
    metrics: tuple[RepeatedMetric, ...]
    reason: str

    @property
    def narrow(self) -> bool:
        """Whether every run is done and every metric known as closely as was asked."""
        return _done(self.runs[-1]) and all(one.narrow for one in self.metrics)


def check_wanted(lock: Lock, wanted: Widths, most: int) -> None:
    """Nothing, where ``wanted`` are metrics of ``lock`` and ``most`` runs can decide them.

    Raises:
        InvalidInputError: a metric is none of the lock's, or the runs are too few.
    """
    for name in wanted:
        if name not in lock.metrics:
            raise InvalidInputError(
                f"the lock does not ask for {name}", where=name, next_step=f"name one of {', '.join(lock.metrics)}"
            )
    if wanted and most < FEWEST:
        raise InvalidInputError(
            f"{most} runs are too few to say how much runs differ", next_step=f"allow {FEWEST} or more, as --repeat 20"
        )


def repeat(once: Callable[[Mapping[str, Any]], Run], wanted: Widths, most: int) -> Repetition:
    """Call ``once`` up to ``most`` times; fewer where every interval is as narrow as ``wanted`` says.

    The first look is after five runs, and intervals allow for looking after each. A run that is not done ends it. A
    metric that is self-reported does not.
    ``once`` is handed what its record should say of the repetition, and so is told what was wanted before the first.
    """
    runs: list[Run] = []
    reason = f"all {most} runs are made"
    for number in range(1, most + 1):
        runs.append(once({"kind": "repetition", "number": number, "most": most, "until": dict(wanted)}))
        if not _done(runs[-1]):
            reason = f"{runs[-1].id} is not done"
            break
        if wanted and number >= FEWEST and all(one.narrow for one in _figures(runs, wanted)):
            reason = f"every interval that was asked for is narrow enough after {number} runs"
            break
    done = [run for run in runs if _done(run)]
    figures = tuple(_figures(done, wanted)) if done else ()
    wide = [one for one in figures if not one.narrow]
    if wide and len(done) == most:
        reason = f"not narrow enough after {most} runs: {', '.join(map(_shortfall, wide))}"
    return Repetition(tuple(runs), figures, reason)


def _figures(runs: list[Run], wanted: Widths) -> Iterator[RepeatedMetric]:
    values: dict[str, list[float]] = {}
    reported: set[str] = set()
    for run in runs:
        for metric in run.end.metrics if run.end is not None else ():
            values.setdefault(metric.key, []).append(metric.value)
            reported |= {metric.key} if metric.self_reported else set()
    assert runs[-1].end is not None
    for last in runs[-1].end.metrics:
        metric = replace(last, self_reported=last.key in reported)
        found = values[metric.key]
        value, ci = centre(found), find_interval_over_runs(found, watched=bool(wanted))
        is_known = is_exact(metric.name, found)
        over = metric if is_known else replace(metric, value=value, n=len(found), ci=ci)
        yield RepeatedMetric(over, 0.0 if is_known else width(value, ci), wanted.get(metric.name))


def _shortfall(one: RepeatedMetric) -> str:
    mark = " (self-reported, so it decides nothing)" if one.metric.self_reported else ""
    return f"{one.metric.key} ± {one.width:.1%}{mark}, {one.wanted:.1%} was asked for"


def _done(run: Run) -> bool:
    return run.end is not None and run.end.outcome == "done"
