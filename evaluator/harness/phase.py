"""One phase in its own process: whatever happens in it, a report is left behind, or the process has died."""

import ctypes
import signal
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from . import accuracy, performance, trial
from .failures import Failure, failure
from .job import Job
from .reports import write_json
from .supervisor import phase_report

_PR_SET_PDEATHSIG = 1

_PHASES: Mapping[str, Callable[[Job, Path, Path], dict[str, Any]]] = {
    "golden": trial.run,
    "accuracy": accuracy.run,
    "performance": performance.run,
}


def run(phase: str, job: Job, folder: Path, output: Path) -> None:
    """Run ``phase`` and write its report, with the failure if it failed."""
    _die_with_parent()
    try:
        document = {"failure": None, **_PHASES[phase](job, folder, output)}
    except Failure as error:
        document = _failed(error)
    except Exception as error:  # noqa: BLE001 - a defect of the harness is a crash of the run, with its trace on record
        traceback.print_exc()
        document = _failed(failure("crash", f"the {phase} phase", error))
    write_json(phase_report(output, phase), document)


def _failed(error: Failure) -> dict[str, Any]:
    return {"failure": {"class": error.kind, "message": error.message}}


def _die_with_parent() -> None:
    """Where the kernel can (Linux): no phase outlives the process that would report it."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
