"""The search for the highest arrival rate that the server scenario sustains."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.failures import Failure
from ..core.job import Job
from ..core.phase_reports import Progress
from ..core.scenarios import Server
from ..core.supervisor import run_phase
from ..inference.mlperf_audits import sum_audits
from . import loadgen
from .loadgen_traces import SEPARATOR, describe_probe

RESOLUTION = 1.05
"""The search ends when the lowest failed rate is at most this multiple of the highest sustained rate."""

LOGS = "peak-loadgen-detail.txt"
"""LoadGen's logs of all probes in order, each after a separator."""

_MAX_RATES = 40
_TRIES = 2
# Bounds of the search, as multiples of the start rate. Above the upper bound a few queries arrive at once at any rate,
# so that the rate alone no longer decides, and LoadGen's log would contain infinities.
_LEAST_SHARE = 1e-3
_GREATEST_SHARE = 1e3


def run(job: Job, folder: Path, output: Path) -> dict[str, Any]:
    """Search the peak rate; return the report on all probes.

    LoadGen decides in a fresh process whether a rate is sustained.

    The first probe is the performance phase of the same run, at the start rate of the search.

    Raises:
        Failure: The failure of a probe. ``loadgen-invalid``: not even a thousandth of the rate is sustained.
    """
    assert isinstance(job.scenario, Server)
    start = job.scenario.target_qps
    timed = loadgen.read_account(output / "loadgen")
    probes = [{"phase": "performance", **describe_probe(start, timed)}]
    reports: list[dict[str, Any]] = []
    progress = Progress("peak", _TRIES * _MAX_RATES)

    def probe(rate: float) -> bool:
        report, _ = run_phase("probe", folder, output, job.threads, rate)
        _keep_log(output)
        reports.append(report)
        probes.append({"phase": "peak", **report["probe"]})
        progress.at(len(reports))
        return bool(report["probe"]["valid"])

    low, high = search(make_rate_check(probe, start, timed=timed.valid), start)
    progress.finish()
    return {
        "peak": {"qps": low, "failed_qps": high, "target_latency": job.scenario.target_latency, "probes": probes},
        "audits": {"answers": sum_audits(report["audits"]["answers"] for report in reports)},
        **{key: reports[-1][key] for key in ("threads", "device", "timings")},
    }


def _keep_log(output: Path) -> None:
    """Append LoadGen's log of the last probe to the collected logs, before the next probe overwrites it."""
    with (output / LOGS).open("ab") as logs:
        logs.write(SEPARATOR + (output / "loadgen-probe" / loadgen.DETAIL).read_bytes())


def make_rate_check(probe: Callable[[float], bool], start: float, *, timed: bool) -> Callable[[float], bool]:
    """Return a function that decides whether a rate is sustained: one of two probes of it is valid.

    A momentary disturbance of the host can make a probe invalid, but not valid, and the search never returns to a rate.

    Args:
        probe: Probes a rate and returns whether the run is valid.
        start: The rate whose first probe is the performance phase.
        timed: Whether the performance phase is valid.
    """

    def answered(rate: float) -> bool:
        return (timed if rate == start else probe(rate)) or probe(rate)

    return answered


def search(is_sustained: Callable[[float], bool], start: float) -> tuple[float, float]:
    """Return the highest sustained rate and the lowest failed rate, whose ratio is at most ``RESOLUTION``.

    The rate doubles or halves from ``start`` until there are both, then becomes the geometric mean of the two.

    Raises:
        Failure: ``loadgen-invalid``: no rate is sustained, or every rate is.
    """
    low, high, rate = 0.0, math.inf, start
    for _ in range(_MAX_RATES):
        if is_sustained(rate):
            low = rate
        else:
            high = rate
        if low and high / low <= RESOLUTION:
            return low, high
        if high <= start * _LEAST_SHARE:
            raise Failure("loadgen-invalid", f"{high:.3g} queries/s already exceed the latency bound")
        if low >= start * _GREATEST_SHARE:
            raise Failure(
                "loadgen-invalid",
                f"{low:.3g} queries/s still meet the latency bound: increase target_qps, or min_queries or "
                "min_duration so that queries queue up for longer than the bound",
            )
        rate = math.sqrt(low * high) if low and high < math.inf else (low * 2 if low else high / 2)
    raise Failure("loadgen-invalid", f"after {_MAX_RATES} rates the peak is between {low:.3g} and {high:.3g}")


def replace_rate(job: Job, rate: float) -> Job:
    """Return the job of one probe at the arrival rate ``rate``."""
    assert isinstance(job.scenario, Server)
    return replace(job, scenario=replace(job.scenario, target_qps=rate))
