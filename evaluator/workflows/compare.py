"""Comparison of locks by their runs, existing or interleaved.

What drifts on a host (its clock, its temperature, its other users) drifts for all who take turns alike. The first lock
takes a second turn in every round, as a control: how it differs from itself is the noise of this host on this day.
"""

import math
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import msgspec

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import InvalidInputError, RefusedError
from benchlock.artifacts.json_codec import prepare_decoder
from benchlock.evaluator.records.evidence_status import refuse_unverified
from benchlock.evaluator.records.run_model import Run
from benchlock.evaluator.records.runs_schema import drop_replays
from benchlock.evaluator.records.timing_validity import QUIET_HOST, describe_unusable_times, explain_unusable_times
from benchlock.evaluator.records.verdicts import describe_offered, list_incomparabilities, question_differences
from benchlock.evaluator.statistics.equivalence import (
    ROUND_DRIFT,
    Finding,
    describe_runs_to_decide,
    find_no_common_samples,
    find_no_ratio,
    is_exact,
    judge,
    judge_quality,
    ratio,
    runs_to_decide,
)
from benchlock.evaluator.statistics.metric_model import Metric, format_change
from benchlock.evaluator.statistics.paired_tests import PairedTest, PairedTests, adjust
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests.metric_definitions import is_quality

Pair = Callable[["LockedRun", "LockedRun", int], PairedTests]
"""Compares two runs of the same samples, sample by sample, as one of so many comparisons.

``evaluator.evidence.pairing.PredictionPairs.compare`` does.
"""
Margins = Mapping[str, float]
"""By metric, the relative difference within which two locks count as equivalent; stated before they are run."""
LockedRun = tuple[Lock, Run]

_FEWEST_ROUNDS = 6
_PEAK = "compare latencies, or ask for `peak_qps`"
_NOT_INTERLEAVED = "the runs were not interleaved, so a change of the host between them looks like a difference"


@prepare_decoder
class ComparisonTurn(msgspec.Struct, frozen=True, kw_only=True):
    """What a run's record says of the comparison that it was made for; ``margins`` were stated before its first run."""

    kind: Literal["comparison"] = "comparison"
    id: str
    round: int
    rounds: int
    arm: int
    control: bool
    margins: dict[str, float]


@dataclass(frozen=True, slots=True)
class Arm:
    """Runs of one lock that count together; ``control`` where they are the first lock's second turns."""

    lock: Lock
    runs: tuple[Run, ...]
    control: bool = False

    def values(self, metric: str) -> list[float]:
        """One value a run, in their order; of runs that have none, none."""
        found = (_metrics(run).get(metric) for run in self.runs)
        return [one.value for one in found if one is not None]

    def is_self_reported(self, metric: str) -> bool:
        """Whether code of the model could have made the metric of a run."""
        return any(one.self_reported for run in self.runs for one in (_metrics(run).get(metric),) if one is not None)


@dataclass(frozen=True, slots=True)
class Comparison:
    """``reasons``: why the runs are not comparable. ``findings`` of each further arm, against the first.

    ``replays`` say which runs do not count, since they have the samples of one that was recorded before.
    """

    arms: tuple[Arm, ...]
    interleaved: bool
    reasons: tuple[str, ...]
    findings: tuple[tuple[Arm, tuple[Finding, ...]], ...]
    replays: tuple[str, ...] = ()


def check_question(locks: Sequence[Lock], margins: Margins) -> None:
    """Nothing, where runs of ``locks`` will be comparable on one host, and ``margins`` are of metrics that all have.

    Raises:
        InvalidInputError: there is one lock alone, or a margin of something else.
        RefusedError: the locks ask different questions; it says which.
    """
    if len(locks) < 2:  # noqa: PLR2004 - two make a pair
        raise InvalidInputError("one lock alone cannot be compared", next_step="name two locks or more")
    for name in margins:
        if any(name not in lock.metrics for lock in locks):
            raise InvalidInputError(
                f"not every lock asks for {name}", where=name, next_step="state margins of metrics that all locks have"
            )
    reasons = [f"{other.id}: {reason}" for other in locks[1:] for reason in question_differences(locks[0], other)]
    if reasons:
        raise RefusedError(
            f"runs of these locks would not be comparable with those of {locks[0].id}: {'; '.join(reasons)}",
            next_step="lock requests that ask the same of the same dataset, with the same harness",
        )


