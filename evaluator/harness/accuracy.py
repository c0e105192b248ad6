"""The accuracy phase: each sample once, in the order of the index; the run's predictions are of this phase."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import predictors
from .calling import Session, call
from .datasets import Samples, open_samples
from .failures import failing
from .job import Job
from .pipeline import Pipeline, Prediction, Prepared
from .predictors import Tensors
from .quality import open_tally
from .reports import Progress, Timings
from .scenarios import Accuracy
from .tensorfiles import save_tensors

PREDICTIONS = "predictions.safetensors"


def run(job: Job, folder: Path, output: Path) -> dict[str, Any]:
    """The phase's report; the predictions are written beside it.

    Raises:
        Failure: of class ``load``, ``step``, ``predict`` or ``out-of-memory``.
    """
    timings = Timings()
    with timings.of("load"):
        predictor = predictors.load(job.model, folder / "model", job.threads, job.device)
        session = Session(predictor, job.model)
        pipeline = Pipeline(job.model, folder / "model")
    samples = open_samples(job.dataset, folder / "dataset", job.model.task if job.quality_metrics else None)
    tally = open_tally(job, samples)
    found: list[Prediction] = []
    progress = Progress("accuracy", len(samples))
    for sample, prediction in _predict_all(job, session, pipeline, samples, timings):
        tally.add(prediction, samples.labels[len(found)] if samples.labels is not None else None, sample)
        found.append(prediction)
        progress.at(len(found))
    progress.finish()
    predictor.close()
    _save(found, tally.tensors(), output / PREDICTIONS)
    return {
        "quality": tally.document(),
        "threads": dict(predictor.threads),
        "device": predictor.device,
        "timings": timings.seconds,
    }


def _predict_all(
    job: Job, session: Session, pipeline: Pipeline, samples: Samples, timings: Timings
) -> Iterator[tuple[Prepared, Prediction]]:
    scenario = job.scenario
    asked, warmup = (scenario.batch, scenario.warmup) if isinstance(scenario, Accuracy) else (1, 0)
    size = pipeline.batch_size(asked)
    for start in range(0, len(samples), size):
        numbers = range(start, min(start + size, len(samples)))
        with timings.of("prepare"):
            prepared = [pipeline.prepare(samples, number) for number in numbers]
        if start == 0:
            _warm_up(session, pipeline.stack([sample.calls[0] for sample in prepared]), warmup)
        predictions = _predict(session, pipeline, prepared, f"samples {numbers[0]} to {numbers[-1]}", timings)
        yield from zip(prepared, predictions, strict=True)


def _warm_up(session: Session, batch: Tensors, calls: int) -> None:
    for _ in range(calls):
        call(session, batch, "warm-up")
    session.restart()


def _predict(
    session: Session, pipeline: Pipeline, prepared: Sequence[Prepared], where: str, timings: Timings
) -> list[Prediction]:
    """The predictions of samples that go into one call, or of one that takes several."""
    session.start_sample()
    answers = []
    for number in range(len(prepared[0].calls)):
        with timings.of("prepare"):
            batch = pipeline.stack([sample.calls[number] for sample in prepared])
        with timings.of("predict"):
            tensors = call(session, batch, where)
        with timings.of("outputs"):
            answers.append(pipeline.answers(tensors, len(prepared), where))
    with timings.of("outputs"):
        return [pipeline.combine(calls) for calls in zip(*answers, strict=True)]


def _save(predictions: list[Prediction], together: Tensors, path: Path) -> None:
    """One tensor an output, first axis the sample."""
    with failing("predict", "predictions of all samples"):
        tensors = {name: np.stack([prediction[name] for prediction in predictions]) for name in predictions[0]}
    save_tensors(path, tensors | together)
