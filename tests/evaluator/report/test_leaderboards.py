"""Boards of leaderboards: who shares one, ranks, the Pareto front, and quality beside speed."""

from datetime import timedelta
from functools import cache
from itertools import combinations, permutations
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from benchlock.api.local.local_registry import LocalRegistry, open_registry
from benchlock.evaluator.records.run_comparison import list_incomparabilities
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.report.leaderboards import find_pareto_front, group_comparable, make_boards, rank_metrics
from benchlock.evaluator.statistics.metric_types import Interval, Metric
from benchlock.evaluator.workflows.compare import LockedRun
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.resolution.resolver_types import ORDER
from tests.support.evaluator.evidence import CURRENT, IDX, make_run
from tests.support.evaluator.recorded import NOON, metric, recorded
from tests.support.resolution.variants import variant

PRICE = {"amount": 0.1, "currency": "USD", "per": "h", "source": "a list", "date": "2026-11-01"}
PATCHES: tuple[dict[str, Any], ...] = (
    {},
    {"model.version": "2.0.0"},
    {"dataset.split": "other"},
    {"limits.cpus": 7},
    {"scenario.warmup": 99},
    {"request.seed": 99},
    {"request.seed": 98, "model.version": "2.0.0"},
    {"request.trace": "model"},
    {"metrics.top1": 99},
    {"metrics.cost_per_million": 1, "request.price": PRICE},
    {"metrics.cost_per_million": 1, "request.price": PRICE | {"amount": 0.2}},
    {"harness.version": "0.0.1", "harness.digest": "sha256:" + "1" * 64},
)
HOSTS: tuple[dict[str, Any], ...] = ({}, {"cores": 64}, {"isolation": "process"}, {"platform": {"arch": "arm64"}})


@cache
def locks() -> tuple[Lock, ...]:
    return tuple(variant({"lock": patch}).lock for patch in PATCHES)


@st.composite
def locked_runs(draw: st.DrawFn) -> LockedRun:
    lock = draw(st.sampled_from(locks()))
    run = recorded(lock=lock.id, **draw(st.sampled_from(HOSTS)))
    if draw(st.integers(0, 9)) == 0:
        assert run.end is not None
        run = replace(run, end=replace(run.end, outcome="failed"))
    return lock, run


@given(st.lists(locked_runs(), max_size=24))
@settings(max_examples=60, deadline=None)
def test_no_group_has_an_incomparable_pair_and_no_run_is_lost(pairs: list[LockedRun]) -> None:
    groups = group_comparable(pairs)
    for group in groups:
        assert not [reason for a, b in combinations(group, 2) for reason in list_incomparabilities(a, b)]
    assert sorted(run.id for group in groups for _, run in group) == sorted(run.id for _, run in pairs)


def test_a_run_does_not_join_through_one_that_is_comparable_with_both() -> None:
    """Price counts only where both have a cost, so comparability is not transitive."""
    pairs = [(lock, recorded(lock=lock.id)) for lock in (locks()[0], locks()[9], locks()[10])]
    assert not list_incomparabilities(pairs[0], pairs[1])
    assert not list_incomparabilities(pairs[0], pairs[2])
    assert list_incomparabilities(pairs[1], pairs[2])
    for order in permutations(pairs):
        assert sorted(map(len, group_comparable(order))) == [1, 2]


POINTS = st.lists(st.tuples(st.integers(0, 5).map(float), st.integers(0, 5).map(float)), max_size=12)


@given(POINTS)
def test_the_pareto_front_is_what_no_point_dominates(points: list[tuple[float, float]]) -> None:
    front = find_pareto_front(points)
    for point, is_on in zip(points, front, strict=True):
        dominating = [
            other
            for other in points
            if other[0] >= point[0] and other[1] >= point[1] and (other[0] > point[0] or other[1] > point[1])
        ]
        assert is_on == (not dominating)
    assert any(front) == bool(points)


def test_the_pareto_front_of_a_golden_case() -> None:
    assert find_pareto_front([(0.9, 10), (0.8, 20), (0.8, 15), (0.7, 20), (0.9, 10)]) == (
        True,
        True,
        False,
        False,
        True,
    )


def within(low: float | None, high: float | None, name: str = "top1") -> Metric:
    return replace(metric(name, 0.5), ci=Interval(low, high))


