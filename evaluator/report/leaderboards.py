"""Leaderboards: one board for each group of mutually comparable runs, with quality beside speed."""

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from benchlock.artifacts.blob_store import FileStore
from benchlock.artifacts.json_codec import encode_canonical
from benchlock.evaluator.analysis.tables import Cell, Column, Table
from benchlock.evaluator.charts.axes import pick_time_unit
from benchlock.evaluator.charts.svg import Chart
from benchlock.evaluator.records.run_comparison import list_incomparabilities
from benchlock.evaluator.records.run_texts import format_interval
from benchlock.evaluator.report.run_sections import (
    chart_quality,
    choose_quality,
    describe_batches,
    find_ends,
)
from benchlock.evaluator.report.sections import Section
from benchlock.evaluator.report.systems import System, group_systems
from benchlock.evaluator.statistics.metric_types import Metric
from benchlock.evaluator.workflows.compare import LockedRun

SPEEDS: Final = ("throughput", "peak_qps", "latency_p90", "latency_p50", "cold_start")
"""The metrics of speed by which a board ranks, the first that all its systems have."""
_MEGABYTE: Final = 1e6
_RANKS: Final = (
    "Equal ranks: the 95 % intervals overlap. A rank is 1 + the number of systems that are better for certain."
)
SINGLE_RUNS: Final = (
    "The interval of a single run leaves out the drift of its host; an interleaved comparison covers it."
)
_NO_QUALITY: Final = "These runs measure no quality, so the board cannot say whether a fast system is also right."


@dataclass(frozen=True, slots=True)
class Board:
    """A board.

    Attributes:
        conditions: The scenario, the isolation and the host of its runs.
        reasons: Why its runs are not comparable with those of the first board; empty for the first.
        systems: Its systems, the best first.
        table: Its rows.
        charts: Quality over speed; empty if no system has both.
        batches: Throughput and speed-up by batch size; None if its runs have one size.
    """

    conditions: str
    reasons: tuple[str, ...]
    systems: tuple[System, ...]
    table: Table
    charts: tuple[Chart, ...]
    batches: Section | None = None


def group_comparable(pairs: Sequence[LockedRun]) -> tuple[tuple[LockedRun, ...], ...]:
    """Group runs so that any two runs of a group are comparable; a run joins the first group that admits it.

    Comparability is not transitive, so a run is compared with a run of each lock and host of the group.
    """
    groups: list[list[LockedRun]] = []
    examples: list[dict[bytes, LockedRun]] = []
    for pair in pairs:
        key = _encode_conditions(pair)
        for group, known in zip(groups, examples, strict=True):
            if key in known or not any(list_incomparabilities(other, pair) for other in known.values()):
                group.append(pair)
                known[key] = pair
                break
        else:
            groups.append([pair])
            examples.append({key: pair})
    return tuple(map(tuple, groups))


def _encode_conditions(pair: LockedRun) -> bytes:
    """Return a text that is equal for runs that are comparable with the same runs, and with each other."""
    lock, run = pair
    is_done = run.end is not None and run.end.outcome == "done"
    start = run.start
    return encode_canonical([lock.id, "" if is_done else run.id, start.isolation, start.platform, start.host])


def find_pareto_front(points: Sequence[tuple[float, float]]) -> tuple[bool, ...]:
    """Return for each point whether no other is at least as good in both values and better in one.

    Higher values are better. Equal points are on the front together.
    """
    return tuple(not any(other != point and _covers(other, point) for other in points) for point in points)


def _covers(other: tuple[float, float], point: tuple[float, float]) -> bool:
    return other[0] >= point[0] and other[1] >= point[1]


def rank_metrics(metrics: Sequence[Metric]) -> tuple[int, ...]:
    """Return 1 + the number of metrics whose whole interval is better, for each metric; overlapping intervals tie."""
    return tuple(1 + sum(_is_better(other, metric) for other in metrics) for metric in metrics)


def _is_better(other: Metric, metric: Metric) -> bool:
    """Return whether the interval of ``other`` is beyond that of ``metric``; an unknown end is never beyond."""
    if metric.direction == "lower":
        other, metric = metric, other
    low, high = other.ci.low, metric.ci.high
    return low is not None and high is not None and low > high


def make_boards(pairs: Sequence[LockedRun], store: FileStore) -> tuple[Board, ...]:
    """Make the boards of verified runs on one dataset; runs of one system count together.

    Args:
        pairs: The runs with their locks, in the order of preference.
        store: The store of the samples.
    """
    groups = group_comparable(pairs)
    return tuple(
        _make_board(number, group, list_incomparabilities(groups[0][0], group[0]) if number > 1 else (), store)
        for number, group in enumerate(groups, 1)
    )


