"""The sections of a report that follow from metrics and samples: quality, latency, batch sizes, cost and cold start."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np
from msgspec import UNSET
from numpy.typing import NDArray

from benchlock.artifacts.user_output import format_count
from benchlock.evaluator.analysis.model_tables import judge_batches
from benchlock.evaluator.analysis.tables import Cell, Column, Table
from benchlock.evaluator.charts.axes import pick_time_unit
from benchlock.evaluator.charts.line_charts import BatchCurve, Distribution, Rate, draw_batches, draw_distributions
from benchlock.evaluator.charts.matrix_charts import Bar, HeatMap, draw_bars, draw_heat_map
from benchlock.evaluator.charts.plots import number_series
from benchlock.evaluator.charts.scatter_charts import Point, draw_points
from benchlock.evaluator.charts.svg import Chart
from benchlock.evaluator.harness.core.job import COLD_PHASES
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.records.timing_validity import explain_unusable_times
from benchlock.evaluator.report.network_sections import describe_networks
from benchlock.evaluator.report.operator_sections import describe_operators
from benchlock.evaluator.report.prices import Price, find_price
from benchlock.evaluator.report.sections import Section
from benchlock.evaluator.report.single_run import describe_histogram
from benchlock.evaluator.report.systems import QUERIED, System, scenario_of
from benchlock.evaluator.report.training_sections import describe_distributed, describe_steps, describe_trainings
from benchlock.evaluator.statistics.metric_types import SIGNIFICANT, Interval, Metric, format_duration, format_value
from benchlock.evaluator.statistics.time_metrics import Batch, optimal_batch
from benchlock.evaluator.workflows.compare import Arm
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests.metric_definitions import DEFINITIONS

_MEGABYTE: Final = 1e6
_CURVES: Final = 6
_POINTS: Final = 200
_BAND: Final = "The shaded band holds for the whole curve at 95 % (Dvoretzky, Kiefer, Wolfowitz; Massart's constant)."
_NO_TRACE: Final = (
    "Which layer costs most, and whether the model is memory-bound, is unknown without a trace: set `trace: framework` "
    "in the request, lock it, run the lock and report on that run, too."
)
_NO_SWEEP: Final = "Which batch size to use is unknown without a run of the scenario `batch_sweep`."
_NAME: Final = Column("name", None, "System.")


_LEVELS: Final = (describe_trainings, describe_distributed, describe_steps, describe_operators, describe_networks)


def describe_runs(systems: Sequence[System], *, has_overview: bool = True) -> Iterator[Section]:
    """Yield the sections that the runs of the systems have numbers for; the first one compares the systems."""
    levels = [describe(systems) for describe in _LEVELS]
    if any(levels):
        yield from filter(None, levels)
        return
    if has_overview:
        yield _results(systems)
    yield from _latencies(systems)
    yield from filter(None, (describe_batches(systems), _describe_calls(systems), _cold_starts(systems)))


def _estimate_columns(name: str, unit: str | None, meaning: str) -> tuple[Column, Column, Column]:
    """Return the columns of a metric with its interval."""
    ends = (("low", "Lower end of its 95 % interval."), ("high", "Upper end of it."))
    low, high = (Column(f"{name}_{end}", unit, words) for end, words in ends)
    return Column(name, unit, meaning), low, high


def _metric_cells(metric: Metric | None) -> tuple[Cell, Cell, Cell]:
    return (None, None, None) if metric is None else (metric.value, metric.ci.low, metric.ci.high)


def _results(systems: Sequence[System]) -> Section:
    """Return the overview: the seeds' Table 2, and quality over latency and throughput."""
    quality = choose_quality(systems)
    columns = (
        Column("id", None, "Number in this report."),
        Column("name", None, "Model, and what distinguishes systems of one model."),
        *_estimate_columns(quality, None, "Quality metric of the request, the first that all systems have."),
        Column("graph_size", "MB", "Files of the model; 1 MB is 1,000,000 bytes."),
        Column("online_latency", "s", "Trimmed mean of single_stream: a fifth of the calls left out at each end."),
        Column("online_p90", "s", "90th percentile of single_stream."),
        Column("max_throughput", "samples/s", "Highest of all scenarios and batch sizes."),
        Column("optimal_batch", "samples", "Smallest batch size whose doubling gains 5 % or less."),
        Column("calls", None, "Timed single_stream calls."),
    )
    online = {system.name: system.online() for system in systems}
    rows: list[tuple[Cell, ...]] = []
    for number, system in enumerate(systems, 1):
        seconds, calls = online[system.name] or (None, None)
        tail = system.online_metric("latency_p90")
        p90 = None if tail is None else tail.value
        rate = None if system.throughput is None else system.throughput.value
        speed = (seconds, p90, rate, system.value("optimal_batch"), calls)
        rows.append((number, system.name, *_metric_cells(system.metrics.get(quality)), system.size / _MEGABYTE, *speed))
    table = Table("results", "Results by system", columns, tuple(rows), {"runs": sum(len(s.runs) for s in systems)})
    timed = {system: times[0] for system in systems if (times := online[system.name]) is not None}
    unit, factor = pick_time_unit(timed.values())
    latencies = {system: (seconds * factor, None) for system, seconds in timed.items()}
    rates = {system: (best.value, find_ends(best.ci)) for system in systems if (best := system.throughput) is not None}
    order = list_names(systems)
    charts = (
        *chart_quality("quality-latency", quality, f"online latency, trimmed mean ({unit})", latencies, order=order),
        *chart_quality(
            "quality-throughput", quality, "maximum throughput (samples/s)", rates, has_area=True, order=order
        ),
    )
    return Section("Which system is accurate, and which is fast?", tuple(_rank(systems, quality, timed)), charts, table)


