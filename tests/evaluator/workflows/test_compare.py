"""Locks compared by their runs: by turns with a control, or by runs that exist; and what is refused."""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from msgspec import structs

from benchlock.artifacts.errors import InvalidInputError, RefusedError
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.records.timing_validity import QUIET_HOST, calls_document
from benchlock.evaluator.statistics.confidence_intervals import UNBOUNDED
from benchlock.evaluator.statistics.equivalence import ROUND_DRIFT
from benchlock.evaluator.statistics.metric_types import Calls
from benchlock.evaluator.statistics.paired_tests import PairedTests
from benchlock.evaluator.workflows.compare import (
    Comparison,
    LockedRun,
    balanced_orders,
    check_question,
    compare_runs,
    default_rounds,
    explain_no_interleaving,
    interleave,
    shared_margins,
)
from benchlock.registry.lock.lockfile import Lock
from tests.support.evaluator.recorded import DONE, metric, recorded
from tests.support.resolution.variants import variant


def lock(name: str, **request: Any) -> Lock:  # noqa: ANN401 - keys of a request
    """A lock of the model ``name``; the question is the same but for what is given."""
    asked = {"model": {"name": name, "version": "*"}} | request
    return variant({"model": {"name": name}, "request": asked}).lock


A = lock("digits", equivalence={"latency_p50": 0.1})
B = lock("other", equivalence={"latency_p50": 0.1})
FASTER = lock("faster")
SLOW_SECOND_LOCK = 1.5
DRIFT = (1.00, 1.10, 1.21, 1.05, 1.15, 1.02)
"""What every run of a round is slowed by."""


def timed(lock: Lock, seconds: float, part_of: Mapping[str, Any] | None = None, top1: float = 0.75) -> Run:
    details = {} if part_of is None else {"part_of": dict(part_of)}
    metrics = (metric("top1", top1), metric("latency_p50", seconds))
    return recorded(structs.replace(DONE, metrics=metrics, details=details), lock=lock.id)


class Bench:
    """Runs whose times drift from round to round; the control is off by a tenth of a percent, up and down."""

    def __init__(self) -> None:
        self.order: list[tuple[int, str, bool]] = []
        self.fails_at: int | None = None

    def once(self, lock: Lock, part_of: Mapping[str, Any]) -> Run:
        self.order.append((part_of["round"], lock.model.name, part_of["control"]))
        if len(self.order) == self.fails_at:
            broken = structs.replace(DONE, outcome="failed", failure_class="crash", failure_message="broken")
            return recorded(broken, lock=lock.id)
        seconds = 0.001 * DRIFT[part_of["round"] - 1] * (1.0 if lock.id == A.id else SLOW_SECOND_LOCK)
        if part_of["control"]:
            seconds *= 1.001 if part_of["round"] % 2 else 0.999
        return timed(lock, seconds, part_of)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def finding(found: Comparison, name: str = "latency_p50", arm: int = 0) -> Any:  # noqa: ANN401 - a finding
    return next(one for one in found.findings[arm][1] if one.metric == name)


def test_every_lock_has_a_turn_a_round_the_first_two(bench: Bench) -> None:
    interleave([A, B], bench.once, 6, {})
    turns = {("digits", False), ("other", False), ("digits", True)}
    rounds = [bench.order[first : first + 3] for first in range(0, 18, 3)]
    assert [{number for number, *_ in turn} for turn in rounds] == [{number} for number in range(1, 7)]
    assert all({(name, control) for _, name, control in turn} == turns for turn in rounds)
    assert len({tuple((name, control) for _, name, control in turn) for turn in rounds}) == 6


@pytest.mark.parametrize("arms", [2, 3, 4, 5, 6])
def test_no_arm_always_follows_the_same_other_one(arms: int) -> None:
    """Each takes each place, and follows each other, equally often."""
    orders = balanced_orders(arms)
    places = Counter((place, arm) for order in orders for place, arm in enumerate(order))
    follows = Counter(pair for order in orders for pair in pairwise(order))
    assert (len(places), len(set(places.values()))) == (arms * arms, 1)
    assert (len(follows), len(set(follows.values()))) == (arms * (arms - 1), 1)


