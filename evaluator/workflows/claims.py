"""Verdicts on a model's claims: confirmed, refuted or undecided by a run."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from msgspec import UNSET

from benchlock.artifacts.blob_store import BlobStore
from benchlock.evaluator.records.evidence_status import refuse_unverified
from benchlock.evaluator.records.run_model import Run
from benchlock.evaluator.records.timing_validity import QUIET_HOST, explain_unusable_times
from benchlock.evaluator.runner.lock_verification import read_manifests
from benchlock.evaluator.runner.self_reported import list_self_reported
from benchlock.evaluator.statistics.equivalence import FEWEST, is_exact
from benchlock.evaluator.statistics.metric_model import Interval, Metric
from benchlock.registry.lock.lockfile import Lock, LockedDataset
from benchlock.registry.manifests.manifest_types import Claim, Model
from benchlock.registry.manifests.metric_definitions import DEFINITIONS, is_quality
from benchlock.registry.versions.semantic_version import parse_version
from benchlock.registry.versions.version_ranges import Constraint

Answer = Literal["holds", "does not hold", "can't be said yet"]


@dataclass(frozen=True, slots=True)
class ClaimVerdict:
    """A claim and what the run says of it, with the ``reason`` in words; ``measured`` is None where it was not.

    ``possible``: whether a run of that scenario could measure it at all.
    """

    claim: Claim
    answer: Answer
    reason: str
    measured: Metric | None
    possible: bool = True


@dataclass(frozen=True, slots=True)
class Conditions:
    """What of a run bears on claims: its ``scenario``, None for any; ``disturbed``, why its times say little.

    ``runs``: over how many the figures are. ``varying``: the metrics of quality on which these runs disagree, each with
    the interval that covers the sampling intervals of all of them.
    """

    scenario: str | None = None
    disturbed: str | None = None
    runs: int = 1
    varying: Mapping[str, Interval] = field(default_factory=dict)


_ANY = Conditions()
_SEARCHED = "peak_qps"
_SELF_REPORTED = "it is self-reported: code of the model, or of an unreleased harness, could have made the figure"
_FEW_RUNS = (
    "nothing about time is decided by {} run(s): other runs may differ by more than the spread within one; "
    f"{FEWEST} runs are the fewest that decide (run --repeat {FEWEST})"
)
_ONE_SEARCH = (
    "beside a single run's peak stands the bracket of its search, which is no confidence interval; several runs "
    "(run --repeat) have one"
)


def claims_of(
    lock: Lock, run: Run, store: BlobStore, metrics: tuple[Metric, ...] | None = None, among: Sequence[Run] = ()
) -> tuple[ClaimVerdict, ...]:
    """What a run of ``lock`` says of the claims that its model makes for that dataset; nothing of a run that failed.

    ``metrics`` stand in for those of the run: of a run that was repeated, over all of them, which are ``among``.

    Raises:
        IntegrityError: a manifest is missing, or not what its digest says; or a record contradicts its evidence.
    """
    if run.end is None or run.end.outcome != "done":
        return ()
    runs = among or (run,)
    for one in runs:
        refuse_unverified(one.id, one.evidence)
    model = read_manifests(lock, store)["model"]
    assert isinstance(model, Model)
    conditions = Conditions(str(lock.scenario["name"]), _disturbed(runs), len(runs), _find_varying(runs))
    measured = run.end.metrics if metrics is None else metrics
    marked = list_self_reported(lock, model, run.start.isolation)
    measured = tuple(replace(one, self_reported=True) if one.name in marked else one for one in measured)
    return judge_claims(model, lock.dataset, measured, conditions)


def _disturbed(runs: Sequence[Run]) -> str | None:
    """Why the times of these runs say little, None where they are not flagged."""
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
    """Every claim of ``model`` on the dataset and split of a done run, in the order of the manifest.

    A claim states a band: its value, plus and minus its tolerance.

    * A quality metric was computed on every sample of the split, so its value there is exact: inside the band the claim
      holds. Outside, a claim about one version of the dataset does not hold: it is about the same samples, and there is
      no sampling error. A claim about several versions cannot be said where the interval still reaches the band: its
      author may have counted other samples of the same kind. Where repeated runs disagree, no value is exact: the
      interval over runs decides, as for a time.
    * A time is decided by the interval over several runs, never by one run: inside the band the claim holds, outside it
      does not. Of runs that others disturbed neither can be said: they tell of the machine's state, not of the model.
      Nor of the peak that a single run found: beside it stands the bracket of that search, no interval.
    """
    measured = {metric.name: metric for metric in metrics if metric.batch is None}
    return tuple(_answered(claim, measured.get(claim.metric), conditions) for claim in _on(model, dataset))


def _on(model: Model, dataset: LockedDataset) -> Iterator[Claim]:
    version = parse_version(dataset.version)
    for claim in () if model.claims is UNSET else model.claims:
        about = claim.dataset
        admitted = Constraint.parse(about.version).admits(version, prereleases=True)
        if admitted and (about.name, about.split) == (dataset.name, dataset.split):
            yield claim


def _answered(claim: Claim, measured: Metric | None, conditions: Conditions) -> ClaimVerdict:
    if measured is None:
        return _unmeasured(claim, conditions.scenario)
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
    few = (
        f"the value is beyond the tolerance, but {measured.n} samples do not tell it from what is claimed, and the "
        f"claim is about any version {claim.dataset.version}: name one version for an exact answer"
    )
    return ClaimVerdict(claim, "can't be said yet", few, measured)


def _judge_varying(claim: Claim, measured: Metric, sampling: Interval) -> ClaimVerdict:
    """Judge a metric of quality on which repeated runs disagree; other samples differ by ``sampling`` besides."""
    judged = _judge_interval(claim, measured)
    if judged.answer != "does not hold" or _is_pinned(claim) or _is_beyond(_bounds(sampling), _band(claim)):
        return judged
    few = (
        "the interval over runs is beyond the tolerance, but so few samples do not tell it from what is claimed, and "
        f"the claim is about any version {claim.dataset.version}: name one version for an answer about its samples"
    )
    return ClaimVerdict(claim, "can't be said yet", few, measured)


def _judge_interval(claim: Claim, measured: Metric) -> ClaimVerdict:
    band, bounds = _band(claim), _bounds(measured.ci)
    if _within(bounds, band):
        return ClaimVerdict(claim, "holds", "the whole interval is within the tolerance", measured)
    if _is_beyond(bounds, band):
        return ClaimVerdict(claim, "does not hold", f"the whole interval is {_side(measured, band)}", measured)
    if is_quality(claim.metric):
        more = "the runs disagree, and the interval over runs reaches beyond the tolerance; more runs would narrow it"
    else:
        more = "the interval reaches beyond the tolerance; a longer run, or several (run --repeat), would narrow it"
    return ClaimVerdict(claim, "can't be said yet", more, measured)


def _band(claim: Claim) -> tuple[float, float]:
    return claim.value - claim.tolerance, claim.value + claim.tolerance


def _is_pinned(claim: Claim) -> bool:
    return Constraint.parse(claim.dataset.version).pinned is not None


def _is_beyond(bounds: tuple[float, float], band: tuple[float, float]) -> bool:
    return bounds[1] < band[0] or bounds[0] > band[1]


def _unmeasured(claim: Claim, scenario: str | None) -> ClaimVerdict:
    definition = DEFINITIONS.get(claim.metric)
    givers = None if definition is None else definition.scenarios
    if scenario is None or givers is None or scenario in givers:
        return ClaimVerdict(
            claim,
            "can't be said yet",
            f"this run did not measure {claim.metric}; add it to the metrics of the request, and run again",
            None,
        )
    never = f"the scenario {scenario} does not give {claim.metric}"
    return ClaimVerdict(claim, "can't be said yet", never, None, possible=False)


def _within(found: tuple[float, float], band: tuple[float, float]) -> bool:
    """Whether ``found`` lies in ``band``, with room for what decimals lose in binary."""
    room = 1e-9 * max(map(abs, band))
    return band[0] - room <= found[0] and found[1] <= band[1] + room


def _side(measured: Metric, band: tuple[float, float]) -> str:
    above = measured.value > band[1]
    better = {"higher": above, "lower": not above}.get(measured.direction)
    word = "" if better is None else ", which is better" if better else ", which is worse"
    return f"{'above' if above else 'below'} what is claimed{word}"
