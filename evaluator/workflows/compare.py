"""Comparison of locks by their runs, existing or interleaved.

Interleaved runs share the drift of a host: its clock frequency, its temperature, its other users. The first lock
runs twice in every round. The second run is a control: its difference from the first is the noise of this host.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from benchlock.artifacts.blob_store import FileStore
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import InvalidInputError, RefusedError
from benchlock.evaluator.records.comparison_types import (
    ArmFinding,
    ArmReport,
    ComparisonReport,
    ComparisonTurn,
    ConvergenceTest,
    new_comparison_id,
    read_turn,
)
from benchlock.evaluator.records.evidence_status import refuse_unverified
from benchlock.evaluator.records.replayed_runs import drop_replays
from benchlock.evaluator.records.run_comparison import describe_offered, list_incomparabilities, question_differences
from benchlock.evaluator.records.run_types import RecordedRuns, Run, RunId
from benchlock.evaluator.records.timing_validity import QUIET_HOST, describe_unusable_times, explain_unusable_times
from benchlock.evaluator.records.training_agreement import TrainedLock, compare_speed, load_training
from benchlock.evaluator.statistics.equivalence import (
    ROUND_DRIFT,
    centre,
    describe_runs_to_decide,
    find_interval_over_runs,
    find_no_common_samples,
    find_no_ratio,
    is_exact,
    judge,
    judge_quality,
    ratio,
    runs_to_decide,
)
from benchlock.evaluator.statistics.metric_types import Finding, Metric, PairedTest, format_change
from benchlock.evaluator.statistics.paired_tests import PairedTests, adjust
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests.metric_definitions import (
    DEFINITIONS,
    DISTRIBUTED,
    NETWORK,
    TRAINING,
    is_automatic,
    is_quality,
)

Pair = Callable[["LockedRun", Sequence["LockedRun"]], list[PairedTests]]
"""A function that compares a run with others of the same samples, sample by sample.

``evaluator.evidence.prediction_scores.PredictionPairs.compare_all`` is one.
"""
Margins = Mapping[str, float]
"""For each metric the relative difference within which two locks are equivalent; stated before they are run."""
LockedRun = tuple[Lock, Run]

_FEWEST_ROUNDS = 6
_PEAK = "compare latencies, or request `peak_qps`"
_TIMELESS = ("epochs", "samples", "B")
"""The units of metrics of the levels above models that do not depend on the host's load."""
_NEXT = "; next: "
_INTERLEAVE = "interleave"
"""The first word of a next step that is more interleaved rounds."""
_NOT_INTERLEAVED = "the runs were not interleaved, so a change of the host between them appears as a difference"


class Arm(msgspec.Struct, frozen=True):
    """The runs of one lock that count together; ``control`` marks the second runs of the first lock."""

    lock: Lock
    runs: tuple[Run, ...]
    control: bool = False

    def values(self, metric: str) -> list[float]:
        """Return the values of a metric in the order of the runs, without runs that lack it."""
        measured = (_metrics(run).get(metric) for run in self.runs)
        return [value.value for value in measured if value is not None]

    def metrics(self) -> tuple[Metric, ...]:
        """Return the metrics of the runs; one that differs between them has its centre and the interval over runs."""
        metrics = []
        for first in _metrics(self.runs[0]).values():
            metric = replace(first, self_reported=self.is_self_reported(first.key))
            values = self.values(metric.key)
            if len(values) > 1 and not is_exact(metric.name, values):
                metric = replace(metric, value=centre(values), ci=find_interval_over_runs(values), n=len(values))
            metrics.append(metric)
        return tuple(metrics)

    def is_self_reported(self, metric: str) -> bool:
        """Return whether code of the model could have forged the metric of a run."""
        return any(value.self_reported for run in self.runs if (value := _metrics(run).get(metric)) is not None)


