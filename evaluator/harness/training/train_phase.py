"""The phases ``train-K``: one repeat of a training, from the first sample to the target."""

import math
import os
import resource
import time
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save_file

from ..core.failures import Failure, classify_errors
from ..core.job import Dataset, Output
from ..core.phase_reports import Progress, Timings
from ..core.training_job import RECIPE, RecipeJob, TrainingJob, derive_purpose_seed
from ..datasets import open_samples
from ..inference.pipeline import Pipeline
from ..predictors import Tensors
from . import Trainer, build_trainer, decide_classes, digest_weights, encode_weights
from .learning_rate import find_rate_factor

Columns = dict[str, NDArray[Any]]


def repeat_file(repeat: int) -> str:
    """Return the name of the file with the samples of a repeat."""
    return f"repeat-{repeat}.safetensors"


def weights_file(repeat: int) -> str:
    """Return the name of the file with the weights of a repeat."""
    return f"weights-{repeat}.safetensors"


def apply_environment(job: RecipeJob) -> None:
    """Set and remove the variables of the job; call it before the framework is imported."""
    for name, value in job.environment.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


def run(job: TrainingJob, folder: Path, output: Path, repeat: int) -> dict[str, Any]:
    """Train one repeat, write its weights and samples, and return the report of the phase.

    Raises:
        Failure: ``load``, ``step`` or ``predict``. A repeat that does not reach the target is no failure.
    """
    apply_environment(job)
    timings, seed = Timings(), job.seeds[repeat]
    with timings.of("init"):
        trainer = build_trainer(job, folder / RECIPE, seed)
        pipeline = Pipeline(job.evaluation.model, folder / RECIPE)
    training = _Training(job, trainer, pipeline, folder)
    with timings.of("train"):
        columns = training.run(seed, Progress(f"train-{repeat}", job.epochs))
    content = encode_weights(trainer.weights())
    (output / weights_file(repeat)).write_bytes(content)
    save_file(columns, output / repeat_file(repeat))
    report = {
        "seed": seed,
        "weights": digest_weights(content),
        "steps": len(columns["loss"]),
        "init_s": timings.seconds["init"],
        "reached": training.is_reached,
    }
    return {"repeat": report, "device": job.device, "threads": dict(trainer.threads), "timings": timings.seconds}


def find_scores(job: RecipeJob) -> Output:
    """Return the output with the scores of classes, on which loss and quality depend."""
    return job.evaluation.model.outputs[0]


def prepare_split(
    job: RecipeJob, pipeline: Pipeline, dataset: Dataset, folder: Path
) -> tuple[list[Tensors], NDArray[np.int64]]:
    """Return the inputs and the labels of all samples of a split.

    Args:
        job: The job.
        pipeline: The preprocessing of its inputs.
        dataset: The split.
        folder: The folder of the job.

    Raises:
        Failure: ``load`` or ``step``: the split has no labels, or a sample cannot be prepared.
    """
    samples = open_samples(dataset, folder / "dataset", job.evaluation.model.task)
    if samples.labels is None:
        raise Failure("load", "dataset: the split has no labels, which training needs")
    inputs = [pipeline.prepare(samples, number).calls[0] for number in range(len(samples))]
    return inputs, np.asarray(list(samples.labels), np.int64) + find_scores(job).label_offset


def make_sampler(seed: int) -> np.random.Generator:
    """Return the generator of the order of samples."""
    return np.random.Generator(np.random.PCG64(derive_purpose_seed(seed, "sampler")))


def list_batches(
    settings: Mapping[str, Any], count: int, generator: np.random.Generator
) -> Iterator[NDArray[np.int64]]:
    """Yield the numbers of the samples of each batch of an epoch.

    Args:
        settings: The settings of the training.
        count: The number of samples of the split.
        generator: The generator of their order.

    Raises:
        Failure: ``load``: the split has no whole batch.
    """
    size = settings["batch"]
    order = generator.permutation(count) if settings["sampler"]["kind"] == "shuffle" else np.arange(count)
    for start in range(0, count_steps(settings, count) * size, size):
        yield order[start : start + size]