def choose_quality(systems: Sequence[System]) -> str:
    """Return the first metric of predictions that all systems have, or else the first that one has.

    They are in the order of their definitions, in which the main metric of a task comes before calibration.
    """
    order = {name: place for place, name in enumerate(DEFINITIONS)}
    qualities = {key: metric.name for system in systems for key, metric in system.qualities.items()}
    names = sorted(qualities, key=lambda key: order[qualities[key]])
    return next((name for name in names if all(name in system.metrics for system in systems)), [*names, "quality"][0])


def _rank(systems: Sequence[System], quality: str, timed: Mapping[System, float]) -> Iterator[str]:
    """Yield which systems are best, in one paragraph, and that close times are left to `compare`."""
    sentences = []
    rated = [(metric, system.name) for system in systems if (metric := system.metrics.get(quality)) is not None]
    if rated:
        choose = min if rated[0][0].direction == "lower" else max
        best = choose((metric for metric, _ in rated), key=lambda metric: metric.value)
        names = ", ".join(name for metric, name in rated if metric.value == best.value)
        sentences.append(
            f"The {'best ' * (len(rated) > 1)}{best.name} is {format_value(best.value, best.unit)}, of {names}."
        )
    usable = [system for system in timed if not _explain_flags(system)]
    if usable:
        fastest = min(usable, key=lambda system: timed[system])
        what = "shortest online latency" if len(usable) > 1 else "online latency"
        sentences.append(f"The {what} is {format_duration(timed[fastest])}, of {fastest.name} (trimmed mean).")
    if disturbed := [system.name for system in timed if system not in usable]:
        sentences.append(f"The times of {', '.join(disturbed)} were disturbed, so they are not ranked.")
    yield " ".join(sentences) or "No run measured the quality or the online latency of a model."
    if len(timed) > 1:
        yield "Times of single runs decide nothing about small differences: an interleaved comparison measures those."


def find_ends(ci: Interval) -> tuple[float, float] | None:
    """Return the ends of an interval; None if one is unknown."""
    return None if ci.low is None or ci.high is None else (ci.low, ci.high)


def chart_quality(
    name: str,
    quality: str,
    title: str,
    speeds: Mapping[System, tuple[float, tuple[float, float] | None]],
    *,
    has_area: bool = False,
    order: Sequence[str] = (),
) -> Iterator[Chart]:
    """Yield quality over speed, if at least one system has both.

    Args:
        name: The name of the chart.
        quality: The metric of quality.
        title: The title of the axis of speed, with its unit.
        speeds: The speed of each system, and its interval.
        has_area: Whether the area of a point is the size of the model.
        order: The names of the systems of the page.
    """
    points = [
        Point(system.name, x, metric.value, x_interval, find_ends(metric.ci), float(system.size) if has_area else None)
        for system, (x, x_interval) in speeds.items()
        if (metric := system.metrics.get(quality)) is not None
    ]
    if points:
        numbers = number_series([point.name for point in points], order)
        points = [replace(point, series=number) for point, number in zip(points, numbers, strict=True)]
        metric = next(system.metrics[quality] for system in speeds if quality in system.metrics)
        listed = "; ".join(f"{point.name} {point.y:.4g} at {point.x:.4g}" for point in points)
        yield draw_points(
            name,
            f"{metric.name} and {title.partition(' (')[0]}{'; the area is the size of the model' * has_area}",
            f"{format_count(len(points), 'system')}: {listed}.",
            points,
            x_title=title,
            y_title=metric.name,
            y_is_share=metric.unit == "fraction",
        )


