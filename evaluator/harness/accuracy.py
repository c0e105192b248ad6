"""The accuracy phase: each sample once, in the order of the index; the run's predictions are of this phase."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from . import predictors
from .calling import Session, call
from .datasets import Samples, open_samples
from .failures import failing
from .golden import check_golden
from .job import Job, Model
from .pipeline import Pipeline, Prediction, Prepared
from .predictors import Tensors
from .quality import open_tally
from .reports import Progress, Timings
from .scenarios import Accuracy
from .tensorfiles import save_tensors

PREDICTIONS = "predictions.safetensors"
MEASURES = "quality.safetensors"


def run(job: Job, folder: Path, output: Path) -> dict[str, Any]:
    """The phase's report; the predictions, and what each sample adds to a metric, are written beside it.

    Raises:
        Failure: of class ``load``, ``step``, ``predict``, ``golden`` or ``out-of-memory``.
    """
    timings = Timings()
    with timings.of("load"):
        predictor = predictors.load(job.model, folder / "model", job.threads, job.device)
        session = Session(predictor, job.model)
        pipeline = Pipeline(job.model, folder / "model")
    with timings.of("golden"):
        golden = check_golden(job.model, predictor, pipeline, folder / "model")
    samples = open_samples(job.dataset, folder / "dataset", job.model.task if job.quality_metrics else None)
    tally = open_tally(job, samples)
    found: list[Prediction] = []
    consumed = job.model.detections.outputs if job.model.detections is not None else ()
    progress = Progress("accuracy", len(samples))
    for sample, prediction in _predict_all(job, session, pipeline, samples, timings):
        compared = samples.labels if job.quality_metrics else None
        tally.add(prediction, compared[len(found)] if compared is not None else None, sample)
        found.append({name: values for name, values in prediction.items() if name not in consumed})
        progress.at(len(found))
    progress.finish()
    predictor.close()
    save_tensors(output / PREDICTIONS, {**stored(job.model, found), **tally.tensors()})
    quality, measures = tally.document(), tally.measures()
    if measures:
        save_tensors(output / MEASURES, measures)
    return {
        "golden": golden,
        "quality": quality,
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


def stored(model: Model, predictions: Sequence[Prediction]) -> Tensors:
    """One tensor an output, first axis the sample.

    Where an output keeps its calls apart and samples have more or fewer of them, one after the other on the first axis,
    and ``OUTPUT.calls`` says how many each sample has.

    Raises:
        Failure: ``predict``: predictions of different shapes.
    """
    tensors: Tensors = {}
    apart = {output.name for output in model.outputs if output.reduce == "none"}
    for name in predictions[0]:
        values = [prediction[name] for prediction in predictions]
        with failing("predict", f"output {name} of all samples"):
            if name in apart and len({len(one) for one in values}) > 1:
                tensors[name] = np.concatenate(values)
                tensors[f"{name}.calls"] = np.asarray([len(one) for one in values], np.int64)
            else:
                tensors[name] = np.stack(values)
    return tensors
