"""The body of a phase process: run the named phase and write its report."""

import ctypes
import signal
import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.distributed_job import RANK, SINGLE, DistributedJob
from ..core.failures import Failure, make_failure
from ..core.job import Job
from ..core.job_parser import AnyJob
from ..core.operator_job import OperatorJob
from ..core.phase_reports import write_json
from ..core.scenarios import PART, BatchSweep, ColdStart
from ..core.supervisor import phase_report
from ..core.training_job import TRAIN, TrainingJob

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class PhaseArguments:
    """Arguments of one phase beside the job.

    ``since_ns`` is the monotonic clock when its process was started; ``rate`` is the arrival rate of a probe, in
    queries a second.
    """

    since_ns: int = 0
    rate: float = 0.0


def execute_phase(phase: str, job: AnyJob, folder: Path, output: Path, arguments: PhaseArguments) -> None:
    """Run ``phase`` and write its report, which includes its failure."""
    _die_with_parent()
    try:
        if isinstance(job, OperatorJob):
            report = _report_operator(phase, job, folder, output)
        elif isinstance(job, TrainingJob):
            report = _report_training(phase, job, folder, output)
        elif isinstance(job, DistributedJob):
            report = _report_distributed(phase, job, folder, output)
        else:
            report = _report(phase, job, folder, output, arguments)
        document = {"failure": None, **report}
    except Failure as error:
        document = _describe_failure(error)
    except Exception as error:  # noqa: BLE001 - a defect of the harness is a crash of the run, with its trace on record
        traceback.print_exc()
        document = _describe_failure(make_failure("crash", f"the {phase} phase", error))
    write_json(phase_report(output, phase), document)


def _report(phase: str, job: Job, folder: Path, output: Path, arguments: PhaseArguments) -> Mapping[str, Any]:
    """Run a phase. Each phase imports only its own modules, because imports delay the first answer of a container."""
    # ruff: noqa: PLC0415
    if phase == "accuracy":
        from . import accuracy

        return accuracy.run(job, folder, output)
    if phase == "unlabel":
        from . import label_removal

        return label_removal.run(job, folder, output)
    if phase == "score":
        from . import scoring

        return scoring.run(job, folder, output)
    if phase == "golden":
        from . import golden_phase

        return golden_phase.run(job, folder, output)
    if phase.partition("-")[0] in ("cold", "trace", "parts"):
        return _run_without_loadgen(phase, job, folder, output, arguments)
    return _run_timed(phase, job, folder, output, arguments)


def _report_operator(phase: str, job: OperatorJob, folder: Path, output: Path) -> Mapping[str, Any]:
    from ..operators import operator_phase, reference_phase

    if phase == "reference":
        return reference_phase.run(job, folder, output)
    return operator_phase.run(job, output)


def _report_training(phase: str, job: TrainingJob, folder: Path, output: Path) -> Mapping[str, Any]:
    from ..training import breakdown_phase, evaluation_phase, train_phase

    if phase == "breakdown":
        return breakdown_phase.run(job, folder, output)
    if phase.startswith(TRAIN):
        return train_phase.run(job, folder, output, int(phase.removeprefix(TRAIN)))
    return evaluation_phase.run(job, folder, output)


def _report_distributed(phase: str, job: DistributedJob, folder: Path, output: Path) -> Mapping[str, Any]:
    from ..training import distributed_phases

    if phase == SINGLE:
        return distributed_phases.run_single(job, folder, output)
    return distributed_phases.run_rank(job, folder, output, int(phase.removeprefix(RANK)))


def _run_without_loadgen(
    phase: str, job: Job, folder: Path, output: Path, arguments: PhaseArguments
) -> Mapping[str, Any]:
    if phase == "cold":
        from ..performance import cold_start

        return cold_start.time_first_answer(job, folder, output, arguments.since_ns)
    if phase == "trace":
        from ..tracing import trace_phase

        return trace_phase.run(job, folder, output)
    if phase.startswith(PART):
        from ..performance import micro_batch

        return micro_batch.run(job, folder, output, int(phase.removeprefix(PART)))
    from ..tracing import trace_experiment

    return trace_experiment.run(phase.removeprefix("trace-"), job, folder, output, arguments.since_ns)


def _run_timed(phase: str, job: Job, folder: Path, output: Path, arguments: PhaseArguments) -> Mapping[str, Any]:
    from ..performance import batch_sweep, cold_start, measurement_overhead, model_timing, peak_search, pipeline_timing

    is_sweep = isinstance(job.scenario, BatchSweep)
    if phase == "performance":
        if isinstance(job.scenario, ColdStart):
            return cold_start.run(job, folder, output)
        return batch_sweep.run(job, folder, output) if is_sweep else model_timing.run(job, folder, output)
    if phase == "pipeline":
        return batch_sweep.run_pipeline(job, folder, output) if is_sweep else pipeline_timing.run(job, folder, output)
    if phase == "peak":
        return peak_search.run(job, folder, output)
    if phase == "probe":
        return model_timing.probe(peak_search.replace_rate(job, arguments.rate), folder, output)
    assert phase in ("traced", "untraced")
    return measurement_overhead.run_null_server(job, output, traced=phase == "traced")


def _describe_failure(error: Failure) -> dict[str, Any]:
    return {"failure": {"class": error.kind, "message": error.message}}


def _die_with_parent() -> None:
    """Let the kernel (Linux) kill this process when its parent ends, so that no phase outlives it."""
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
