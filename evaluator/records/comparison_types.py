"""Results of comparisons: the verdict of a rerun, and the report on locks that are compared."""

import secrets
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from benchlock.artifacts.digest import DigestText
from benchlock.artifacts.json_codec import prepare_decoder
from benchlock.evaluator.records.run_types import Run, RunText
from benchlock.evaluator.statistics.metric_types import Finding, Interval

Agreement = Literal["bit-equal", "within tolerance", "same decisions", "different"]
Conclusion = Literal["reproduced", "not reproduced", "undecided"]
ComparisonId = Annotated[str, Meta(pattern=r"^[0-9a-f]{16}$", examples=["5f0c3a9d1b22e47a"])]


def new_comparison_id() -> str:
    """Create the id of an interleaved comparison."""
    return secrets.token_hex(8)


@prepare_decoder
class ComparisonTurn(Struct, frozen=True, kw_only=True):
    """The turn of a run in a comparison, as its record states it; ``margins`` were stated before the first run."""

    kind: Literal["comparison"] = "comparison"
    id: str
    round: int
    rounds: int
    arm: int
    control: bool
    margins: dict[str, float]


def read_turn(run: Run) -> ComparisonTurn | None:
    """Return the turn in an ended run's record; None if there is none that is valid."""
    try:
        return None if run.end is None else msgspec.convert(run.end.details.get("part_of"), ComparisonTurn)
    except msgspec.ValidationError:
        return None


def is_one_comparison(runs: Sequence[Run]) -> bool:
    """Return whether the records of all runs state turns of the same interleaved comparison."""
    ids = {None if (turn := read_turn(run)) is None else turn.id for run in runs}
    return len(ids) == 1 and None not in ids


class Verdict(Struct, frozen=True):
    """The verdict of a rerun.

    Attributes:
        verdict: The verdict.
        reasons: What decided.
        reported: Observations that decide nothing.
        original: The run that was compared with.
        run: The run that is judged.
        predictions: The agreement of the predictions; None if a run has none.
        times: The findings on the metrics with a margin and enough runs on both sides.
    """

    verdict: Conclusion
    reasons: tuple[str, ...]
    reported: tuple[str, ...]
    original: RunText
    run: RunText
    predictions: Agreement | None
    times: tuple[Finding, ...] = ()


class ArmReport(Struct, frozen=True, kw_only=True):
    """Runs of one lock that count together; with ``control``, the second arm of the first lock.

    ``model`` and ``framework`` are the name and the version in the lock.
    """

    lock: DigestText
    control: bool
    runs: tuple[RunText, ...]
    model: dict[str, str]
    framework: dict[str, str]


class ArmFinding(Finding, frozen=True, kw_only=True):
    """The comparison of a metric of ``lock`` with that of ``against``."""

    lock: DigestText
    against: DigestText


class MlperfCheck(Struct, frozen=True, kw_only=True):
    """The result of MLPerf's convergence check of the epochs of a training against those of the reference.

    Attributes:
        mean: The mean of the training without its best and worst repeat.
        reference: The same of the reference.
        cut: The least admitted mean.
        too_fast: Whether the mean is below it.
    """

    mean: float
    reference: float
    cut: float
    too_fast: bool


class ConvergenceTest(Struct, frozen=True, kw_only=True):
    """Whether trainings of ``lock`` need fewer epochs to their target than those of ``against``.

    Attributes:
        lock: The lock that is compared.
        against: The lock of the reference.
        answer: The answer of Welch's test.
        repeats: The number of different repeats of the reference and of the lock.
        missed: How many of them missed the target.
        ratio: The ratio of the geometric means of epochs; None without the tests.
        interval: The 95 % interval of the ratio by Welch's t on the logarithms; None without the tests.
        welch_p: The one-sided p-value of Welch's test on the logarithms of the epochs; None if a repeat missed the
            target or a side has fewer than two.
        permutation_p: The same of a permutation test.
        mlperf: MLPerf's check; None without the tests and for fewer than 5 repeats a side.
        reason: The answer in words.
        self_reported: Whether code of a recipe could have forged the epochs, so the answer is informational.
    """

    lock: DigestText
    against: DigestText
    answer: Literal["fewer epochs", "more epochs", "undecided"]
    repeats: tuple[int, int]
    missed: tuple[int, int]
    ratio: float | None = None
    interval: Interval | None = None
    welch_p: float | None = None
    permutation_p: float | None = None
    mlperf: MlperfCheck | None = None
    reason: str
    self_reported: bool = False


class ComparisonReport(Struct, frozen=True, kw_only=True):
    """A comparison; ``reasons`` are why the runs are not comparable, empty if they are.

    ``replays`` name the runs that do not count because they repeat the samples of an earlier run; ``speeds`` are the
    comparisons of trainings.
    """

    comparable: bool
    reasons: tuple[str, ...]
    replays: tuple[str, ...] = ()
    interleaved: bool
    arms: tuple[ArmReport, ...]
    findings: tuple[ArmFinding, ...]
    speeds: tuple[ConvergenceTest, ...] = ()