@pytest.mark.parametrize(
    ("metrics", "ranks"),
    [
        ([within(0.8, 0.9), within(0.6, 0.7), within(0.4, 0.5)], (1, 2, 3)),
        ([within(0.8, 0.9), within(0.6, 0.8), within(0.4, 0.5)], (1, 1, 3)),
        ([within(0.8, 0.9), within(0.6, 0.85), within(0.5, 0.7)], (1, 1, 2)),
        ([within(None, None), within(0.6, 0.7)], (1, 1)),
        ([within(0.8, None), within(0.6, 0.7)], (1, 2)),
        ([within(0.8, 0.9, "latency_p50"), within(0.6, 0.7, "latency_p50")], (2, 1)),
        ([], ()),
    ],
)
def test_ranks_tie_where_intervals_overlap(metrics: list[Metric], ranks: tuple[int, ...]) -> None:
    assert rank_metrics(metrics) == ranks


@pytest.fixture
def registry(tmp_path: Path) -> LocalRegistry:
    return open_registry(str(tmp_path / "registry"), print)


def run_model(registry: LocalRegistry, number: int) -> tuple[Lock, Run]:
    name = f"acme/m{number}"
    request = {"model": {"name": name, "version": "*"}}
    made = variant({"model": {"name": name}, "files": IDX, "lock": CURRENT, "request": request})
    made.publish(registry.catalogue, registry.store, ORDER if number == 0 else ("model",))
    registry.catalogue.put_lock(made.lock)
    return made.lock, make_run(made.lock, registry.store, at=NOON + timedelta(hours=number), slowness=1 + number)


def test_a_board_has_quality_beside_speed_and_a_bubble_for_each_system(registry: LocalRegistry) -> None:
    pairs = [run_model(registry, number) for number in range(2)]
    other = (pairs[0][0], replace(pairs[0][1], start=replace(pairs[1][1].start, host={"cpu_model": "B CPU"})))
    first, second = make_boards([*pairs, other], registry.store)
    assert first.reasons == ()
    assert any("cpu model" in reason for reason in second.reasons)
    assert any(words.startswith("cpu model B CPU, not ") for words in second.differences)
    assert first.differences == ()
    assert first.table.column("system") == ("acme/m0 1.0.0", "acme/m1 1.0.0")
    assert first.table.column("top1") == (0.5, 0.5)
    assert first.table.column("quality_rank") == (1, 1)
    assert first.table.column("pareto_front") == ("yes", "no")
    assert first.table.column("run") == tuple(run.id for _, run in pairs)
    (speed,) = (name for name in ("throughput", "latency_p90") if name in [c.name for c in first.table.columns])
    assert None not in first.table.column(speed)
    (chart,) = first.charts
    assert all(str(name) in chart.svg() for name in first.table.column("system"))
    assert chart.name != second.charts[0].name


def test_a_board_of_sweeps_has_the_speed_up_of_each_model_by_batch_size(registry: LocalRegistry) -> None:
    pairs = []
    for number in range(2):
        lock, run = run_model(registry, number)
        assert run.end is not None
        rates = [
            replace(metric("throughput", value), batch=batch, ci=Interval(value - 1, value + 1))
            for batch, value in ((1, 100.0), (4, 300.0 + number), (8, 304.0 + number))
        ]
        sweep = replace(lock, scenario={**lock.scenario, "name": "batch_sweep"})
        pairs.append((sweep, replace(run, end=replace(run.end, metrics=(*run.end.metrics, *rates)))))
    (board,) = make_boards(pairs, registry.store)
    assert board.batches is not None
    heat_map, throughput = board.batches.charts
    assert heat_map.title == "Speed-up of throughput over batch 1"
    assert all(f">{words}<" in heat_map.svg() for words in ("1.00", "3.00", "3.04", "3.01", "3.05"))
    assert throughput.svg().count('r="9"') == 2
    assert all("use batch 4" in words for words in board.batches.answer)  # doubling gains less than 5 %
    assert board.batches.table is not None
    assert board.batches.table.column("speedup") == (1.0, 3.0, 3.04, 1.0, 3.01, 3.05)
    assert make_boards([run_model(registry, 2)], registry.store)[0].batches is None


def test_a_board_without_quality_says_so(registry: LocalRegistry) -> None:
    lock, run = run_model(registry, 0)
    assert run.end is not None
    metrics = tuple(one for one in run.end.metrics if one.name.startswith("latency"))
    (board,) = make_boards([(lock, replace(run, end=replace(run.end, metrics=metrics)))], registry.store)
    assert board.table.column("quality_rank") == (None,)
    assert board.table.column("speed_rank") == (1,)
    assert board.table.column("pareto_front") == (None,)
    assert board.charts == ()
    assert any("no quality" in note for note in board.table.notes)