def list_names(systems: Sequence[System]) -> list[str]:
    """Return the names of systems in their order, from which colors and marks in all charts follow."""
    return [system.name for system in systems]


def find_distribution(name: str, seconds: NDArray[np.float64]) -> Distribution:
    """Return the empirical distribution of times at up to 200 of them, with a band that holds for all times at once.

    The band reaches sqrt(ln(2 / 0.05) / 2n) to both sides (Massart, Ann. Probab. 18, 1990), for independent calls.

    Args:
        name: Whose times they are.
        seconds: The times, at least one.
    """
    n = len(seconds)
    reach = math.sqrt(math.log(2 / SIGNIFICANT) / (2 * n))
    ranks = np.unique(np.linspace(0, n - 1, min(n, _POINTS)).round().astype(int))
    shares = (ranks + 1) / n
    # Up to the next point, the whole distribution rises above this one.
    highest = np.append(ranks[1:], n) / n
    bounds = (shares, np.maximum(shares - reach, 0.0), np.minimum(highest + reach, 1.0))
    return Distribution(name, tuple(np.sort(seconds)[ranks].tolist()), *(tuple(part.tolist()) for part in bounds))


def _describe_latencies(latencies: NDArray[np.float64]) -> tuple[int, Distribution, Section]:
    """Return the number of calls, their distribution and their histogram."""
    ordered = np.sort(latencies)
    return len(ordered), find_distribution("", ordered), describe_histogram(ordered)


def _latencies(systems: Sequence[System]) -> Iterator[Section]:
    """Yield the distributions of the latencies of the first run of each system, and the histogram of a single one."""
    names = ("latency_p50", "latency_p90", "latency_p99")
    rows, curves, answers = list[tuple[Cell, ...]](), list[Distribution](), list[str]()
    histograms = list[Section]()
    for system in systems:
        arm = next((arm for arm in system.arms if scenario_of(arm) in QUERIED), None)
        found = None if arm is None else system.summarize_latencies(arm.runs[0], _describe_latencies)
        if arm is None or found is None:
            continue
        calls, curve, histogram = found
        measured = {metric.name: metric for metric in arm.metrics()}
        metrics = [measured.get(name) for name in names]
        rows.append((system.name, arm.runs[0].id, calls, *(c for metric in metrics for c in _metric_cells(metric))))
        curves.append(replace(curve, name=system.name))
        histograms.append(histogram)
        if None not in metrics:
            half, most = (format_duration(measured[name].value) for name in (names[0], names[-1]))
            answers.append(f"{system.name}: half of the calls take at most {half}, and 99 % at most {most}.")
    if not rows:
        return
    columns = (
        _NAME,
        Column("run", None, "Run of the curve, the first one of the system."),
        Column("calls", None, "Timed calls."),
        *(column for name in names for column in _estimate_columns(name, "s", "Percentile.")),
    )
    rest = f" The chart has the first {_CURVES} of {len(curves)} systems." if len(curves) > _CURVES else ""
    words = (*filter(None, [" ".join(answers)]), _BAND + rest)
    chart = draw_distributions(
        "latency", "Latency of calls", " ".join(words), curves[:_CURVES], order=list_names(systems)
    )
    yield Section("How long do calls take?", words, (chart,), Table("latency", "Latency", columns, tuple(rows)))
    if len(histograms) == 1:
        yield histograms[0]