def shared_margins(locks: Sequence[Lock]) -> Margins:
    """What every lock states as ``equivalence``, and all alike."""
    stated = [{str(name): float(share) for name, share in one.request.get("equivalence", {}).items()} for one in locks]
    return {name: share for name, share in stated[0].items() if all(one.get(name) == share for one in stated)}


def balanced_orders(arms: int) -> tuple[tuple[int, ...], ...]:
    """Return orders of so many arms in which each arm takes each place, and follows each other arm, equally often.

    What a run leaves behind (a warm cache, a hot processor) then weighs on no arm more than on another (Williams,
    Aust. J. Chem. 2, 1949). An odd number of arms needs the mirrored orders too. In this sequence
    neighbouring rounds have less of a host's drift in common than in others.
    """
    zigzag = [place // 2 if place % 2 == 0 else arms - (place + 1) // 2 for place in range(arms)]
    plain = [tuple((arm - shift) % arms for arm in zigzag) for shift in range(arms)]
    return tuple(plain if arms % 2 == 0 else [*plain, *(order[::-1] for order in plain)])


def default_rounds(locks: int) -> int:
    """Return the least number of rounds, of six or more, in which every order comes equally often."""
    orders = len(balanced_orders(locks + 1))
    return orders * math.ceil(_FEWEST_ROUNDS / orders)


def interleave(
    locks: Sequence[Lock],
    once: Callable[[Lock, Mapping[str, Any]], Run],
    rounds: int,
    margins: Margins,
    pair: Pair | None = None,
) -> Comparison:
    """Run every lock once a round, and the first one once more, by :func:`balanced_orders`. Ends at a run not done.

    Args:
        locks: The locks, the reference first.
        once: Runs a lock. It is handed what the run's record should say of the comparison, ``margins`` among it.
        rounds: How many rounds.
        margins: What counts as equivalent, by metric.
        pair: As :func:`compare_runs` takes it.
    """
    identity, pairs = secrets.token_hex(8), list[LockedRun]()
    arms = [*((arm, False) for arm in range(len(locks))), (0, True)]
    orders = balanced_orders(len(arms))
    for number in range(1, rounds + 1):
        for place in orders[(number - 1) % len(orders)]:
            arm, control = arms[place]
            turn = ComparisonTurn(
                id=identity, round=number, rounds=rounds, arm=arm, control=control, margins=dict(margins)
            )
            run = once(locks[arm], msgspec.to_builtins(turn))
            pairs.append((locks[arm], run))
            if run.end is None or run.end.outcome != "done":
                return compare_runs(pairs, pair)
    return compare_runs(pairs, pair)


def compare_runs(pairs: Sequence[LockedRun], pair: Pair | None = None) -> Comparison:
    """Compare runs that exist, each with its lock: those of one lock together, the lock named first with each other.

    Of one lock alone the first run is compared with each other.

    Runs of one interleaved comparison are held against their neighbours of the same round, with the margins that were
    stated before it. Else the margins are those that all the locks state (``equivalence`` of their requests).

    A run that is given several times counts once, and of runs with the same samples the first recorded.

    Args:
        pairs: The runs, each with its lock.
        pair: Compares two runs sample by sample; without it quality is decided by intervals.

    Raises:
        IntegrityError: a record contradicts its evidence.
        InvalidInputError: There is one run alone, or all of them are one measurement.
    """
    pairs = list({run.id: (lock, run) for lock, run in pairs}.values())
    if len(pairs) < 2:  # noqa: PLR2004 - two make a pair
        raise InvalidInputError("one run alone cannot be compared", next_step="name two runs or more")
    for _, run in pairs:
        refuse_unverified(run.id, run.evidence)
    kept, replays = drop_replays(run for _, run in pairs)
    if replays and len(kept) == 1:
        raise InvalidInputError(
            f"one measurement alone cannot be compared: {'; '.join(replays)}", next_step="name runs that measured"
        )
    counted = [(lock, run) for lock, run in pairs if run in kept]
    return replace(_compare_distinct(counted, pair), replays=replays)


def _compare_distinct(pairs: Sequence[LockedRun], pair: Pair | None) -> Comparison:
    turns = _turns(pairs)
    if turns is None:
        locks = list({lock.id: lock for lock, _ in pairs}.values())
        arms = [Arm(lock, tuple(run for other, run in pairs if other.id == lock.id)) for lock in locks]
        if len(arms) == 1:
            arms = [Arm(lock, (run,)) for lock, run in pairs]
        return _compared(arms, shared_margins(locks), pair, interleaved=False)
    places: dict[tuple[bool, int], list[LockedRun]] = {}
    for turn, locked_run in sorted(zip(turns, pairs, strict=True), key=lambda one: one[0].round):
        places.setdefault((turn.control, turn.arm), []).append(locked_run)
    arms = [Arm(found[0][0], tuple(run for _, run in found), control) for (control, _), found in sorted(places.items())]
    return _compared(arms, turns[0].margins, pair, interleaved=True)


def _turns(pairs: Sequence[LockedRun]) -> list[ComparisonTurn] | None:
    """Return the turns of the runs; None unless they are all turns of one comparison.

    A record states its own turn, so the turns must be consistent: the same margins in all of them, one lock per arm,
    the first arm's lock as the control, one run per arm and round, and the same rounds in every arm.
    """
    found = [turn for turn in (_turn(run) for _, run in pairs) if turn is not None]
    if len(found) < len(pairs) or any((turn.id, turn.margins) != (found[0].id, found[0].margins) for turn in found):
        return None
    rounds: dict[tuple[bool, int], list[int]] = {}
    locks: dict[int, set[Digest]] = {}
    for turn, (lock, _) in zip(found, pairs, strict=True):
        rounds.setdefault((turn.control, turn.arm), []).append(turn.round)
        locks.setdefault(turn.arm, set()).add(lock.id)
    alike = {tuple(sorted(numbers)) for numbers in rounds.values()}
    is_complete = len(alike) == 1 and (False, 0) in rounds and len(rounds) > 1
    is_unique = all(len(set(numbers)) == len(numbers) for numbers in alike)
    has_one_lock_each = all(len(ids) == 1 for ids in locks.values())
    has_own_control = all(arm == 0 for control, arm in rounds if control)
    return found if is_complete and is_unique and has_one_lock_each and has_own_control else None


def _turn(run: Run) -> ComparisonTurn | None:
    """What an ended run's record says of its comparison; None where it says nothing that can be understood."""
    try:
        return None if run.end is None else msgspec.convert(run.end.details.get("part_of"), ComparisonTurn)
    except msgspec.ValidationError:
        return None


def _compared(arms: Sequence[Arm], margins: Margins, pair: Pair | None, *, interleaved: bool) -> Comparison:
    first = arms[0]
    reference = (first.lock, first.runs[0])
    others = [(arm.lock, run) for arm in arms for run in arm.runs][1:]
    reasons = [f"{one[1].id}: {reason}" for one in others for reason in list_incomparabilities(reference, one)]
    calm = _calm(arms) if interleaved else arms
    further = [number for number, arm in enumerate(arms) if number and not arm.control]
    tests = _test_pairs(first, [arms[number] for number in further], pair)
    findings = tuple(
        (arms[number], tuple(_findings(calm[0], calm[number], _control(calm), margins, paired, by_turns=interleaved)))
        for number, paired in zip(further, tests, strict=True)
    )
    return Comparison(tuple(arms), interleaved, tuple(reasons), findings)


def _test_pairs(first: Arm, others: Sequence[Arm], pair: Pair | None) -> list[PairedTests]:
    """Compare the first run of each further arm with that of the first one, sample by sample.

    The more locks are compared with the first one, the sooner one of them seems different by chance: ``adjust`` allows
    for it, metric by metric.
    """
    if pair is None:
        return [PairedTests() for _ in others]
    found = [pair((first.lock, first.runs[0]), (arm.lock, arm.runs[0]), len(others)) for arm in others]
    adjusted: list[dict[str, PairedTest]] = [{} for _ in others]
    for name in {name: None for one in found for name in one.tests}:
        places = [place for place, one in enumerate(found) if name in one.tests]
        for place, test in zip(places, adjust([found[place].tests[name] for place in places]), strict=True):
            adjusted[place][name] = test
    return [replace(one, tests=tests) for one, tests in zip(found, adjusted, strict=True)]


def _calm(arms: Sequence[Arm]) -> list[Arm]:
    """Return the arms without the rounds in which times of a run are unusable; with all where none is left."""
    kept = [
        runs for runs in zip(*(arm.runs for arm in arms), strict=True) if not any(map(explain_unusable_times, runs))
    ]
    if not kept:
        return list(arms)
    return [replace(arm, runs=runs) for arm, runs in zip(arms, zip(*kept, strict=True), strict=True)]


def _control(arms: Sequence[Arm]) -> Arm | None:
    return next((arm for arm in arms if arm.control), None)


def _findings(
    first: Arm, other: Arm, control: Arm | None, margins: Margins, tests: PairedTests, *, by_turns: bool
) -> Iterator[Finding]:
    """A finding on each metric that every run of both arms has, in the first arm's order."""
    for name, metric in _metrics(first.runs[0]).items():
        a, b, margin = first.values(name), other.values(name), margins.get(metric.name)
        if len(a) < len(first.runs) or len(b) < len(other.runs):
            continue
        is_reported = first.is_self_reported(name) or other.is_self_reported(name)
        if is_quality(metric.name) and not _share_samples(first.lock, other.lock):
            yield _decided(find_no_common_samples(name, a, b, margin), is_reported=is_reported)
            continue
        if is_exact(name, a) and is_exact(name, b):
            exact = judge_quality(metric, _metrics(other.runs[0])[name], min(len(a), len(b)), margin, tests)
            yield _decided(exact, is_reported=is_reported)
            continue
        second = () if control is None else control.values(name)
        inflation = ROUND_DRIFT if by_turns else 1.0
        found = ratio(a, b, paired=by_turns, again=second, inflation=inflation)
        again = None if control is None else ratio(a, second, paired=by_turns, inflation=inflation)
        if found is None:
            judged = find_no_ratio(name, a, b, margin)
        else:
            judged = judge(name, metric.direction, found, again, margin)
            if not is_quality(metric.name):
                judged = _restrict(judged, first, other)
        yield _decided(judged, is_reported=is_reported)


def _share_samples(*locks: Lock) -> bool:
    return len({(lock.dataset.digest, lock.dataset.split) for lock in locks}) == 1


def _restrict(finding: Finding, first: Arm, other: Arm) -> Finding:
    """Return the finding on a time, undecided where its runs cannot decide it, with the command that would."""
    offered = describe_offered(finding.metric, first.lock.scenario["name"], other.lock.scenario["name"])
    unusable = describe_unusable_times((*first.runs, *other.runs))
    reasons = [reason for reason in (offered, unusable) if reason]
    found = finding.ratio
    assert found.value is not None
    if found.n > 1 and not found.paired:
        reasons += (_NOT_INTERLEAVED, describe_runs_to_decide(found, finding.margin))
    if reasons:
        told = format_change(found.value - 1) if found.n > 1 else finding.reason
        finding = replace(finding, answer="undecided", reason="; ".join((told, *reasons)))
    if finding.answer != "undecided":
        return finding
    if offered or unusable:
        step = _PEAK if offered else QUIET_HOST
    else:
        step = _next_step(finding, is_one_lock=first.lock.id == other.lock.id)
    return replace(finding, reason=f"{finding.reason}; next: {step}")


def _next_step(finding: Finding, *, is_one_lock: bool) -> str:
    """Return what would decide an undecided finding on a time."""
    found, margin, each = finding.ratio, "", default_rounds(2)
    if is_one_lock and not found.paired:
        return "`benchlock rerun LOCK` of a request that states `equivalence`"
    wanted = runs_to_decide(found, finding.margin)
    if wanted is None and found.n > 1:
        return "a wider `--margin`, or a quieter host"
    rounds = each * math.ceil(max(wanted or 1, found.n + 1 if found.paired else 1) / each)
    if finding.margin is not None:
        margin = f" --margin {finding.metric.partition('@')[0]}={finding.margin:g}"
    return f"`benchlock compare --interleave LOCK LOCK --rounds {rounds}{margin}`"


def _decided(finding: Finding, *, is_reported: bool) -> Finding:
    """The finding, undecided where one of the figures is self-reported."""
    if not is_reported:
        return finding
    reason = f"{finding.reason}; self-reported, so it decides nothing"
    return replace(finding, answer="undecided", reason=reason, self_reported=True)


def _metrics(run: Run) -> dict[str, Metric]:
    return {metric.key: metric for metric in (() if run.end is None else run.end.metrics)}
