"""The phases that are timed: on prepared tensors, from stored bytes, from the start of a process, at several rates."""

from pathlib import Path
from typing import Any

from ..job import Job
from ..scenarios import BatchSweep, ColdStart
from . import cold, piped, queried, sweep

__all__ = ["run", "run_whole"]


def run(job: Job, folder: Path, output: Path) -> dict[str, Any]:
    """The report of what the scenario times on prepared tensors; the samples are written beside it.

    Raises:
        Failure: of class ``load``, ``step``, ``predict``, ``loadgen-invalid`` or ``out-of-memory``.
    """
    if isinstance(job.scenario, ColdStart):
        return cold.run(job, folder, output)
    if isinstance(job.scenario, BatchSweep):
        return sweep.run(job, folder, output)
    return queried.run(job, folder, output)


def run_whole(job: Job, folder: Path, output: Path) -> dict[str, Any]:
    """The same from stored bytes to the last output step, in a process of its own."""
    if isinstance(job.scenario, BatchSweep):
        return sweep.run_whole(job, folder, output)
    return piped.run(job, folder, output)
