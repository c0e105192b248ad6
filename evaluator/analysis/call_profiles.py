"""Mean times of the rows of an experiment over its middle calls, which add up exactly to the mean call.

Calls that were preempted are left out, then the ⌊0.2 n⌋ shortest and longest (XSP, section III-D). The mean of the
remaining calls is the trimmed mean of the call, and the means of its rows over the same calls add up to it with a
remainder.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import fsum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.analysis.host_roofs import Roofs
from benchlock.evaluator.analysis.operator_costs import find_model_flops
from benchlock.evaluator.analysis.operator_kinds import kind_of
from benchlock.evaluator.analysis.tables import Cell, Record
from benchlock.evaluator.analysis.trace_types import LEVELS, NANOSECONDS, UNKNOWN, Experiment, Row, Times, Trace
from benchlock.evaluator.statistics.trace_overheads import select_calls

FEWEST_CALLS: Final = 200
COARSE_STEPS: Final = 5
"""Rows shorter than so many steps of the clock are known by their mean alone."""
DOMINATED: Final = 0.5
"""Above this overhead, shares are those of the profiler rather than of the model."""
_TRIM: Final = 5
"""One in so many values is cut at each end; of fewer values none."""
_CACHED: Final = 16

Seconds = NDArray[np.floating]


class MissingLevelError(InvalidInputError):
    """An analysis of a trace without the level that it needs."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What analyses are of: a trace, what identifies its run, and the measured roofs of its host.

    ``others`` are traces of the same model at other batch sizes, ``sweep`` untraced seconds of calls at further ones.
    ``restriction`` is why the times of the run decide nothing; empty if they may.
    """

    trace: Trace
    facts: Record = field(default_factory=dict)
    roofs: Roofs | None = None
    others: tuple[Trace, ...] = ()
    sweep: Mapping[int, Seconds] = field(default_factory=dict)
    restriction: str = ""


@dataclass(frozen=True, slots=True)
class Profile:
    """The rows of one level of an experiment, without rows inside of others, and their means over its middle calls.

    Times are seconds, and ``remainder`` is the call minus its rows. ``preempted``, ``partial`` (without a time of some
    row, and so left out) and ``middle`` are numbers of calls.
    """

    experiment: Experiment
    rows: tuple[Row, ...]
    latencies: tuple[float | None, ...]
    call: float
    remainder: float
    preempted: int
    partial: int
    middle: int
    kinds: tuple[str, ...]
    model_flops: tuple[int | None, ...]

    @property
    def total(self) -> float:
        """The seconds of all rows."""
        return fsum(latency for latency in self.latencies if latency is not None)

    @property
    def step(self) -> float:
        """The seconds of a step of the profiler's clock: a shorter mean is no measurement."""
        return self.experiment.header.resolution_ns * NANOSECONDS

    @property
    def names(self) -> tuple[str, ...]:
        """The name of each row; one that several have is followed by the row's position, as in ``Conv #3``."""
        counts = Counter(row.name for row in self.rows)
        return tuple(
            f"{row.name} #{index}" if counts[row.name] > 1 else row.name for index, row in enumerate(self.rows)
        )

    @property
    def signatures(self) -> dict[int, tuple[str, tuple[int, ...]]]:
        """The kind of each row and the shape of its first output, whatever the order of axes, by position."""
        shapes = [(row.outputs[0].shape if row.outputs else None) or () for row in self.rows]
        return {
            index: (kind, tuple(sorted(shape)))
            for index, (kind, shape) in enumerate(zip(self.kinds, shapes, strict=True))
        }


def match_positions(left: Mapping[int, Hashable], right: Mapping[int, Hashable]) -> dict[int, int]:
    """Return for positions of ``left`` the next one of ``right`` with an equal key, each used once."""
    waiting: defaultdict[Hashable, deque[int]] = defaultdict(deque)
    for position, key in right.items():
        waiting[key].append(position)
    return {position: waiting[key].popleft() for position, key in left.items() if waiting[key]}


def find_middle(values: Times | Seconds) -> Times:
    """Return the positions of the values that remain when the smallest and the largest 20 % are cut, in order."""
    cut = len(values) // _TRIM
    return np.sort(np.argsort(values, kind="stable")[cut : len(values) - cut])


def trimmed_mean(values: Sequence[float] | Times | Seconds) -> float:
    """Return the mean of the values without the smallest and the largest ⌊0.2 n⌋; there is at least one value."""
    series = np.asarray(values, dtype=np.float64)
    return float(np.sort(series[find_middle(series)]).mean())


@lru_cache(maxsize=_CACHED)
def profile(trace: Trace, deepest: str, level: str) -> Profile:
    """Summarise the rows of a level in the experiment whose deepest profiler is ``deepest``.

    Raises:
        MissingLevelError: The trace has no such experiment, or it has no such rows.
    """
    experiment = trace.experiments.get(deepest)
    if experiment is None or (level != "model" and not any(row.level == level for row in experiment.header.rows)):
        raise _missing_level(trace, deepest)
    nested = {row.index for row in experiment.header.rows if row.level == level}
    rows = tuple(row for row in experiment.header.rows if row.level == level and row.parent not in nested)
    columns = np.array([row.index for row in rows], dtype=np.int64)
    kept = select_calls(experiment.series)
    whole = kept if level == "model" else _select_whole(experiment, kept, columns)
    middle = whole[find_middle(experiment.call_duration[whole])]
    times = experiment.durations[np.ix_(middle, columns)]
    latencies = [None if (column == UNKNOWN).any() else _mean(column) for column in times.T]
    call = _mean(experiment.call_duration[middle])
    return Profile(
        experiment=experiment,
        rows=rows,
        latencies=tuple(latencies),
        call=call,
        remainder=call - fsum(latency for latency in latencies if latency is not None),
        preempted=int((experiment.preempted > 0).sum()),
        partial=len(kept) - len(whole),
        middle=len(middle),
        kinds=tuple(map(kind_of, rows)),
        model_flops=find_model_flops(rows, trace.header.graph) if level == "layer" else (None,) * len(rows),
    )