@pytest.mark.parametrize("arms", [3, 4, 5, 6])
@pytest.mark.parametrize("correlation", [0.3, 0.5, 0.7, 0.9, 0.99])
def test_rounds_of_a_drifting_host_are_hardly_alike(arms: int, correlation: float) -> None:
    """The variance of the mean over rounds is at most ``ROUND_DRIFT`` times what rounds that are independent tell."""
    orders = balanced_orders(arms)
    rounds, runs = default_rounds(arms - 1), np.arange(default_rounds(arms - 1) * arms)
    contrasts = np.zeros((rounds, rounds, arms))
    for number in range(rounds):
        order = orders[number % len(orders)]
        for arm, part in ((1, 1.0), (0, -0.5), (arms - 1, -0.5)):
            contrasts[number, number, order.index(arm)] += part
    flat = contrasts.reshape(rounds, -1)
    covariance = flat @ correlation ** abs(np.subtract.outer(runs, runs)) @ flat.T
    of_mean = covariance.mean()
    told = (np.trace(covariance) / rounds - of_mean) / (rounds - 1)
    assert of_mean / told <= ROUND_DRIFT


@pytest.mark.parametrize(("locks", "rounds"), [(2, 6), (3, 8), (4, 10)])
def test_so_many_rounds_have_every_order_equally_often(locks: int, rounds: int) -> None:
    assert default_rounds(locks) == rounds


def test_rounds_with_unusable_times_are_left_out(bench: Bench) -> None:
    flagged = {"calls": calls_document(Calls(100, 6, "thread"))}

    def once(lock: Lock, part_of: Mapping[str, Any]) -> Run:
        made = bench.once(lock, part_of)
        if part_of["round"] != 2 or part_of["control"] or lock.id == A.id:
            return made
        assert made.end is not None
        return structs.replace(made, end=structs.replace(made.end, details={**made.end.details, **flagged}))

    assert finding(interleave([A, B], once, 6, {})).ratio.n == 5


def test_runs_with_unusable_times_are_counted_and_not_listed(bench: Bench) -> None:
    flagged = {"calls": calls_document(Calls(100, 6, "thread"))}

    def once(lock: Lock, part_of: Mapping[str, Any]) -> Run:
        made = bench.once(lock, part_of)
        assert made.end is not None
        return structs.replace(made, end=structs.replace(made.end, details={**made.end.details, **flagged}))

    reason = finding(interleave([A, B], once, 6, {})).reason
    assert reason.endswith(f"12 of 12 runs have unusable times; next: {QUIET_HOST}")
    assert "run/" not in reason


def test_interleaving_is_advised_where_it_may_decide_and_else_explained(bench: Bench) -> None:
    flagged = {"calls": calls_document(Calls(100, 6, "thread"))}

    def disturbed(lock: Lock) -> Run:
        return recorded(structs.replace(DONE, metrics=(metric("latency_p50", 0.001),), details=flagged), lock=lock.id)

    def explain(*runs: tuple[Lock, Run]) -> str | None:
        return explain_no_interleaving(compare_runs(runs))

    apart, idle = (A, timed(A, 0.001)), structs.replace(timed(B, 0.002).start, isolation="process", image_id=None)
    assert explain(apart, (B, timed(B, 0.002))) is None
    assert explain(apart, (B, structs.replace(timed(B, 0.002), start=idle))) is None
    traced = lock("other", trace="model")
    text = explain(apart, (traced, timed(traced, 0.001)))
    assert text == "Interleaved runs of these locks would not be comparable: the trace differs"
    nothing = "Interleaved runs of these locks would decide nothing more"
    assert explain((A, disturbed(A)), (B, disturbed(B))) == f"{nothing}; next: {QUIET_HOST}"
    found = interleave([A, B], bench.once, 6, {})
    assert explain_no_interleaving(found) == f"{nothing}: no metric of time is undecided"
    reported = [(arm, tuple(structs.replace(one, self_reported=True) for one in each)) for arm, each in found.findings]
    found = structs.replace(found, findings=tuple(reported))
    assert explain_no_interleaving(found) == f"{nothing}: self-reported metrics decide nothing"


def test_the_rate_of_arrival_is_no_property_of_a_model() -> None:
    scenario = {
        "name": "server", "target_qps": 100, "target_latency": "10ms",
        "min_queries": 100, "min_duration": "1s", "warmup": 3,
    }  # fmt: skip
    locks = [lock(name, scenario=scenario, metrics=["throughput"]) for name in ("digits", "other")]

    def once(lock: Lock, part_of: Mapping[str, Any]) -> Run:
        metrics = (metric("throughput", 100.0),)
        return recorded(structs.replace(DONE, metrics=metrics, details={"part_of": dict(part_of)}), lock=lock.id)

    found = finding(interleave(locks, once, 6, {"throughput": 0.1}), "throughput")
    assert (found.answer, found.margin) == ("undecided", 0.1)
    assert "throughput of `server` is the arrival rate; next: compare latencies" in found.reason