class Comparison(msgspec.Struct, frozen=True):
    """The result of a comparison.

    Attributes:
        arms: The compared runs, the reference first.
        interleaved: Whether the runs were interleaved.
        reasons: Why the runs are not comparable.
        findings: For each further arm its findings against the first.
        replays: A sentence on each run that does not count because an earlier run has the same samples.
        speeds: For each further arm of trainings whether it needs fewer epochs; see ``compare_speeds``.
    """

    arms: tuple[Arm, ...]
    interleaved: bool
    reasons: tuple[str, ...]
    findings: tuple[tuple[Arm, tuple[Finding, ...]], ...]
    replays: tuple[str, ...] = ()
    speeds: tuple[ConvergenceTest, ...] = ()

    def report(self) -> ComparisonReport:
        """Return the comparison with the ids of its locks and runs in place of them."""
        first = self.arms[0].lock.id
        return ComparisonReport(
            comparable=not self.reasons,
            reasons=self.reasons,
            replays=self.replays,
            interleaved=self.interleaved,
            arms=tuple(map(_report_arm, self.arms)),
            findings=tuple(
                ArmFinding(**msgspec.structs.asdict(finding), lock=arm.lock.id, against=first)
                for arm, findings in self.findings
                for finding in findings
            ),
            speeds=self.speeds,
        )


def _report_arm(arm: Arm) -> ArmReport:
    model, framework = (
        {"name": entry.name, "version": entry.version} for entry in (arm.lock.subject, arm.lock.framework)
    )
    runs = tuple(run.id for run in arm.runs)
    return ArmReport(lock=arm.lock.id, control=arm.control, runs=runs, model=model, framework=framework)


def check_question(locks: Sequence[Lock], margins: Margins) -> None:
    """Raise unless runs of ``locks`` will be comparable, and all locks have the metrics of ``margins``.

    Raises:
        InvalidInputError: There is only one lock, or a margin is of another metric.
        RefusedError: The locks measure different things; the message lists them.
    """
    if len(locks) < 2:  # noqa: PLR2004 - two make a pair
        raise InvalidInputError("a comparison needs at least two locks", next_step="give two or more locks")
    check_margins(locks, margins)
    reasons = [f"{other.id}: {reason}" for other in locks[1:] for reason in question_differences(locks[0], other)]
    if reasons:
        raise RefusedError(
            f"runs of these locks are not comparable with runs of {locks[0].id}: {'; '.join(reasons)}",
            next_step="lock requests with the same dataset, scenario and harness",
        )


def check_margins(locks: Sequence[Lock], margins: Margins) -> None:
    """Raise unless all locks have the metrics of ``margins``.

    Raises:
        InvalidInputError: A margin is of another metric.
    """
    for name in margins:
        if any(name not in lock.metrics for lock in locks):
            raise InvalidInputError(
                f"not every lock measures {name}" if name in DEFINITIONS else f"unknown metric {name!r}",
                where=name,
                next_step=f"state margins for metrics that all locks measure: {', '.join(shared_metrics(locks))}",
            )


def shared_metrics(locks: Sequence[Lock]) -> tuple[str, ...]:
    """Return the metrics that every lock measures, in the order of the first lock."""
    return tuple(name for name in locks[0].metrics if all(name in lock.metrics for lock in locks))


def shared_margins(locks: Sequence[Lock]) -> Margins:
    """Return the margins that every lock states as ``equivalence``, with the same value."""
    stated = [
        {str(name): float(share) for name, share in lock.request.get("equivalence", {}).items()} for lock in locks
    ]
    first = stated[0] if stated else {}
    return {name: share for name, share in first.items() if all(other.get(name) == share for other in stated)}


