"""How often decisions about times are wrong, and how often they are made, on hosts of several kinds."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchlock.evaluator.statistics.equivalence import (
    DRIFT,
    FEWEST,
    ROUND_DRIFT,
    find_interval_over_runs,
    judge,
    ratio,
)
from benchlock.evaluator.statistics.metric_types import Answer, Ratio
from benchlock.evaluator.statistics.non_inferiority import RegressionTest, decide_regression, divide_level
from benchlock.evaluator.workflows.compare import balanced_orders
from benchlock.evaluator.workflows.rerun import REPEATS
from benchmarks.simulation.processes import autoregressive
from benchmarks.simulation.tables import markdown, percent

Floats = npt.NDArray[np.float64]
Generator = np.random.Generator

MARGIN = 0.05
SEED = 17
_TIMES = 2000
_TIMES_ALIKE = 10_000
"""Of the same lock twice, so that 95 of 100 simulated shares of 5 % are within 0.4 points of it."""
_SPREAD = 0.02
_APART = 30
"""Runs between the original ones and the new ones: the host drifts meanwhile."""


@dataclass(frozen=True, slots=True)
class Host:
    """A kind of host: ``draw`` gives the logarithms of so many consecutive runs' times, of so much spread."""

    name: str
    draw: Callable[[Generator, int, float], Floats]


def _normal(random: Generator, runs: int, spread: float) -> Floats:
    return random.normal(scale=spread, size=runs)


def _spiky(random: Generator, runs: int, spread: float) -> Floats:
    """One run in ten takes about a third longer."""
    spikes: Floats = np.where(random.random(runs) < 0.1, random.exponential(0.3, runs), 0.0)
    return _normal(random, runs, spread) + spikes


def _drifting(random: Generator, runs: int, spread: float) -> Floats:
    """Half of the variance is of a level that wanders, whose changes last about ten runs."""
    half = spread / np.sqrt(2)
    level: Floats = autoregressive(0.9).draw(random, 1, runs)[0] * np.sqrt(1 - 0.9**2) * half
    return level + _normal(random, runs, half)


HOSTS = (Host("normal", _normal), Host("spiky", _spiky), Host("drifting", _drifting))


def rerun_answer(host: Host, random: Generator, truth: float, runs: int = FEWEST) -> Answer:
    """Return what ``rerun`` says of so many original and as many later runs, which take ``truth`` times as long."""
    drawn = np.exp(host.draw(random, 2 * runs + _APART, _SPREAD))
    return _judged(drawn[:runs], drawn[-runs:] * truth, MARGIN)


def interleaved_answer(
    host: Host, random: Generator, truth: float, spread: float, margin: float | None, rounds: int = 6
) -> Answer:
    """Return what ``compare --interleave`` says of two locks, of which the second takes ``truth`` times as long."""
    found, control = _interleaved(host, random, truth, spread, rounds)
    return judge("latency_p50", "lower", found, control, margin).answer


def gate_test(
    host: Host, random: Generator, truth: float, spread: float, margin: float, rounds: int, level: float
) -> RegressionTest:
    """Return the decision of ``gate`` on a candidate that takes ``truth`` times as long as the baseline.

    Args:
        host: The kind of host.
        random: The source of random numbers.
        truth: The true ratio.
        spread: The standard deviation of the logarithm of a run's time.
        margin: The margin.
        rounds: The number of rounds.
        level: The level of the test.
    """
    found, _ = _interleaved(host, random, truth, spread, rounds)
    test = decide_regression(found, "lower", margin, level)
    assert test is not None
    return test


def _interleaved(host: Host, random: Generator, truth: float, spread: float, rounds: int) -> tuple[Ratio, Ratio]:
    """Return the ratio of the second lock to the first, and that of the first lock's second turns."""
    drawn = np.exp(host.draw(random, 3 * rounds, spread)).reshape(rounds, 3)
    orders = balanced_orders(3)
    a, b, again = (
        [float(row[orders[n % len(orders)].index(arm)]) * change for n, row in enumerate(drawn)]
        for arm, change in enumerate((1.0, truth, 1.0))
    )
    found = ratio(a, b, paired=True, again=again, inflation=ROUND_DRIFT)
    control = ratio(a, again, paired=True, inflation=ROUND_DRIFT)
    assert found is not None
    assert control is not None
    return found, control


def paired_t_answer(random: Generator, truth: float, spread: float, rounds: int = 6) -> Answer:
    """Return what a plain paired t test of as many rounds says, without second turns of the first lock."""
    a, b = np.exp(random.normal(scale=spread, size=(2, rounds)))
    found = ratio(list(a), list(b * truth), paired=True)
    assert found is not None
    return judge("latency_p50", "lower", found, None, None).answer


def answers_of(answers: Callable[[Generator], Answer], times: int = _TIMES, seed: int = SEED) -> list[Answer]:
    """Return the answers of so many simulated decisions."""
    random = np.random.default_rng(seed)
    return [answers(random) for _ in range(times)]