def describe_batches(systems: Sequence[System], prefix: str = "") -> Section | None:
    """Return throughput by batch size, and a heat map of the speed-up over the smallest one; None without a sweep.

    Args:
        systems: The systems.
        prefix: What the names of the charts and of the table begin with, where a page has several of the section.
    """
    sweeps = {system.name: system.rates() for system in systems if len(system.rates()) > 1}
    if not sweeps:
        return None
    sizes = sorted({size for rates in sweeps.values() for size in rates})
    speedups = {
        name: {size: rate.value / rates[min(rates)].value for size, rate in rates.items()}
        for name, rates in sweeps.items()
    }
    flagged = {system.name: reason for system in systems if (reason := _explain_flags(system))}
    answers = tuple(
        f"{name}: no batch size is recommended, because {flagged[name]}." if name in flagged else _advise(name, rates)
        for name, rates in sweeps.items()
    )
    curves = [_draw_curve(name, rates, is_advised=name not in flagged) for name, rates in [*sweeps.items()][:_CURVES]]
    rest = f" The chart has the first {_CURVES} of {len(sweeps)} systems." if len(sweeps) > _CURVES else ""
    throughput = draw_batches(
        f"{prefix}batch-throughput",
        "Throughput by batch size, with the advised size ringed",
        " ".join(answers) + rest,
        curves,
        list_names(systems),
    )
    base = "batch 1" if all(min(rates) == 1 for rates in sweeps.values()) else "the smallest batch size"
    best, fastest, size = max((ratio, name, size) for name, row in speedups.items() for size, ratio in row.items())
    speedup = draw_heat_map(
        f"{prefix}batch-speedup",
        f"Speed-up of throughput over {base}",
        f"The greatest speed-up is {best:.2f}, of {fastest} at batch {size}.",
        HeatMap(tuple(sweeps), tuple(map(str, sizes)), tuple(tuple(map(row.get, sizes)) for row in speedups.values())),
        columns_title="samples per call",
    )
    columns = (
        _NAME,
        Column("batch", "samples", "Samples per call."),
        *_estimate_columns("throughput", "samples/s", "Samples per second."),
        Column("speedup", "x", "throughput / that of the smallest batch size."),
    )
    rows = tuple(
        (name, size, *_metric_cells(rate), speedups[name][size])
        for name, rates in sweeps.items()
        for size, rate in sorted(rates.items())
    )
    table = Table(f"{prefix}batches", "Throughput by batch size", columns, rows)
    return Section("Which batch size should be used?", answers, (speedup, throughput), table)


def _describe_calls(systems: Sequence[System]) -> Section | None:
    """Return the median call by batch size, the systems side by side; None without one of a sweep."""
    calls = {system.name: found for system in systems if len(found := system.list_by_batch("latency_p50")) > 1}
    if not calls:
        return None
    sizes = sorted({size for of in calls.values() for size in of})
    unit, factor = pick_time_unit(metric.value for of in calls.values() for metric in of.values())
    answers = []
    for size in dict.fromkeys((sizes[0], sizes[-1])):
        least, name = min((of[size].value, name) for name, of in calls.items() if size in of)
        shortest = "median call" if len(calls) == 1 else "shortest median call"
        answers.append(f"The {shortest} of {format_count(size, 'sample')} takes {format_duration(least)}, of {name}.")
    curves = []
    for name, of in [*calls.items()][:_CURVES]:
        rates = (
            Rate(size, one.value * factor, scale_ends(find_ends(one.ci), factor)) for size, one in sorted(of.items())
        )
        curves.append(BatchCurve(name, tuple(rates), None))
    title = f"Median call by batch size ({unit})"
    words = " ".join(answers)
    chart = draw_batches("batch-calls", title, words, curves, list_names(systems), y_title=f"median call ({unit})")
    columns = (
        Column("batch", "samples", "Samples per call."),
        *(Column(name, "s", "Median call of the system.") for name in calls),
    )
    values = {name: {size: metric.value for size, metric in of.items()} for name, of in calls.items()}
    rows = tuple((size, *(of.get(size) for of in values.values())) for size in sizes)
    table = Table("batch-calls", "Median call by batch size", columns, rows)
    return Section("How long does a call of each batch size take?", tuple(answers), (chart,), table)


def scale_ends(ends: tuple[float, float] | None, factor: float) -> tuple[float, float] | None:
    """Return the ends of an interval in another unit; None without them."""
    return None if ends is None else (ends[0] * factor, ends[1] * factor)


def _list_batches(rates: Mapping[int, Metric]) -> list[Batch]:
    return [(size, (rate.value, rate.n, rate.ci)) for size, rate in sorted(rates.items())]


def _judge(rates: Mapping[int, Metric]) -> tuple[int, int, bool]:
    """Return the batch sizes to use and of the highest throughput, and whether no size is proven faster."""
    optimum, fastest, is_flat = judge_batches(_list_batches(rates))
    return min(rates) if is_flat else optimum, fastest, is_flat


