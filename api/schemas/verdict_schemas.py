"""Bodies for comparisons and verdicts."""

from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from benchlock.api.schemas.artifact_schemas import DigestText
from benchlock.api.schemas.run_schemas import RunText

if TYPE_CHECKING:  # imports numpy and scipy
    from benchlock.evaluator.records.run_types import Run
    from benchlock.evaluator.records.verdicts import Verdict
    from benchlock.evaluator.statistics.equivalence import Finding, Ratio
    from benchlock.evaluator.statistics.metric_types import Interval
    from benchlock.evaluator.statistics.paired_tests import PairedTest
    from benchlock.evaluator.workflows.compare import Arm, Comparison

Ends = tuple[float | None, float | None]


class RunsAsked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The runs to compare: the first with each of the others."""

    runs: Annotated[tuple[RunText, ...], Meta(min_length=2, max_length=100)]


class ArmTold(Struct, frozen=True, kw_only=True):
    """Runs of one lock that count together; with ``control``, the second arm of the first lock."""

    lock: DigestText
    control: bool
    runs: tuple[RunText, ...]


class RatioTold(Struct, frozen=True, kw_only=True):
    """The ratio of the second value to the first, null if one is 0; ``ci`` at 95 %, ``ci_90`` at 90 %."""

    ratio: float | None
    ci: Ends
    ci_90: Ends
    n: int
    paired: bool


class PairedTestTold(Struct, frozen=True, kw_only=True):
    """A paired test of the quality of two locks on the same samples.

    ``mcnemar`` is exact, for samples that are correct or incorrect: ``only_first`` and ``only_second`` count the
    samples that one lock alone predicts correctly. ``resampling`` exchanges predictions for ``p`` and draws samples for
    ``ci``. ``difference`` is the second value minus the first, ``ci`` its interval at 95 %. ``adjusted`` is ``p``
    adjusted by Holm's method for ``comparisons`` comparisons.
    """

    method: Literal["mcnemar", "resampling"]
    n: int
    difference: float
    ci: Ends
    p: float
    only_first: int | None
    only_second: int | None
    comparisons: int
    adjusted: float


class FindingTold(Struct, frozen=True, kw_only=True):
    """The comparison of a metric of ``lock`` with that of ``against``; a ``self_reported`` metric is undecided."""

    lock: DigestText
    against: DigestText
    metric: str
    ratio: RatioTold
    control: RatioTold | None
    noise_floor: float | None
    margin: float | None
    answer: str
    reason: str
    self_reported: bool
    test: PairedTestTold | None


class ComparisonTold(Struct, frozen=True, kw_only=True):
    """A comparison; ``reasons`` are why the runs are not comparable, empty if they are.

    ``replays`` name the runs that do not count because they repeat the samples of an earlier run.
    """

    comparable: bool
    reasons: tuple[str, ...]
    replays: tuple[str, ...] = ()
    interleaved: bool
    arms: tuple[ArmTold, ...]
    findings: tuple[FindingTold, ...]


class VerdictAsked(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run, and an earlier run of the same lock to compare it with; by default the latest other successful one."""

    run: RunText
    against: RunText | UnsetType = UNSET


class VerdictTold(Struct, frozen=True, kw_only=True):
    """A verdict with the ``reasons`` for it; ``reported`` are observations that do not affect it."""

    verdict: str
    reasons: tuple[str, ...]
    reported: tuple[str, ...]
    original: RunText
    run: RunText
    predictions: str | None


def encode_comparison(comparison: "Comparison") -> ComparisonTold:
    """Encode a comparison."""
    first = comparison.arms[0].lock.id
    return ComparisonTold(
        comparable=not comparison.reasons,
        reasons=comparison.reasons,
        replays=comparison.replays,
        interleaved=comparison.interleaved,
        arms=tuple(
            ArmTold(lock=arm.lock.id, control=arm.control, runs=tuple(run.id for run in arm.runs))
            for arm in comparison.arms
        ),
        findings=tuple(
            _encode_finding(arm, finding, first) for arm, findings in comparison.findings for finding in findings
        ),
    )


def encode_verdict(verdict: "Verdict", original: "Run", again: "Run") -> VerdictTold:
    """Encode the verdict on the run ``again``, compared with the run ``original``."""
    return VerdictTold(
        verdict=verdict.verdict,
        reasons=verdict.reasons,
        reported=verdict.reported,
        original=original.id,
        run=again.id,
        predictions=verdict.predictions,
    )


def _encode_finding(arm: "Arm", finding: "Finding", first: str) -> FindingTold:
    return FindingTold(
        lock=arm.lock.id,
        against=first,
        metric=finding.metric,
        ratio=_encode_ratio(finding.ratio),
        control=None if finding.control is None else _encode_ratio(finding.control),
        noise_floor=finding.noise_floor,
        margin=finding.margin,
        answer=finding.answer,
        reason=finding.reason,
        self_reported=finding.self_reported,
        test=None if finding.test is None else _encode_paired_test(finding.test),
    )


def _encode_paired_test(test: "PairedTest") -> PairedTestTold:
    return PairedTestTold(
        method=test.method,
        n=test.n,
        difference=test.difference,
        ci=_encode_ends(test.ci),
        p=test.p,
        only_first=test.only_first,
        only_second=test.only_second,
        comparisons=test.comparisons,
        adjusted=test.adjusted,
    )


def _encode_ratio(ratio: "Ratio") -> RatioTold:
    return RatioTold(
        ratio=ratio.value, ci=_encode_ends(ratio.ci), ci_90=_encode_ends(ratio.narrow), n=ratio.n, paired=ratio.paired
    )


def _encode_ends(ci: "Interval") -> Ends:
    return ci.low, ci.high
