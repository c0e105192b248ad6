"""The sections of a report that follow from traces: layers, rooflines, and the cost of tracing."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from benchlock.evaluator.analysis.call_profiles import Subject, is_dominated
from benchlock.evaluator.analysis.inspection import analyze, keep_top
from benchlock.evaluator.analysis.layer_comparison import compare_layers
from benchlock.evaluator.analysis.layers import REMAINDER, layer_profile
from benchlock.evaluator.analysis.table_formats import format_cell
from benchlock.evaluator.analysis.tables import Cell, Column, Record, Table
from benchlock.evaluator.charts.line_charts import Roof, RooflinePoint, draw_roofline
from benchlock.evaluator.charts.matrix_charts import Bar, draw_bars
from benchlock.evaluator.charts.svg import Chart
from benchlock.evaluator.report.sections import Section

_LAYERS: Final = 15
_LONGEST: Final = 22
"""The characters of a label in a chart; tables have whole names."""
_ROOFS: Final = "What layers take beyond that is neither memory nor arithmetic: overhead, implementation and profiler."
_MICRO: Final = 1e6
_MOST: Final = 0.5
_MEBIBYTE: Final = 1 << 20
_UNBOUND: Final = "This is unknown: no computing layer of floats has a time that its clock can measure."
_UNMEASURED: Final = "This is unknown until the roofs of the host of the run are measured."


def describe_trace(name: str, number: int, subject: Subject) -> Iterator[Section]:
    """Yield the sections of a traced run.

    Args:
        name: The name of its system.
        number: The number of the trace in the report, for the names of files.
        subject: The trace, with what is known beside it.
    """
    layers, kinds, roofline, costs = analyze(subject, ("A2", "A6", "A14", "overhead"))
    if layers.rows:
        yield _describe_layers(name, number, subject, layers, kinds)
        yield _describe_bounds(name, number, subject, roofline)
    else:
        yield Section(f"Which layer of {name} costs most?", ("The trace has no layers.", *layers.notes))
    yield _describe_costs(name, number, subject, costs)


def compare_traces(first: tuple[str, Subject], second: tuple[str, Subject], number: int) -> Section:
    """Return the time of each kind of layer in two traced runs, side by side.

    Args:
        first: The name and the trace of the reference.
        second: The same of the other run.
        number: The number of the comparison on the page, for the name of its table.
    """
    kinds, _ = compare_layers(first[1], second[1])
    names = {"first": first[0], "second": second[0], "difference": "difference"}
    columns = tuple(replace(column, name=names.get(column.name, column.name)) for column in kinds.columns)
    largest = next((record for record in kinds.records() if record["kind"] == kinds.facts["largest_difference"]), None)
    answer = "The traces have no layers in common."
    if largest is not None:
        change = f"{_duration(largest['first'])} of {first[0]} and {_duration(largest['second'])} of {second[0]}"
        answer = f"The largest difference is in layers of the kind {largest['kind']}: {change}, traced."
    table = replace(kinds, id=f"compare-kinds-{number}", title="Time by kind of layer, side by side", columns=columns)
    return Section(
        f"In which layers do {first[0]} and {second[0]} differ?", (answer, *kinds.notes), (), replace(table, notes=())
    )


def _number(value: Cell) -> float:
    return float(value) if isinstance(value, int | float) else 0.0


def _duration(seconds: Cell) -> str:
    return format_cell(Column("", "s"), seconds)


def _restrict(subject: Subject, finding: str) -> str:
    """Return a finding on times, after the reason if they decide nothing."""
    return f"Unreliable, because {subject.restriction}. {finding}" if subject.restriction else finding


def _share(table: Table, record: Record) -> str:
    """Return the share of a row as its table shows it."""
    column = next(column for column in table.columns if column.name == "share")
    return format_cell(column, record["share"])


def _describe_layers(name: str, number: int, subject: Subject, layers: Table, kinds: Table) -> Section:
    """Return which layers and kinds of operators take the time."""
    records = sorted(keep_top(layers, _LAYERS).records(), key=lambda record: -_number(record["latency"]))
    first, (largest, *_) = records[0], kinds.records()
    remainder = _duration(max(0.0, _number(kinds.records()[-1]["latency"])))
    doubt = "; the profiler dominates these shares" if is_dominated(subject, layer_profile(subject)) else ""
    answer = (
        _restrict(
            subject,
            f"The most expensive layer is {first['name']} ({first['kind']}): {_duration(first['latency'])}, "
            f"{_number(first['share']):.0%} of all layers{doubt}.",
        ),
        (
            f"The most expensive kind is {largest['kind']}: {_number(largest['share']):.0%} of all layers."
            f" {remainder} of a traced call are outside of all layers (the remainder)."
        ),
        *layers.notes,
    )
    bars = [
        Bar(
            f"{record['index']} {record['name']}",
            (_number(record["latency"]) * _MICRO,),
            f"{_share(layers, record)} {record['kind']}",
        )
        for record in records
    ]
    by_kind = [
        Bar("outside of layers", (_number(record["latency"]) * _MICRO,), "remainder")
        if record["kind"] == REMAINDER
        else Bar(str(record["kind"]), (_number(record["latency"]) * _MICRO,), _share(kinds, record))
        for record in kinds.records()
    ]
    unit = "µs a call, traced: mean over the middle calls"
    charts = (
        draw_bars(f"layers-{number}", f"Longest layers of {name}", answer[0], bars, unit=unit),
        draw_bars(f"kinds-{number}", f"Time by kind of operator: {name}", answer[1], by_kind, unit=unit),
    )
    table = replace(layers, id=f"layers-{number}", notes=())
    return Section(f"Which layer of {name} costs most?", answer, charts, table)


def _describe_bounds(name: str, number: int, subject: Subject, roofline: Table) -> Section:
    """Return whether memory or arithmetic bounds the layers, by the share of their time."""
    question, table = f"Is {name} memory-bound here?", replace(roofline, id=f"roofline-{number}")
    notes = tuple(note for note in roofline.notes if "intensit" in note or "roof" in note.lower() or "raised" in note)
    peak, bandwidth, ideal = (
        _number(roofline.facts.get(fact)) for fact in ("peak_flop_s", "bandwidth_B_s", "ideal_intensity")
    )
    records = [record for record in roofline.records() if record["memory_bound"] is not None and record["latency"]]
    if not records:
        reason = _UNMEASURED if roofline.facts.get("peak_flop_s") is None else _UNBOUND
        return Section(question, (reason, *notes), (), table)
    total = sum(_number(record["latency"]) for record in records)
    bound = sum(_number(record["latency"]) for record in records if record["memory_bound"] == "yes") / total
    roofs = [min(peak, bandwidth * _number(record["intensity"])) for record in records]
    least = sum(_number(record["flops_executed"]) / roof for record, roof in zip(records, roofs, strict=True))
    word, rate = "Yes" if bound > _MOST else "No", _duration(least)
    word = f"Undecided, because {subject.restriction}. As recorded" if subject.restriction else word
    answer = (
        f"{word}: {bound:.0%} of the time of computing layers is in memory-bound layers (below {ideal:.3g} FLOP/byte).",
        f"At their roofs, these layers would take {rate} rather than {_duration(total)} ({least / total:.0%}).",
        _ROOFS,
        *notes,
    )
    charts = _chart_roofline(name, number, subject, roofline, answer[0])
    return Section(question, answer, (charts,), table)


def _chart_roofline(name: str, number: int, subject: Subject, table: Table, finding: str) -> Chart:
    """Draw the layers under the roof of their working set, and under that of the main memory where it is another."""
    points = [
        RooflinePoint(
            f"{record['index']} {str(record['name']).rpartition('/')[2]}"[:_LONGEST],
            _number(record["intensity"]),
            _number(record["throughput"]),
            str(record["kind"]),
        )
        for record in sorted(table.records(), key=lambda record: -_number(record["latency"]))
        if record["intensity"] and record["throughput"]
    ]
    size, bandwidth = (_number(table.facts[fact]) for fact in ("bandwidth_working_set_B", "bandwidth_B_s"))
    roofs = [Roof(f"memory, working set up to {size / _MEBIBYTE:.3g} MiB (applies)", bandwidth)]
    if subject.roofs is not None and (last := subject.roofs.bandwidth[-1]).working_set > size:
        roofs.append(Roof(f"memory, {last.working_set / _MEBIBYTE:.3g} MiB", last.best))
    title, peak = f"Roofline of the layers: {name}", _number(table.facts["peak_flop_s"])
    return draw_roofline(f"roofline-{number}", title, finding, points, roofs, peak=peak)


def _describe_costs(name: str, number: int, subject: Subject, costs: Table) -> Section:
    """Return what each level of tracing added to a call."""
    records = costs.records()
    base = _number(records[0]["call"])
    answers, bars = [], []
    for record in records:
        low, high, extra = record["low"], record["high"], record["overhead"]
        bars.append(Bar(str(record["level"]), (_number(record["call"]) * _MICRO,), _duration(record["call"])))
        if extra is not None:
            interval = "" if low is None or high is None else f", 95 % interval {_duration(low)} to {_duration(high)}"
            doubt = "; not distinguishable from 0" if record["distinguishable"] == "no" else ""
            share = f" ({_number(extra) / base:+.0%} of an untraced call)" if base else ""
            answers.append(f"Level {record['level']}: {_duration(extra)} a call{share}{interval}{doubt}.")
    answers.reverse()  # the deepest level first
    answers[:1] = [_restrict(subject, first) for first in answers[:1]]
    finding = " ".join(answers) or "The trace has no second level."
    title = f"Time of a call by trace level: {name}"
    charts = (draw_bars(f"tracing-{number}", title, finding, bars, unit="µs a call, median"),)
    notes = ("Latencies in this report are of untraced calls.", *costs.notes)
    return Section(f"What did tracing {name} cost?", (*answers, *notes), charts, replace(costs, id=f"tracing-{number}"))
