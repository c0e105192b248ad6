"""LoadGen's early stopping: the percentiles of latency that a number of queries supports.

Of all queries, ``share`` meet a latency; the number of those in a run that exceed it is binomial. LoadGen accepts a
latency if so few of the run's queries exceed it only with a probability (*risk*) below one minus its confidence. The
rules are those of ``early_stopping.cc`` and ``PerformanceSummary::EarlyStopping`` (``results.cc``) of LoadGen.
"""

from typing import Final

import scipy

CONFIDENCE: Final = 0.99
SHARES: Final = {"single_stream": 0.9, "multi_stream": 0.99, "server": 0.99}
"""The share of queries that early stopping is about, by scenario."""


def find_risk(queries: int, over: int, share: float) -> float:
    """Return the probability that at most ``over`` of the queries exceed a latency that ``share`` of all meet."""
    return float(scipy.special.betainc(queries - over, over + 1, share)) if over < queries else 1.0


def count_discarded(queries: int, share: float, risk: float = 1 - CONFIDENCE) -> int:
    """Return one plus the number of slowest queries that LoadGen discards; 0 if there are too few queries.

    LoadGen's estimate of the percentile is the latency of the query at that place, counted from the slowest.
    """
    low, high = 0, queries
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if find_risk(queries, middle, share) < risk else (low, middle)
    return low
