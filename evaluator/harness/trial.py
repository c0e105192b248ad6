"""The golden phase: a model's golden tensors checked alone, or, where that is asked, made of samples of the dataset."""

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image

from . import predictors
from .calling import Session
from .datasets import Samples, open_samples
from .failures import Failure
from .finiteness import FiniteCheck
from .golden import Made, check_golden, inputs_of, predict_sample, write_golden
from .job import Job, Making
from .pipeline import Pipeline
from .predictions import PREDICTIONS, PredictionRecorder, add_detections
from .reports import Progress, Timings
from .selection import spread
from .tensorfiles import save_tensors
from .variations import unnoticed

GOLDEN = "golden.npz"

_MOST_LOOKED_AT = 4096


def run(job: Job, folder: Path, output: Path) -> dict[str, Any]:
    """The phase's report. Raises ``Failure``: ``load``, ``step``, ``predict``, ``golden`` or ``out-of-memory``."""
    timings = Timings()
    with timings.of("load"):
        predictor = predictors.load(job.model, folder / "model", predictors.Place(job.threads, job.device))
        pipeline = Pipeline(job.model, folder / "model")
    with timings.of("golden"):
        if not isinstance(job.golden, Making):
            report = {"golden": check_golden(job.model, predictor, pipeline, folder / "model")}
        else:
            session = Session(predictor, job.model)
            report = _make(job, job.golden, pipeline, session, (folder, output))
    predictor.close()
    return {**report, "threads": dict(predictor.threads), "device": predictor.device, "timings": timings.seconds}


def _make(job: Job, making: Making, pipeline: Pipeline, session: Session, places: tuple[Path, Path]) -> dict[str, Any]:
    """Write golden tensors of the samples asked for, and predictions of the samples that are judged.

    No label is read: the stage ``score`` compares the predictions.
    """
    samples = open_samples(job.dataset, places[0] / "dataset")
    numbers = chosen(samples, making)
    judged = spread(len(samples), making.judged) if job.quality_metrics else []
    recorder = PredictionRecorder(job.model)
    progress, kept = Progress("golden", len(numbers) + len(judged)), list[Made]()
    finite = FiniteCheck(job.model, samples.names)
    with finite.checking():
        for done, number in enumerate([*numbers, *judged], start=1):
            prepared = pipeline.prepare(samples, number)
            place = number, f"sample {number} ({samples.names[number]})"
            answer = predict_sample(pipeline, session, prepared, place, finite)
            if done <= len(numbers):
                kept.append(Made(samples.read(number), inputs_of(prepared), answer))
            else:
                geometry = prepared.geometry.get(job.model.first_picture or "")
                recorder.add(add_detections(job.model, answer, geometry), geometry)
            progress.at(done)
    progress.finish()
    write_golden(places[1] / GOLDEN, job.model, kept)
    if judged:
        save_tensors(places[1] / PREDICTIONS, recorder.tensors())
    return {
        "golden": {
            "samples": len(numbers),
            "numbers": numbers,
            "names": [samples.names[number] for number in numbers],
            "unnoticed": unnoticed(job.model, places[0] / "model", kept),
            "inputs": {name: _described([one.inputs[name] for one in kept]) for name in kept[0].inputs},
            "outputs": {name: _described([one.outputs[name] for one in kept]) for name in kept[0].outputs},
        }
    }


def chosen(samples: Samples, making: Making) -> list[int]:
    """The numbers of the samples to keep: those asked for; else the first of each sort of picture, and some others.

    A sort is Pillow's mode (a grey-scale one is ``L``) and the way the camera was held (EXIF): what a step does to the
    one sort alone, no sample of another would show.
    """
    if making.numbers:
        for number in making.numbers:
            if number >= len(samples):
                raise Failure("load", f"dataset: there is no sample {number}, of {len(samples)}")
        return list(dict.fromkeys(making.numbers))
    found: dict[tuple[str, int], int] = {}
    for number in range(min(len(samples), _MOST_LOOKED_AT)):
        for source in samples.read(number).values():
            if isinstance(source, bytes):
                found.setdefault(_sort(source), number)
    firsts = sorted(found.values())[: making.count] if len(found) > 1 else []
    others = (number for number in spread(len(samples), making.count) if number not in firsts)
    return sorted([*firsts, *others][: making.count])


def _sort(content: bytes) -> tuple[str, int]:
    try:
        with Image.open(io.BytesIO(content)) as picture:
            return picture.mode, int(picture.getexif().get(ExifTags.Base.Orientation, 1))
    except (OSError, ValueError, SyntaxError):  # no picture, or a broken one: its decoding says so
        return "", 1


def _described(tensors: Sequence[NDArray[Any]]) -> dict[str, Any]:
    """What is said of the tensors of all samples; ``largest`` is the greatest finite magnitude."""
    flat = np.concatenate([tensor.reshape(-1) for tensor in tensors]).astype(np.float64)
    finite = np.abs(flat[np.isfinite(flat)])
    return {
        "dtype": str(tensors[0].dtype),
        "shape": [len(tensors), *tensors[0].shape],
        "largest": float(finite.max()) if finite.size else 0.0,
    }
