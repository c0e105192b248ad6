"""The verdict of a rerun, and whether two runs are comparable."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct

from benchlock.artifacts.user_output import format_count
from benchlock.evaluator.records.comparison_types import Conclusion, Verdict
from benchlock.evaluator.records.prediction_agreement import PredictionAgreement
from benchlock.evaluator.records.run_types import Run, RunId
from benchlock.evaluator.records.timing_validity import QUIET_HOST, explain_unusable_times, validity_of
from benchlock.evaluator.statistics.equivalence import DRIFT, FEWEST, judge_few, ratio, runs_to_decide
from benchlock.evaluator.statistics.equivalence import judge as judge_ratio
from benchlock.evaluator.statistics.metric_types import Finding, Metric, Ratio, format_change, format_value
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests.metric_definitions import COST, NETWORK, OPERATOR, is_automatic, is_quality

SAME_HOST: Final = ("cpu_model", "cpu_flags", "cores", "memory", "kernel", "governor", "accelerator", "driver")
"""The facts of a host that are equal where runs are comparable."""
SAME_PLATFORM: Final = ("os", "arch", "device")
"""The same facts of a platform."""
_SEVERAL = ("limits", "definitions of metrics")
_NEVER_RUN = "has no result"
_encode = msgspec.json.Encoder(order="deterministic").encode


def host_differences(a: Run, b: Run) -> tuple[str, ...]:
    """List why times of the two runs are not comparable: different hosts, platforms or isolation."""
    return tuple(_host_differences(a, b))


def question_differences(a: Lock, b: Lock) -> tuple[str, ...]:
    """List why runs of the two locks are not comparable: the locks measure different things."""
    return tuple(_question_differences(a, b))


def list_incomparabilities(a: tuple[Lock, Run], b: tuple[Lock, Run]) -> tuple[str, ...]:
    """List why metrics of the two runs must not be compared; empty if they may.

    Models, frameworks and images may differ, because these are compared. Dataset, split, scenario, limits, trace,
    definitions of metrics and harness must be equal, and so must host, platform and isolation; the price too where both
    have a cost. The seeds of LoadGen may differ if nothing else does, seeds and number of repeats of trainings always.
    """
    (lock_a, run_a), (lock_b, run_b) = a, b
    failed = (f"{run.id} {_NEVER_RUN}" for run in (run_a, run_b) if run.end is None or run.end.outcome != "done")
    return (*_question_differences(lock_a, lock_b), *failed, *host_differences(run_a, run_b))


def encode_conditions(lock: Lock, run: Run) -> bytes:
    """Return a text that only runs have in common whose metrics may be compared, as ``list_incomparabilities`` says.

    Two runs with different texts may be comparable nevertheless.
    """
    parts = (lock.inputs, _scenario(lock), lock.limits, lock.metrics, lock.distribution, lock.target)
    question = [None if part is UNSET else part for part in parts]
    more = (_evaluation(lock), lock.request.get("trace", "none"), _price(lock), lock.harness.digest)
    is_done = run.end is not None and run.end.outcome == "done"
    facts = ([run.start.platform.get(fact) for fact in SAME_PLATFORM], [run.start.host.get(fact) for fact in SAME_HOST])
    return _encode([question, more, "" if is_done else run.id, run.start.isolation, facts])


def describe_offered(metric: str, *scenarios: str) -> str | None:
    """Return why a throughput is not a property of a model; None if it is one."""
    is_throughput = metric in ("throughput", "pipeline_throughput")
    return f"{metric} of `server` is the arrival rate" if is_throughput and "server" in scenarios else None


def _question_differences(a: Lock, b: Lock) -> Iterator[str]:
    parts: Mapping[str, tuple[Any, Any]] = {
        "dataset" if a.operator is UNSET else "operator": (a.inputs, b.inputs),
        "scenario": (None, None) if _without_seeds(a) == _without_seeds(b) else (_scenario(a), _scenario(b)),
        "limits": (a.limits, b.limits),
        "definitions of metrics": (_shared(a, b), _shared(b, a)),
        "distribution of the training": (a.distribution, b.distribution),
        "target of the training": (a.target, b.target),
        "interval of evaluations": (_evaluation(a), _evaluation(b)),
        "trace": (a.request.get("trace", "none"), b.request.get("trace", "none")),
        "price of the machine": (_price(a), _price(b)) if COST in _shared(a, b) else (None, None),
        "harness": (a.harness.digest, b.harness.digest),
    }
    for name, (left, right) in parts.items():
        if left != right:
            yield f"the {name} {'differ' if name in _SEVERAL else 'differs'}"


def _without_seeds(lock: Lock) -> dict[str, Any]:
    """Return the content of a lock without its seeds; two locks that differ in these alone show whether they matter."""
    parts = {key: dict(lock.document[key]) for key in ("request", "scenario")}
    parts["request"].pop("seed", None)
    parts["scenario"].pop("seeds", None)
    return lock.document | parts


def _scenario(lock: Lock) -> dict[str, Any]:
    """Return the scenario; of a training without its repeats, which are a sample of what it is compared by."""
    sampled = () if lock.recipe is UNSET else ("seeds", "repeats")
    return {key: value for key, value in lock.scenario.items() if key not in sampled}


def _evaluation(lock: Lock) -> Any:  # noqa: ANN401 - the settings of a lock
    """Return how often a training is evaluated, to which its number of epochs is rounded up."""
    return None if lock.settings is UNSET else lock.settings.get("evaluate", {}).get("every")


def _price(lock: Lock) -> tuple[Any, ...]:
    return tuple(lock.request.get("price", {}).get(key) for key in ("amount", "currency", "per"))


def _shared(a: Lock, b: Lock) -> dict[str, int]:
    return {name: version for name, version in a.metrics.items() if name in b.metrics}


def _host_differences(a: Run, b: Run) -> Iterator[str]:
    if a.start.isolation != b.start.isolation:
        yield f"the isolation differs: {a.start.isolation}, {b.start.isolation}"
    for facts, left, right in (
        (SAME_PLATFORM, a.start.platform, b.start.platform),
        (SAME_HOST, a.start.host, b.start.host),
    ):
        for fact in facts:
            if left.get(fact) != right.get(fact):
                yield _difference(fact, left.get(fact), right.get(fact))


def _difference(fact: str, left: object, right: object) -> str:
    name = f"the host's {fact.replace('_', ' ')}"
    if isinstance(left, list) and isinstance(right, list):
        only = sorted(set(left) ^ set(right))
        return f"{name} differ in {', '.join(map(str, only[:8]))}{' and more' if len(only) > 8 else ''}"  # noqa: PLR2004 - a line's worth
    return f"{name} differs: {left}, {right}"


COUNTED: Final = "new runs with usable times"
"""A phrase of every sentence on a metric with a margin, which tells it from other observations."""
_CPU = "cpu"
_PROCESSOR = ("cpu_model", "cpu_flags")
_BEST = {"top1": 1, "top5": 5}
"""Metrics that count samples, with the number of best classes that decide a sample."""
_EQUAL = 1e-12
"""The relative tolerance for the last bits of a sum."""
_OTHER_PROCESSOR = 1e-3
"""The relative tolerance for sums by other instruction sets, used if no finer comparison is possible."""


class Sides(Struct, frozen=True):
    """The runs whose times are compared.

    Attributes:
        originals: The runs on the original's side.
        reruns: The new runs.
        damaged: The ids of runs with damaged records, which may belong to a side.
        replays: A sentence on each run that has the samples of another run and does not count.
        few_originals: Whether fewer than ``FEWEST`` runs on the original's side may decide.
    """

    originals: tuple[Run, ...]
    reruns: tuple[Run, ...]
    damaged: tuple[RunId, ...] = ()
    replays: tuple[str, ...] = ()
    few_originals: bool = False


@dataclass(slots=True)
class _Times:
    """The results from times: against the original, undecided, only reported, and the findings."""

    against: list[str] = field(default_factory=list)
    undecided: list[str] = field(default_factory=list)
    reported: list[str] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)


def differing_processors(a: Run, b: Run) -> bool:
    """Return whether bits may differ because of another CPU, instruction set or accelerator."""
    devices = {run.start.platform.get("device") for run in (a, b)}
    facts = _PROCESSOR if devices == {_CPU} else (*_PROCESSOR, "accelerator")
    return len(devices) > 1 or any(a.start.host.get(fact) != b.start.host.get(fact) for fact in facts)


def judge(
    original: Run,
    rerun: Run,
    prediction_agreement: PredictionAgreement | None,
    equivalence: Mapping[str, float],
    sides: Sides | None = None,
    scenario: str = "",
) -> Verdict:
    """Judge whether a rerun reproduced its original; both are ended runs of one lock.

    Args:
        original: The original run.
        rerun: The new run.
        prediction_agreement: The agreement of their predictions; None if either has none.
        equivalence: For each metric of time the relative margin within which the request wants it equal. It decides
            only on comparable hosts, with at least ``FEWEST`` runs a side whose times are usable.
        sides: All runs of both sides; None if there are no others.
        scenario: The scenario of the lock: a throughput of ``server`` decides nothing.
    """
    assert original.end is not None
    assert rerun.end is not None
    ends = (original.end, rerun.end)
    if any(end.outcome != "done" for end in ends):
        return _of_failures(original, rerun)
    against, reported = _quality(original, rerun, prediction_agreement)
    if prediction_agreement is not None and prediction_agreement.agreement == "different":
        against += prediction_agreement.reasons
    times = _times(original, rerun, equivalence, sides or Sides((original,), (rerun,)), scenario)
    against += times.against
    predictions = None if prediction_agreement is None else prediction_agreement.agreement
    ids = original.id, rerun.id
    if against:
        remarks = (*reported, *times.undecided, *times.reported)
        return Verdict("not reproduced", tuple(against), remarks, *ids, predictions, tuple(times.findings))
    word: Conclusion = "undecided" if times.undecided else "reproduced"
    name = "outputs" if scenario in (*OPERATOR, *NETWORK) else "predictions"
    reasons = (*_supporting(original, prediction_agreement, name), *times.undecided)
    return Verdict(word, reasons, (*reported, *times.reported), *ids, predictions, tuple(times.findings))


def _of_failures(original: Run, rerun: Run) -> Verdict:
    texts = []
    ways = []
    for name, run in (("the original", original), ("the rerun", rerun)):
        assert run.end is not None
        ways.append((run.end.outcome, run.end.failure_class))
        failure = f" ({run.end.failure_class}: {run.end.failure_message})" if run.end.failure_class else ""
        texts.append(f"{name} {run.id} ended as {run.end.outcome}{failure}")
    same = ways[0] == ways[1] and ways[0][0] == "failed"
    return Verdict("reproduced" if same else "not reproduced", tuple(texts), (), original.id, rerun.id, None)


def _supporting(original: Run, prediction_agreement: PredictionAgreement | None, name: str) -> Iterator[str]:
    if prediction_agreement is None:
        yield "no predictions were requested, so the outcome and the metrics decide"
    elif prediction_agreement.agreement == "bit-equal":
        every = "the" if prediction_agreement.samples == 1 else "all"
        whose = (
            f"of {every} {format_count(prediction_agreement.samples, 'sample')} "
            if prediction_agreement.samples
            else ""
        )
        yield f"the {name} {whose}are bit-equal"
    else:
        yield from prediction_agreement.reasons
    if (prediction_agreement is None or prediction_agreement.agreement is None) and not any(
        map(is_quality, _metrics(original))
    ):
        yield "no quality metric was requested, so the outcome alone decides"


def _quality(
    original: Run, rerun: Run, prediction_agreement: PredictionAgreement | None
) -> tuple[list[str], list[str]]:
    """Return the quality metrics that differ, and those that moved only as far as the predictions allow."""
    left, right = _metrics(original), _metrics(rerun)
    against = [f"{name} was measured in only one of the runs" for name in sorted(left.keys() ^ right.keys())]
    reported: list[str] = []
    for name in sorted(filter(is_quality, left.keys() & right.keys()), key=list(left).index):
        a, b = left[name], right[name]
        text = f"{name} was {a.value:.6g} of {a.n}, and is {b.value:.6g} of {b.n}"
        if a.n != b.n:
            against.append(text)
        elif abs(a.value - b.value) > _EQUAL * max(abs(a.value), abs(b.value)):
            allowed = _allowed(name, a, original, rerun, prediction_agreement)
            is_informational = a.self_reported or b.self_reported or abs(a.value - b.value) <= allowed
            (reported if is_informational else against).append(f"{text}{_mark(a, b)}")
    return against, reported


def _allowed(
    name: str, before: Metric, original: Run, rerun: Run, prediction_agreement: PredictionAgreement | None
) -> float:
    """Return by how much a quality metric may move.

    A metric that counts samples may move by the samples with another decision. Another metric follows from the
    predictions: if these agree without being equal, it may move by any amount. Without predictions it may move by what
    another processor does to a sum.
    """
    agreement = None if prediction_agreement is None else prediction_agreement.agreement
    if name in _BEST:
        count = 0 if prediction_agreement is None else prediction_agreement.changed.get(_BEST[name], 0) / before.n
        return count + _EQUAL
    if agreement in ("within tolerance", "same decisions"):
        return math.inf
    return _OTHER_PROCESSOR * abs(before.value) if agreement is None and differing_processors(original, rerun) else 0.0


def _times(original: Run, rerun: Run, equivalence: Mapping[str, float], sides: Sides, scenario: str) -> _Times:
    """Return what the times decide, what they do not decide yet, and what is only reported."""
    times = _Times()
    left, right = _metrics(original), _metrics(rerun)
    differences = host_differences(original, rerun)
    flags = ["" if explain_unusable_times(run) is None else " (flagged)" for run in (original, rerun)]
    if equivalence and (flagged := explain_cited(original)):
        times.reported.append(flagged)
    for name in sorted(name for name in left.keys() & right.keys() if not is_quality(name)):
        a, b = left[name].value, right[name].value
        share, unit = b / a - 1 if a else 0.0, left[name].unit
        before, after = (f"{format_value(value, unit)}{flag}" for value, flag in zip((a, b), flags, strict=True))
        text = f"{name} was {before}, and is {after} ({format_change(share)})"
        mark = _mark(left[name], right[name])
        margin = equivalence.get(left[name].name)
        if margin is None or differences or mark:
            times.reported.append(text + mark)
        elif offered := describe_offered(name, scenario):
            times.undecided.append(f"{text}: {offered}; next: a request with `equivalence` of latencies or `peak_qps`")
        else:
            _judge_time(times, left[name], margin, sides, text)
    if times.reported and differences:
        times.reported.append(f"these times are not comparable: {'; '.join(differences)}")
    times.reported += _remarks(*{run.id: run for run in (original, rerun, *sides.originals, *sides.reruns)}.values())
    times.reported += (f"the record of {run} is damaged, so its times do not count" for run in sides.damaged)
    times.reported += sides.replays
    return times


def explain_cited(original: Run) -> str | None:
    """Return why no new runs can confirm the times of the original itself; None if they can."""
    flag = explain_unusable_times(original)
    return flag and (
        f"the original's own times cannot be confirmed, only those of other runs of its lock, because {flag}"
    )


def _judge_time(times: _Times, metric: Metric, margin: float, sides: Sides, text: str) -> None:
    """Decide one metric with a margin by the runs of both sides whose times are usable; ``text`` has its values."""
    a, b = (
        [
            _metrics(run)[metric.key].value
            for run in side
            if metric.key in _metrics(run) and explain_unusable_times(run) is None
        ]
        for side in (sides.originals, sides.reruns)
    )
    counts = f"{metric.key} of {len(a)} original and {len(b)} {COUNTED}"
    is_few = sides.few_originals and 0 < len(a) < FEWEST
    few = judge_few(metric.key, a, b, margin) if is_few and len(b) > 1 else None
    estimate = ratio(a, b, paired=False, inflation=DRIFT) if min(len(a), len(b)) >= FEWEST else None
    times.reported.append(f"{text}{_describe_ratio(few.ratio if few is not None else estimate)}")
    if few is not None and len(b) >= FEWEST:
        times.findings.append(few)
        if few.answer == "equivalent":
            times.reported.append(f"{counts}: {few.reason}")
        else:
            step = "next: a wider margin, a quieter host, or more original runs"
            times.undecided.append(f"{counts}: {few.reason}; {step}")
        return
    if estimate is None:
        times.undecided.append(f"{counts}, but {_explain_missing(len(a), len(b), sides)}")
        return
    finding = judge_ratio(metric.key, metric.direction, estimate, None, margin)
    times.findings.append(finding)
    sentence = f"{counts}: {finding.reason}"
    if finding.answer == "undecided":
        runs = runs_to_decide(estimate, margin)
        sentence = f"{sentence}; {_next_step(len(a), None if runs is None else max(runs, estimate.n + 1))}"
    target = {"equivalent": times.reported, "different": times.against, "undecided": times.undecided}
    target[finding.answer].append(sentence)


def _describe_ratio(estimate: Ratio | None) -> str:
    """Return the ratio of the runs that count, new to original; empty without one."""
    if estimate is None or estimate.value is None or estimate.ci.low is None or estimate.ci.high is None:
        return ""
    ends = f"[{estimate.ci.low:.4g}, {estimate.ci.high:.4g}]"
    return f"; over the runs that count the ratio is {estimate.value:.4g}, 95 % interval {ends}"


def _explain_missing(originals: int, reruns: int, sides: Sides) -> str:
    """Return how many runs are missing for an answer, why those there are do not count, and what to do."""
    if not sides.few_originals:
        missing = f"at least {FEWEST} per side are required"
    elif not originals:
        missing = "at least 1 original is required"
    else:
        missing = f"at least {FEWEST} new ones are required"
    reasons = [reason for reason in map(explain_unusable_times, (*sides.originals, *sides.reruns)) if reason]
    if reasons:
        others = f"{len(reasons)} more {'has' if len(reasons) == 1 else 'have'} flagged times"
        return f"{missing}; {others}, such as: {reasons[-1]}; {QUIET_HOST}"
    if min(originals, reruns) >= FEWEST:
        return "a value of 0 has no ratio; next: judge another metric"
    if sides.few_originals and originals:
        return f"{missing}; next: run the lock {format_count(FEWEST - reruns, 'more time')} with this margin"
    return f"{missing}; {_next_step(originals, FEWEST)}"


def _next_step(originals: int, wanted: int | None) -> str:
    """Return the step that gives each side the number of runs that decides; None means that no number does."""
    if wanted is None:
        return "next: a request with a wider `equivalence`, or a quieter host"
    run = f"run the lock {format_count(wanted - originals, 'more time')}, then " if originals < wanted else ""
    return f"next: {run}rerun it {wanted} times"


def _mark(*metrics: Metric) -> str:
    """Return the mark of self-reported metrics, which decide nothing."""
    return ", self-reported" if any(metric.self_reported for metric in metrics) else ""


def _remarks(*runs: Run) -> Iterator[str]:
    """Yield which runs have unusable times, and which LoadGen does not call valid."""
    for run in runs:
        if reason := explain_unusable_times(run):
            yield reason
        validity = validity_of(run)
        if validity is not None and not validity.valid:
            yield f"LoadGen calls {run.id} {validity.words}"


def _metrics(run: Run) -> Mapping[str, Metric]:
    assert run.end is not None
    return {metric.key: metric for metric in run.end.metrics if not is_automatic(metric.name)}
