"""Repeating until figures are known closely enough: when it stops, and what it says where it is not so."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from msgspec import structs

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.workflows.repeat import Repetition, check_wanted, repeat
from tests.support.evaluator.recorded import DONE, metric, recorded
from tests.support.resolution.variants import variant

LOCK = variant({}).lock


def runs_of(*values: float | None) -> tuple[Callable[[Mapping[str, Any]], Run], list[Mapping[str, Any]]]:
    """A lock whose runs take these times, None for a failure; and what each was told of the repetition."""
    told: list[Mapping[str, Any]] = []

    def once(part_of: Mapping[str, Any]) -> Run:
        told.append(part_of)
        value = values[len(told) - 1]
        if value is None:
            return recorded(structs.replace(DONE, outcome="failed", failure_class="load", failure_message="broken"))
        return recorded(structs.replace(DONE, metrics=(metric("top1", 0.75), metric("latency_p50", value))))

    return once, told


def p50(repetition: Repetition) -> Any:  # noqa: ANN401 - a metric over runs
    return next(one for one in repetition.metrics if one.metric.name == "latency_p50")


def test_it_stops_when_the_interval_is_narrow_enough() -> None:
    once, told = runs_of(*[0.0100, 0.0101, 0.0099] * 7)
    found = repeat(once, {"latency_p50": 0.01}, 20)
    assert found.narrow
    assert 6 <= len(found.runs) == len(told) < 20
    assert f"narrow enough after {len(told)} runs" in found.reason
    assert (p50(found).metric.n, p50(found).wanted) == (len(told), 0.01)
    assert 0 < p50(found).width <= 0.01


def test_it_says_that_it_is_not() -> None:
    once, told = runs_of(*[0.010, 0.014] * 4)
    found = repeat(once, {"latency_p50": 0.01}, 8)
    assert (len(told), found.narrow) == (8, False)
    assert found.reason.startswith("not narrow enough after 8 runs: latency_p50 ± ")
    assert found.reason.endswith("1.0% was asked for")


def test_what_is_self_reported_does_not_end_it() -> None:
    """Code that reports equal times each time would choose how often it is measured."""
    once, told = runs_of(*[0.01] * 9)

    def reported(part_of: Mapping[str, Any]) -> Run:
        run = once(part_of)
        assert run.end is not None
        metrics = tuple(structs.replace(one, self_reported=one.name == "latency_p50") for one in run.end.metrics)
        return structs.replace(run, end=structs.replace(run.end, metrics=metrics))

    found = repeat(reported, {"latency_p50": 0.5}, 9)
    assert (len(told), found.narrow) == (9, False)
    assert found.reason == (
        "not narrow enough after 9 runs: latency_p50 ± 0.0% (self-reported, so it decides nothing), 50.0% was asked for"
    )


def test_it_does_not_look_before_the_sixth_run() -> None:
    once, told = runs_of(*[0.01] * 9)
    assert len(repeat(once, {"latency_p50": 0.5}, 9).runs) == 6
    assert len(told) == 6


def test_without_a_width_all_runs_are_made() -> None:
    once, _ = runs_of(*[0.01] * 3)
    found = repeat(once, {}, 3)
    assert (len(found.runs), found.narrow, found.reason) == (3, True, "all 3 runs are made")


def test_a_run_that_fails_ends_it() -> None:
    once, told = runs_of(0.01, 0.01, None, 0.01)
    found = repeat(once, {}, 4)
    assert (len(told), found.narrow) == (3, False)
    assert found.reason == f"{found.runs[-1].id} is not done"
    assert p50(found).metric.n == 2


def test_each_record_says_beforehand_what_was_wanted() -> None:
    once, told = runs_of(*[0.01] * 6)
    repeat(once, {"latency_p50": 0.5}, 7)
    assert told[0] == {"kind": "repetition", "number": 1, "most": 7, "until": {"latency_p50": 0.5}}
    assert [one["number"] for one in told] == [1, 2, 3, 4, 5, 6]


def test_times_are_over_the_runs_and_quality_that_never_varies_is_that_of_each() -> None:
    once, _ = runs_of(0.010, 0.012)
    top1, latency = repeat(once, {"top1": 0.01}, 2).metrics
    assert (top1.metric.n, top1.width, top1.narrow, latency.metric.n) == (1000, 0.0, True, 2)


@pytest.mark.parametrize(
    ("wanted", "most", "reason"), [({"miou": 0.1}, 20, "does not ask for miou"), ({"top1": 0.1}, 5, "too few")]
)
def test_what_cannot_be_decided_is_refused(wanted: dict[str, float], most: int, reason: str) -> None:
    with pytest.raises(InvalidInputError, match=reason):
        check_wanted(LOCK, wanted, most)


def test_what_can_be_decided_is_not() -> None:
    check_wanted(LOCK, {"latency_p50": 0.1}, 6)
    check_wanted(LOCK, {}, 1)
