"""What bounds the times of a run that are self-reported: the runner's clock and counters, and a number of queries.

``seconds`` and ``cpu_seconds`` are the runner's; ``queries`` is the harness's own.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from benchlock.evaluator.records.runs import CONTAINER_CPU, Run


@dataclass(frozen=True, slots=True)
class Observed:
    """Time as the runner saw it, which no code of the model could change, and queries as the harness counted them.

    Attributes:
        seconds: From the start of the model's container or process to its end, by the runner's clock.
        cpu_seconds: CPU time of the container; None of a process, or where the engine did not say.
        queries: Queries that the harness says it made.
    """

    seconds: float
    cpu_seconds: float | None
    queries: int | None

    @property
    def seconds_a_query(self) -> float | None:
        """Seconds for each query at most, the start of the model included."""
        return self.seconds / self.queries if self.queries else None


def observed_of(run: Run) -> Observed | None:
    """Return what the runner saw of a run that has self-reported times; None of others."""
    if run.end is None or not run.end.times_self_reported:
        return None
    seconds, cpu = (_seconds(run.end.timings.get(name)) for name in ("run", CONTAINER_CPU))
    if seconds is None:
        return None
    performance = run.end.details.get("performance")
    queries = performance.get("queries") if isinstance(performance, Mapping) else None
    is_count = isinstance(queries, int) and not isinstance(queries, bool) and queries > 0
    return Observed(seconds, cpu, queries if is_count else None)


def _seconds(value: object) -> float | None:
    possible = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) and value >= 0
    return float(value) if possible and isinstance(value, int | float) else None
