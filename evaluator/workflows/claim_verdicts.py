"""Verdicts on a model's claims: confirmed, refuted or undecided by a run."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from msgspec import UNSET
from msgspec.structs import replace

from benchlock.artifacts.blob_store import BlobStore
from benchlock.evaluator.records.evidence_status import refuse_unverified
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.records.timing_validity import QUIET_HOST, explain_unusable_times
from benchlock.evaluator.runner.lock_verification import read_manifests
from benchlock.evaluator.runner.self_reported_times import list_self_reported
from benchlock.evaluator.statistics.equivalence import FEWEST, is_exact
from benchlock.evaluator.statistics.metric_types import Interval, Metric
from benchlock.registry.lock.lockfile import Lock, LockedDataset, dataset_of
from benchlock.registry.manifests.manifest_types import Claim, Model
from benchlock.registry.manifests.metric_definitions import DEFINITIONS, is_quality
from benchlock.registry.versions.semantic_version import parse_version
from benchlock.registry.versions.version_ranges import Constraint

Answer = Literal["holds", "does not hold", "can't be said yet"]


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """The verdict on a claim.

    Attributes:
        claim: The claim.
        answer: Whether it holds.
        reason: The reason in words.
        measured: The measured metric; None if the run did not measure it.
        possible: Whether a run of that scenario could measure it at all.
    """

    claim: Claim
    answer: Answer
    reason: str
    measured: Metric | None
    possible: bool = True


@dataclass(frozen=True, slots=True)
class Conditions:
    """The conditions of runs that bear on claims.

    Attributes:
        scenario: The scenario; None for any.
        disturbed: Why the times are unreliable; None if they are not.
        runs: The number of runs that the metrics are computed over.
        varying: The metrics of quality on which these runs disagree, each with an interval that covers the sampling
            intervals of all of them.
    """

    scenario: str | None = None
    disturbed: str | None = None
    runs: int = 1
    varying: Mapping[str, Interval] = field(default_factory=dict)


RULE: Final = (
    "A claim about quality holds if the value on its samples is within the tolerance. A claim about time holds if the "
    f"whole 95 % interval over at least {FEWEST} runs is within it and none of the runs is flagged: one run cannot "
    "decide it."
)
"""When claims hold, in words."""
_ANY = Conditions()
_SEARCHED = "peak_qps"
_SELF_REPORTED = "the metric is self-reported: code of the model or of an unreleased harness could have forged it"
_FEW_RUNS = (
    "{} run(s) cannot decide a claim about time, because runs may differ by more than the spread within one; "
    f"at least {FEWEST} runs are needed"
)
_ONE_SEARCH = "a single run has only the bracket of its peak search, not a confidence interval; use several runs"


def claims_of(
    lock: Lock, run: Run, store: BlobStore, metrics: tuple[Metric, ...] | None = None, among: Sequence[Run] = ()
) -> tuple[ClaimVerdict, ...]:
    """Judge the claims of a lock's model for its dataset by a run; empty for a run that is not done.

    Args:
        lock: The lock.
        run: The run.
        store: The store of the manifests.
        metrics: Metrics over several runs, in place of those of ``run``.
        among: The several runs.

    Raises:
        IntegrityError: A manifest is missing or does not match its digest, or a record contradicts its evidence.
    """
    if run.end is None or run.end.outcome != "done":
        return ()
    runs = among or (run,)
    for run_of_group in runs:
        refuse_unverified(run_of_group.id, run_of_group.evidence)
    model = read_manifests(lock, store).get("model")
    if model is None:  # an operator states no claims
        return ()
    assert isinstance(model, Model)
    conditions = Conditions(str(lock.scenario["name"]), _explain_disturbance(runs), len(runs), _find_varying(runs))
    measured = run.end.metrics if metrics is None else metrics
    self_reported = list_self_reported(lock, model, run.start.isolation)
    measured = tuple(
        replace(metric, self_reported=True) if metric.name in self_reported else metric for metric in measured
    )
    return judge_claims(model, dataset_of(lock), measured, conditions)


def _explain_disturbance(runs: Sequence[Run]) -> str | None:
    """Return why the times of these runs are unreliable; None if they are not flagged."""
    flags = [reason for reason in map(explain_unusable_times, runs) if reason]
    if not flags:
        return None
    several = "" if len(runs) == 1 else f"{len(flags)} of {len(runs)} runs have unusable times; "
    return f"{several}{flags[0]}; {QUIET_HOST}"


def _find_varying(runs: Sequence[Run]) -> dict[str, Interval]:
    """Return the metrics of quality on which the runs disagree, each with an interval over all sampling intervals."""
    by_name: dict[str, list[Metric]] = {}
    for run in runs:
        for metric in run.end.metrics if run.end is not None else ():
            if is_quality(metric.name) and metric.batch is None:
                by_name.setdefault(metric.name, []).append(metric)
    return {
        name: _cover([metric.ci for metric in metrics])
        for name, metrics in by_name.items()
        if not is_exact(name, [metric.value for metric in metrics])
    }


def _cover(intervals: Sequence[Interval]) -> Interval:
    bounds = [_bounds(interval) for interval in intervals]
    low, high = min(low for low, _ in bounds), max(high for _, high in bounds)
    return Interval(low if math.isfinite(low) else None, high if math.isfinite(high) else None)


def _bounds(interval: Interval) -> tuple[float, float]:
    return (
        -math.inf if interval.low is None else interval.low,
        math.inf if interval.high is None else interval.high,
    )


def judge_claims(
    model: Model, dataset: LockedDataset, metrics: tuple[Metric, ...], conditions: Conditions = _ANY
) -> tuple[ClaimVerdict, ...]:
    """Judge every claim of ``model`` on the dataset and split of a finished run, in the order of the manifest.

    A claim states a band: its value, plus and minus its tolerance.

    * A quality metric was computed on every sample of the split, so its value there is exact: inside the band the claim
      holds. Outside, a claim about one version of the dataset does not hold, because it is about the same samples and
      has no sampling error. A claim about several versions is undecided while the interval reaches the band, because
      its author may have used other samples of the same kind. If repeated runs disagree, no value is exact, and the
      interval over runs decides, as for a time.
    * A time is decided by the interval over several runs, never by one run: inside the band the claim holds, outside it
      does not. Disturbed runs decide nothing: they show the state of the machine, not the model. The peak of a single
      run decides nothing either: it has the bracket of its search, not an interval.

    Args:
        model: The model with its claims.
        dataset: The dataset and split of the run.
        metrics: The measured metrics.
        conditions: The conditions of the run.
    """
    measured = {metric.name: metric for metric in metrics if metric.batch is None}
    return tuple(_judge_claim(claim, measured.get(claim.metric), conditions) for claim in _find_claims(model, dataset))


def _find_claims(model: Model, dataset: LockedDataset) -> Iterator[Claim]:
    version = parse_version(dataset.version)
    for claim in () if model.claims is UNSET else model.claims:
        about = claim.dataset
        admitted = Constraint.parse(about.version).admits(version, prereleases=True)
        if admitted and (about.name, about.split) == (dataset.name, dataset.split):
            yield claim


def _judge_claim(claim: Claim, measured: Metric | None, conditions: Conditions) -> ClaimVerdict:
    if measured is None:
        return _explain_unmeasured(claim, conditions.scenario)
    if measured.self_reported:
        return ClaimVerdict(claim, "can't be said yet", _SELF_REPORTED, measured)
    if is_quality(claim.metric):
        sampling = conditions.varying.get(claim.metric)
        return _judge_exact(claim, measured) if sampling is None else _judge_varying(claim, measured, sampling)
    return _judge_time(claim, measured, conditions)


def _judge_time(claim: Claim, measured: Metric, conditions: Conditions) -> ClaimVerdict:
    if conditions.disturbed is not None:
        return ClaimVerdict(claim, "can't be said yet", conditions.disturbed, measured)
    if claim.metric == _SEARCHED and conditions.runs == 1:
        return ClaimVerdict(claim, "can't be said yet", _ONE_SEARCH, measured)
    if conditions.runs < FEWEST:
        return ClaimVerdict(claim, "can't be said yet", _FEW_RUNS.format(conditions.runs), measured)
    return _judge_interval(claim, measured)


def _judge_exact(claim: Claim, measured: Metric) -> ClaimVerdict:
    band = _band(claim)
    if _within((measured.value, measured.value), band):
        return ClaimVerdict(claim, "holds", "the value on these samples is within the tolerance", measured)
    if _is_pinned(claim):
        reason = f"the value on these samples is {_side(measured, band)}"
        return ClaimVerdict(claim, "does not hold", reason, measured)
    if _is_beyond(_bounds(measured.ci), band):
        return ClaimVerdict(claim, "does not hold", f"the whole interval is {_side(measured, band)}", measured)
    reason_of_doubt = (
        f"the value is outside the tolerance, but {measured.n} samples are too few to distinguish it from the claim, "
        f"and the claim covers all versions {claim.dataset.version}: state one version for an exact answer"
    )
    return ClaimVerdict(claim, "can't be said yet", reason_of_doubt, measured)


def _judge_varying(claim: Claim, measured: Metric, sampling: Interval) -> ClaimVerdict:
    """Judge a quality metric on which repeated runs disagree; other samples differ by ``sampling`` in addition."""
    verdict = _judge_interval(claim, measured)
    if verdict.answer != "does not hold" or _is_pinned(claim) or _is_beyond(_bounds(sampling), _band(claim)):
        return verdict
    reason = (
        "the interval over runs is outside the tolerance, but the samples are too few to distinguish it from the "
        f"claim, and the claim covers all versions {claim.dataset.version}: state one version for an exact answer"
    )
    return ClaimVerdict(claim, "can't be said yet", reason, measured)


def _judge_interval(claim: Claim, measured: Metric) -> ClaimVerdict:
    band, bounds = _band(claim), _bounds(measured.ci)
    if _within(bounds, band):
        return ClaimVerdict(claim, "holds", "the whole interval is within the tolerance", measured)
    if _is_beyond(bounds, band):
        return ClaimVerdict(claim, "does not hold", f"the whole interval is {_side(measured, band)}", measured)
    if is_quality(claim.metric):
        reason = "the runs disagree, and the interval over runs exceeds the tolerance; more runs would narrow it"
    else:
        reason = "the interval exceeds the tolerance; a longer run or several runs would narrow it"
    return ClaimVerdict(claim, "can't be said yet", reason, measured)


def _band(claim: Claim) -> tuple[float, float]:
    return claim.value - claim.tolerance, claim.value + claim.tolerance


def _is_pinned(claim: Claim) -> bool:
    return Constraint.parse(claim.dataset.version).pinned is not None


def _is_beyond(bounds: tuple[float, float], band: tuple[float, float]) -> bool:
    return bounds[1] < band[0] or bounds[0] > band[1]


def _explain_unmeasured(claim: Claim, scenario: str | None) -> ClaimVerdict:
    definition = DEFINITIONS.get(claim.metric)
    givers = None if definition is None else definition.scenarios
    if scenario is None or givers is None or scenario in givers:
        return ClaimVerdict(
            claim,
            "can't be said yet",
            f"this run did not measure {claim.metric}; add it to the metrics of the request and run it again",
            None,
        )
    never = f"scenario {scenario} does not measure {claim.metric}"
    return ClaimVerdict(claim, "can't be said yet", never, None, possible=False)


def _within(interval: tuple[float, float], band: tuple[float, float]) -> bool:
    """Return whether an interval lies in ``band``, with room for the binary rounding of decimals."""
    room = 1e-9 * max(map(abs, band))
    return band[0] - room <= interval[0] and interval[1] <= band[1] + room


def _side(measured: Metric, band: tuple[float, float]) -> str:
    above = measured.value > band[1]
    better = {"higher": above, "lower": not above}.get(measured.direction)
    word = "" if better is None else ", which is better" if better else ", which is worse"
    return f"{'above' if above else 'below'} the claim{word}"
