"""The command line of the harness: run the phases of a job and write result.json."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from . import VERSION
from .core.distributed_job import MAX_PROCESSES, RANK, RANKS, SINGLE, DistributedJob
from .core.failures import Failure
from .core.job import Job
from .core.job_parser import AnyJob, read_job
from .core.phase_environment import describe_environment, find_missing_library, find_missing_packages
from .core.phase_reports import write_json
from .core.rank_group import check_synchronized, run_group
from .core.resource_usage import read_peak_memory
from .core.scenarios import MAX_NETWORKS, PART, JobError, MicroBatch
from .core.supervisor import end_process, fork_phase, phase_report, run_phase
from .core.training_job import MAX_REPEATS, TRAIN

RESULT_SCHEMA = 1

_PHASES = (
    "golden",
    "unlabel",
    "accuracy",
    "score",
    "performance",
    "pipeline",
    "peak",
    "probe",
    "cold",
    "traced",
    "untraced",
    "trace",
    "trace-graph",
    "trace-probe",
    "reference",
    "operator",
    "evaluate",
    "breakdown",
    SINGLE,
    *(f"{RANK}{rank}" for rank in range(MAX_PROCESSES)),
    *(f"{TRAIN}{repeat}" for repeat in range(MAX_REPEATS)),
    *(f"{PART}{place}" for place in range(MAX_NETWORKS)),
    *(f"trace-{name}" for name in ("none", "model", "framework", "system")),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code.

    Returns:
        0 where ``result.json`` was written, also for a failed run; 2 for a malformed job.
    """
    parser = argparse.ArgumentParser(prog="harness", description="Run the job in JOB, write results to OUT.")
    parser.add_argument("job", type=Path, metavar="JOB")
    parser.add_argument("output", type=Path, metavar="OUT")
    parser.add_argument("--phase", choices=_PHASES, help=argparse.SUPPRESS)
    parser.add_argument("--since", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--rate", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("--version", action="version", version=VERSION)
    arguments = parser.parse_args(argv)
    folder, output = arguments.job.absolute(), arguments.output.absolute()
    try:
        job = read_job(folder / "job.json")
    except JobError as error:
        sys.stderr.write(f"harness: {error}\n")
        return 2
    if arguments.phase:
        _run_phase(arguments.phase, job, folder, output, arguments)
        if arguments.phase.startswith(RANK):
            end_process(0)  # destructors of a group of ranks can deadlock
    else:
        output.mkdir(parents=True, exist_ok=True)
        write_json(output / "result.json", _run(job, folder, output, arguments))
    return 0


def _run_phase(phase: str, job: AnyJob, folder: Path, output: Path, options: argparse.Namespace) -> None:
    """Run one phase, in a process of its own; ``options`` holds the options of a phase."""
    os.chdir(output)
    if failure := find_missing_packages() or find_missing_library(job):
        write_json(phase_report(output, phase), {"failure": {"class": failure.kind, "message": failure.message}})
        return
    from .phases.phase_process import PhaseArguments, execute_phase  # noqa: PLC0415 - only a phase loads numpy and a framework

    execute_phase(phase, job, folder, output, PhaseArguments(options.since, options.rate))


def _run_ranks(job: AnyJob, folder: Path, output: Path) -> tuple[dict[str, Mapping[str, Any]], float]:
    """Run all ranks of a distributed training; return their reports and the seconds."""
    assert isinstance(job, DistributedJob)
    reports, seconds = run_group(job.ranks, folder, output, job.threads)
    check_synchronized(reports)
    return reports, seconds


def _run(job: AnyJob, folder: Path, output: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Return the result of all phases, or of those before the first that failed."""
    failure: dict[str, str] | None = None
    reports: dict[str, Mapping[str, Any]] = {}
    exhausted: dict[str, dict[str, str]] = {}  # the parts of a batch whose memory ran out, which is a result
    timings: dict[str, float] = {}
    for phase in job.phases:
        try:
            if phase == RANKS:
                ranks, timings[phase] = _run_ranks(job, folder, output)
                reports |= ranks
            elif sys.flags.hash_randomization:
                reports[phase], timings[phase] = run_phase(phase, folder, output, job.threads)
            else:
                work = partial(_run_phase, phase, job, folder, output, options)
                reports[phase], timings[phase] = fork_phase(phase, work, output, job.threads)
        except Failure as error:
            failed = {"class": error.kind, "message": error.message}
            if phase.startswith(PART) and error.kind == "out-of-memory":
                exhausted[phase] = failed
                continue
            failure = {**failed, "phase": phase}
            break
    parts = sum(phase.startswith(PART) for phase in job.phases)
    if failure is None and exhausted and len(exhausted) == parts:
        phase, failed = next(iter(exhausted.items()))
        failure = {**failed, "phase": phase}
    threads: dict[str, int] = {}
    device: str | None = None
    for phase, report in reports.items():
        if "threads" in report:
            threads, device = report["threads"], report["device"]
        timings |= {f"{phase}.{name}": seconds for name, seconds in report["timings"].items()}
    performance = reports.get("performance", {})
    first_report = reports.get("accuracy", reports.get("golden", {}))
    return {
        "schema": RESULT_SCHEMA,
        "harness": VERSION,
        "lock_fingerprint": job.lock_fingerprint,
        "outcome": "done" if failure is None else "failed",
        "failure": failure,
        "golden": first_report.get("golden"),
        "quality": reports.get("score", {}).get("quality", {}),
        "accuracy": reports.get("accuracy", {}).get("accuracy"),
        "performance": performance.get("performance"),
        "pipeline": reports.get("pipeline", {}).get("performance"),
        "loadgen": performance.get("loadgen"),
        "audits": _audits(reports),
        "peak": reports.get("peak", {}).get("peak"),
        "trace": reports.get("trace", {}).get("trace"),
        "operator": reports.get("operator", {}).get("operator"),
        "training": _training(reports),
        "network": _network(job, reports, exhausted),
        "distributed": _distributed(reports),
        "resources": {"peak_memory": read_peak_memory(job.isolation)},
        "environment": describe_environment(job.threads, threads, device),
        "timings": timings,
    }


def _training(reports: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the facts of each repeat of a training; None without repeats."""
    repeats = [report["repeat"] for phase, report in reports.items() if phase.startswith(TRAIN)]
    breakdown = {"breakdown": reports["breakdown"]["breakdown"]} if "breakdown" in reports else {}
    return {"repeats": repeats, **breakdown} if repeats else None


def _network(
    job: AnyJob,
    reports: Mapping[str, Mapping[str, Any]],
    exhausted: Mapping[str, dict[str, str]],
) -> dict[str, Any] | None:
    """Return the outcome of each number of parts of a batch; None for another scenario.

    Args:
        job: The job.
        reports: The reports of phases.
        exhausted: The failures of the numbers of parts whose memory ran out, by phase.
    """
    if not isinstance(job, Job) or not isinstance(job.scenario, MicroBatch):
        return None
    parts: list[dict[str, Any]] = []
    for place, number in enumerate(job.scenario.parts):
        phase = f"{PART}{place}"
        if phase in reports:
            parts.append({"parts": number, "outcome": "done", "failure": None, **reports[phase]["part"]})
        elif phase in exhausted:
            parts.append({"parts": number, "outcome": "failed", "failure": exhausted[phase]})
    return {"batch": job.scenario.batch, "parts": parts}


def _distributed(reports: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the digests of the weights of the reference and of each rank; None before the ranks have finished."""
    ranks = [report["weights"] for phase, report in reports.items() if phase.startswith(RANK)]
    return {"reference": reports[SINGLE]["weights"], "ranks": ranks} if ranks else None


def _audits(reports: Mapping[str, Mapping[str, Any]]) -> dict[str, Any] | None:
    """Return the audits of the performance phase, and those of other phases by phase name; None without audits."""
    other_audits = {phase: reports[phase]["audits"] for phase in ("pipeline", "peak") if phase in reports}
    return {**reports.get("performance", {}).get("audits", {}), **other_audits} or None
