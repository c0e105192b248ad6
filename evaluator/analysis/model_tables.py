"""A1, what tracing cost, counters, and the timeline of a start: the analyses of whole calls."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from benchlock.evaluator.analysis.call_profiles import Seconds, Subject, model_latency, profile, trace_facts
from benchlock.evaluator.analysis.tables import Cell, Column, Table
from benchlock.evaluator.analysis.trace_types import LEVELS, NANOSECONDS, Trace
from benchlock.evaluator.statistics.confidence_intervals import quantile
from benchlock.evaluator.statistics.metric_types import Interval
from benchlock.evaluator.statistics.time_metrics import Batch, optimal_batch
from benchlock.evaluator.statistics.trace_overheads import estimate_overheads, select_calls, typical_call

_BY_MEDIAN: Final = (
    "Throughput here is by the median call, so it leaves out slow calls and the time between calls; "
    "the throughput of the run's metrics is samples by the wall clock, and usually lower."
)
_PHASES: Final = ("import_ns", "load_ns", "first_call_ns", "second_call_ns")
"""The phases of a start, in order."""
_ENDS: Final = (("low", "Lower end of the 95 % interval."), ("high", "Upper end of the interval."))


def tabulate_overheads(subject: Subject) -> Table:
    """Return the cost of each level of tracing: calls with its profilers minus calls with those before (XSP, III-C)."""
    experiments, series = subject.trace.experiments, subject.trace.series
    costs = estimate_overheads(series)
    rows: list[tuple[Cell, ...]] = []
    for level in (level for level in LEVELS if level in experiments):
        metric, calls = costs.get(level), len(select_calls(series[level]))
        cost, low, high = (None,) * 3 if metric is None else (metric.value, metric.ci.low, metric.ci.high)
        is_apart = None if low is None or high is None else "no" if low <= 0 <= high else "yes"
        rows.append((level, calls, typical_call(series[level]), cost, low, high, is_apart))
    columns = (
        Column("level", None, "Deepest profiler."),
        Column("calls", None, "Calls that count: without preemption; of a process with less than half of these, all."),
        Column("call", "s", "Mean over processes of the median call."),
        Column("overhead", "s", "Call minus that of the level before; system is compared with model."),
        *(Column(name, "s", f"{meaning[:-1]}, by Student's t over pairs of processes.") for name, meaning in _ENDS),
        Column("distinguishable", None, "Whether the interval excludes 0: yes or no."),
    )
    notes = tuple(f"{gap.experiment}: {gap.reason}" for gap in subject.trace.header.gaps)
    return Table("overhead", "Cost of tracing", columns, tuple(rows), trace_facts(subject), notes)


def untraced_seconds(trace: Trace) -> Seconds:
    """Return the times of calls with the fewest profilers, without preempted calls."""
    experiment = trace.experiments[model_latency(trace)[1]]
    return experiment.call_duration[select_calls(experiment.series)] * NANOSECONDS


def judge_batches(rates: Sequence[Batch]) -> tuple[int, int, bool]:
    """Return the optimal batch size, that of the highest throughput, and whether the curve is flat.

    A curve is flat if the intervals of its highest and of its lowest throughput overlap, so that no size is proven
    better.
    """
    fastest, slowest = (choose(rates, key=lambda rate: rate[1][0]) for choose in (max, min))
    low, high = fastest[1][2].low, slowest[1][2].high
    return int(optimal_batch(rates)[0]), fastest[0], low is None or high is None or low <= high


def tabulate_batches(subject: Subject) -> Table:
    """Return A1: latency and throughput by batch size, and the optimal batch."""
    traced = {trace.header.batch: untraced_seconds(trace) for trace in (*subject.others, subject.trace)}
    rates: list[Batch] = []
    rows: list[tuple[Cell, ...]] = []
    for batch, seconds in sorted((traced | dict(subject.sweep)).items()):
        median, ci = quantile(np.sort(seconds), 0.5)
        rate = Interval(batch / ci.high if ci.high else None, batch / ci.low if ci.low else None)
        rates.append((batch, (batch / median, len(seconds), rate)))
        speedup = rates[-1][1][0] / rates[0][1][0]
        rows.append((batch, len(seconds), median, ci.low, ci.high, batch / median, rate.low, rate.high, speedup))
    columns = (
        Column("batch", None, "Samples per call."),
        Column("calls", None, "Untraced calls that count, as in `overhead`."),
        Column("latency", "s", "Median call."),
        *(Column(name, "s", meaning) for name, meaning in _ENDS),
        Column("throughput", "samples/s", "By the median call: batch / latency."),
        *(Column(f"throughput_{name}", "samples/s", meaning) for name, meaning in _ENDS),
        Column("speedup", "x", "throughput / that of the smallest batch."),
    )
    optimum, fastest, is_flat = judge_batches(rates)
    facts = trace_facts(subject) | {"batch": None}
    notes: tuple[str, ...] = (
        "One batch size: an optimal batch needs several, from runs at other sizes or a batch sweep.",
    )
    if len(rates) > 1:
        facts |= {"optimal_batch": optimum, "batch_of_max_throughput": fastest, "flat": "yes" if is_flat else "no"}
        notes = ()
    return Table("A1", "Model by batch size, by the median call", columns, tuple(rows), facts, (_BY_MEDIAN, *notes))


def tabulate_counters(subject: Subject) -> Table:
    """Return the counters of the processor and of the operating system over the calls of the experiment ``system``.

    Raises:
        MissingLevelError: The trace has no such experiment.
    """
    part = profile(subject.trace, "system", "model")
    counters, calls = part.experiment.header.counters or {}, len(part.experiment.call_duration)
    rows = tuple(
        (name, value, value / calls if isinstance(value, int) else None)
        for name, value in counters.items()
        if name != "reason"
    )
    columns = (
        Column("counter", None, "What is counted; its unit, where it has one, is the last word."),
        Column("total", None, "Over all calls."),
        Column("per_call", None, "total / calls."),
    )
    unknown = [name for name, total, _ in rows if total is None]
    reason = f": {counters['reason']}" if counters.get("reason") else ""
    notes = (f"Unknown{reason}: {', '.join(unknown)}.",) if unknown else ()
    return Table("counters", "Counters", columns, rows, trace_facts(subject) | {"calls": calls}, notes)


def tabulate_start(subject: Subject) -> Table:
    """Return the timeline of a start: the phases of a fresh process, one after the other."""
    begin, rows = 0.0, []
    steady = model_latency(subject.trace)[0]
    phases = subject.trace.header.phases
    for name in sorted(phases, key=lambda phase: (_PHASES.index(phase) if phase in _PHASES else len(_PHASES), phase)):
        nanoseconds = phases[name]
        seconds = None if nanoseconds is None else nanoseconds * NANOSECONDS
        calls = seconds / steady if seconds is not None and name.endswith("call_ns") and steady else None
        rows.append((name.removesuffix("_ns"), begin, seconds, calls))
        begin += seconds or 0.0
    columns = (
        Column("phase", None, "Part of a start, in order."),
        Column("begin", "s", "End of the phase before."),
        Column("duration", "s", "Duration."),
        Column("ratio", "x", "duration / steady call."),
    )
    notes = () if rows else ("The trace has no phases of a start.",)
    facts = trace_facts(subject) | {"steady_call_s": steady}
    return Table("cold-start", "Timeline of a start", columns, tuple(rows), facts, notes)
