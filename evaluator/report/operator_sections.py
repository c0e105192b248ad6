"""The section of operators: the time, the overhead and the errors of each case."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from benchlock.evaluator.analysis.tables import Cell, Column, Table
from benchlock.evaluator.charts.axes import pick_time_unit
from benchlock.evaluator.charts.matrix_charts import Bar, draw_bars
from benchlock.evaluator.charts.svg import Chart
from benchlock.evaluator.harness.core.operator_job import EPSILON
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.report.sections import Section
from benchlock.evaluator.report.systems import System
from benchlock.evaluator.report.training_sections import MOST, shorten
from benchlock.evaluator.runner.lock_verification import read_manifests
from benchlock.evaluator.statistics.metric_types import Metric, format_duration
from benchlock.registry.manifests import Operator
from benchlock.registry.manifests.manifest_types import Case

_COLUMNS: Final = (
    Column("operator", None, "The operator, and what distinguishes its runs."),
    Column("case", None, "The case of the manifest."),
    Column("shapes", None, "The shapes of its inputs."),
    Column("latency", "s", "Median time of a call."),
    Column("latency_low", "s", "Lower end of its 95 % interval."),
    Column("latency_high", "s", "Upper end of it."),
    Column("overhead", "s", "What a call by benchlock takes beside the operator itself."),
    Column("overhead_share", "fraction", "The overhead divided by the latency."),
    Column("error_l2", None, "Difference from the float64 reference, relative to its Euclidean norm."),
    Column("error_l2_bound", None, "The tolerance of the manifest for it."),
    Column("error_linf", None, "Largest difference, relative to the largest value of the reference."),
    Column("error_linf_bound", None, "The tolerance of the manifest for it."),
    Column("gradient_error", None, "Largest difference from the numeric gradient, relative to its largest value."),
)


def describe_operators(systems: Sequence[System]) -> Section | None:
    """Return the section of the operators among the runs of the systems; None if there is none."""
    arms = [(system, arm) for system in systems for arm in system.arms if arm.lock.operator]
    runs = [(system, arm.lock, run) for system, arm in arms for run in arm.runs]
    if not runs:
        return None
    rows, bars, answer = list[tuple[Cell, ...]](), list[tuple[str, float]](), list[str]()
    for system, lock, run in runs[:MOST]:
        name = f"{system.name}, {shorten(run.id)}" if len(runs) > 1 else system.name
        operator = read_manifests(lock, system.store)["operator"]
        assert isinstance(operator, Operator)
        rows += _list_rows(name, operator, run)
        found = [(case.name, _find(run, "operator_latency", case)) for case in operator.cases]
        timed = [(case, metric.value) for case, metric in found if metric is not None]
        bars += [(f"{name}: {case}" if len(runs) > 1 else case, value) for case, value in timed]
        if timed:
            (fast, least), (slow, most) = min(timed, key=_seconds), max(timed, key=_seconds)
            ends = f"from {format_duration(least)} ({fast}) to {format_duration(most)} ({slow})"
            answer.append(f"{name}: a call takes {ends}.")
    answer.append("The errors of all cases are within the tolerances of the manifest; otherwise a run fails.")
    chart = _draw(bars, " ".join(answer))
    if len(runs) > MOST:
        answer.append(f"The first {MOST} of {len(runs)} runs are shown.")
    charts = () if chart is None else (chart,)
    table = Table("cases", "Cases", _COLUMNS, tuple(rows))
    return Section("How fast is each case, and how exact?", tuple(answer), charts, table)


def _seconds(timed: tuple[str, float]) -> float:
    return timed[1]


def _find(run: Run, name: str, case: Case) -> Metric | None:
    metrics = () if run.end is None else run.end.metrics
    return next((metric for metric in metrics if metric.name == name and metric.case == case.name), None)


def _list_rows(name: str, operator: Operator, run: Run) -> Iterator[tuple[Cell, ...]]:
    for case in operator.cases:
        latency = _find(run, "operator_latency", case)
        values: Mapping[str, Cell] = {
            metric: None if (found := _find(run, metric, case)) is None else found.value
            for metric in ("wrapper_overhead", "wrapper_overhead_share", "error_l2", "error_linf", "gradient_error")
        }
        unit = EPSILON[operator.dtype] * math.sqrt(case.reduction)
        shapes = ", ".join(f"{port} {'x'.join(map(str, shape))}" for port, shape in case.shapes.items())
        times = (None, None, None) if latency is None else (latency.value, latency.ci.low, latency.ci.high)
        yield (
            name,
            case.name,
            shapes,
            *times,
            values["wrapper_overhead"],
            values["wrapper_overhead_share"],
            values["error_l2"],
            unit * operator.tolerance.l2,
            values["error_linf"],
            unit * operator.tolerance.linf,
            values["gradient_error"],
        )


def _draw(bars: Sequence[tuple[str, float]], finding: str) -> Chart | None:
    """Return the chart of the times of the cases, in the order of the manifest."""
    if not bars:
        return None
    unit, factor = pick_time_unit([seconds for _, seconds in bars])
    drawn = [Bar(name, (seconds * factor,), format_duration(seconds)) for name, seconds in bars]
    return draw_bars("cases", "Time of a call by case", finding, drawn, unit=f"time ({unit})")
