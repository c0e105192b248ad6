"""The true level of MLPerf's convergence check and of Welch's test, by seeded simulation of equal trainings."""

from collections.abc import Iterator

import numpy as np

from benchlock.evaluator.statistics.convergence import (
    SIGNIFICANCE,
    find_convergence_point,
    find_welch_p,
    olympic_mean,
)
from benchmarks.claims.measured_runs import Laboratory
from benchmarks.claims.rows import Row, format_rows, format_table

SEED = 20
_SETS = 10_000
_SPREAD = 0.19
_MEAN = 13.0
_NOMINAL, _CLOSE = 0.05, 0.01


def measure(_: Laboratory) -> Iterator[str]:
    """Yield the section."""
    shares = {count: simulate(count) for count in (5, 10)}
    texts = (f"{count} runs: {mlperf:.1%} against {welch:.1%}" for count, (mlperf, welch) in shares.items())
    yield from format_rows(
        [
            Row(
                "MLPerf Training: its convergence check rejects equal trainings in 5 % of cases",
                f"it rejects, against Welch's test, {'; '.join(texts)}",
                "yes" if all(abs(mlperf - _NOMINAL) < _CLOSE for mlperf, _ in shares.values()) else "no",
                "it takes the deviation of the runs without best and worst, and divides by their number",
                f"simulation, seed {SEED}, {_SETS:,} pairs",
            )
        ]
    )
    yield f"\nEqual trainings, normal, spread {_SPREAD:.0%}, twice as many reference runs as runs:\n"
    rows = ((str(count), f"{mlperf:.1%}", f"{welch:.1%}") for count, (mlperf, welch) in shares.items())
    yield from format_table(("runs", "MLPerf's check rejects", "Welch's test rejects"), rows)


def simulate(count: int, sets: int = _SETS, seed: int = SEED) -> tuple[float, float]:
    """Return how often MLPerf's check and Welch's test reject ``count`` runs that equal twice as many references."""
    generator = np.random.default_rng(seed)
    rejected = np.zeros(2)
    for _ in range(sets):
        values = generator.normal(_MEAN, _MEAN * _SPREAD, 3 * count)
        reference, runs = list(values[: 2 * count]), list(values[2 * count :])
        mean = olympic_mean(runs)
        assert mean is not None
        rejected += (
            mean < find_convergence_point(reference, count).cut,
            find_welch_p(np.log(reference).tolist(), np.log(runs).tolist()) < SIGNIFICANCE,
        )
    mlperf, welch = rejected / sets
    return float(mlperf), float(welch)
