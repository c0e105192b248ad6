"""One phase in its own process: whatever happens in it, a report is left behind, or the process has died."""

import ctypes
import signal
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from . import accuracy, performance, trial
from .failures import Failure, failure
from .job import Job
from .performance import cold, peak, queried, tracing
from .reports import write_json
from .supervisor import phase_report

_PR_SET_PDEATHSIG = 1

_PHASES: Mapping[str, Callable[[Job, Path, Path], dict[str, Any]]] = {
    "golden": trial.run,
    "accuracy": accuracy.run,
    "performance": performance.run,
    "pipeline": performance.run_whole,
    "peak": peak.run,
}


@dataclass(frozen=True, slots=True)
class Given:
    """What one phase is told beside the job: when its process was started, by the monotonic clock; a probe's rate."""

    since_ns: int = 0
    rate: float = 0.0


def run(phase: str, job: Job, folder: Path, output: Path, given: Given) -> None:
    """Run ``phase`` and write its report, with the failure if it failed."""
    _die_with_parent()
    try:
        document = {"failure": None, **_report(phase, job, folder, output, given)}
    except Failure as error:
        document = _failed(error)
    except Exception as error:  # noqa: BLE001 - a defect of the harness is a crash of the run, with its trace on record
        traceback.print_exc()
        document = _failed(failure("crash", f"the {phase} phase", error))
    write_json(phase_report(output, phase), document)


def _report(phase: str, job: Job, folder: Path, output: Path, given: Given) -> dict[str, Any]:
    if phase == "cold":
        return cold.first_answer(job, folder, given.since_ns)
    if phase == "probe":
        return queried.probe(peak.at_rate(job, given.rate), folder, output)
    if phase in ("traced", "untraced"):
        return tracing.null(job, output, traced=phase == "traced")
    return _PHASES[phase](job, folder, output)


def _failed(error: Failure) -> dict[str, Any]:
    return {"failure": {"class": error.kind, "message": error.message}}


def _die_with_parent() -> None:
    """Where the kernel can (Linux): no phase outlives the process that would report it."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