def test_a_drift_that_all_share_is_no_difference(bench: Bench) -> None:
    found = interleave([A, B], bench.once, 6, {"latency_p50": 0.05})
    assert (found.interleaved, found.reasons, len(found.findings)) == (True, (), 1)
    latency = finding(found)
    assert latency.ratio.value == pytest.approx(1.5, rel=1e-3)
    assert latency.ratio.ci.low == pytest.approx(1.5, rel=1e-3)
    assert latency.ratio.ci.high == pytest.approx(1.5, rel=1e-3)
    assert (latency.ratio.paired, latency.ratio.n, latency.margin, latency.answer) == (True, 6, 0.05, "different")
    assert "which is worse" in latency.reason
    assert 0.001 < latency.noise_floor < 0.003
    assert (finding(found, "top1").ratio.value, finding(found, "top1").answer) == (1.0, "undecided")


def test_a_lock_is_equivalent_to_itself(bench: Bench) -> None:
    found = interleave([A, A], bench.once, 4, {"latency_p50": 0.02})
    assert finding(found).answer == "equivalent"


def test_several_locks_are_each_compared_with_the_first(bench: Bench) -> None:
    found = interleave([A, B, FASTER], bench.once, 3, {})
    assert [arm.lock.id for arm, _ in found.findings] == [B.id, FASTER.id]
    assert len(bench.order) == 12


def test_the_runs_tell_the_same_when_they_are_compared_again_in_any_order(bench: Bench) -> None:
    made = interleave([A, B], bench.once, 4, {"latency_p50": 0.05})
    pairs = [(arm.lock, run) for arm in made.arms for run in arm.runs]
    again = compare_runs(pairs[::-1])
    assert [arm.lock.id for arm in again.arms] == [A.id, B.id, A.id]
    assert finding(again) == finding(made)  # the margin too, which the records say was stated beforehand


def test_a_part_of_a_comparison_is_none(bench: Bench) -> None:
    made = interleave([A, B], bench.once, 4, {"latency_p50": 0.05})
    pairs = [(arm.lock, run) for arm in made.arms for run in arm.runs]
    found = compare_runs(pairs[1:])
    assert (found.interleaved, finding(found).ratio.paired, finding(found).control) == (False, False, None)
    assert finding(found).margin == 0.1  # what both locks state


def test_a_first_run_that_fails_is_named_with_its_failure(bench: Bench) -> None:
    bench.fails_at = 1
    with pytest.raises(RefusedError, match="the first run did not complete: broken"):
        interleave([A, B], bench.once, 6, {})
    assert len(bench.order) == 1


@pytest.mark.parametrize("number", [2, 3, 4])
def test_an_early_failure_leaves_runs_that_are_not_comparable(bench: Bench, number: int) -> None:
    bench.fails_at = number
    found = interleave([A, B], bench.once, 6, {})
    assert found.reasons
    assert len(bench.order) == number


def test_a_run_that_fails_ends_the_rounds(bench: Bench) -> None:
    bench.fails_at = 5
    found = interleave([A, B], bench.once, 4, {})
    assert len(bench.order) == 5
    assert not found.interleaved
    assert [reason for reason in found.reasons if reason.endswith("has no result")]


def test_runs_that_did_not_take_turns_are_grouped_by_their_lock() -> None:
    found = compare_runs([(A, timed(A, 0.0010)), (B, timed(B, 0.0015)), (A, timed(A, 0.0011)), (B, timed(B, 0.0016))])
    assert [len(arm.runs) for arm in found.arms] == [2, 2]
    latency = finding(found)
    assert (latency.ratio.paired, latency.ratio.n, latency.margin) == (False, 2, 0.1)
    assert latency.ratio.ci.low is not None
    assert latency.answer == "undecided"
    assert "not interleaved" in latency.reason
    assert re.search(r"about \d+ runs per side would decide", latency.reason)
    assert re.search(r"interleave \d+ rounds of both locks with the margin latency_p50=0.1", latency.reason)