def share_of(answer: Answer, answers: Callable[[Generator], Answer], times: int = _TIMES) -> float:
    """Return how often simulated decisions give this answer."""
    return answers_of(answers, times).count(answer) / times


def coverage_over_runs(host: Host, runs: int, times: int = _TIMES, seed: int = SEED) -> float:
    """Return how often the interval over runs holds the median of very many runs."""
    random = np.random.default_rng(seed)
    truth = float(np.exp(np.median(host.draw(random, 200_000, _SPREAD))))
    ends = [find_interval_over_runs(list(np.exp(host.draw(random, runs, _SPREAD)))) for _ in range(times)]
    return float(np.mean([ci.low is not None and ci.high is not None and ci.low <= truth <= ci.high for ci in ends]))


def tables() -> Iterator[str]:
    """Yield the tables of this module."""
    yield "`rerun`, as many original as new runs, a spread between runs of 2 % and a margin of 5 %:"
    yield markdown(
        ("host", "runs a side", "true change", "reproduced", "not reproduced", "undecided", "false"),
        (_rerun_row(host, truth, runs) for runs in (FEWEST, REPEATS) for host in HOSTS for truth in (1.0, 1.05, 1.10)),
    )
    yield "`compare --interleave` of 6 rounds, a spread between runs of 2 % and a margin of 5 %:"
    yield markdown(
        ("host", "true change", "equivalent", "different", "undecided", "false"),
        (_interleaved_row(host, truth, 0.02, MARGIN) for host in HOSTS for truth in (1.0, 1.05, 1.10)),
    )
    yield "`compare --interleave` of 6 rounds without a margin, a spread between runs of 1 %:"
    yield markdown(("host", "true change", "different", "a paired t test: different"), _power_rows())
    yield "`gate` of 6 rounds, one metric with a margin of 5 %; the power stated is the mean over the simulations:"
    yield markdown(
        ("host", "spread", "true change", "passed", "regression", "undecided", "power stated"),
        (_gate_row(host, spread, truth) for host in HOSTS for spread in (0.02, 0.04) for truth in (1.0, 1.05)),
    )
    yield "The interval over runs, a spread between runs of 2 %, of the median of very many runs:"
    yield markdown(
        ("host", *(f"{runs} runs" for runs in (6, 10, 20))),
        ((host.name, *(percent(coverage_over_runs(host, runs)) for runs in (6, 10, 20))) for host in HOSTS[:2]),
    )


def _rerun_row(host: Host, truth: float, runs: int) -> Sequence[str]:
    name, *shares = _row(host, truth, lambda random: rerun_answer(host, random, truth, runs))
    return name, str(runs), *shares


def _interleaved_row(host: Host, truth: float, spread: float, margin: float | None) -> Sequence[str]:
    return _row(host, truth, lambda random: interleaved_answer(host, random, truth, spread, margin))


def _row(host: Host, truth: float, answers: Callable[[Generator], Answer]) -> Sequence[str]:
    """Return the share of each answer; ``different`` is false within the margin, ``equivalent`` from it on."""
    kinds: tuple[Answer, ...] = ("equivalent", "different", "undecided")
    given = answers_of(answers)
    shares = {kind: given.count(kind) / len(given) for kind in kinds}
    false = shares["different"] if truth < 1 + MARGIN else shares["equivalent"]
    return host.name, f"{truth - 1:.0%}", *map(percent, shares.values()), percent(false)


def _power_rows() -> Iterator[Sequence[str]]:
    for host in HOSTS:
        for truth in (1.0, 1.02):
            times = _TIMES_ALIKE if truth == 1.0 else _TIMES
            found = share_of("different", lambda random: interleaved_answer(host, random, truth, 0.01, None), times)  # noqa: B023
            plain = float("nan")
            if host is HOSTS[0]:
                plain = share_of("different", lambda random: paired_t_answer(random, truth, 0.01), times)  # noqa: B023
            yield host.name, f"{truth - 1:.0%}", percent(found), percent(plain)


def _gate_row(host: Host, spread: float, truth: float) -> Sequence[str]:
    random = np.random.default_rng(SEED)
    tests = [gate_test(host, random, truth, spread, MARGIN, 6, divide_level(1)) for _ in range(_TIMES)]
    shares = (sum(test.answer == answer for test in tests) / _TIMES for answer in ("passed", "regression", "undecided"))
    power = float(np.mean([test.power for test in tests]))
    return host.name, f"{spread:.0%}", f"{truth - 1:.0%}", *map(percent, shares), percent(power)


def _judged(a: Floats, b: Floats, margin: float) -> Answer:
    found = ratio(list(a), list(b), paired=False, inflation=DRIFT)
    assert found is not None
    return judge("latency_p50", "lower", found, None, margin).answer
