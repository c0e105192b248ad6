"""The accuracy phase: predict every sample once, in the order of the index.

Other threads prepare samples ahead while the model predicts; the thread that predicts helps while it would wait.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from .. import predictors
from ..core.failures import Failure
from ..core.job import Job
from ..core.phase_reports import Progress, Timings
from ..core.scenarios import accuracy_batch
from ..datasets import Samples, open_samples
from ..inference.finite_checks import FiniteCheck
from ..inference.golden_tensors import check_golden
from ..inference.mlperf_audits import UNKEPT_OUTPUTS, UnkeptOutputs
from ..inference.model_session import Session, call
from ..inference.pipeline import Pipeline, Prediction, Prefetcher, PreparedSample, count_prefetch_threads
from ..inference.predictions import (
    PREDICTIONS,
    PredictionRecorder,
    add_detections,
    check_picture,
    join_outputs,
    save_tensors,
)
from ..predictors import Place, Tensors

# Samples that each thread may be ahead, beside those of the next call.
_AHEAD = 2


def run(job: Job, folder: Path, output: Path) -> dict[str, Any]:
    """Predict all samples, write the predictions, and return the report of the phase.

    Raises:
        Failure: Of class ``load``, ``step``, ``predict``, ``non-finite``, ``golden`` or ``out-of-memory``.
    """
    timings = Timings()
    with timings.of("load"):
        pipeline = Pipeline(job.model, folder / "model")
        shared = count_prefetch_threads(pipeline, job) > 0
        predictor = predictors.load(job.model, folder / "model", Place(job.threads, job.device, shared))
        session = Session(predictor, job.model)
    with timings.of("golden"):
        golden = check_golden(job.model, predictor, pipeline, folder / "model")
    with timings.of("open"):
        samples = open_samples(job.dataset, folder / "dataset")
        check_picture(job.model)
    phase = _Phase(job, session, pipeline, samples, timings)
    recorder = PredictionRecorder(job.model)
    unkept = UnkeptOutputs(job.model.detections.outputs if job.model.detections is not None else ())
    progress = Progress("accuracy", len(samples))
    with phase.predicted.checking(), phase.returned.checking():
        for sample, prediction in phase.predict_all():
            with timings.of("record"), _of_sample(samples, len(recorder)):
                geometry = sample.geometry.get(job.model.first_image or "")
                recorder.add(add_detections(job.model, prediction, geometry), geometry)
            unkept.take(prediction)
            progress.at(len(recorder))
    progress.finish()
    predictor.close()
    with timings.of("save"):
        tensors = recorder.tensors()
        del recorder  # the output folder may be in memory, too
        save_tensors(output / PREDICTIONS, tensors, job.file_metadata)
        del tensors
        if unkept.predictions:
            save_tensors(output / UNKEPT_OUTPUTS, join_outputs(unkept.predictions))
    return {
        "golden": golden,
        "accuracy": {"batch": phase.size, "threads_ahead": phase.threads},
        "threads": dict(predictor.threads),
        "device": predictor.device,
        "timings": timings.seconds,
    }


@contextmanager
def _of_sample(samples: Samples, number: int) -> Iterator[None]:
    """Failures inside name the sample, as those of preparing it do."""
    try:
        yield
    except Failure as error:
        raise Failure(error.kind, f"sample {number} ({samples.names[number]}): {error.message}") from error


class _Phase:
    """All samples through the pipeline, in order."""

    def __init__(self, job: Job, session: Session, pipeline: Pipeline, samples: Samples, timings: Timings) -> None:
        requested_size, self._warmup = accuracy_batch(job.scenario)
        self.size = pipeline.batch_size(requested_size)
        self.threads = count_prefetch_threads(pipeline, job)
        self._session, self._pipeline, self._samples, self._timings = session, pipeline, samples, timings
        self.returned = FiniteCheck(job.model, samples.names)
        self.predicted = FiniteCheck(job.model, samples.names, when=" after its steps")

    def predict_all(self) -> Iterator[tuple[PreparedSample, Prediction]]:
        """Each sample as it was prepared, and what was predicted of it.

        ``prepare`` is the time of all threads, ``wait`` what the predicting one waited for them.
        """
        depth = self.size + _AHEAD * self.threads
        ahead = Prefetcher(self._prepare, len(self._samples), self.threads, depth)
        upcoming = iter(ahead)
        for start in range(0, len(self._samples), self.size):
            prepared = list(islice(upcoming, self.size))
            if start == 0:
                _warm_up(self._session, self._pipeline.stack([sample.calls[0] for sample in prepared]), self._warmup)
            predictions = self._predict(prepared, start)
            for number, prediction in enumerate(predictions, start):
                self.predicted.add_prediction(prediction, number)
            yield from zip(prepared, predictions, strict=True)
        self._timings.seconds |= {"prepare": ahead.busy, "wait": ahead.waited}

    def _prepare(self, number: int) -> PreparedSample:
        return self._pipeline.prepare(self._samples, number)

    def _predict(self, prepared: Sequence[PreparedSample], start: int) -> list[Prediction]:
        """Predict samples that go into one call, or one that takes several; ``start`` is the number of the first."""
        where = f"samples {start} to {start + len(prepared) - 1}"
        self._session.start_sample()
        answers = []
        for number in range(len(prepared[0].calls)):
            with self._timings.of("stack"):
                batch = self._pipeline.stack([sample.calls[number] for sample in prepared])
            with self._timings.of("predict"):
                tensors = call(self._session, batch, where)
            with self._timings.of("check"):
                self.returned.add_call(tensors, start, len(prepared))
            with self._timings.of("outputs"):
                answers.append(self._pipeline.answers(tensors, len(prepared), where))
        with self._timings.of("outputs"):
            return [self._pipeline.combine(calls) for calls in zip(*answers, strict=True)]


def _warm_up(session: Session, batch: Tensors, calls: int) -> None:
    for _ in range(calls):
        call(session, batch, "warm-up")
    session.restart()