def test_a_margin_is_of_a_metric_in_every_batch() -> None:
    def swept(lock: Lock, rate: float, part_of: Mapping[str, Any]) -> Run:
        rates = tuple(structs.replace(metric("throughput", rate * n), batch=n) for n in (1, 8))
        return recorded(structs.replace(DONE, metrics=rates, details={"part_of": dict(part_of)}), lock=lock.id)

    rates = {A.id: 100.0, B.id: 60.0}
    found = interleave([A, B], lambda lock, part_of: swept(lock, rates[lock.id], part_of), 3, {"throughput": 0.05})
    judged = {one.metric: (one.margin, one.answer) for one in found.findings[0][1]}
    assert judged == {"throughput@1": (0.05, "different"), "throughput@8": (0.05, "different")}


def test_one_run_each_tells_no_difference() -> None:
    found = compare_runs([(A, timed(A, 0.001)), (B, timed(B, 0.002))])
    assert (finding(found).answer, finding(found).ratio.ci.low) == ("undecided", None)
    assert "next: interleave 6 rounds of both locks with the margin" in finding(found).reason
    again = compare_runs([(A, timed(A, 0.001)), (A, timed(A, 0.002))])
    assert finding(again).reason.endswith("next: rerun the lock, for a request with `equivalence`")


@pytest.mark.parametrize(
    ("margins", "reason"),
    [
        (
            {"latency_p50": 0.05},
            r"about 16 runs .*next: interleave 18 rounds of both locks with the margin latency_p50=0.05$",
        ),
        ({}, r"even 1000 runs per side would not decide.*next: a wider margin, or a quieter host$"),
    ],
)
def test_an_undecided_comparison_names_how_many_rounds_decide(margins: Mapping[str, float], reason: str) -> None:
    """The second lock is 10 % slower and faster by turns."""

    def once(lock: Lock, part_of: Mapping[str, Any]) -> Run:
        sign = 0 if lock is A else (-1) ** part_of["round"]
        return timed(lock, 0.001 * 1.1**sign, part_of)

    found = finding(interleave([A, B], once, 6, margins))
    assert found.answer == "undecided"
    assert re.search(reason, found.reason)


def test_quality_that_varies_and_is_zero_once_has_a_difference() -> None:
    values = [(A, 0.0), (A, 0.02), (B, 0.05), (B, 0.05)]
    found = finding(compare_runs([(lock, timed(lock, 0.001, top1=top1)) for lock, top1 in values]), "top1")
    assert (found.answer, found.ratio.value, found.ratio.n) == ("undecided", None, 2)
    assert "+0.04 between the medians" in found.reason


def test_pairs_are_told_all_comparisons_at_once() -> None:
    told = []

    def pair(first: LockedRun, others: Sequence[LockedRun]) -> list[PairedTests]:
        told.append((first[0].id, [lock.id for lock, _ in others]))
        return [PairedTests() for _ in others]

    compare_runs([(lock, timed(lock, 0.001, top1=0.5)) for lock in (A, B, FASTER)], pair)
    assert told == [(A.id, [B.id, FASTER.id])]


@pytest.mark.parametrize("case", [{"dataset": {"version": "1.1.0"}}, {"lock": {"dataset.split": "bare"}}])
@pytest.mark.parametrize("second", [(0.5, 0.5), (0.75, 0.75), (0.5, 0.6)])
def test_quality_on_other_samples_is_never_decided(case: dict[str, Any], second: tuple[float, ...]) -> None:
    """Whatever the values are, also where they vary from run to run."""
    other = variant(case).lock
    runs = [(A, 0.75), (A, 0.75), *((other, top1) for top1 in second)]
    found = compare_runs([(lock, timed(lock, 0.001, top1=top1)) for lock, top1 in runs])
    judged = finding(found, "top1")
    assert any(reason.endswith("the dataset differs") for reason in found.reasons)
    assert (judged.answer, judged.ratio.ci) == ("undecided", UNBOUNDED)
    assert judged.reason == "the runs have different datasets, versions or splits: no common samples"


def test_runs_of_one_lock_are_compared_one_by_one() -> None:
    found = compare_runs([(A, timed(A, 0.001)), (A, timed(A, 0.002)), (A, timed(A, 0.003))])
    assert [len(arm.runs) for arm in found.arms] == [1, 1, 1]
    assert [findings[-1].ratio.value for _, findings in found.findings] == [pytest.approx(2.0), pytest.approx(3.0)]


