"""Leaderboards: one board for each group of mutually comparable runs, with quality beside speed."""

from bisect import bisect_right
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import asdict

from benchlock.artifacts.blob_store import FileStore
from benchlock.artifacts.json_codec import encode_canonical
from benchlock.artifacts.size_limits import shorten
from benchlock.artifacts.user_output import format_count
from benchlock.evaluator.analysis.tables import Cell, Column, Table
from benchlock.evaluator.charts.axes import pick_time_unit
from benchlock.evaluator.charts.svg import Chart
from benchlock.evaluator.records.replayed_runs import SAMPLES
from benchlock.evaluator.records.run_comparison import SAME_HOST, SAME_PLATFORM, list_incomparabilities
from benchlock.evaluator.records.run_groups import RunGroup
from benchlock.evaluator.records.run_texts import format_interval
from benchlock.evaluator.records.run_types import Run, RunId
from benchlock.evaluator.report.run_sections import (
    chart_quality,
    choose_quality,
    describe_batches,
    find_ends,
    list_names,
    scale_ends,
)
from benchlock.evaluator.report.sections import Section
from benchlock.evaluator.report.systems import System, group_systems
from benchlock.evaluator.statistics.metric_types import Metric
from benchlock.evaluator.workflows.compare import LockedRun
from benchlock.evaluator.workflows.rerun import find_rerun_part
from benchlock.registry.lock.lockfile import Lock

SPEEDS: Final = ("throughput", "peak_qps", "latency_p90", "latency_p50", "cold_start")
"""The metrics of speed by which a board ranks, the first that all its systems have."""
_MEGABYTE: Final = 1e6
_RANKS: Final = (
    "Equal ranks: the 95 % intervals overlap. A rank is 1 + the number of systems that are better for certain."
)
SINGLE_RUNS: Final = (
    "The interval of a single run leaves out the drift of its host; an interleaved comparison covers it."
)
_ALWAYS_NAMED: Final = ("name", "isolation", "os", "arch", "device", "cores", "cpu model")
_NAMED: Final = 6
"""The maximum number of differences in the heading of a board."""
_LONGEST_FACT: Final = 60
NO_QUALITY: Final = "These runs measure no quality, so the board cannot say whether a fast system is also right."


@dataclass(frozen=True, slots=True)
class Board:
    """A board.

    Attributes:
        conditions: The scenario, the isolation and the host of its runs, and what else differs from other boards.
        lock: The lock of its first run, whose settings are those of the board.
        reasons: Why its runs are not comparable with those of the first board; empty for the first.
        differences: The values in which its conditions differ from those of the first board, in words.
        systems: Its systems, the best first.
        table: Its rows.
        charts: Quality over speed; empty if no system has both.
        batches: Throughput and speed-up by batch size; None if its runs have one size.
    """

    conditions: str
    lock: Lock
    reasons: tuple[str, ...]
    systems: tuple[System, ...]
    table: Table
    charts: tuple[Chart, ...]
    batches: Section | None = None
    differences: tuple[str, ...] = ()


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
    """Return 1 + the number of metrics whose whole interval is better, for each metric; overlapping intervals tie.

    An unknown end of an interval is never beyond another. All metrics have the same direction.
    """
    ends = [_orient_ends(metric) for metric in metrics]
    worst_ends = sorted(worst for worst, _ in ends if worst is not None)
    return tuple(1 if best is None else 1 + len(worst_ends) - bisect_right(worst_ends, best) for _, best in ends)


def _orient_ends(metric: Metric) -> tuple[float | None, float | None]:
    """Return the worst and the best end of an interval as values that are higher where the metric is better."""
    low, high = metric.ci.low, metric.ci.high
    if metric.direction == "lower":
        return None if high is None else -high, None if low is None else -low
    return low, high


