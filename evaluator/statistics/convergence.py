"""Statistics of trainings: how many epochs repeats with different seeds need to reach a target.

A repeat that does not reach the target is None; it is counted, never dropped. The number of epochs varies with the seed
by factors, so ratios are averaged as logarithms, as in ``equivalence``.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import scipy

from benchlock.evaluator.statistics.equivalence import ratio, runs_to_decide
from benchlock.evaluator.statistics.metric_types import Ratio

FEWEST_OLYMPIC: Final = 5
"""The least number of repeats for an olympic mean, as in MLPerf."""
SIGNIFICANCE: Final = 0.05
"""The level of each one-sided test."""
PERMUTATIONS: Final = 10_000
_SEED: Final = 7
_TIE: Final = 1e-9

Reached = Sequence[float | None]
"""Epochs or seconds until the target of each repeat; None where a repeat did not reach it."""


def olympic_mean(values: Reached) -> float | None:
    """Return the mean without the best and the worst value; None for fewer than 5 values.

    A repeat that did not reach the target counts as the worst. With two of them there is no mean. Source: MLPerf
    Training rules, "Results".
    """
    reached = sorted(value for value in values if value is not None)
    if len(values) < FEWEST_OLYMPIC or len(values) - len(reached) > 1:
        return None
    kept = reached[1:] if len(reached) < len(values) else reached[1:-1]
    return float(np.mean(kept))


@dataclass(frozen=True, slots=True)
class ConvergencePoint:
    """MLPerf's reference convergence point: mean and deviation of trimmed runs, and the least admitted mean.

    A result whose trimmed mean is below ``cut`` converges too fast by MLPerf's rule.
    """

    mean: float
    deviation: float
    cut: float


def find_convergence_point(reference: Sequence[float], submitted: int = 5) -> ConvergencePoint:
    """Return MLPerf's reference convergence point, as its checker computes it.

    The checker takes the deviation with ``ddof=0`` of the runs without best and worst, and uses it as the sample
    deviation of both sides in Student's test with equal variances. Its level is therefore 8 to 22 %, by the numbers of
    runs, in place of the nominal 5 %; use ``find_welch_p`` for decisions. Source: ``rcp_checker.py`` of MLCommons.

    Args:
        reference: The epochs of all reference runs.
        submitted: The number of runs of a submission, without trimming.
    """
    trimmed = np.sort(np.asarray(reference, np.float64))[1:-1]
    mean, deviation = float(trimmed.mean()), float(trimmed.std())
    counts = (len(trimmed), submitted - 2)
    error = deviation * math.sqrt(sum(1 / count for count in counts))
    quantile = float(scipy.special.stdtrit(sum(counts) - 2, 1 - SIGNIFICANCE))
    return ConvergencePoint(mean, deviation, mean - quantile * error)


def find_welch_p(reference: Sequence[float], runs: Sequence[float]) -> float:
    """Return the one-sided p-value of Welch's test (Biometrika 34, 1947): small where ``runs`` converge faster.

    All runs count, without trimming. It is near 1 where the runs converge slower.

    Args:
        reference: The epochs of the reference runs, at least 2.
        runs: The epochs of the runs, at least 2.
    """
    groups = [np.asarray(values, np.float64) for values in (reference, runs)]
    difference = float(groups[1].mean() - groups[0].mean())
    squares = [float(values.var(ddof=1)) / len(values) for values in groups]
    if sum(squares) == 0:
        return 0.5 if difference == 0 else float(difference > 0)
    parts = sum(square**2 / (len(values) - 1) for square, values in zip(squares, groups, strict=True))
    return float(scipy.special.stdtr(sum(squares) ** 2 / parts, difference / math.sqrt(sum(squares))))


def find_permutation_p(reference: Sequence[float], runs: Sequence[float]) -> float:
    """Return the same p-value without an assumption on the distribution.

    It is the share of random divisions of all values whose second group is as fast as ``runs``, the actual division
    included.
    """
    pooled = np.asarray([*reference, *runs], np.float64)
    difference = float(np.mean(runs) - np.mean(reference))
    generator = np.random.Generator(np.random.PCG64(_SEED))
    rows = generator.permuted(np.tile(pooled, (PERMUTATIONS, 1)), axis=1)
    sums = rows[:, : len(runs)].sum(axis=1)
    differences = sums / len(runs) - (pooled.sum() - sums) / len(reference)
    return (1 + int(np.count_nonzero(differences <= difference + _TIE))) / (PERMUTATIONS + 1)


@dataclass(frozen=True, slots=True)
class Equivalence:
    """The answer of two one-sided tests; ``needed`` is the number of repeats a side that would decide.

    ``needed`` is None where the tests decide, or where more than 1000 repeats would be needed.
    """

    answer: Literal["equivalent", "different", "inconclusive"]
    ratio: Ratio | None
    needed: int | None = None


def judge_equivalence(original: Sequence[float], again: Sequence[float], margin: float) -> Equivalence:
    """Test whether two groups of repeats need equally many epochs, by two one-sided tests at 5 % each.

    Equivalent: the 90 % interval of the ratio of geometric means lies within 1 / (1 + margin) and 1 + margin
    (Schuirmann, J. Pharmacokinet. Biopharm. 15, 1987). Different: it lies wholly outside.

    Args:
        original: The epochs of the original repeats, all above 0.
        again: The epochs of the new repeats, all above 0.
        margin: The relative difference that counts as none.
    """
    quotient = ratio(original, again, paired=False) if original and again else None
    if quotient is None or quotient.narrow.low is None or quotient.narrow.high is None:
        return Equivalence("inconclusive", quotient)
    low, high = 1 / (1 + margin), 1 + margin
    if low <= quotient.narrow.low and quotient.narrow.high <= high:
        return Equivalence("equivalent", quotient)
    if quotient.narrow.high < low or high < quotient.narrow.low:
        return Equivalence("different", quotient)
    return Equivalence("inconclusive", quotient, runs_to_decide(quotient, margin))


def compare_failures(first: tuple[int, int], second: tuple[int, int]) -> float:
    """Return the two-sided p-value of Fisher's exact test of two shares (Fisher, 1934).

    Args:
        first: The number of repeats that did not reach the target, and the number of all repeats.
        second: The same of the other side.
    """
    failed, total = first[0] + second[0], first[1] + second[1]
    possible = range(max(0, failed - second[1]), min(failed, first[1]) + 1)
    weights = {k: math.comb(first[1], k) * math.comb(second[1], failed - k) for k in possible}
    observed = weights[first[0]]
    return sum(weight for weight in weights.values() if weight <= observed) / math.comb(total, failed)