def balanced_orders(arms: int) -> tuple[tuple[int, ...], ...]:
    """Return orders in which each arm takes each place, and follows each other arm, equally often.

    Carry-over effects of a run (a warm cache, a hot processor) then affect all arms equally (Williams,
    Aust. J. Chem. 2, 1949). An odd number of arms needs the mirrored orders, too. In this sequence
    neighbouring rounds have less of a host's drift in common than in others.
    """
    zigzag = [place // 2 if place % 2 == 0 else arms - (place + 1) // 2 for place in range(arms)]
    plain = [tuple((arm - shift) % arms for arm in zigzag) for shift in range(arms)]
    return tuple(plain if arms % 2 == 0 else [*plain, *(order[::-1] for order in plain)])


def default_rounds(locks: int) -> int:
    """Return the smallest number of rounds, at least six, in which every order comes equally often."""
    orders = len(balanced_orders(locks + 1))
    return orders * math.ceil(_FEWEST_ROUNDS / orders)


def plan_turns(
    locks: Sequence[Lock], identity: str, rounds: int, margins: Margins, *, control: bool = True
) -> Iterator[tuple[Lock, ComparisonTurn]]:
    """Yield the turns of an interleaved comparison in order, each with its lock.

    Args:
        locks: The locks, the reference first.
        identity: The id of the comparison.
        rounds: The number of rounds.
        margins: The relative margins of equivalence by metric.
        control: Whether the first lock runs twice. Without this, the noise of the host is unknown.
    """
    arms = [*((arm, False) for arm in range(len(locks))), *([(0, True)] if control else [])]
    orders = balanced_orders(len(arms))
    for number in range(1, rounds + 1):
        for place in orders[(number - 1) % len(orders)]:
            arm, again = arms[place]
            turn = ComparisonTurn(
                id=identity, round=number, rounds=rounds, arm=arm, control=again, margins=dict(margins)
            )
            yield locks[arm], turn


def interleave(
    locks: Sequence[Lock],
    once: Callable[[Lock, Mapping[str, Any]], Run],
    rounds: int,
    margins: Margins,
    pair: Pair | None = None,
    *,
    control: bool = True,
) -> Comparison:
    """Run every lock once a round, and the first one twice, by ``balanced_orders``.

    The comparison ends at the first run that is not done.

    Args:
        locks: The locks, the reference first.
        once: Runs a lock; its second argument goes into the run's record and contains ``margins``.
        rounds: The number of rounds.
        margins: The relative margins of equivalence by metric.
        pair: As for ``compare_runs``.
        control: As for ``plan_turns``.

    Raises:
        RefusedError: The very first run is not done, so there is nothing to compare.
    """
    pairs = list[LockedRun]()
    for lock, turn in plan_turns(locks, new_comparison_id(), rounds, margins, control=control):
        run = once(lock, msgspec.to_builtins(turn))
        pairs.append((lock, run))
        if run.end is None or run.end.outcome != "done":
            _refuse_single(pairs)
            break
    return compare_runs(pairs, pair)


def _refuse_single(pairs: Sequence[LockedRun]) -> None:
    """Raise if the first run, which is not done, is the only one."""
    if len(pairs) == 1:
        run = pairs[0][1]
        reason = "" if run.end is None else run.end.failure_message or run.end.outcome
        raise RefusedError(
            f"the first run did not complete: {reason}",
            where=run.id,
            next_step="correct what made it fail; run the lock to see whether it completes",
        )


def compare_recorded_runs(
    records: RecordedRuns, read_lock: Callable[[Digest], Lock], ids: Sequence[RunId], pair: Pair | None = None
) -> Comparison:
    """Compare recorded runs.

    Args:
        records: The runs of the registry.
        read_lock: Returns the lock with an id.
        ids: The runs, the reference first.
        pair: As for ``compare_runs``.
    """
    runs = [records.get(id_) for id_ in ids]
    locks = {id_: read_lock(id_) for id_ in dict.fromkeys(run.start.lock for run in runs)}
    return compare_runs([(locks[run.start.lock], run) for run in runs], pair)


def compare_runs(pairs: Sequence[LockedRun], pair: Pair | None = None) -> Comparison:
    """Compare existing runs by their locks, each further lock with the first.

    Runs of a single lock are compared one by one with the first run. A run that is named several times counts once, and
    of runs with the same samples the one recorded first.

    Runs of one interleaved comparison are compared with their neighbours of the same round, with the margins that were
    stated before it. Otherwise the margins are those that all the locks state (``equivalence`` of their requests).

    Args:
        pairs: The runs, each with its lock.
        pair: Compares a run with others sample by sample; without it quality is decided by intervals.

    Raises:
        IntegrityError: A record contradicts its evidence.
        InvalidInputError: There is only one run, or all of them are one measurement.
    """
    pairs = list({run.id: (lock, run) for lock, run in pairs}.values())
    if len(pairs) < 2:  # noqa: PLR2004 - two make a pair
        raise InvalidInputError("a comparison needs at least two runs", next_step="give two or more runs")
    for _, run in pairs:
        refuse_unverified(run.id, run.evidence)
    distinct, replays = drop_replays(run for _, run in pairs)
    if replays and len(distinct) == 1:
        raise InvalidInputError(
            f"these runs are copies of one measurement: {'; '.join(replays)}",
            next_step="give runs that were measured separately",
        )
    counted = [(lock, run) for lock, run in pairs if run in distinct]
    return replace(_compare_distinct(counted, pair), replays=replays)


def compare_speeds(comparison: Comparison, store: FileStore) -> Comparison:
    """Return the comparison with the tests of whether one training is faster, if it compares trainings to a target.

    Args:
        comparison: The comparison of runs.
        store: The store of their samples.

    Raises:
        IntegrityError: Samples do not match their digest.
        InvalidInputError: The samples of a run are missing or malformed.
    """
    arms = [arm for arm in comparison.arms if not arm.control]
    runs = [run for arm in arms for run in arm.runs]
    is_training = all(arm.lock.recipe is not UNSET and arm.lock.target is not UNSET for arm in arms)
    if not is_training or comparison.reasons or any(run.end is None or run.end.outcome != "done" for run in runs):
        return comparison
    first, *others = (TrainedLock(arm.lock.id, tuple(load_training(run, store) for run in arm.runs)) for arm in arms)
    # Code of the recipes' authors ran in the processes that counted.
    speeds = tuple(replace(compare_speed(first, other), self_reported=True) for other in others)
    return replace(comparison, speeds=speeds)


def _compare_distinct(pairs: Sequence[LockedRun], pair: Pair | None) -> Comparison:
    turns = _read_turns(pairs)
    if turns is None:
        locks = list({lock.id: lock for lock, _ in pairs}.values())
        arms = [Arm(lock, tuple(run for other, run in pairs if other.id == lock.id)) for lock in locks]
        if len(arms) == 1:
            arms = [Arm(lock, (run,)) for lock, run in pairs]
        return _compare_arms(arms, shared_margins(locks), pair, interleaved=False)
    places: dict[tuple[bool, int], list[LockedRun]] = {}
    for turn, locked_run in sorted(zip(turns, pairs, strict=True), key=lambda entry: entry[0].round):
        places.setdefault((turn.control, turn.arm), []).append(locked_run)
    arms = [
        Arm(arm_runs[0][0], tuple(run for _, run in arm_runs), control)
        for (control, _), arm_runs in sorted(places.items())
    ]
    return _compare_arms(arms, turns[0].margins, pair, interleaved=True)


def _read_turns(pairs: Sequence[LockedRun]) -> list[ComparisonTurn] | None:
    """Return the turns of the runs; None unless they are all turns of one comparison.

    A record states its own turn, so the turns must be consistent: the same margins in all of them, one lock per arm,
    the first arm's lock as the control, one run per arm and round, and the same rounds in every arm.
    """
    turns = [turn for turn in (read_turn(run) for _, run in pairs) if turn is not None]
    if len(turns) < len(pairs) or any((turn.id, turn.margins) != (turns[0].id, turns[0].margins) for turn in turns):
        return None
    rounds: dict[tuple[bool, int], list[int]] = {}
    locks: dict[int, set[Digest]] = {}
    for turn, (lock, _) in zip(turns, pairs, strict=True):
        rounds.setdefault((turn.control, turn.arm), []).append(turn.round)
        locks.setdefault(turn.arm, set()).add(lock.id)
    alike = {tuple(sorted(numbers)) for numbers in rounds.values()}
    is_complete = len(alike) == 1 and (False, 0) in rounds and len(rounds) > 1
    is_unique = all(len(set(numbers)) == len(numbers) for numbers in alike)
    has_one_lock_each = all(len(ids) == 1 for ids in locks.values())
    has_own_control = all(arm == 0 for control, arm in rounds if control)
    return turns if is_complete and is_unique and has_one_lock_each and has_own_control else None


def _compare_arms(arms: Sequence[Arm], margins: Margins, pair: Pair | None, *, interleaved: bool) -> Comparison:
    first = arms[0]
    reference = (first.lock, first.runs[0])
    others = [(arm.lock, run) for arm in arms for run in arm.runs][1:]
    reasons = [
        f"{pair_of_run[1].id}: {reason}"
        for pair_of_run in others
        for reason in list_incomparabilities(reference, pair_of_run)
    ]
    calm = drop_disturbed_rounds(arms) if interleaved else arms
    further = [number for number, arm in enumerate(arms) if number and not arm.control]
    tests = _test_pairs(first, [arms[number] for number in further], pair)

    def find(chosen: Sequence[Arm], number: int, paired: PairedTests) -> tuple[Finding, ...]:
        control = next((arm for arm in chosen if arm.control), None)
        return tuple(_findings(chosen[0], chosen[number], control, margins, paired, by_turns=interleaved))

    findings = tuple(
        (arms[number], _join_findings(find(calm, number, paired), find(arms, number, paired)))
        for number, paired in zip(further, tests, strict=True)
    )
    return Comparison(tuple(arms), interleaved, tuple(reasons), findings)


def _join_findings(times: Sequence[Finding], quality: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return the findings on times in undisturbed rounds, and those on quality in all rounds.

    Other work on the host affects no quality, and in few rounds a quality that varies could seem exact.
    """
    by_metric = {finding.metric: finding for finding in quality}
    joined = (by_metric.get(found.metric) if is_quality(found.metric) else found for found in times)
    return tuple(found for found in joined if found is not None)


def _test_pairs(first: Arm, others: Sequence[Arm], pair: Pair | None) -> list[PairedTests]:
    """Compare the first run of each further arm with that of the first one, sample by sample.

    The more locks are compared with the first one, the more likely a difference by chance is. ``adjust`` corrects for
    this, metric by metric.
    """
    if pair is None:
        return [PairedTests() for _ in others]
    tests_by_arm = pair((first.lock, first.runs[0]), [(arm.lock, arm.runs[0]) for arm in others])
    adjusted: list[dict[str, PairedTest]] = [{} for _ in others]
    for name in {name: None for tests_of_arm in tests_by_arm for name in tests_of_arm.tests}:
        places = [place for place, tests_of_arm in enumerate(tests_by_arm) if name in tests_of_arm.tests]
        for place, test in zip(places, adjust([tests_by_arm[place].tests[name] for place in places]), strict=True):
            adjusted[place][name] = test
    return [replace(tests_of_arm, tests=tests) for tests_of_arm, tests in zip(tests_by_arm, adjusted, strict=True)]


def drop_disturbed_rounds(arms: Sequence[Arm]) -> list[Arm]:
    """Return the arms without the rounds in which a run has unusable times, or with all if no round is left."""
    rounds = [
        runs for runs in zip(*(arm.runs for arm in arms), strict=True) if not any(map(explain_unusable_times, runs))
    ]
    if not rounds:
        return list(arms)
    return [replace(arm, runs=runs) for arm, runs in zip(arms, zip(*rounds, strict=True), strict=True)]


def _findings(
    first: Arm, other: Arm, control: Arm | None, margins: Margins, tests: PairedTests, *, by_turns: bool
) -> Iterator[Finding]:
    """Yield a finding on each metric that every run of both arms has, in the first arm's order."""
    for name, metric in _metrics(first.runs[0]).items():
        a, b, margin = first.values(name), other.values(name), margins.get(metric.name)
        if len(a) < len(first.runs) or len(b) < len(other.runs):
            continue
        is_reported = first.is_self_reported(name) or other.is_self_reported(name)
        if is_quality(metric.name) and not _share_samples(first.lock, other.lock):
            yield _withhold_self_reported(find_no_common_samples(name, a, b, margin), is_reported=is_reported)
            continue
        if is_exact(name, a) and is_exact(name, b):
            exact = judge_quality(metric, _metrics(other.runs[0])[name], min(len(a), len(b)), margin, tests)
            yield _withhold_self_reported(exact, is_reported=is_reported)
            continue
        second = () if control is None else control.values(name)
        inflation = ROUND_DRIFT if by_turns else 1.0
        estimate = ratio(a, b, paired=by_turns, again=second, inflation=inflation)
        again = None if control is None else ratio(a, second, paired=by_turns, inflation=inflation)
        if estimate is None:
            finding = find_no_ratio(name, a, b, margin)
        else:
            finding = judge(name, metric.direction, estimate, again, margin)
            if not is_quality(metric.name):
                finding = _restrict(finding, first, other)
        yield _withhold_self_reported(finding, is_reported=is_reported)


def _share_samples(*locks: Lock) -> bool:
    return len({lock.inputs for lock in locks}) == 1


def _restrict(finding: Finding, first: Arm, other: Arm) -> Finding:
    """Return the finding on a time, undecided if its runs cannot decide it, with the command that would.

    Of a training, only metrics of time depend on when it ran. More repeats in its request decide more, not more runs.
    """
    is_training = first.lock.target is not UNSET
    definition = DEFINITIONS[finding.metric.partition("@")[0]]
    if definition.scenarios in (TRAINING, DISTRIBUTED, NETWORK) and definition.unit in _TIMELESS:
        return finding
    offered, unusable = find_restrictions(finding.metric, first, other)
    reasons = [reason for reason in (offered, unusable) if reason]
    estimate = finding.ratio
    assert estimate.value is not None
    if estimate.n > 1 and not estimate.paired:
        reasons += (_NOT_INTERLEAVED, describe_runs_to_decide(estimate, finding.margin))
    if reasons:
        change = format_change(estimate.value - 1) if estimate.n > 1 else finding.reason
        finding = replace(finding, answer="undecided", reason="; ".join((change, *reasons)))
    if finding.answer != "undecided":
        return finding
    if is_training:
        step = "state more repeats in the request"
    elif offered or unusable:
        step = _PEAK if offered else QUIET_HOST
    else:
        step = _next_step(finding, is_one_lock=first.lock.id == other.lock.id)
    return replace(finding, reason=f"{finding.reason}{_NEXT}{step}")


def find_restrictions(metric: str, first: Arm, other: Arm) -> tuple[str | None, str | None]:
    """Return why a time is no property of a model, and why the times of the runs are unusable; None if they are."""
    offered = describe_offered(metric, first.lock.scenario["name"], other.lock.scenario["name"])
    return offered, describe_unusable_times((*first.runs, *other.runs))


def _next_step(finding: Finding, *, is_one_lock: bool) -> str:
    """Return the next step that would decide an undecided finding on a time."""
    estimate, margin, each = finding.ratio, "", default_rounds(2)
    if is_one_lock and not estimate.paired:
        return "rerun the lock, for a request with `equivalence`"
    wanted = runs_to_decide(estimate, finding.margin)
    if wanted is None and estimate.n > 1:
        return "a wider margin, or a quieter host"
    rounds = each * math.ceil(max(wanted or 1, estimate.n + 1 if estimate.paired else 1) / each)
    if finding.margin is not None:
        margin = f" with the margin {finding.metric.partition('@')[0]}={finding.margin:g}"
    return f"{_INTERLEAVE} {rounds} rounds of both locks{margin}"


def explain_no_interleaving(comparison: Comparison) -> str | None:
    """Return why interleaved runs of the compared locks would decide nothing more; None if they may.

    Runs on different hosts, or without a result, may be followed by runs that are comparable.
    """
    first, *others = comparison.arms
    if differences := {reason: None for arm in others for reason in question_differences(first.lock, arm.lock)}:
        return f"Interleaved runs of these locks would not be comparable: {'; '.join(differences)}"
    times = [finding for _, findings in comparison.findings for finding in findings if not is_quality(finding.metric)]
    steps = {step.partition(";")[0]: None for finding in times if (step := finding.reason.partition(_NEXT)[2])}
    if comparison.reasons or any(step.startswith(_INTERLEAVE) for step in steps):
        return None
    is_reported = any(finding.self_reported for finding in times)
    why = "self-reported metrics decide nothing" if is_reported else "no metric of time is undecided"
    tail = f"{_NEXT}{'; '.join(steps)}" if steps else f": {why}"
    return f"Interleaved runs of these locks would decide nothing more{tail}"


def _withhold_self_reported(finding: Finding, *, is_reported: bool) -> Finding:
    """Return the finding, undecided if one of the metrics is self-reported."""
    if not is_reported:
        return finding
    reason = f"{finding.reason}; self-reported, so informational"
    return replace(finding, answer="undecided", reason=reason, self_reported=True)


def _metrics(run: Run) -> dict[str, Metric]:
    metrics = () if run.end is None else run.end.metrics
    return {metric.key: metric for metric in metrics if not is_automatic(metric.name)}
