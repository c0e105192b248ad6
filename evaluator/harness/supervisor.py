"""Each phase in a process of its own, watched: how it ended becomes a report, whatever happened to it."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from .environment import phase_variables
from .failures import Failure
from .memory import oom_kills


def run_phase(
    phase: str, job_folder: Path, output: Path, threads: int, rate: float | None = None
) -> tuple[dict[str, Any], float]:
    """What the phase reported, and its wall-clock seconds. ``rate`` is the queries a second of a probe.

    It waits in the kernel: a parent that spins takes the processor from what is measured.

    Raises:
        Failure: the phase's own, or the class of its death.
    """
    report = phase_report(output, phase)
    report.unlink(missing_ok=True)
    command = [sys.executable, "-P", "-X", "faulthandler", "-m", __package__ or "", str(job_folder), str(output)]
    command += ["--phase", phase, *(["--rate", repr(rate)] if rate is not None else [])]
    kills, start = oom_kills(), time.perf_counter()
    command += ["--since", str(time.monotonic_ns())]
    with subprocess.Popen(command, env=phase_variables(threads), cwd=output, stdin=subprocess.DEVNULL) as process:
        try:
            code = process.wait()
        except BaseException:
            process.kill()
            raise
    seconds = time.perf_counter() - start
    if not report.exists():
        raise death(phase, code, memory_ran_out=oom_kills() > kills)
    document: dict[str, Any] = json.loads(report.read_bytes())
    report.unlink()
    if document["failure"] is not None:
        raise Failure(document["failure"]["class"], document["failure"]["message"])
    return document, seconds


def phase_report(output: Path, phase: str) -> Path:
    return output / f"phase-{phase}.json"


def death(phase: str, code: int, *, memory_ran_out: bool) -> Failure:
    """The failure of a phase that ended with ``code`` (minus the signal, as ``subprocess`` says it) and no report."""
    if code >= 0:
        return Failure("crash", f"the {phase} phase ended with exit code {code} and no report")
    number = -code
    known = number in set(signal.Signals)
    name = signal.Signals(number).name if known else f"signal {number}"
    if number == signal.SIGKILL and memory_ran_out:
        return Failure("out-of-memory", f"the {phase} phase was killed by the kernel: its memory limit was reached")
    return Failure("crash", f"the {phase} phase was killed by {name}")