def make_boards(
    pairs: Sequence[LockedRun], store: FileStore, groups: Mapping[RunId, RunGroup] | None = None
) -> tuple[Board, ...]:
    """Make the boards of verified runs on one dataset; runs of one system count together.

    Args:
        pairs: The runs with their locks, in the order of preference.
        store: The store of the samples.
        groups: The group that each run is of, to count runs that are not in ``pairs``.
    """
    comparable = group_comparable(pairs)
    conditions = _describe_conditions([of[0] for of in comparable])
    boards = [
        _make_board(
            f"board-{number}",
            words,
            of,
            list_incomparabilities(comparable[0][0], of[0]) if number > 1 else (),
            store,
            groups or {},
        )
        for number, (words, of) in enumerate(zip(conditions, comparable, strict=True), 1)
    ]
    return tuple(
        replace(board, differences=_name_differences(comparable[0][0], of[0]))
        for board, of in zip(boards, comparable, strict=True)
    )


def _make_board(
    name: str,
    conditions: str,
    pairs: Sequence[LockedRun],
    reasons: tuple[str, ...],
    store: FileStore,
    groups: Mapping[RunId, RunGroup],
) -> Board:
    systems, replays = group_systems(pairs, store)
    quality = choose_quality(systems)
    qualities = {system: metric for system in systems if (metric := system.metrics.get(quality)) is not None}
    speed, speeds = _choose_speeds([*qualities] or systems)
    ranks = [dict(zip(of, rank_metrics([*of.values()]), strict=True)) for of in (qualities, speeds)]
    ordered = sorted(systems, key=lambda system: [rank.get(system, len(systems) + 1) for rank in ranks])
    front = _find_front(qualities, speeds)
    columns = (
        Column("system", None, "Model, and what distinguishes systems of one model."),
        Column("quality_rank", None, "Rank by quality; ties where intervals overlap."),
        Column(quality, None, "Quality metric, the first that all systems have."),
        Column(f"{quality} interval", None, "At 95 %."),
        Column("speed_rank", None, "Rank by speed; ties where intervals overlap."),
        Column(speed, next((metric.unit for metric in speeds.values()), None), "Metric of speed."),
        Column(f"{speed} interval", None, "At 95 %."),
        Column("pareto_front", None, "Whether no other system is at least as good in both values, and better in one."),
        Column("runs", None, "Runs that count together in these values."),
        Column("recorded", None, "All done runs of the locks of these runs, in the same conditions."),
        Column("reruns", None, "The runs among those in these values that are reruns; their pages have the verdicts."),
        Column("run", None, "The first of these runs."),
        Column("samples", None, "The raw samples of that run."),
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
            _count_recorded(system, groups),
            sum(find_rerun_part(run) is not None for run in system.runs),
            system.runs[0].id,
            _find_samples(system.runs[0]),
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
    table = Table(name, name.replace("board-", "Board "), columns, tuple(rows), {}, notes)
    charts = tuple(_chart(name, quality, speed, speeds, list_names(ordered)))
    batches = describe_batches(ordered, f"{name}-")
    return Board(conditions, pairs[0][0], reasons, tuple(ordered), table, charts, batches)


def _count_recorded(system: System, groups: Mapping[RunId, RunGroup]) -> int:
    """Return the number of runs in the groups of the runs of a system; a run without a group is one of its own."""
    own = {groups[run.id] for run in system.runs if run.id in groups}
    return sum(group.runs for group in own) + sum(run.id not in groups for run in system.runs)


def _find_samples(run: Run) -> str | None:
    blob = None if run.end is None else run.end.blobs.get(SAMPLES)
    return None if blob is None else blob.digest


def _list_missing(systems: Sequence[System], quality: str, qualities: Container[System]) -> Iterator[str]:
    """Yield which systems have no quality; if only some have none, their speed is not shown."""
    missing = [system.name for system in systems if system not in qualities]
    if len(missing) == len(systems):
        yield NO_QUALITY
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


def _chart(
    board: str, quality: str, name: str, speeds: Mapping[System, Metric], order: Sequence[str]
) -> Iterator[Chart]:
    """Yield quality over speed, with the size of the model as the area.

    Args:
        board: The name of the board.
        quality: The metric of quality.
        name: The metric of speed.
        speeds: Its values.
        order: The names of the systems of the board.
    """
    unit, factor = next((metric.unit for metric in speeds.values()), ""), 1.0
    if unit == "s":
        unit, factor = pick_time_unit([metric.value for metric in speeds.values()])
    words = "maximum throughput" if name == "throughput" else name.replace("_", " ")
    points = {
        system: (metric.value * factor, scale_ends(find_ends(metric.ci), factor)) for system, metric in speeds.items()
    }
    yield from chart_quality(f"{board}-quality", quality, f"{words} ({unit})", points, has_area=True, order=order)


def _list_cells(metric: Metric | None) -> tuple[Cell, Cell]:
    return (None, None) if metric is None else (metric.value, format_interval(metric))


def _name_differences(first: LockedRun, other: LockedRun) -> tuple[str, ...]:
    """Return the conditions in which two runs differ, each with the other run's value and the first one's."""
    before, after = (dict(_list_facts(pair)) for pair in (first, other))
    names = [name for name in after if after[name] != before.get(name, after[name])]
    words = {"name": "scenario"}
    listed = tuple(f"{words.get(name, name)} {after[name]}, not {before[name]}" for name in names[:_NAMED])
    rest = len(names) - _NAMED
    return (*listed, format_count(rest, "more difference")) if rest > 0 else listed


def _describe_conditions(pairs: Sequence[LockedRun]) -> list[str]:
    """Return the conditions of boards, given a run of each; those that differ are named, so that no two are alike."""
    facts = [dict(_list_facts(pair)) for pair in pairs]
    names = dict.fromkeys(name for of in facts for name in of)
    differing = [name for name in names if len({of[name] for of in facts if name in of}) > 1]
    return [_describe_pair(pair, of, differing) for pair, of in zip(pairs, facts, strict=True)]


def _describe_pair(pair: LockedRun, facts: Mapping[str, str], differing: Sequence[str]) -> str:
    lock, run = pair
    host = run.start.host
    cpu = f", {host.get('cores')} of {host['cpu_model']}" if host.get("cpu_model") else ""
    words = f"{lock.scenario['name']}, {run.start.isolation} on {run.start.platform_name}{cpu}"
    named = [f"{name} {facts[name]}" for name in differing if name in facts and name not in _ALWAYS_NAMED]
    rest = f"and {format_count(len(named) - _NAMED, 'more difference')}" if len(named) > _NAMED else ""
    return "; ".join(filter(None, (words, *named[:_NAMED], rest)))


def _list_facts(pair: LockedRun) -> Iterator[tuple[str, str]]:
    """Yield the name and the value of each condition that runs of one board have in common."""
    lock, run = pair
    yield "dataset", f"{'' if lock.dataset is UNSET else lock.dataset.name} {lock.inputs[1]}".strip()
    parts: Mapping[str, Mapping[str, Any]] = {
        "": lock.scenario,
        "limit of ": asdict(lock.limits),
        "definition of ": lock.metrics,
    }
    for prefix, part in parts.items():
        for name, value in part.items():
            if value is not UNSET and name != "seeds":
                yield f"{prefix}{name}", _shorten(value)
    yield "trace", str(lock.request.get("trace", "none"))
    yield "price", _shorten(lock.request.get("price", "none"))
    yield "harness", f"{lock.harness.version} ({lock.harness.digest[:19]}…)"
    for facts, names in ((run.start.platform, SAME_PLATFORM), (run.start.host, SAME_HOST)):
        for name in names:
            yield name.replace("_", " "), _shorten(facts.get(name, "unknown"))


def _shorten(value: object) -> str:
    return shorten(" ".join(map(str, value)) if isinstance(value, list) else str(value), _LONGEST_FACT)
