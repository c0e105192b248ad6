"""The processes of a distributed training: started together, ended together, and compared at the end."""

import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .failures import Failure
from .phase_environment import phase_variables
from .supervisor import explain_full_group, oom_kills, phase_report, read_report, spawn_phase

_GRACE_S = 1.0
"""How long the other ranks may take to end after the first that failed: those whose peer died report that."""
_POLL_S = 0.02


def run_group(
    ranks: Sequence[str], job_folder: Path, output: Path, threads: int
) -> tuple[dict[str, Mapping[str, Any]], float]:
    """Run one process for each rank at the same time; return their reports by name, and the seconds.

    If one of them fails, the others are killed. No process is left on return.

    Args:
        ranks: The names of the phases of the ranks.
        job_folder: The folder of the job.
        output: The folder for results.
        threads: The thread count of every runtime, in each process.

    Raises:
        Failure: The failure of the rank that died, or else of the first that reports one.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    silence = (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0)
    kills, start = oom_kills(), time.perf_counter()
    running: dict[int, str] = {}
    ended: dict[str, int] = {}
    try:
        for rank in ranks:
            phase_report(output, rank).unlink(missing_ok=True)
            with explain_full_group(rank):
                running[spawn_phase(rank, job_folder, output, phase_variables(threads), silence)] = rank
        while running and not any(_is_failed(rank, output) for rank in ended):
            process, status = os.wait()
            if rank := running.pop(process, ""):
                ended[rank] = status
        deadline = time.monotonic() + _GRACE_S
        while running and time.monotonic() < deadline:
            process, status = os.waitpid(-1, os.WNOHANG)
            if process == 0:
                time.sleep(_POLL_S)
            elif rank := running.pop(process, ""):
                ended[rank] = status
    finally:
        for process in running:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
    # A rank that died is the cause; the others report that they lost it.
    order = sorted(ended, key=lambda rank: phase_report(output, rank).exists())
    reports = {rank: read_report(rank, phase_report(output, rank), ended[rank], kills) for rank in order}
    return {rank: reports[rank] for rank in ranks}, time.perf_counter() - start


def _is_failed(rank: str, output: Path) -> bool:
    """Return whether a rank that has ended left no report, or one that states a failure."""
    report = phase_report(output, rank)
    return not report.exists() or json.loads(report.read_bytes())["failure"] is not None


def check_synchronized(reports: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise unless all ranks report equal digests of their final weights.

    Args:
        reports: The report of each rank, with the digest of each tensor under ``tensors``.

    Raises:
        Failure: ``desync``: the message has the ranks that differ from the first, and the first different tensor.
    """
    first, *others = reports
    expected = reports[first]["tensors"]
    different = [rank for rank in others if reports[rank]["tensors"] != expected]
    if different:
        names = [name for name in expected if reports[different[0]]["tensors"].get(name) != expected[name]]
        where = f"the first different tensor is {names[0]!r}" if names else "they have other tensors"
        what = f"the weights of {', '.join(different)} differ from those of {first} after the last step: {where}"
        raise Failure("desync", what)
