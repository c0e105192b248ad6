"""The overhead of measuring a call and of LoadGen's trace."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..core.failures import classify_errors
from ..core.job import Job
from ..core.scenarios import Server
from ..core.supervisor import run_phase
from ..inference.model_session import Session
from ..predictors import Predictor, Tensors
from . import loadgen
from .call_meter import Meter
from .phase_setup import PreparedSamples, Stage

_CALLS = 1000


class NullPredictor:
    """A predictor that asks another predictor once and returns that same answer to every call."""

    def __init__(self, predictor: Predictor) -> None:
        """Create a stand-in for ``predictor``."""
        self.in_caller, self.threads, self.device = predictor.in_caller, predictor.threads, predictor.device
        self._predictor = predictor
        self._answer: Tensors | None = None

    def predict(self, batch: Tensors) -> Tensors:
        """Return the first answer of the other predictor."""
        if self._answer is None:
            self._answer = self._predictor.predict(batch)
        return self._answer

    def close(self) -> None:
        """Do nothing: the other predictor is still in use."""


def overhead(stage: Stage, per_unit: int) -> dict[str, Any]:
    """Measure the overhead of timing, in nanoseconds, with a null predictor in place of the stage's predictor.

    ``timed_ns`` and ``timed_p99_ns``, the median and the 99th percentile, are part of every latency: the clock itself
    and the code between it and the predictor. ``around_ns`` is the median cost of a query outside its clock: counters
    and the stored row. LoadGen's own cost is excluded, because its clock is outside all of this. ``calls`` is the
    number of queries.
    """
    null = NullPredictor(stage.predictor)
    prepared = PreparedSamples(replace(stage, predictor=null, session=Session(null, stage.job.model)), per_unit)
    meter = Meter(null, stage.job.threads)
    read = meter.reader(lambda _indices: prepared.first, prepared.ask, lambda _made: None)
    indices, clock, durations = [0] * per_unit, time.perf_counter_ns, []
    with classify_errors("predict", "warm-up"):
        prepared.ask(prepared.first)
    for _ in range(_CALLS):
        start = clock()
        read(indices)
        durations.append(clock() - start)
    timed = meter.columns()["latency_ns"]
    return {
        "calls": _CALLS,
        "timed_ns": float(np.median(timed)),
        "timed_p99_ns": float(np.quantile(timed, 0.99)),
        "around_ns": float(np.median(np.asarray(durations) - timed)),
    }


_SECONDS = 0.3
_FEWEST_QUERIES = 200
_LEAST_QPS = 1000.0
_P50 = "result_50.00_percentile_latency_ns"


def measure_trace_cost(job: Job, folder: Path, output: Path) -> dict[str, Any]:
    """Measure what tracing adds to CPU time and median latency, in nanoseconds per query, in fresh processes."""
    without, with_trace = (run_phase(name, folder, output, job.threads)[0]["null"] for name in ("untraced", "traced"))
    return {
        "cpu_ns": with_trace["cpu_ns"] - without["cpu_ns"],
        "latency_p50_ns": with_trace["latency_p50_ns"] - without["latency_p50_ns"],
        "with": with_trace,
        "without": without,
    }


def run_null_server(job: Job, output: Path, *, traced: bool) -> dict[str, Any]:
    """Run LoadGen's ``server`` briefly against immediate answers, at the job's rate or a higher one."""
    scenario = job.scenario
    assert isinstance(scenario, Server)
    rate = max(scenario.target_qps, _LEAST_QPS)
    settings = loadgen.Settings("Server", _FEWEST_QUERIES, _SECONDS, rate, job.seeds, target_latency=1.0)
    source = loadgen.Source(1, 1, lambda _indices: None)
    start = time.process_time_ns()
    log = loadgen.run(lambda _indices: None, source, replace(settings, traced=traced), output / "loadgen-null")
    used = time.process_time_ns() - start
    queries = log.results["result_query_count"]
    return {"null": {"queries": queries, "cpu_ns": used // queries, "latency_p50_ns": log.results[_P50]}}
