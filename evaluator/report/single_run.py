"""What is shown of a single run: the histogram of its latencies, and its confusion matrix."""

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchlock.artifacts.user_output import format_count
from benchlock.evaluator.analysis.tables import Cell, Column, Table
from benchlock.evaluator.charts.line_charts import Histogram, Mark, draw_histogram
from benchlock.evaluator.charts.matrix_charts import HeatMap, draw_heat_map
from benchlock.evaluator.charts.svg import Chart
from benchlock.evaluator.evidence.class_details import ClassDetails
from benchlock.evaluator.report.sections import Section
from benchlock.evaluator.statistics.confidence_intervals import nearest_rank
from benchlock.evaluator.statistics.metric_types import Calls, Metric, format_duration

MOST_BARS: Final = 60
_RULE: Final = (
    "Bars have equal widths, 2 x interquartile range / cube root of the number of calls (Freedman, Diaconis), or more "
    f"where these would be over {MOST_BARS} bars. A last bar counts the calls beyond p50 + 2 x (p99 - p50)."
)
_COLUMNS: Final = (
    Column("from", "s", "Least time of the bar; the bar of longer calls begins above it."),
    Column("to", "s", "Times are below it; the last bar of equal width also has those equal to it."),
    Column("calls", None, "Number of calls."),
    Column("share", "fraction", "calls / all calls."),
)
_CALLS: Final = (
    Column("metric", None, "The percentile."),
    Column("all calls", "s", "The reported latency; unknown where the request does not have this metric."),
    Column("undisturbed calls", "s", "The same of the calls that were not pre-empted."),
    Column("n", None, "Number of undisturbed calls."),
    Column("CPU time of all calls", "s", "The same percentile of the CPU time."),
    Column("without the host's delay", "s", "The latency as if the host had issued each query in time."),
)
MOST_CLASSES: Final = 30
"""The greatest number of classes of the heat map: more cells would have no room for their numbers."""
_DIGITS: Final = 3
"""The significant digits of a time in a text."""
_EXACT: Final = 10_000
_UNDECIDED: Final = "none"


def find_histogram(ordered: NDArray[np.float64]) -> Histogram:
    """Return the histogram of times by the rule that the section states.

    Args:
        ordered: The times in ascending order, at least one.
    """
    quartile, half, third, most = (_percentile(ordered, q) for q in (0.25, 0.5, 0.75, 0.99))
    low, high = float(ordered[0]), float(ordered[-1])
    if low == high:
        return Histogram((low, high), (len(ordered),))
    end = min(high, half + 2 * (most - half))
    end = high if end <= low else end
    shown = float(f"{end:.{_DIGITS}g}")  # the edge as the section writes it, so that its count of longer calls is true
    end = shown if max(low, most) < shown < high else end
    width = 2 * (third - quartile) / len(ordered) ** (1 / 3)
    has_last = int(end < high)
    bars = max(1, min(MOST_BARS - has_last, math.ceil((end - low) / width) if width else MOST_BARS))
    edges = np.linspace(low, end, bars + 1)
    places = np.searchsorted(ordered, edges[1:-1], side="left")
    inside = int(np.searchsorted(ordered, end, side="right"))
    counts = np.diff(np.concatenate(([0], places, [inside])))
    return Histogram(tuple(edges.tolist()), tuple(counts.tolist()), len(ordered) - inside)


def _percentile(ordered: NDArray[np.float64], q: float) -> float:
    return float(ordered[nearest_rank(len(ordered), q) - 1])


def describe_histogram(ordered: NDArray[np.float64]) -> Section:
    """Return the histogram of the latencies of a run, in seconds and ascending, with its percentiles."""
    histogram = find_histogram(ordered)
    edges, total = histogram.edges, len(ordered)
    fullest = max(range(len(histogram.counts)), key=lambda number: histogram.counts[number])
    share = histogram.counts[fullest] / total
    between = f"from {format_duration(edges[fullest])} to {format_duration(edges[fullest + 1])}"
    bars, calls = format_count(len(histogram.counts), "bar"), format_count(total, "call")
    answer = f"The fullest of {bars} has {share:.0%} of {calls}, {between}."
    if len(histogram.counts) == 1:
        answer = f"All times of {calls} are {between}."
    if edges[0] == edges[-1]:
        answer = f"{calls} took {format_duration(edges[0])}{' each' * (total > 1)}."
    if histogram.longer:
        ends = f"more than {format_duration(edges[-1])}, at most {format_duration(ordered[-1])}"
        answer += f" {format_count(histogram.longer, 'call')} took {ends}."
    percentiles = {name: _percentile(ordered, q) for name, q in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99))}
    marks = [Mark(name, seconds, format_duration(seconds)) for name, seconds in percentiles.items()]
    rows: list[tuple[Cell, ...]] = [
        (low, high, count, count / total) for low, high, count in zip(edges, edges[1:], histogram.counts, strict=False)
    ]
    if histogram.longer:
        rows.append((edges[-1], float(ordered[-1]), histogram.longer, histogram.longer / total))
    table = Table("histogram", "Calls by latency", _COLUMNS, tuple(rows), notes=(_RULE,))
    chart = draw_histogram("histogram", "Calls by latency", answer, histogram, marks)
    return Section("How are the times of calls spread?", (answer, _RULE), (chart,), table)


