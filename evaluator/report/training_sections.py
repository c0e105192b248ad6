"""The section of trainings: how the quality grows over the epochs, and how long each repeat takes to its target."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from msgspec import UNSET

from benchlock.artifacts.errors import BenchlockError
from benchlock.evaluator.analysis.tables import Cell, Column, Table
from benchlock.evaluator.charts.curve_charts import QualityCurve, draw_curves
from benchlock.evaluator.charts.line_charts import Distribution, draw_distributions
from benchlock.evaluator.charts.matrix_charts import Bar, draw_bars
from benchlock.evaluator.charts.svg import Chart
from benchlock.evaluator.evidence.distributed.rank_details import describe_ranks, read_rank_details
from benchlock.evaluator.evidence.training_curves import Repeat, read_curves
from benchlock.evaluator.records.run_texts import label_trainings
from benchlock.evaluator.records.run_types import Run, RunId
from benchlock.evaluator.report.sections import Section
from benchlock.evaluator.report.systems import System
from benchlock.registry.lock.lockfile import Lock

MOST: Final = 6
"""The maximum number of trainings in one section: more have curves that nobody tells apart."""
_SHORT: Final = 19
_MIB: Final = float(1 << 20)
PARTS: Final = ("weights", "gradients", "optimizer", "saved", "transient")
"""The parts of the memory of a step, in the order of the chart."""
_OPERATORS: Final = (
    Column("training", None, "The recipe, and the run."),
    Column("kind", None, "The kind of operator by the framework."),
    Column("share", "fraction", "Its share of the CPU time of all operators in the profiled steps."),
)
_RANKS: Final = (
    Column("training", None, "The recipe, and the run."),
    Column("rank", None, "The number of the process, from 0."),
    Column("median_step", "s", "Median duration of its steps, without the warm-up."),
    Column("sent", "B", "Mean bytes that it sent in a step, as its kernel counts them."),
    Column("gradients", "B", "Mean bytes of gradients that it exchanged in a step."),
    Column("last_loss", None, "The loss of its part of the last batch."),
)
_COLUMNS: Final = (
    Column("training", None, "The recipe, and the run."),
    Column("repeat", None, "The number of the repeat, from 0."),
    Column("seed", None, "Its seed."),
    Column("epochs", "epochs", "Epochs until the target; unknown where the repeat missed it."),
    Column("time", "s", "Seconds until then."),
    Column("cpu_time", "s", "Seconds of the processor until then."),
    Column("final_quality", "fraction", "The quality of the final weights."),
    Column("weights", None, "The beginning of the digest of the final weights."),
)


def describe_trainings(systems: Sequence[System]) -> Section | None:
    """Return the section of the trainings among the runs of the systems; None if there is none."""
    trainings = _name_trainings(systems)
    read: dict[str, tuple[Lock, tuple[Repeat, ...]]] = {}
    answer: list[str] = []
    for name, lock, run, system in trainings[:MOST]:
        try:
            read[name] = (lock, read_curves(lock, run, system.store))
        except BenchlockError as error:
            answer.append(f"{name}: its curve cannot be read: {error.what}.")
    if not trainings:
        return None
    answer += [_summarize(name, lock, repeats) for name, (lock, repeats) in read.items()]
    if len(trainings) > MOST:
        answer.append(f"The first {MOST} of {len(trainings)} trainings are shown.")
    charts = tuple(filter(None, (_draw_quality(read), _draw_times(read))))
    rows = tuple(row for name, (_, repeats) in read.items() for row in _list_rows(name, repeats))
    table = Table("repeats", "Repeats", _COLUMNS, rows) if rows else None
    return Section("How fast does the training reach its target?", tuple(answer), charts, table)


def _name_trainings(systems: Sequence[System]) -> list[tuple[str, Lock, Run, System]]:
    """Return the trainings, each with a name that no other one has: what differs between the locks, or the run."""
    arms = [(arm, system) for system in systems for arm in system.arms if arm.lock.target is not UNSET]
    labels = label_trainings([arm.lock for arm, _ in arms])
    named = [
        (f"{arm.lock.subject.name}, {label}".removesuffix(", "), arm.lock, run, system)
        for label, (arm, system) in zip(labels, arms, strict=True)
        for run in arm.runs
    ]
    counts = Counter(name for name, *_ in named)
    return [
        (f"{name}, {shorten(run.id)}" if counts[name] > 1 else name, lock, run, system)
        for name, lock, run, system in named
    ]


def shorten(run: RunId) -> str:
    """Return the beginning of the id of a run, which tells the runs of a comparison apart."""
    return str(run)[-6:]


def _summarize(name: str, lock: Lock, repeats: Sequence[Repeat]) -> str:
    assert lock.target is not UNSET
    epochs = sorted(repeat.epochs for repeat in repeats if repeat.epochs is not None)
    target = f"{lock.target.metric} {lock.target.value:g} on the split {lock.target.split}"
    if not epochs:
        best = max(repeat.quality for repeat in repeats)
        return f"{name}: none of {len(repeats)} repeats reaches {target}; the best final quality is {best:.4g}."
    times = sorted(repeat.cpu_seconds for repeat in repeats if repeat.cpu_seconds is not None)
    spread = f"after {epochs[0]:g} to {epochs[-1]:g} epochs and {times[0]:.3g} to {times[-1]:.3g} s of the processor"
    return f"{name}: {len(epochs)} of {len(repeats)} repeats reach {target}, {spread}."


def _list_rows(name: str, repeats: Sequence[Repeat]) -> Iterator[tuple[Cell, ...]]:
    for number, repeat in enumerate(repeats):
        times = (repeat.epochs, repeat.seconds, repeat.cpu_seconds)
        yield (name, number, repeat.seed, *times, repeat.quality, repeat.weights[:_SHORT])


def _draw_quality(read: dict[str, tuple[Lock, tuple[Repeat, ...]]]) -> Chart | None:
    curves = [curve for name, (_, repeats) in read.items() if (curve := make_curve(name, repeats)) is not None]
    if not curves:
        return None
    targets = {lock.target.value for lock, _ in read.values() if lock.target is not UNSET}
    finding = " ".join(
        f"{curve.name}: the median is {curve.middle[0]:.3g} after {curve.epochs[0]:g} epochs, and "
        f"{curve.middle[-1]:.3g} after {curve.epochs[-1]:g}."
        for curve in curves
    )
    title = "Quality by epoch: median and range over repeats"
    return draw_curves("convergence", title, finding, curves, targets.pop() if len(targets) == 1 else None, tuple(read))


def make_curve(name: str, repeats: Sequence[Repeat]) -> QualityCurve | None:
    """Return the median, the least and the greatest quality after each evaluated epoch; None without an evaluation.

    A repeat that has ended keeps its last quality, so that the others do not pull the curve down.
    """
    evaluated = [dict(repeat.curve) for repeat in repeats if repeat.curve]
    epochs = sorted({epoch for curve in evaluated for epoch in curve})
    if not epochs:
        return None
    columns = np.asarray([_hold_last(curve, epochs) for curve in evaluated])
    middle, low, high = (np.nanmedian(columns, axis=0), np.nanmin(columns, axis=0), np.nanmax(columns, axis=0))
    return QualityCurve(name, tuple(map(float, epochs)), *(tuple(map(float, part)) for part in (middle, low, high)))


def _hold_last(curve: dict[int, float], epochs: Sequence[int]) -> list[float]:
    values, last = [], math.nan
    for epoch in epochs:
        last = curve.get(epoch, last)
        values.append(last)
    return values


def _draw_times(read: dict[str, tuple[Lock, tuple[Repeat, ...]]]) -> Chart | None:
    entries = [entry for name, (_, repeats) in read.items() if (entry := _distribute(name, repeats)) is not None]
    if not entries:
        return None
    finding = " ".join(
        f"{entry.name}: {entry.shares[-1]:.0%} of the repeats reach the target within {entry.seconds[-1]:.3g} s."
        for entry in entries
    )
    return draw_distributions(
        "time-to-quality",
        "Processor time until the target",
        finding,
        entries,
        share_title="share of repeats that reached it",
        order=tuple(read),
    )


def _distribute(name: str, repeats: Sequence[Repeat]) -> Distribution | None:
    """Return the share of all repeats that reached the target within each time; those that missed it never do."""
    times = sorted(repeat.cpu_seconds for repeat in repeats if repeat.cpu_seconds is not None)
    shares = tuple((number + 1) / len(repeats) for number in range(len(times)))
    return Distribution(name, tuple(times), shares, shares, shares) if times else None


def describe_steps(systems: Sequence[System]) -> Section | None:
    """Return what takes memory and time within a step, of the trainings that measured it; None if none did."""
    rows, bars, answer = list[tuple[Cell, ...]](), list[Bar](), list[str]()
    for name, _, run, _ in _name_trainings(systems):
        breakdown = {} if run.end is None else run.end.details.get("training", {}).get("breakdown", {})
        if not breakdown or run.end is None:
            continue
        rows += [(name, each["kind"], each["share"]) for each in breakdown["operators"]]
        values = {metric.name: metric.value for metric in run.end.metrics}
        first = breakdown["operators"][0]
        answer.append(
            f"{name}: {first['kind']} takes {first['share']:.0%} of the CPU time of all operators, and "
            f"{breakdown['kinds_for_90_percent']} of {breakdown['kinds']} kinds of operators take 90 %."
        )
        if all(f"memory_{part}" in values for part in PARTS):
            amounts = tuple(values[f"memory_{part}"] / _MIB for part in PARTS)
            answer.append(f"{name}: a step holds up to {sum(amounts):.3g} MiB, {_describe_parts(amounts)}.")
            bars.append(Bar(name, amounts, f"{sum(amounts):.3g} MiB"))
    if not answer:
        return None
    words = " ".join(answer)
    charts = (
        (draw_bars("step-memory", "Memory of a step by part", words, bars, unit="MiB", parts=PARTS),) if bars else ()
    )
    table = Table("step-operators", "Operators of a step by CPU time", _OPERATORS, tuple(rows))
    return Section("What takes memory and time within a step?", tuple(answer), charts, table)


def describe_distributed(systems: Sequence[System]) -> Section | None:
    """Return what each rank of the distributed trainings did; None if there are none."""
    rows, answer = list[tuple[Cell, ...]](), list[str]()
    for system in systems:
        for run in (run for arm in system.arms if arm.lock.distribution is not UNSET for run in arm.runs):
            details = None if run.end is None else read_rank_details(run.end.details)
            if details is None:
                continue
            name = f"{system.name}, {shorten(run.id)}"
            answer.append(f"{name}: {describe_ranks(details)}.")
            rows += [
                (name, number, rank.seconds, rank.sent, rank.gradients, rank.loss)
                for number, rank in enumerate(details.ranks)
            ]
    if not rows:
        return None
    table = Table("ranks", "Ranks", _RANKS, tuple(rows))
    return Section("Do several processes train like one?", tuple(answer), (), table)


def _describe_parts(amounts: Sequence[float]) -> str:
    whole = sum(amounts) or 1.0
    ranked = sorted(zip(amounts, PARTS, strict=True), reverse=True)
    return ", ".join(f"{amount / whole:.0%} {part}" for amount, part in ranked)
