"""The job of a training: a recipe, the split to learn, the target, and one seed for each repeat."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Any

from .job import Code, Dataset, Job
from .scenarios import JobError, check_minimum, read_optional, read_required

MEMORY = (
    "step_memory",
    "memory_weights",
    "memory_gradients",
    "memory_optimizer",
    "memory_saved",
    "memory_transient",
    "memory_growth",
)
"""The metrics of the phase ``breakdown``."""
METRICS = (
    "epochs_to_quality",
    "epochs_to_quality_olympic",
    "samples_to_quality",
    "time_to_quality",
    "cpu_time_to_quality",
    "training_throughput",
    "training_cost",
    "final_quality",
    *MEMORY,
)
MAX_REPEATS = 64
TRAIN = "train-"
"""The beginning of the names of the phases that train; the number of the repeat follows."""
RECIPE = "recipe"
"""The folder of the recipe's files."""
WEIGHTS = "weights.safetensors"
_QUALITY = "top1"


@dataclass(frozen=True, slots=True)
class Target:
    """The quality to reach: the share of samples of the evaluated split whose class is right."""

    metric: str
    value: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeJob:
    """What every job of a recipe has.

    Attributes:
        network: The function that builds the network.
        initial: The files of the weights that it starts from; none for a new network.
        settings: Optimizer, loss, batch, sampler and evaluation, all values set.
        dataset: The split to learn.
        evaluation: The job that evaluates trained weights.
        deterministic: Whether the framework uses deterministic algorithms only.
        seeds: The seed of each repeat.
        environment: The values of variables that may change bits; None for a variable that must be absent.
        metrics: The requested metrics.
    """

    network: Code
    initial: tuple[str, ...]
    settings: Mapping[str, Any]
    dataset: Dataset
    evaluation: Job
    deterministic: bool
    seeds: tuple[int, ...]
    environment: Mapping[str, str | None]
    metrics: tuple[str, ...]

    @property
    def threads(self) -> int:
        """The thread count of every runtime."""
        return self.evaluation.threads

    @property
    def device(self) -> str:
        """The device to train on."""
        return self.evaluation.device

    @property
    def isolation(self) -> str:
        """The isolation of the run."""
        return self.evaluation.isolation

    @property
    def lock_fingerprint(self) -> str:
        """The fingerprint of the lock."""
        return self.evaluation.lock_fingerprint

    @property
    def file_metadata(self) -> dict[str, str]:
        """The metadata of the tensor files that the job writes, except weights."""
        return self.evaluation.file_metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob(RecipeJob):
    """A job that trains a recipe several times, each time with its own seed in a fresh process.

    Attributes:
        target: The quality to reach, on the split of ``evaluation``.
        epochs: The maximum number of epochs.
    """

    target: Target
    epochs: int

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases to run, in order: each repeat in its own process, the evaluation of all weights, a breakdown."""
        repeats = (f"{TRAIN}{repeat}" for repeat in range(len(self.seeds)))
        return (*repeats, "evaluate", *(("breakdown",) if set(MEMORY) & set(self.metrics) else ()))


def derive_purpose_seed(seed: int, purpose: str) -> int:
    """Return the 32-bit seed of one generator: Python's, numpy's, the framework's or the sampler's."""
    return int.from_bytes(sha256(f"benchlock training {seed} {purpose}".encode()).digest()[:4], "big")


def parse_training_job(document: Mapping[str, Any], evaluation: Job) -> TrainingJob:
    """Parse the content of a job.json with a recipe and a target.

    Args:
        document: The content.
        evaluation: The job in its key ``evaluation``.

    Raises:
        JobError: A key is missing or wrong; the message has its path.
    """
    scenario, target = (read_required(document, key, dict, "") for key in ("scenario", "target"))
    if scenario.get("name") != "time_to_quality" or target.get("metric") != _QUALITY:
        raise JobError(f"scenario: only time_to_quality with a target of {_QUALITY} is supported")
    return TrainingJob(
        **read_recipe(document, METRICS, MAX_REPEATS),
        evaluation=evaluation,
        target=Target(_QUALITY, float(read_required(target, "value", (int, float), "target"))),
        epochs=check_minimum(1, read_required(scenario, "epochs", int, "scenario"), "scenario.epochs"),
    )


def read_recipe(document: Mapping[str, Any], known: Collection[str], repeats: int) -> dict[str, Any]:
    """Read the fields of ``RecipeJob`` but ``evaluation`` from the content of a job.json.

    Args:
        document: The content.
        known: The metrics of the level.
        repeats: The maximum number of seeds.

    Raises:
        JobError: A key is missing or wrong; the message has its path.
    """
    metrics = tuple(read_required(document, "metrics", list, ""))
    for index, name in enumerate(metrics):
        if name not in known:
            raise JobError(f"metrics[{index}]: {name!r} is not supported")
    dataset, code, scenario = (read_required(document, key, dict, "") for key in ("dataset", "network", "scenario"))
    seeds = tuple(read_required(document, "seeds", list, ""))
    if not 1 <= len(seeds) <= repeats or not all(isinstance(seed, int) for seed in seeds):
        raise JobError(f"seeds: expected 1 to {repeats} integers")
    return {
        "network": Code(*(read_required(code, key, str, "network") for key in ("file", "function"))),
        "initial": tuple(read_required(document, "initial", list, "")),
        "settings": read_required(document, "settings", dict, ""),
        "dataset": Dataset(
            read_required(dataset, "format", str, "dataset"),
            read_required(dataset, "split", dict, "dataset"),
            read_optional(dataset, "labels", str, "dataset"),
        ),
        "deterministic": read_required(scenario, "deterministic", bool, "scenario"),
        "seeds": seeds,
        "environment": read_required(document, "environment", dict, ""),
        "metrics": metrics,
    }
