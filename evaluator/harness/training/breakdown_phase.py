"""The phase ``breakdown``: what takes memory and time within a training step, in a process that times nothing else."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from safetensors.numpy import save_file

from ..core.failures import Failure, classify_errors
from ..core.phase_reports import Progress, Timings
from ..core.training_job import RECIPE, TrainingJob
from ..datasets import open_samples
from ..inference.pipeline import Pipeline
from . import StepProfile, Trainer, build_trainer
from .train_phase import Columns, apply_environment, find_scores

BREAKDOWN: Final = "breakdown.safetensors"
STEPS: Final = 3
"""The number of profiled steps: a leak grows in each of them."""
WARMUP: Final = 3
MOST_KINDS: Final = 100
"""The maximum number of kinds of operators in the report."""
_MOST: Final = 0.9


def run(job: TrainingJob, folder: Path, output: Path) -> dict[str, Any]:
    """Profile steps of the first repeat on the first batch of the split, and write every change of memory.

    Raises:
        Failure: ``load``, ``step`` or ``predict``.
    """
    apply_environment(job)
    timings = Timings()
    with timings.of("init"):
        trainer = build_trainer(job, folder / RECIPE, job.seeds[0])
    progress = Progress("breakdown", STEPS)
    with timings.of("breakdown"):
        profiles = _profile_steps(job, trainer, folder, progress)
    progress.finish()
    columns: Columns = {"held": np.asarray([profiles[0].weights, profiles[0].optimizer], np.int64)}
    for number, profile in enumerate(profiles):
        columns |= {f"{number}/bytes": profile.bytes, f"{number}/category": profile.categories}
    save_file(columns, output / BREAKDOWN, metadata=job.file_metadata)
    return {"breakdown": _rank_operators(profiles), "timings": timings.seconds}


def _profile_steps(job: TrainingJob, trainer: Trainer, folder: Path, progress: Progress) -> list[StepProfile]:
    profile = getattr(trainer, "profile_step", None)
    if profile is None:
        raise Failure("load", f"the predictor {job.evaluation.model.predictor} has no breakdown of a step")
    samples = open_samples(job.dataset, folder / "dataset", job.evaluation.model.task)
    if samples.labels is None:
        raise Failure("load", "dataset: the split has no labels, which training needs")
    pipeline, size = Pipeline(job.evaluation.model, folder / RECIPE), min(job.settings["batch"], len(samples))
    batch = pipeline.stack([pipeline.prepare(samples, number).calls[0] for number in range(size)])
    labels = np.asarray(list(samples.labels)[:size], np.int64) + find_scores(job).label_offset
    with classify_errors("predict", "a step"):
        for _ in range(WARMUP):
            trainer.step(batch, labels)
        profiles = []
        for number in range(STEPS):
            profiles.append(profile(batch, labels))
            progress.at(number + 1)
    return profiles


def _rank_operators(profiles: list[StepProfile]) -> dict[str, Any]:
    """Return the share of each kind of operator in the CPU time of all, and how many kinds make 90 %."""
    totals: dict[str, int] = {}
    for profile in profiles:
        for kind, time in profile.operators.items():
            totals[kind] = totals.get(kind, 0) + time
    ranked = sorted(totals.items(), key=lambda item: (-item[1], item[0]))
    whole = max(sum(totals.values()), 1)
    shares = [time / whole for _, time in ranked]
    return {
        "steps": len(profiles),
        "kinds": len(ranked),
        "kinds_for_90_percent": count_kinds(shares),
        "operators": [
            {"kind": kind, "share": share} for (kind, _), share in zip(ranked[:MOST_KINDS], shares, strict=False)
        ],
    }


def count_kinds(shares: Sequence[float]) -> int:
    """Return how many of the shares, the largest first, make 90 % of all time; all of them if they make less."""
    total = 0.0
    for number, share in enumerate(shares, 1):
        total += share
        if total >= _MOST:
            return number
    return len(shares)
