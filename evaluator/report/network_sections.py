"""The section of networks: what one batch needs in each number of parts."""

from collections.abc import Iterator, Sequence
from typing import Final

from benchlock.evaluator.analysis.tables import Cell, Column, Table
from benchlock.evaluator.charts.matrix_charts import Bar, draw_bars
from benchlock.evaluator.charts.svg import Chart
from benchlock.evaluator.evidence.networks.network_evidence import NetworkPart, is_micro_batch, read_parts
from benchlock.evaluator.evidence.networks.network_texts import describe_network, name_parts
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.report.sections import Section
from benchlock.evaluator.report.systems import System
from benchlock.evaluator.report.training_sections import MOST, shorten
from benchlock.evaluator.statistics.metric_types import Metric

_MIB: Final = float(1 << 20)
_COLUMNS: Final = (
    Column("network", None, "The model, and what distinguishes its runs."),
    Column("parts", None, "The number of parts of the batch."),
    Column("outcome", None, "done, or the class of the failure."),
    Column("peak", "B", "Peak of the resident memory of the process during its calls, pages of files included."),
    Column("latency", "s", "Median time of the whole batch."),
    Column("latency_low", "s", "Lower end of its 95 % interval."),
    Column("latency_high", "s", "Upper end of it."),
    Column("equal", None, "Whether the outputs of all numbers of parts that are done have the same bits."),
)


def describe_networks(systems: Sequence[System]) -> Section | None:
    """Return the section of the networks among the runs of the systems; None if there is none."""
    arms = [(system, arm) for system in systems for arm in system.arms if is_micro_batch(arm.lock)]
    runs = [(system, arm.lock, run) for system, arm in arms for run in arm.runs if run.end is not None]
    if not runs:
        return None
    rows, bars, answer = list[tuple[Cell, ...]](), list[Bar](), list[str]()
    for system, lock, run in runs[:MOST]:
        assert run.end is not None
        name = f"{system.name}, {shorten(run.id)}" if len(runs) > 1 else system.name
        finding = describe_network(run.end, lock)
        if finding is None:
            continue
        answer.append(f"{name}: {finding}.")
        parts = read_parts(run.end.details["network"])
        rows += [_make_row(name, part, run) for part in parts]
        bars += _list_bars(name if len(runs) > 1 else "", parts)
    if len(runs) > MOST:
        answer.append(f"The first {MOST} of {len(runs)} runs are shown.")
    charts = _draw(bars, " ".join(answer))
    return Section(
        "What does a batch need in parts?", tuple(answer), charts, Table("parts", "Parts", _COLUMNS, tuple(rows))
    )


def _find(run: Run, name: str, part: NetworkPart | None = None) -> Metric | None:
    metrics = () if run.end is None else run.end.metrics
    key = name if part is None else f"{name}@{part.parts}"
    return next((metric for metric in metrics if metric.key == key), None)


def _make_row(name: str, part: NetworkPart, run: Run) -> tuple[Cell, ...]:
    outcome = "done" if part.failure is None else part.failure.kind
    peak = None if part.peak is None else part.peak.bytes
    latency, equal = _find(run, "batch_latency", part), _find(run, "outputs_equal")
    times = (None, None, None) if latency is None else (latency.value, latency.ci.low, latency.ci.high)
    answer = None if equal is None or part.failure is not None else "yes" if equal.value == 1 else "no"
    return (name, part.parts, outcome, peak, *times, answer)


def _list_bars(name: str, parts: Sequence[NetworkPart]) -> Iterator[Bar]:
    for part in parts:
        if part.peak is not None and part.peak.bytes is not None:
            size = part.peak.bytes / _MIB
            label = name_parts(part.parts)
            yield Bar(f"{name}: {label}" if name else label, (size,), f"{size:.0f} MiB")


def _draw(bars: Sequence[Bar], finding: str) -> tuple[Chart, ...]:
    """Return the chart of the peaks; none without a peak."""
    if not bars:
        return ()
    return (draw_bars("parts", "Peak memory by number of parts", finding, bars, unit="peak (MiB)"),)