def test_quality_that_varies_from_run_to_run_is_judged_as_times_are() -> None:
    values = [(A, 0.75), (A, 0.76), (B, 0.75), (B, 0.74)]
    found = compare_runs([(lock, timed(lock, 0.001, top1=top1)) for lock, top1 in values])
    assert finding(found, "top1").ratio.ci.low < 1 < finding(found, "top1").ratio.ci.high


def test_a_metric_of_one_lock_alone_is_not_compared() -> None:
    bare = recorded(structs.replace(DONE, metrics=(metric("latency_p50", 0.001),)), lock=B.id)
    found = compare_runs([(A, timed(A, 0.001)), (B, bare)])
    assert [one.metric for one in found.findings[0][1]] == ["latency_p50"]


@pytest.mark.parametrize(
    "part_of",
    [{"kind": "repetition", "number": 1, "most": 3, "until": {}}, "much", {"kind": "comparison"}, None],
)
def test_a_record_that_says_nothing_of_a_comparison_is_of_none(part_of: Any) -> None:  # noqa: ANN401 - whatever it says
    run = recorded(structs.replace(DONE, details={"part_of": part_of}), lock=A.id)
    assert not compare_runs([(A, run), (B, timed(B, 0.001))]).interleaved


def turn(arm: int, number: int, *, control: bool = False, margin: float = 0.05) -> dict[str, Any]:
    margins = {"latency_p50": margin}
    return {"kind": "comparison", "id": "x", "round": number, "rounds": 2, "arm": arm} | {
        "control": control,
        "margins": margins,
    }


TURNS = [
    (A, turn(0, 1)), (B, turn(1, 1)), (A, turn(0, 1, control=True)),
    (A, turn(0, 2)), (B, turn(1, 2)), (A, turn(0, 2, control=True)),
]  # fmt: skip


@pytest.mark.parametrize(
    ("number", "forged", "is_interleaved"),
    [
        (0, (A, turn(0, 1)), True),
        (3, (B, turn(0, 2)), False),
        (5, (B, turn(0, 2, control=True)), False),
        (3, (A, turn(0, 1)), False),
        (4, (B, turn(1, 2, margin=100.0)), False),
    ],
    ids=["honest", "another lock in an arm", "another lock as control", "a round twice", "another margin"],
)
def test_turns_that_contradict_each_other_are_no_comparison(
    number: int, forged: tuple[Lock, dict[str, Any]], *, is_interleaved: bool
) -> None:
    """A record states its own turn: figures of one lock must not count as those of another."""
    turns = [*TURNS[:number], forged, *TURNS[number + 1 :]]
    found = compare_runs([(lock, timed(lock, 0.001, part_of)) for lock, part_of in turns])
    assert found.interleaved == is_interleaved
    assert all(run.start.lock == arm.lock.id for arm in found.arms for run in arm.runs)


def test_runs_of_another_host_are_not_comparable() -> None:
    found = compare_runs([(A, timed(A, 0.001)), (B, recorded(lock=B.id, kernel="Linux 7"))])
    (reason,) = found.reasons
    assert reason.endswith("the host's kernel differs: Linux 6.1, Linux 7")


@pytest.mark.parametrize(
    ("locks", "margins", "error", "reason"),
    [
        ([A], {}, InvalidInputError, "at least two locks"),
        ([A, B], {"miou": 0.1}, InvalidInputError, "not every lock measures miou"),
        ([A, lock("digits", limits={"time": "9m", "memory": "2GiB", "cpus": 2, "processes": 256})], {},
         RefusedError, "the limits differ"),
        ([A, variant({"harness": "another"}).lock], {}, RefusedError, "the harness differs"),
    ],
)  # fmt: skip
def test_other_questions_are_refused_before_anything_runs(
    locks: list[Lock], margins: dict[str, float], error: type[Exception], reason: str
) -> None:
    with pytest.raises(error, match=reason):
        check_question(locks, margins)


def test_equal_questions_are_not_refused() -> None:
    check_question([A, B, FASTER], {"latency_p50": 0.05})


def test_margins_are_what_all_locks_state_alike() -> None:
    assert shared_margins([A, B]) == {"latency_p50": 0.1}
    assert shared_margins([A, FASTER]) == {}
    assert shared_margins([A, lock("digits", equivalence={"latency_p50": 0.2})]) == {}
