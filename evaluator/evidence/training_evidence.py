"""Metrics of a training, recomputed from weights, raw samples, predictions and the labels of the dataset."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.evidence.breakdown_evidence import check_ranking, measure_breakdown
from benchlock.evaluator.evidence.prediction_scores import UnreadableLabelsError
from benchlock.evaluator.harness.core.failures import Failure
from benchlock.evaluator.harness.core.job_parser import parse_training
from benchlock.evaluator.harness.core.training_job import MEMORY, TrainingJob
from benchlock.evaluator.harness.datasets import open_samples
from benchlock.evaluator.harness.training import decide_classes, digest_weights
from benchlock.evaluator.harness.training.train_phase import find_scores
from benchlock.evaluator.runner.job_folder import job_document
from benchlock.evaluator.runner.run_outcome import weights_role
from benchlock.evaluator.statistics.convergence import olympic_mean
from benchlock.evaluator.statistics.equivalence import centre, find_interval_over_runs
from benchlock.evaluator.statistics.metric_types import Interval, Metric, find_definitions
from benchlock.registry.artifact_names import Kind
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests import Manifest
from benchlock.registry.manifests.metric_definitions import MetricDefinition

_NANOSECONDS = 1e-9
_HOUR = 3600.0
_COLUMNS = {"loss": (np.float64, 1), "step_ns": (np.int64, 1), "evaluation": (np.int64, 2), "predicted": (np.int64, 2)}
_LONGEST_NS = 1 << 53
_EVALUATION = 3

Tensors = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class TrainingEvidence:
    """The metrics of a training, the seconds of all repeats, and the digest of the durations of their steps."""

    metrics: tuple[Metric, ...]
    claimed: float
    measurement: Digest


@dataclass(frozen=True, slots=True)
class RepeatResult:
    """One repeat: infinite epochs, samples and seconds stand for a target that was not reached.

    ``curve`` has the epoch and the quality of each evaluation.
    """

    epochs: float
    samples: float
    seconds: float
    cpu_seconds: float
    throughput: float
    quality: float
    claimed: float
    curve: tuple[tuple[int, float], ...]


def measure_training(
    lock: Lock, manifests: Mapping[Kind, Manifest], files: Mapping[str, Path], document: Mapping[str, Any], labels: Path
) -> TrainingEvidence:
    """Compute the metrics of a training from the blobs of a finished run.

    Args:
        lock: The lock of a recipe.
        manifests: Its manifests.
        files: The files of the blobs, by role.
        document: The ``result.json``.
        labels: The folder of the dataset's files.

    Raises:
        UnreadableLabelsError: The labels cannot be read here.
        InvalidInputError: A blob is malformed, or contradicts the lock or the result.
    """
    job, samples, results = _read_repeats(lock, manifests, files, labels)
    stated = document["training"]["repeats"]
    if not isinstance(stated, list) or len(stated) != len(job.seeds):
        raise InvalidInputError(f"the result does not state {len(job.seeds)} repeats")
    for repeat, (facts, result) in enumerate(zip(stated, results, strict=True)):
        steps = len(samples[f"{repeat}/loss"])
        _check_stated(job, repeat, facts, files, steps, is_reached=math.isfinite(result.epochs))
    metrics = tuple(_list_metrics(lock, results, files, document))
    durations = np.concatenate([samples[f"{repeat}/step_ns"] for repeat in range(len(results))])
    return TrainingEvidence(metrics, sum(result.claimed for result in results), digest_bytes(durations.tobytes()))


def read_repeats(
    lock: Lock, manifests: Mapping[Kind, Manifest], files: Mapping[str, Path], labels: Path
) -> tuple[RepeatResult, ...]:
    """Compute the result of each repeat of a training from its samples and predictions.

    Args:
        lock: The lock of a recipe.
        manifests: Its manifests.
        files: The files of the blobs ``samples`` and ``predictions``.
        labels: The folder of the dataset's files.

    Raises:
        UnreadableLabelsError: The labels cannot be read here.
        InvalidInputError: A blob is malformed, or contradicts the lock.
    """
    return _read_repeats(lock, manifests, files, labels)[2]


def _read_repeats(
    lock: Lock, manifests: Mapping[Kind, Manifest], files: Mapping[str, Path], labels: Path
) -> tuple[TrainingJob, Tensors, tuple[RepeatResult, ...]]:
    job = parse_training(job_document(lock, "cpu", manifests))
    expected = _read_labels(job, labels)
    samples, scores = (_load(role, files) for role in ("samples", "predictions"))
    results = tuple(
        _measure_repeat(job, _read_columns(samples, repeat, len(expected)), scores.get(str(repeat)), expected)
        for repeat in range(len(job.seeds))
    )
    return job, samples, results


def _read_labels(job: TrainingJob, folder: Path) -> NDArray[np.int64]:
    try:
        labels = open_samples(job.evaluation.dataset, folder, job.evaluation.model.task).labels
    except Failure as error:
        raise UnreadableLabelsError(error.message) from error
    return np.asarray(list(labels or ()), np.int64)


def _load(role: str, files: Mapping[str, Path]) -> Tensors:
    try:
        tensors: Tensors = load_file(files[role])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(f"the blob {role} is missing or malformed: {error}") from error
    return tensors


def _read_columns(samples: Tensors, repeat: int, count: int) -> Tensors:
    """Return the columns of a repeat, whose types, shapes and ranges are those that the harness writes."""
    columns = {name: samples.get(f"{repeat}/{name}") for name in _COLUMNS}
    for name, (dtype, axes) in _COLUMNS.items():
        column = columns[name]
        if column is None or column.dtype != dtype or column.ndim != axes:
            raise InvalidInputError(f"the samples of repeat {repeat} lack {name}")
    loss, steps, evaluation, predicted = (columns[name] for name in _COLUMNS)
    assert loss is not None
    assert steps is not None
    assert evaluation is not None
    assert predicted is not None
    is_sized = len(loss) == len(steps) > 0 and evaluation.shape[1] == _EVALUATION
    if not is_sized or predicted.shape != (len(evaluation), count):
        raise InvalidInputError(f"the samples of repeat {repeat} have columns of different lengths")
    for values in (steps, evaluation):
        if values.size and (values.min() < 0 or float(values.sum(dtype=np.float64)) > _LONGEST_NS):
            raise InvalidInputError(f"the samples of repeat {repeat} have values out of range")
    return {"loss": loss, "step_ns": steps, "evaluation": evaluation, "predicted": predicted}


def _measure_repeat(
    job: TrainingJob, columns: Tensors, scores: NDArray[Any] | None, expected: NDArray[np.int64]
) -> RepeatResult:
    """Return the result of a repeat, whose evaluations must end at the first that reaches the target."""
    settings, output = job.settings, find_scores(job)
    steps, count = len(columns["loss"]), int(job.dataset.split["samples"])
    batches = count // settings["batch"] if settings["sampler"]["last"] == "drop" else -(-count // settings["batch"])
    every = settings["evaluate"]["every"]
    epochs = [int(row[0]) for row in columns["evaluation"]]
    complete = steps // batches
    due = list(range(every, complete + math.isfinite(columns["loss"][-1]), every))
    if steps % batches or complete > job.epochs or epochs != due:
        raise InvalidInputError(f"the run has evaluations after epochs {epochs}, which its {steps} steps do not give")
    _check_times(columns, [epoch * batches for epoch in epochs])
    quality = (columns["predicted"] == expected).mean(axis=1) if epochs else np.zeros(0)
    reached = [index for index, value in enumerate(quality) if value >= job.target.value]
    if reached and reached[0] != len(epochs) - 1:
        raise InvalidInputError(f"the training did not end at epoch {epochs[reached[0]]}, which reached the target")
    if not reached and complete != job.epochs and math.isfinite(columns["loss"][-1]):
        raise InvalidInputError(f"the training ended after epoch {complete} of {job.epochs} without the target")
    if scores is None or scores.ndim != 2 or len(scores) != len(expected):  # noqa: PLR2004 - samples and classes
        raise InvalidInputError("the predictions lack the scores of a repeat")
    try:
        final = float((decide_classes(output, scores) == expected).mean())
    except Failure as error:
        raise InvalidInputError(error.message) from error
    if reached and final < job.target.value:
        what = f"the training reached {quality[-1]:g}, the target, but its final weights give {final:g} when loaded"
        raise InvalidInputError(what)
    seconds = max(float(columns["step_ns"].sum()), 1.0) * _NANOSECONDS
    per_epoch = count - count % settings["batch"] if settings["sampler"]["last"] == "drop" else count
    last = columns["evaluation"][-1] * _NANOSECONDS if epochs else np.zeros(_EVALUATION)
    until = float(epochs[-1]) if reached else math.inf
    return RepeatResult(
        epochs=until,
        samples=until * per_epoch,
        seconds=float(last[1]) if reached else math.inf,
        cpu_seconds=float(last[2]) if reached else math.inf,
        throughput=complete * per_epoch / seconds,
        quality=final,
        claimed=max(seconds, float(last[1])),
        curve=tuple(zip(epochs, quality.tolist(), strict=True)),
    )


def _check_times(columns: Tensors, steps: Sequence[int]) -> None:
    """Raise unless the clocks of the evaluations go on, and have run for the steps before each of them."""
    _, elapsed, cpu = columns["evaluation"].T
    if (np.diff(elapsed) <= 0).any() or (np.diff(cpu) < 0).any():
        raise InvalidInputError("the times of the evaluations go back")
    if (elapsed < [columns["step_ns"][:count].sum() for count in steps]).any():
        raise InvalidInputError("an evaluation is earlier than the steps before it can end")


def _check_stated(
    job: TrainingJob, repeat: int, facts: object, files: Mapping[str, Path], steps: int, *, is_reached: bool
) -> None:
    """Raise unless the result states the facts that the blobs of a repeat have."""
    role = weights_role(repeat)
    if role not in files:
        raise InvalidInputError(f"the evidence lacks the blob {role}")
    actual = {
        "seed": job.seeds[repeat],
        "weights": digest_weights(files[role].read_bytes()),
        "steps": steps,
        "reached": is_reached,
    }
    for name, value in actual.items():
        if not isinstance(facts, Mapping) or facts.get(name) != value:
            raise InvalidInputError(f"the result states another {name} of repeat {repeat} than its blobs")


def _list_metrics(
    lock: Lock, results: Sequence[RepeatResult], files: Mapping[str, Path], document: Mapping[str, Any]
) -> Iterator[Metric]:
    """Yield the metrics of the lock that have a value."""
    definitions = find_definitions(lock)
    memory: Mapping[str, Metric] = {}
    if any(definition.name in MEMORY for definition in definitions):
        check_ranking(document)
        memory = measure_breakdown(files["breakdown"])
    for definition in definitions:
        if definition.name in memory:
            yield memory[definition.name]
        elif metric := _summarise(definition, _series(definition.name, results, lock)):
            yield metric


_FIELDS = {
    "epochs_to_quality": "epochs",
    "epochs_to_quality_olympic": "epochs",
    "samples_to_quality": "samples",
    "time_to_quality": "seconds",
    "cpu_time_to_quality": "cpu_seconds",
    "training_cost": "seconds",
    "training_throughput": "throughput",
    "final_quality": "quality",
}
"""The field of each metric."""


def _series(name: str, results: Sequence[RepeatResult], lock: Lock) -> list[float]:
    factor = lock.request["price"]["amount"] / _HOUR if name == "training_cost" else 1.0
    return [getattr(result, _FIELDS[name]) * factor for result in results]


def _summarise(definition: MetricDefinition, values: Sequence[float]) -> Metric | None:
    """Return the median over repeats with its interval; None where most repeats did not reach the target."""
    if definition.name == "epochs_to_quality_olympic":
        value = olympic_mean([value if math.isfinite(value) else None for value in values])
        ci = Interval(None, None)
    else:
        value = centre(values)
        ends = find_interval_over_runs(values)
        ci = Interval(*(end if end is not None and math.isfinite(end) else None for end in (ends.low, ends.high)))
    if value is None or not math.isfinite(value):
        return None
    return Metric(definition.name, value, definition.unit, definition.direction, len(values), ci, definition.version)