def tabulate_calls(metrics: Sequence[Metric], calls: Calls) -> Table:
    """Return the latencies of all calls beside those of the undisturbed ones, as they were recorded with the run.

    Args:
        metrics: The metrics of the run.
        calls: The statistics of its calls.
    """
    whole, calm, undelayed = (
        {metric.key: metric for metric in each} for each in (metrics, calls.undisturbed, calls.undelayed)
    )
    cpu = {metric.key.replace("cpu_time", "latency"): metric for metric in calls.cpu_time}
    sources = (whole, calm, cpu, undelayed)
    rows = []
    for key in dict.fromkeys((*calm, *cpu, *undelayed)):
        values = [source[key].value if key in source else None for source in sources]
        rows.append((key, *values[:2], calm[key].n if key in calm else None, *values[2:]))
    shown = len(_CALLS) - (not undelayed)
    notes = [
        f"{calls.preempted} of {format_count(calls.n, 'call')} were pre-empted. The CPU time is of the {calls.scope}."
    ]
    if calls.without_cpu is not None:
        notes.append(f"Calls were off-CPU for {calls.without_cpu:.1%} of their time, undisturbed ones included.")
    if any(metric.self_reported for metric in calls.undisturbed):
        notes.append("These times are self-reported.")
    title = "Latencies of all calls and of undisturbed calls"
    return Table("calls", title, _CALLS[:shown], tuple(row[:shown] for row in rows), notes=tuple(notes))


def chart_confusion(details: ClassDetails) -> Chart | None:
    """Draw the confusion matrix; None without one, or with more than 30 classes."""
    labels = [each.label for each in details.per_class]
    cells = {(label, predicted): count for label, predicted, count in details.confusion}
    if not cells or not 0 < len(labels) <= MOST_CLASSES:
        return None
    samples = {each.label: each.samples for each in details.per_class}
    columns: list[int | None] = [*labels, *([None] if any(predicted is None for _, predicted in cells) else [])]
    counts = [[cells.get((label, column), 0) for column in columns] for label in labels]
    heat_map = HeatMap(
        tuple(map(str, labels)),
        tuple(_UNDECIDED if column is None else str(column) for column in columns),
        tuple(
            tuple(count / max(samples[label], 1) if count else None for count in row)
            for label, row in zip(labels, counts, strict=True)
        ),
        tuple(tuple(_format(count) if count else "" for count in row) for row in counts),
        (0.0, 1.0),
    )
    scale = "Numbers are samples, an empty cell has none; the color is the share of the samples of the row."
    title, described = "Confusion matrix", f"{_find_confusion(details, samples)} {scale}"
    return draw_heat_map("confusion", title, described, heat_map, columns_title="decided as", rows_title="label")


def _find_confusion(details: ClassDetails, samples: dict[int, int]) -> str:
    """Return which class is taken for which other most often, in a sentence."""
    wrong = [cell for cell in details.confusion if cell[0] != cell[1]]
    if not wrong:
        return "No sample is taken for another class."
    label, predicted, count = max(wrong, key=lambda cell: cell[2])
    other = "has no decision" if predicted is None else f"is decided as {predicted}"
    return f"Most often, label {label} {other}: {count} of {format_count(samples.get(label, count), 'sample')}."


def _format(count: int) -> str:
    """Return a count in at most four characters up to a billion: exact below 10,000."""
    if count < _EXACT:
        return str(count)
    number, unit = next((count / size, unit) for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")) if count >= size)
    return f"{number:.0f}{unit}"