def _doubt(rates: Mapping[int, Metric], optimum: int) -> str:
    """Return that the intervals allow a smaller optimum; empty if they prove that of the values."""
    low = optimal_batch(_list_batches(rates))[2].low
    return f"; the intervals overlap so far that batch {low:.0f} may do" if low is not None and low < optimum else ""


def _explain_flags(system: System) -> str:
    """Return why the times of a system decide nothing; empty if they may."""
    return next(filter(None, map(explain_unusable_times, system.runs)), "")


def _draw_curve(name: str, rates: Mapping[int, Metric], *, is_advised: bool) -> BatchCurve:
    points = tuple(Rate(size, rate.value, find_ends(rate.ci)) for size, rate in sorted(rates.items()))
    return BatchCurve(name, points, _judge(rates)[0] if is_advised and _have_intervals(rates) else None)


def _have_intervals(rates: Mapping[int, Metric]) -> bool:
    return all(find_ends(rate.ci) is not None for rate in rates.values())


def _advise(name: str, rates: Mapping[int, Metric]) -> str:
    """Return which batch size to use, and whether a gain is larger than the intervals."""
    optimum, fastest, is_flat = _judge(rates)
    gain = rates[fastest].value / rates[min(rates)].value - 1
    highest = f"{format_value(rates[fastest].value, 'samples/s')}, {gain:+.0%} over batch {min(rates)}"
    if not _have_intervals(rates):
        return f"{name}: no batch size is recommended, because throughputs have no interval here; highest: {highest}."
    if is_flat:
        sizes = f"the highest throughput, at batch {fastest}, is {highest}"
        return f"{name}: use batch {optimum}, because no size is proven faster: the intervals overlap; {sizes}."
    if optimum == max(rates):
        doubt = _doubt(rates, optimum) or ", so measure larger ones, too"
        rule = f"each doubling gains more than 5 %{doubt}"
        return f"{name}: use batch {optimum}, the largest that was measured: {highest}; {rule}."
    rule = f"use batch {optimum} (the smallest whose doubling gains 5 % or less{_doubt(rates, optimum)})"
    return f"{name}: {rule}; the throughput is highest at batch {fastest}: {highest}."


def describe_costs(systems: Sequence[System], prices: Sequence[Price]) -> Section | None:
    """Return what a million samples cost on each system, for which a price and a throughput must be known."""
    costs: dict[tuple[str, str], float] = {}
    rows: list[tuple[Cell, ...]] = []
    for system in systems:
        price = find_price(prices, [run.id for run in system.runs])
        bases = {"maximum throughput": system.throughput.value} if system.throughput is not None else {}
        if (p50 := system.online_metric("latency_p50")) and p50.value:
            bases["online, one call at a time"] = 1 / p50.value
        for basis, rate in bases.items() if price is not None else ():
            costs[system.name, basis] = price.of_million(rate) if price is not None else math.nan
            rows.append((system.name, basis, rate, str(price), costs[system.name, basis]))
    if not rows:
        return None
    currency = prices[0].currency
    columns = (
        _NAME,
        Column("basis", None, "Maximum throughput; or 1 / median latency, with the machine busy all the time."),
        Column("throughput", "samples/s", "Samples per second."),
        Column("price", None, "Price of the machine, as given for this report."),
        Column("cost", f"{currency} per million samples", "1,000,000 / throughput / 3600 x price."),
    )
    least = min(costs, key=lambda key: costs[key])
    answer = (
        f"The lowest cost is {costs[least]:.3g} {currency} per million samples: {', '.join(least)}.",
        f"Prices are given by the author of this report: {'; '.join(dict.fromkeys(map(str, prices)))}.",
    )
    bars = [Bar(", ".join(key).partition(", one")[0], (cost,), f"{cost:.3g} {currency}") for key, cost in costs.items()]
    chart = draw_bars("cost", f"Cost of a million samples ({currency})", answer[0], bars, unit=currency)
    return Section("What does a million samples cost?", answer, (chart,), Table("cost", "Cost", columns, tuple(rows)))


