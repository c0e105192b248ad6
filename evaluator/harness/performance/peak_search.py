"""The search for the highest arrival rate that the server scenario sustains."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.failures import Failure
from ..core.job import Job
from ..core.reports import Progress
from ..core.scenarios import Server
from ..core.supervisor import run_phase
from ..inference.audits import sum_audits
from . import loadgen
from .timing_facts import SEPARATOR, describe_probe

RESOLUTION = 1.05
"""The search ends when the least rate that failed is at most this many times the greatest that was answered."""

LOGS = "peak-loadgen-detail.txt"
"""LoadGen's logs of all probes in their order, each after a separator."""

_MOST_RATES = 40
_TRIES = 2
# How far from the rate it starts at the search goes. Past the upper end a few queries arrive all at once whatever the
# rate, and a rate alone no longer decides; LoadGen's account of them would hold infinities.
_LEAST_SHARE = 1e-3
_GREATEST_SHARE = 1e3


def run(job: Job, folder: Path, output: Path) -> dict[str, Any]:
    """The report on all probes: each a fresh process, in which LoadGen decides whether the rate is answered.

    The first is the performance phase of the same run, whose rate the search starts from.

    Raises:
        Failure: that of a probe that failed; ``loadgen-invalid``: not even a thousandth of the rate is answered.
    """
    assert isinstance(job.scenario, Server)
    start = job.scenario.target_qps
    timed = loadgen.read_account(output / "loadgen")
    probes = [{"phase": "performance", **describe_probe(start, timed)}]
    reports: list[dict[str, Any]] = []
    progress = Progress("peak", _TRIES * _MOST_RATES)

    def probe(rate: float) -> bool:
        report, _ = run_phase("probe", folder, output, job.threads, rate)
        _keep_log(output)
        reports.append(report)
        probes.append({"phase": "peak", **report["probe"]})
        progress.at(len(reports))
        return bool(report["probe"]["valid"])

    low, high = search(repeating(probe, start, timed=timed.valid), start)
    progress.finish()
    return {
        "peak": {"qps": low, "failed_qps": high, "target_latency": job.scenario.target_latency, "probes": probes},
        "audits": {"answers": sum_audits(report["audits"]["answers"] for report in reports)},
        **{key: reports[-1][key] for key in ("threads", "device", "timings")},
    }


def _keep_log(output: Path) -> None:
    """Append LoadGen's log of the last probe to those of the others: the next probe overwrites it."""
    with (output / LOGS).open("ab") as logs:
        logs.write(SEPARATOR + (output / "loadgen-probe" / loadgen.DETAIL).read_bytes())


def repeating(probe: Callable[[float], bool], start: float, *, timed: bool) -> Callable[[float], bool]:
    """Whether a rate is answered: one of two probes of it is valid.

    A host that is disturbed for a moment makes a probe invalid, and makes none valid; the search never comes back to a
    rate. At ``start`` the first probe was ``timed``, the verdict on the performance phase.
    """

    def answered(rate: float) -> bool:
        return (timed if rate == start else probe(rate)) or probe(rate)

    return answered


def search(answered: Callable[[float], bool], start: float) -> tuple[float, float]:
    """The greatest rate that was answered and the least that was not, neighbours up to ``RESOLUTION``.

    It doubles or halves from ``start`` until it has both, then tries the geometric mean of the two.

    Raises:
        Failure: ``loadgen-invalid``: no rate was answered, or each was.
    """
    low, high, rate = 0.0, math.inf, start
    for _ in range(_MOST_RATES):
        if answered(rate):
            low = rate
        else:
            high = rate
        if low and high / low <= RESOLUTION:
            return low, high
        if high <= start * _LEAST_SHARE:
            raise Failure("loadgen-invalid", f"not even {high:.3g} queries a second are answered within the bound")
        if low >= start * _GREATEST_SHARE:
            raise Failure(
                "loadgen-invalid",
                f"{low:.3g} queries a second are still answered within the bound: raise target_qps, or min_queries or "
                "min_duration so that more queries wait than the bound leaves time for",
            )
        rate = math.sqrt(low * high) if low and high < math.inf else (low * 2 if low else high / 2)
    raise Failure("loadgen-invalid", f"after {_MOST_RATES} rates the peak is between {low:.3g} and {high:.3g}")


def at_rate(job: Job, rate: float) -> Job:
    """The job of one probe."""
    assert isinstance(job.scenario, Server)
    return replace(job, scenario=replace(job.scenario, target_qps=rate))
