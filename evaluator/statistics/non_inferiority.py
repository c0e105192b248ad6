"""One-sided tests on the ratio of a candidate to a baseline: worse, or not worse by a margin (non-inferiority).

Two locks run interleaved give a ratio with Student's t (``equivalence.ratio``). Its interval at ``1 - 2 * level`` makes
two one-sided tests at ``level`` each:

* *regression*: the interval lies entirely on the worse side of 1. If the candidate is no worse, this happens with a
  probability of at most ``level``.
* *passed*: the interval does not reach the margin on the worse side. If the candidate is worse by the margin or more,
  this happens with a probability of at most ``level``.

With several metrics, a single false regression fails all of them, so ``level`` is divided by their number (Bonferroni).
"""

import math
from typing import Final, Literal

import numpy as np
import scipy
from msgspec import Struct

from benchlock.evaluator.statistics.equivalence import ROUND_DRIFT, find_fewest_runs, find_quantile, find_spread
from benchlock.evaluator.statistics.metric_types import SIGNIFICANT, Interval, Ratio

Decision = Literal["passed", "regression", "undecided"]

_POINTS: Final = 2000
"""The number of quantiles of the spread over which the power is averaged."""


class RegressionTest(Struct, frozen=True):
    """The test of one metric.

    Attributes:
        answer: The decision.
        interval: The interval of the ratio, two-sided at ``1 - 2 * level``.
        level: The probability of a false regression, and of passing a regression of the margin or more.
        power: The probability of *regression* if the candidate is worse by exactly the margin, with as many rounds of
            the observed spread.
        rounds: The number of rounds that would decide if ratio and spread stay the same; None if the test is decided,
            or if more than 1000 would be needed.
    """

    answer: Decision
    interval: Interval
    level: float
    power: float
    rounds: int | None


def divide_level(metrics: int) -> float:
    """Return the level of each of several tests; a false regression in any of them then has at most 5 %."""
    return round(SIGNIFICANT / max(1, metrics), 12)


def decide_regression(ratio: Ratio, direction: str, margin: float, level: float) -> RegressionTest | None:
    """Decide whether a candidate is worse than the baseline.

    Args:
        ratio: The ratio of the candidate to the baseline, from interleaved rounds.
        direction: Whether ``higher`` or ``lower`` values are better.
        margin: The relative difference that must not pass, such as 0.05.
        level: As ``divide_level`` returns it.

    Returns:
        The test; None with fewer than two rounds, or if the ratio has no value.
    """
    spread = find_spread(ratio)
    if spread is None or ratio.value is None:
        return None
    half = find_quantile(1 - 2 * level, ratio.n - 1) * spread / math.sqrt(ratio.n)
    middle = math.log(ratio.value)
    worse = middle if direction == "lower" else -middle
    allowed = find_allowance(direction, margin)
    answer: Decision = "undecided"
    if worse + half < allowed:
        answer = "passed"
    elif worse - half > 0:
        answer = "regression"
    # Whichever bound is further from its threshold is the first to decide as the interval narrows.
    room = max(worse, allowed - worse)
    return RegressionTest(
        answer=answer,
        interval=Interval(math.exp(middle - half), math.exp(middle + half)),
        level=level,
        power=find_power(spread / math.sqrt(ROUND_DRIFT), ratio.n, allowed, level),
        rounds=find_fewest_runs(spread, 1 - 2 * level, room) if answer == "undecided" else None,
    )


def find_allowance(direction: str, margin: float) -> float:
    """Return a margin as a difference of logarithms in the worse direction."""
    return math.log1p(margin) if direction == "lower" else -math.log1p(-margin)


def find_power(spread: float, rounds: int, allowed: float, level: float) -> float:
    """Return the probability of *regression* if the candidate is worse by exactly the margin.

    For a given estimate of the spread, the mean is normal; the result is its average over the distribution of the
    estimate (chi-squared). Small spreads lose up to ``level``, because a mean below the margin may pass.

    Args:
        spread: The standard deviation of the logarithm of one round's quotient, without inflation.
        rounds: The number of rounds, at least 2.
        allowed: The margin as ``find_allowance`` returns it.
        level: The level of the one-sided test.
    """
    if spread <= 0:
        return 1.0
    shares = (np.arange(_POINTS) + 0.5) / _POINTS
    estimates = spread * np.sqrt(scipy.special.chdtri(rounds - 1, shares) / (rounds - 1))
    error = spread / math.sqrt(rounds)
    half = find_quantile(1 - 2 * level, rounds - 1) * math.sqrt(ROUND_DRIFT / rounds) * estimates
    not_worse = scipy.special.ndtr((half - allowed) / error)
    passed = scipy.special.ndtr(-half / error)
    return float(np.mean(1 - np.maximum(not_worse, passed)))