def _cold_starts(systems: Sequence[System]) -> Section | None:
    """Return the timeline of a cold start: the median of each phase, one after the other."""
    rows, bars, answers = list[tuple[Cell, ...]](), list[Bar](), list[str]()
    for system in systems:
        known = {phase: system.metrics.get(f"cold_start_{phase}") for phase in COLD_PHASES}
        phases = {phase: metric for phase, metric in known.items() if metric is not None}
        if not phases:
            continue
        rows += [(system.name, phase, *_metric_cells(metric), metric.n) for phase, metric in phases.items()]
        whole = format_duration(system.value("cold_start") or sum(metric.value for metric in phases.values()))
        longest = max(phases, key=lambda phase: phases[phase].value)
        part = format_duration(phases[longest].value)
        answers.append(f"{system.name}: a start takes {whole}; the longest phase is {longest}, {part}.")
        lengths = tuple(phases[phase].value if phase in phases else 0.0 for phase in COLD_PHASES)
        bars.append(Bar(system.name, lengths, whole))
    if not rows:
        return None
    columns = (
        _NAME,
        Column("phase", None, "Part of a start, in order."),
        *_estimate_columns("duration", "s", "Median over the starts."),
        Column("starts", None, "Measured starts."),
    )
    words = " ".join(answers)
    chart = draw_bars("cold-start", "Phases of a cold start", words, bars, unit="s", parts=COLD_PHASES)
    note = "Phases are medians over the starts, so their sum may differ from the median of the whole start."
    table = Table("cold-start", "Phases of a cold start", columns, tuple(rows), notes=(note,))
    return Section("Where does a cold start spend its time?", (*answers, note), (chart,), table)


_ORIGINS: Final[Mapping[tuple[str, str], Callable[[Arm, Run], str]]] = {
    ("run", ""): lambda _, run: run.id,
    ("lock", "A rerun of it measures again."): lambda arm, _: arm.lock.id,
    ("scenario", ""): lambda arm, _: scenario_of(arm),
    ("trace", "Trace level of the request."): lambda arm, _: str(arm.lock.request.get("trace", "none")),
    ("model", "Digest of the manifest."): lambda arm, _: arm.lock.subject.digest,
    ("framework", ""): lambda arm, _: f"{arm.lock.framework.name} {arm.lock.framework.version}",
    ("image", ""): lambda arm, _: f"{arm.lock.image.name} {arm.lock.image.version}",
    ("harness", "Version of the program that measured."): lambda arm, _: arm.lock.harness.version,
    ("dataset", "Dataset and split."): lambda arm, _: _name_dataset(arm.lock, with_split=True),
    ("isolation", "Container or process."): lambda _, run: run.start.isolation,
    ("host", "Processor."): lambda _, run: str(run.start.host.get("cpu_model", "")),
    ("started_at", "UTC."): lambda _, run: f"{run.start.started_at:%Y-%m-%d %H:%M:%S}",
}


def _name_dataset(lock: Lock, *, with_split: bool = False) -> str:
    """Return the dataset of a lock; empty for an operator, which has none."""
    used = lock.dataset
    return "" if used is UNSET else f"{used.name} {used.version}{f' {used.split}' * with_split}"


def name_subjects(systems: Sequence[System]) -> str:
    """Return what the systems evaluate, and on which dataset."""
    subjects = ", ".join(dict.fromkeys(system.arms[0].lock.subject.name for system in systems))
    return " on ".join(filter(None, (subjects, _name_dataset(systems[0].arms[0].lock))))


def describe_gaps(systems: Sequence[System], *, is_traced: bool) -> Section | None:
    """Return the questions that these runs of models cannot answer, and which runs can; None if there are none."""
    if any(arm.lock.operator or arm.lock.recipe is not UNSET for system in systems for arm in system.arms):
        return None
    is_swept = any(len(system.rates()) > 1 for system in systems)
    answer = (*([] if is_traced else [_NO_TRACE]), *([] if is_swept else [_NO_SWEEP]))
    return Section("What does this report not answer?", answer) if answer else None


def describe_origin(systems: Sequence[System]) -> Section:
    """Return what produced the numbers: runs, locks, artifacts and hosts."""
    columns = (_NAME, *(Column(name, None, meaning) for name, meaning in _ORIGINS))
    rows = tuple(
        (system.name, *(read(arm, run) for read in _ORIGINS.values()))
        for system in systems
        for arm in system.arms
        for run in arm.runs
    )
    answer = "Each run is verified: its metrics follow from its stored evidence, which was read again for this report."
    return Section("What produced these numbers?", (answer,), (), Table("runs", "Runs", columns, rows))
