"""What LoadGen's trace costs a query of ``server``: the same traffic against nothing, with it and without."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from .. import loadgen
from ..job import Job
from ..scenarios import Server
from ..supervisor import run_phase

_SECONDS = 0.3
_FEWEST_QUERIES = 200
_LEAST_QPS = 1000.0
_P50 = "result_50.00_percentile_latency_ns"


def cost(job: Job, folder: Path, output: Path) -> dict[str, Any]:
    """Nanoseconds a query that tracing adds to its CPU time and to its median latency; each in a fresh process."""
    without, with_trace = (run_phase(name, folder, output, job.threads)[0]["null"] for name in ("untraced", "traced"))
    return {
        "cpu_ns": with_trace["cpu_ns"] - without["cpu_ns"],
        "latency_p50_ns": with_trace["latency_p50_ns"] - without["latency_p50_ns"],
        "with": with_trace,
        "without": without,
    }


def null(job: Job, output: Path, *, traced: bool) -> dict[str, Any]:
    """LoadGen's ``server`` against an answer at once, at the job's rate or more, for a short time."""
    scenario = job.scenario
    assert isinstance(scenario, Server)
    rate = max(scenario.target_qps, _LEAST_QPS)
    told = loadgen.Settings("Server", _FEWEST_QUERIES, _SECONDS, rate, job.seeds, target_latency=1.0)
    source = loadgen.Source(1, 1, lambda _indices: None)
    start = time.process_time_ns()
    log = loadgen.run(lambda _indices: None, source, replace(told, traced=traced), output / "loadgen-null")
    used = time.process_time_ns() - start
    queries = log.results["result_query_count"]
    return {"null": {"queries": queries, "cpu_ns": used // queries, "latency_p50_ns": log.results[_P50]}}
