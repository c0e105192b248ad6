"""The job of a distributed training: a recipe, the number of its processes, and the number of steps."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .job import Job
from .scenarios import JobError, check_minimum, read_required
from .training_job import RecipeJob, read_recipe

METRICS = (
    "steps_per_second",
    "communication",
    "communication_logical",
    "speedup",
    "efficiency",
    "loss_difference",
)
MAX_PROCESSES = 16
SINGLE = "single"
"""The phase of the reference: one process with the same arithmetic."""
RANKS = "ranks"
"""The phase whose processes train together."""
RANK = "rank-"
"""The beginning of the names of the processes of the phase ``ranks``; the number of the rank follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DistributedJob(RecipeJob):
    """A job that trains a recipe for some steps, in one process and then in several that share each batch.

    Attributes:
        processes: The number of processes, called ranks.
        bucket_bytes: The size of the groups in which gradients are sent.
        steps: The number of steps that count.
        warmup: The number of steps before them.
    """

    processes: int
    bucket_bytes: int
    steps: int
    warmup: int

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases to run, in order."""
        return (SINGLE, RANKS)

    @property
    def all_steps(self) -> int:
        """The number of steps, warm-up included."""
        return self.warmup + self.steps

    @property
    def ranks(self) -> tuple[str, ...]:
        """The names of the processes of the phase ``ranks``."""
        return tuple(f"{RANK}{rank}" for rank in range(self.processes))


def parse_distributed_job(document: Mapping[str, Any], evaluation: Job) -> DistributedJob:
    """Parse the content of a job.json with a recipe and a distribution.

    Args:
        document: The content.
        evaluation: The job in its key ``evaluation``; its model is the network.

    Raises:
        JobError: A key is missing or wrong; the message has its path.
    """
    scenario, distribution = (read_required(document, key, dict, "") for key in ("scenario", "distribution"))
    kinds = tuple(distribution.get(key) for key in ("strategy", "backend"))
    if scenario.get("name") != "steps" or kinds != ("all-reduce", "gloo"):
        raise JobError("distribution: only all-reduce by gloo in the scenario steps is supported")

    def count(table: str, key: str, least: int) -> int:
        value: int = read_required(document[table], key, int, table)
        return check_minimum(least, value, f"{table}.{key}")

    job = DistributedJob(
        **read_recipe(document, METRICS, 1),
        evaluation=evaluation,
        processes=count("distribution", "processes", 2),
        bucket_bytes=count("distribution", "bucket_bytes", 1),
        steps=count("scenario", "steps", 1),
        warmup=count("scenario", "warmup", 0),
    )
    if job.processes > MAX_PROCESSES:
        raise JobError(f"distribution.processes: {job.processes} is above {MAX_PROCESSES}")
    return job