def count_steps(settings: Mapping[str, Any], count: int) -> int:
    """Return the number of steps of an epoch over ``count`` samples.

    Raises:
        Failure: ``load``: the split has no whole batch.
    """
    size, keeps_last = settings["batch"], settings["sampler"]["last"] == "keep"
    steps = -(-count // size) if keeps_last else count // size
    if not steps:
        raise Failure("load", f"the split has {count} samples, fewer than a batch of {size}")
    return int(steps)


def set_rate(settings: Mapping[str, Any], trainer: Trainer, step: int, count: int) -> None:
    """Set the learning rate of a step, by the schedule of the settings and the number of samples of the split."""
    if "schedule" in settings:
        trainer.scale_rate(find_rate_factor(settings["schedule"], step, count_steps(settings, count)))


class _Training:
    def __init__(self, job: TrainingJob, trainer: Trainer, pipeline: Pipeline, folder: Path) -> None:
        self._job, self._trainer, self._pipeline, self._folder = job, trainer, pipeline, folder
        self.is_reached = False
        self._losses: list[float] = []
        self._steps_ns: list[int] = []
        self._evaluations: list[tuple[int, int, int]] = []
        self._predicted: list[NDArray[np.int64]] = []

    def run(self, seed: int, progress: Progress) -> Columns:
        """Train until the target or the last epoch; the clock runs from before the first sample is read."""
        self._start, self._cpu = time.perf_counter_ns(), _read_cpu()
        generator = make_sampler(seed)
        samples, labels = prepare_split(self._job, self._pipeline, self._job.dataset, self._folder)
        evaluated, expected = prepare_split(self._job, self._pipeline, self._job.evaluation.dataset, self._folder)
        self._check_apart(samples, evaluated)
        every = self._job.settings["evaluate"]["every"]
        for epoch in range(1, self._job.epochs + 1):
            for numbers in list_batches(self._job.settings, len(samples), generator):
                set_rate(self._job.settings, self._trainer, len(self._losses), len(samples))
                self._step([samples[number] for number in numbers], labels[numbers])
            progress.at(epoch)
            if not math.isfinite(self._losses[-1]):  # it cannot recover
                break
            if epoch % every == 0:
                self._evaluate(epoch, evaluated, expected)
                if self.is_reached:
                    break
        progress.finish()
        return {
            "loss": np.asarray(self._losses, np.float64),
            "step_ns": np.asarray(self._steps_ns, np.int64),
            "evaluation": np.asarray(self._evaluations, np.int64).reshape(-1, 3),
            "predicted": np.asarray(self._predicted, np.int64).reshape(len(self._evaluations), len(expected)),
        }

    def _check_apart(self, samples: list[Tensors], evaluated: list[Tensors]) -> None:
        """Raise if both splits have a sample in common; the time of this check does not count."""
        start, cpu = time.perf_counter_ns(), _read_cpu()
        learned = {_digest(inputs) for inputs in samples}
        shared = [number for number, inputs in enumerate(evaluated) if _digest(inputs) in learned]
        if shared:
            what = f"{len(shared)} of {len(evaluated)} samples of the evaluated split are also in the training split"
            raise Failure("load", f"dataset: {what}, the first is sample {shared[0]}")
        self._start += time.perf_counter_ns() - start
        self._cpu += _read_cpu() - cpu

    def _step(self, inputs: list[Tensors], labels: NDArray[np.int64]) -> None:
        start = time.perf_counter_ns()
        with classify_errors("predict", f"step {len(self._losses)}"):
            self._losses.append(self._trainer.step(self._pipeline.stack(inputs), labels))
        self._steps_ns.append(time.perf_counter_ns() - start)

    def _evaluate(self, epoch: int, inputs: list[Tensors], expected: NDArray[np.int64]) -> None:
        output, size = find_scores(self._job), self._job.settings["evaluate"]["batch"]
        decided = []
        with classify_errors("predict", f"the evaluation after epoch {epoch}"):
            for start in range(0, len(inputs), size):
                batch = inputs[start : start + size]
                answer = self._trainer.predict(self._pipeline.stack(batch))[output.name][: len(batch)]
                decided.append(decide_classes(output, answer))
        predicted = np.concatenate(decided)
        right = int((predicted == expected - output.label_offset).sum())
        self.is_reached = right / len(expected) >= self._job.target.value
        self._predicted.append(predicted)
        self._evaluations.append((epoch, time.perf_counter_ns() - self._start, _read_cpu() - self._cpu))


def _digest(inputs: Tensors) -> bytes:
    """Return a digest of the prepared inputs of a sample."""
    content = sha256()
    for name in sorted(inputs):
        content.update(name.encode() + np.ascontiguousarray(inputs[name]).tobytes())
    return content.digest()


def _read_cpu() -> int:
    """Return the CPU time of all threads of this process, in nanoseconds."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return round((usage.ru_utime + usage.ru_stime) * 1e9)
