"""What measuring costs: the same calls as those that are timed, of a predictor that answers at once."""

import time
from dataclasses import replace
from typing import Any

import numpy as np

from ..calling import Session
from ..failures import failing
from ..predictors import Predictor, Tensors
from .loaded import Loaded
from .meter import Meter
from .stage import Stage

_CALLS = 1000


class Null:
    """Answers the first call as another predictor does, and every later one with that same answer."""

    def __init__(self, predictor: Predictor) -> None:
        self.in_caller, self.threads, self.device = predictor.in_caller, predictor.threads, predictor.device
        self._predictor = predictor
        self._answer: Tensors | None = None

    def predict(self, batch: Tensors) -> Tensors:
        if self._answer is None:
            self._answer = self._predictor.predict(batch)
        return self._answer

    def close(self) -> None:
        """Nothing: the other predictor is still in use."""


def overhead(stage: Stage, per_unit: int) -> dict[str, Any]:
    """Nanoseconds, of ``calls`` queries of the null predictor in place of the stage's, prepared and timed as its are.

    ``timed_ns`` and ``timed_p99_ns``, the median and the 99th percentile, are in every latency: the clock's own time
    and what lies between it and the predictor. ``around_ns`` is the median of what a query costs outside its clock:
    counters, the row that is kept. LoadGen's own cost is not in them: its clock is outside all of this.
    """
    null = Null(stage.predictor)
    loaded = Loaded(replace(stage, predictor=null, session=Session(null, stage.job.model)), per_unit)
    meter = Meter(null, stage.job.threads)
    read = meter.reader(lambda _indices: loaded.first, loaded.ask, lambda _made: None)
    indices, clock, whole = [0] * per_unit, time.perf_counter_ns, []
    with failing("predict", "warm-up"):
        loaded.ask(loaded.first)
    for _ in range(_CALLS):
        start = clock()
        read(indices)
        whole.append(clock() - start)
    timed = meter.columns()["latency_ns"]
    return {
        "calls": _CALLS,
        "timed_ns": float(np.median(timed)),
        "timed_p99_ns": float(np.quantile(timed, 0.99)),
        "around_ns": float(np.median(np.asarray(whole) - timed)),
    }
