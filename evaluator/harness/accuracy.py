"""The accuracy phase: each sample once, in the order of the index; the run's predictions are of this phase."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import predictors
from .datasets import Samples, open_samples
from .failures import Failure, failing
from .job import Accuracy, Job, Model
from .pipeline import answers, prepared, stack
from .predictors import Predictor, Tensors
from .quality import Tally
from .reports import Progress, Timings
from .tensorfiles import save_tensors

PREDICTIONS = "predictions.safetensors"

Prediction = dict[str, NDArray[Any]]


def run(job: Job, folder: Path, output: Path) -> dict[str, Any]:
    """The phase's report; the predictions are written beside it.

    Raises:
        Failure: of class ``load``, ``step``, ``predict`` or ``out-of-memory``.
    """
    timings = Timings()
    with timings.of("load"):
        predictor = predictors.load(job.model, folder / "model", job.threads, job.device)
    samples = open_samples(job.dataset, folder / "dataset")
    tally = Tally(job.model.outputs, job.quality_metrics) if job.quality_metrics else None
    if tally is not None and samples.labels is None:
        raise Failure("load", "dataset: the split has no labels, and a quality metric is asked")
    found: list[Prediction] = []
    progress = Progress("accuracy", len(samples))
    for prediction in _predict_all(job, predictor, samples, timings):
        if tally is not None and samples.labels is not None:
            tally.add(prediction, samples.labels[len(found)])
        found.append(prediction)
        progress.at(len(found))
    progress.finish()
    predictor.close()
    _save(found, output / PREDICTIONS)
    return {
        "quality": tally.counts() if tally is not None else {},
        "threads": dict(predictor.threads),
        "device": predictor.device,
        "timings": timings.seconds,
    }


def batch_size(model: Model, asked: int) -> int:
    """Samples a call: what the graph fixes, else what is asked; one where a tensor has no batch axis."""
    axes = [port.axes for port in model.inputs] + [port.axes for port in model.outputs]
    if any(found.axis is None for found in axes):
        return 1
    return model.batch or asked


def call(predictor: Predictor, batch: Tensors, where: str) -> Tensors:
    """The predictor's answer; ``Failure`` (``predict``, ``out-of-memory``) with the framework's reason."""
    with failing("predict", where):
        return predictor.predict(batch)


def _predict_all(job: Job, predictor: Predictor, samples: Samples, timings: Timings) -> Iterator[Prediction]:
    scenario = job.scenario
    asked, warmup = (scenario.batch, scenario.warmup) if isinstance(scenario, Accuracy) else (1, 0)
    size = batch_size(job.model, asked)
    for start in range(0, len(samples), size):
        numbers = range(start, min(start + size, len(samples)))
        where = f"samples {numbers[0]} to {numbers[-1]}"
        with timings.of("prepare"):
            batch = stack(job.model, [prepared(job.model, samples, number) for number in numbers])
        for _ in range(warmup if start == 0 else 0):
            call(predictor, batch, "warm-up")
        with timings.of("predict"):
            tensors = call(predictor, batch, where)
        with timings.of("outputs"):
            predictions = answers(job.model.outputs, tensors, len(numbers), where)
        yield from predictions


def _save(predictions: list[Prediction], path: Path) -> None:
    """One tensor an output, first axis the sample."""
    with failing("predict", "predictions of all samples"):
        tensors = {name: np.stack([prediction[name] for prediction in predictions]) for name in predictions[0]}
    save_tensors(path, tensors)