def _make_board(number: int, pairs: Sequence[LockedRun], reasons: tuple[str, ...], store: FileStore) -> Board:
    systems, replays = group_systems(pairs, store)
    quality = choose_quality(systems)
    qualities = {system: metric for system in systems if (metric := system.metrics.get(quality)) is not None}
    name, speeds = _choose_speeds([*qualities] or systems)
    ranks = [dict(zip(of, rank_metrics([*of.values()]), strict=True)) for of in (qualities, speeds)]
    ordered = sorted(systems, key=lambda system: [rank.get(system, len(systems) + 1) for rank in ranks])
    front = _find_front(qualities, speeds)
    columns = (
        Column("system", None, "Model, and what distinguishes systems of one model."),
        Column("quality_rank", None, "Rank by quality; ties where intervals overlap."),
        Column(quality, None, "Quality metric, the first that all systems have."),
        Column(f"{quality} interval", None, "At 95 %."),
        Column("speed_rank", None, "Rank by speed; ties where intervals overlap."),
        Column(name, next((metric.unit for metric in speeds.values()), None), "Metric of speed."),
        Column(f"{name} interval", None, "At 95 %."),
        Column("pareto_front", None, "Whether no other system is at least as good in both values, and better in one."),
        Column("runs", None, "Runs that count together."),
        Column("run", None, "The first of these runs."),
        Column("graph_size", "MB", "Files of the model; 1 MB is 1,000,000 bytes."),
        Column("lock", None, "Its lock; a rerun of it measures again."),
    )
    rows: list[tuple[Cell, ...]] = [
        (
            system.name,
            ranks[0].get(system),
            *_list_cells(qualities.get(system)),
            ranks[1].get(system),
            *_list_cells(speeds.get(system)),
            front.get(system),
            len(system.runs),
            system.runs[0].id,
            system.size / _MEGABYTE,
            system.arms[0].lock.id,
        )
        for system in ordered
    ]
    notes = (
        _RANKS,
        SINGLE_RUNS,
        *_list_missing(systems, quality, qualities),
        *replays,
        *(f"{system.name}: {note}" for system in ordered for note in system.notes()),
    )
    table = Table(f"board-{number}", f"Board {number}", columns, tuple(rows), {}, notes)
    charts = tuple(_chart(f"board-{number}", quality, name, speeds))
    batches = describe_batches(ordered, f"board-{number}-")
    return Board(_describe_conditions(pairs[0]), reasons, tuple(ordered), table, charts, batches)


def _list_missing(systems: Sequence[System], quality: str, qualities: Container[System]) -> Iterator[str]:
    """Yield which systems have no quality; if only some have none, their speed is not shown."""
    missing = [system.name for system in systems if system not in qualities]
    if len(missing) == len(systems):
        yield _NO_QUALITY
    elif missing:
        yield f"The speed of {', '.join(missing)} is not shown, because {quality} was not measured."


def _choose_speeds(systems: Sequence[System]) -> tuple[str, Mapping[System, Metric]]:
    """Return the first metric of speed that all systems have, or else the first that one has, and its values."""
    by_name = {name: {system: metric for system in systems if (metric := _find_speed(system, name))} for name in SPEEDS}
    name = next((name for name, metrics in by_name.items() if len(metrics) == len(systems)), None)
    name = name or next((name for name, metrics in by_name.items() if metrics), SPEEDS[0])
    return name, by_name[name]


def _find_speed(system: System, name: str) -> Metric | None:
    return system.throughput if name == "throughput" else system.metrics.get(name)


def _orient(metric: Metric) -> float:
    """Return a value that is higher where the metric is better."""
    return -metric.value if metric.direction == "lower" else metric.value


def _find_front(qualities: Mapping[System, Metric], speeds: Mapping[System, Metric]) -> dict[System, str]:
    """Return whether each system is on the Pareto front, for those with both values."""
    systems = [system for system in qualities if system in speeds]
    points = [(_orient(qualities[system]), _orient(speeds[system])) for system in systems]
    return {system: "yes" if is_on else "no" for system, is_on in zip(systems, find_pareto_front(points), strict=True)}


def _chart(board: str, quality: str, name: str, speeds: Mapping[System, Metric]) -> Iterator[Chart]:
    """Yield quality over speed, with the size of the model as the area."""
    unit, factor = next((metric.unit for metric in speeds.values()), ""), 1.0
    if unit == "s":
        unit, factor = pick_time_unit([metric.value for metric in speeds.values()])
    words = "maximum throughput" if name == "throughput" else name.replace("_", " ")
    points = {
        system: (metric.value * factor, _scale(find_ends(metric.ci), factor)) for system, metric in speeds.items()
    }
    yield from chart_quality(f"{board}-quality", quality, f"{words} ({unit})", points, has_area=True)


def _list_cells(metric: Metric | None) -> tuple[Cell, Cell]:
    return (None, None) if metric is None else (metric.value, format_interval(metric))


def _scale(ends: tuple[float, float] | None, factor: float) -> tuple[float, float] | None:
    return None if ends is None else (ends[0] * factor, ends[1] * factor)


def _describe_conditions(pair: LockedRun) -> str:
    lock, run = pair
    host = run.start.host
    cpu = f", {host.get('cores')} of {host['cpu_model']}" if host.get("cpu_model") else ""
    return f"{lock.scenario['name']}, {run.start.isolation} on {run.start.platform_name}{cpu}"