def _select_whole(experiment: Experiment, calls: Times, columns: Times) -> Times:
    """Return the calls in which every row has a time that has one in any call; all if there is no such call."""
    known = experiment.durations[np.ix_(calls, columns)] != UNKNOWN
    whole = calls[known[:, known.any(axis=0)].all(axis=1)]
    return whole if len(whole) else calls


def _mean(nanoseconds: Times) -> float:
    return int(nanoseconds.sum()) / len(nanoseconds) * NANOSECONDS


def _missing_level(trace: Trace, deepest: str) -> MissingLevelError:
    gap = next((gap for gap in trace.header.gaps if gap.experiment == deepest), None)
    reason = f": {gap.reason}" if gap else f"; its level is `{trace.header.level}`"
    step = gap.next_step if gap and gap.next_step else f"set `trace: {deepest}` in the request, lock it and run it"
    return MissingLevelError(f"the trace has no rows of level `{deepest}`{reason}", where="trace", next_step=step)


def model_latency(trace: Trace) -> tuple[float, str]:
    """Return the trimmed mean of untraced calls, or of those with the fewest profilers, and which they are."""
    deepest = next(level for level in LEVELS if level in trace.experiments)
    return profile(trace, deepest, "model").call, deepest


def is_dominated(subject: Subject, part: Profile) -> bool:
    """Return whether profiling lengthens the call so much that shares of rows say little of the model."""
    base = model_latency(subject.trace)[0]
    return base > 0 and part.call / base - 1 >= DOMINATED


def profile_notes(subject: Subject, part: Profile) -> Iterator[str]:
    """Yield what a reader must know of the times of a profile."""
    header, base = part.experiment.header, model_latency(subject.trace)[0]
    step = header.resolution_ns * NANOSECONDS
    coarse = sum(latency is not None and round(latency / step) < COARSE_STEPS for latency in part.latencies)
    if reason := subject.trace.header.caps.get("reason"):
        yield f"The number of calls is limited: {reason}"
    yield from _incomplete_notes(part)
    if header.resolution_ns > 1 and coarse:
        clock = f"the profiler's clock, which counts {header.resolution_ns} ns"
        below = sum(latency is not None and latency < step for latency in part.latencies)
        means = f"; nor are means of {below} of them, which are below one step" if below else ""
        single = "single times of them are not reliable"
        yield f"{coarse} rows are shorter than {COARSE_STEPS} steps of {clock}: {single}{means}."
    if is_dominated(subject, part):
        cost = "Profiling costs at least half of an untraced call (`overhead`)"
        yield f"{cost}: the profiler dominates the shares of layers."
    if part.total > base:
        yield "The rows take longer than the untraced call, so shares of it are not given."
    if part.remainder < 0:
        yield "The rows take longer than their calls, so some overlap or are rounded up."
    if header.start_source == "accumulated":
        yield "The profiler has no start times: rows are laid end to end inside their call."
    yield from (*header.notes, *subject.trace.header.notes)


def _incomplete_notes(part: Profile) -> Iterator[str]:
    """Yield how many calls the means are of, and what is missing in them."""
    calls = len(part.experiment.call_duration)
    if part.experiment.header.incomplete:
        yield f"The trace is incomplete: {part.experiment.header.incomplete}"
    if calls < _TRIM:
        yield f"Only {calls} calls: the trimmed mean is the plain mean."
    if calls - part.preempted < FEWEST_CALLS:
        only = f"Only {calls - part.preempted} calls were not preempted"
        yield f"{only}: a mean of fewer than {FEWEST_CALLS} calls may differ in the next run."
    if part.partial:
        yield f"{part.partial} calls are left out, because the profiler has no time of some of their rows."
    if None in part.latencies:
        yield f"The time of {part.latencies.count(None)} rows is unknown, and so part of the remainder."


def trace_facts(subject: Subject) -> dict[str, Cell]:
    """Return what every table of a trace rests on."""
    header = subject.trace.header
    framework = f"{header.framework} {header.framework_version}".strip()
    sizes = {"batch": header.batch, "threads": header.threads}
    return {**subject.facts, "framework": framework, **sizes, "trace_level": header.level}


def profile_facts(subject: Subject, part: Profile) -> dict[str, Cell]:
    """Return what a table of a profile rests on."""
    base, deepest = model_latency(subject.trace)
    return trace_facts(subject) | {
        "profiler": part.experiment.header.source,
        "calls": len(part.experiment.call_duration),
        "preempted_calls": part.preempted,
        "calls_in_mean": part.middle,
        "call_s": part.call,
        "rows_s": part.total,
        "remainder_s": part.remainder,
        "explained": part.total / part.call if part.call else None,
        "model_latency_s": base,
        "model_latency_from": deepest,
    }
