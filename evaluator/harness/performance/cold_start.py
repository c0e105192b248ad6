"""The scenario cold_start: the time of fresh processes to their first answer."""

import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from .. import STARTED_NS, predictors
from ..core.failures import classify_errors
from ..core.job import COLD_PHASES, Job
from ..core.phase_reports import Progress
from ..core.scenarios import ColdStart
from ..core.supervisor import run_phase
from ..datasets import open_samples
from ..inference.mlperf_audits import check_answers, sum_audits
from ..inference.model_session import Session, query
from ..inference.pipeline import Pipeline
from ..inference.predictions import PREDICTIONS, save_tensors
from .loadgen_traces import describe_starts
from .model_timing import SAMPLES


def run(job: Job, folder: Path, output: Path) -> dict[str, Any]:
    """Time fresh processes; return the report. The first ``warmup`` processes fill the file cache and do not count.

    Raises:
        Failure: The failure of the first process that failed.
    """
    assert isinstance(job.scenario, ColdStart)
    warmup, repeats = job.scenario.warmup, job.scenario.repeats
    progress = Progress("performance", warmup + repeats)
    reports = []
    for number in range(warmup + repeats):
        reports.append(run_phase("cold", folder, output, job.threads)[0])
        progress.at(number + 1)
    progress.finish()
    rows = np.array([report["phases_ns"] for report in reports], np.int64)
    columns = {f"{name}_ns": rows[warmup:, column].copy() for column, name in enumerate(COLD_PHASES)}
    columns["latency_ns"] = rows[warmup:].sum(axis=1)
    save_tensors(output / SAMPLES, {**columns, "warmup_ns": rows[:warmup].sum(axis=1)}, job.file_metadata)
    return {
        "performance": {
            **describe_starts(columns),
            "warmup_calls": warmup,
            "timed": "from the start of a process to its first answer",
        },
        "audits": {"answers": sum_audits(report["audit"] for report in reports)},
        **{key: reports[-1][key] for key in ("threads", "device", "timings")},
    }


def time_first_answer(job: Job, folder: Path, output: Path, since: int) -> dict[str, Any]:
    """Run one process until its first answer; return its times.

    Args:
        job: The job.
        folder: The folder of the job.
        output: The folder of results.
        since: The monotonic clock in nanoseconds when the parent started this process.

    Raises:
        Failure: Of class ``load``, ``step``, ``predict``, ``loadgen-invalid`` (the audit) or ``out-of-memory``.
    """
    times = [since, STARTED_NS]
    predictors.import_framework(job.model)
    times.append(time.monotonic_ns())
    predictor = predictors.load(job.model, folder / "model", predictors.Place(job.threads, job.device))
    session, pipeline = Session(predictor, job.model), Pipeline(job.model, folder / "model")
    times.append(time.monotonic_ns())
    samples = open_samples(job.dataset, folder / "dataset")
    calls = [pipeline.stack([call]) for call in pipeline.prepare(samples, 0).calls]
    times.append(time.monotonic_ns())
    with classify_errors("predict", "the first call"):
        answers = query(session, calls)
    times.append(time.monotonic_ns())
    prediction = pipeline.combine([pipeline.answers(tensors, 1, "the first answer")[0] for tensors in answers])
    times.append(time.monotonic_ns())
    audit = check_answers([(0, prediction)], job.model, output / PREDICTIONS)
    predictor.close()
    phases = [after - before for before, after in pairwise(times)]
    return {
        "phases_ns": phases,
        "audit": audit,
        "threads": dict(predictor.threads),
        "device": predictor.device,
        "timings": {},
    }
