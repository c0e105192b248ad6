"""The golden phase: check or make golden tensors, and list step faults that they miss."""

import io
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import ExifTags, Image

from .. import predictors
from ..core.failures import Failure
from ..core.job import GoldenTask, Job, Model, Step
from ..core.phase_reports import Progress, Timings
from ..datasets import Samples, open_samples
from ..datasets.samples import choose_spread
from ..inference.finite_checks import FiniteCheck
from ..inference.golden_tensors import GoldenSample, check_golden, predict_sample, stack_inputs, write_golden
from ..inference.model_session import Session
from ..inference.pipeline import Pipeline
from ..inference.predictions import PREDICTIONS, PredictionRecorder, add_detections, save_tensors

_OTHER_METHOD = {"bilinear": "bicubic"}
_OF_SHORTER = ("shorter", "rounding")
"""The arguments of a resize that keeps the aspect ratio."""


def list_unnoticed_faults(model: Model, folder: Path, golden_samples: Sequence[GoldenSample]) -> list[str]:
    """Return the step faults that no golden tensor would reveal, in words, as ``exif: no picture is rotated``.

    Args:
        model: The model.
        folder: The folder of the model's files.
        golden_samples: The golden samples.
    """
    results: dict[str, bool] = {}
    for index, port in enumerate(model.inputs):
        for fault, steps in _variations(port.steps) if port.type == "image" else ():
            inputs = [*model.inputs[:index], replace(port, steps=steps), *model.inputs[index + 1 :]]
            variant = replace(model, inputs=tuple(inputs))
            results[fault] = results.get(fault, True) and _is_alike(variant, folder, golden_samples, port.name)
    return [fault for fault, alike in results.items() if alike]


def _variations(steps: Sequence[Step]) -> Iterator[tuple[str, tuple[Step, ...]]]:
    for index, step in enumerate(steps):
        before, after = steps[:index], steps[index + 1 :]
        for fault, changes in _changes(step):
            yield fault, (*before, replace(step, arguments={**step.arguments, **changes}), *after)
        if step.name == "resize" and "shorter" in step.arguments and after and after[0].name == "center_crop":
            squashed = {name: value for name, value in step.arguments.items() if name not in _OF_SHORTER}
            size = after[0].arguments.get("size")
            if size is not None:
                squeezed = replace(step, arguments={**squashed, "size": size})
                yield "crop: no picture is cropped", (*before, squeezed, *after[1:])


def _changes(step: Step) -> Iterator[tuple[str, dict[str, Any]]]:
    arguments = step.arguments
    if step.name == "decode":
        yield "exif: no picture is rotated", {"exif": "ignore" if arguments["exif"] == "apply" else "apply"}
        if arguments["color"] != "L":
            yield "color: every picture is gray", {"color": "BGR" if arguments["color"] == "RGB" else "RGB"}
    if step.name == "resize":
        yield "resize: every picture has that size", {"method": _OTHER_METHOD.get(arguments["method"], "bilinear")}


def _is_alike(model: Model, folder: Path, golden_samples: Sequence[GoldenSample], name: str) -> bool:
    """Whether the steps give equal results for every sample; False where a step fails."""
    samples = Samples(
        lambda number: golden_samples[number].fields,
        [""] * len(golden_samples),
        None,
        frozenset(golden_samples[0].fields),
    )
    try:
        pipeline = Pipeline(model, folder)
        return all(
            np.array_equal(stack_inputs(pipeline.prepare(samples, number))[name], golden_sample.inputs[name])
            for number, golden_sample in enumerate(golden_samples)
        )
    except Failure:
        return False


GOLDEN = "golden.npz"

_MAX_LOOKED_AT = 4096


def run(job: Job, folder: Path, output: Path) -> dict[str, Any]:
    """Check or make golden tensors; return the report of the phase.

    Raises:
        Failure: Of class ``load``, ``step``, ``predict``, ``non-finite``, ``golden`` or ``out-of-memory``.
    """
    timings = Timings()
    with timings.of("load"):
        predictor = predictors.load(job.model, folder / "model", predictors.Place(job.threads, job.device))
        pipeline = Pipeline(job.model, folder / "model")
    with timings.of("golden"):
        if not isinstance(job.golden, GoldenTask):
            report = {"golden": check_golden(job.model, predictor, pipeline, folder / "model")}
        else:
            session = Session(predictor, job.model)
            report = _make(job, job.golden, pipeline, session, (folder, output))
    predictor.close()
    return {**report, "threads": dict(predictor.threads), "device": predictor.device, "timings": timings.seconds}


def _make(
    job: Job, making: GoldenTask, pipeline: Pipeline, session: Session, folders: tuple[Path, Path]
) -> dict[str, Any]:
    """Write golden tensors of the chosen samples, and predictions of the judged samples.

    No label is read: the stage ``score`` compares the predictions.
    """
    samples = open_samples(job.dataset, folders[0] / "dataset")
    numbers = choose_samples(samples, making)
    judged_numbers = choose_spread(len(samples), making.judged_count) if job.quality_metrics else []
    recorder = PredictionRecorder(job.model)
    progress, golden_samples = Progress("golden", len(numbers) + len(judged_numbers)), list[GoldenSample]()
    finite = FiniteCheck(job.model, samples.names)
    with finite.checking():
        for done, number in enumerate([*numbers, *judged_numbers], start=1):
            prepared = pipeline.prepare(samples, number)
            place = number, f"sample {number} ({samples.names[number]})"
            answer = predict_sample(pipeline, session, prepared, place, finite)
            if done <= len(numbers):
                golden_samples.append(GoldenSample(samples.read(number), stack_inputs(prepared), answer))
            else:
                geometry = prepared.geometry.get(job.model.first_image or "")
                recorder.add(add_detections(job.model, answer, geometry), geometry)
            progress.at(done)
    progress.finish()
    write_golden(folders[1] / GOLDEN, job.model, golden_samples)
    if judged_numbers:
        save_tensors(folders[1] / PREDICTIONS, recorder.tensors())
    return {
        "golden": {
            "samples": len(numbers),
            "numbers": numbers,
            "names": [samples.names[number] for number in numbers],
            "unnoticed": list_unnoticed_faults(job.model, folders[0] / "model", golden_samples),
            "inputs": {
                name: _describe([golden_sample.inputs[name] for golden_sample in golden_samples])
                for name in golden_samples[0].inputs
            },
            "outputs": {
                name: _describe([golden_sample.outputs[name] for golden_sample in golden_samples])
                for name in golden_samples[0].outputs
            },
        }
    }


def choose_samples(samples: Samples, making: GoldenTask) -> list[int]:
    """Return the numbers of the samples to store: the requested ones; else the first of each image type, and others.

    The type is Pillow's mode (``L`` for greyscale) and the orientation (EXIF). A step that affects only one type has no
    effect on samples of the others.

    Raises:
        Failure: ``load``: the dataset has no sample of a requested number.
    """
    if making.numbers:
        for number in making.numbers:
            if number >= len(samples):
                raise Failure("load", f"dataset: no sample {number}; it has {len(samples)}")
        return list(dict.fromkeys(making.numbers))
    first_by_type: dict[tuple[str, int], int] = {}
    for number in range(min(len(samples), _MAX_LOOKED_AT)):
        for source in samples.read(number).values():
            if isinstance(source, bytes):
                first_by_type.setdefault(_sort(source), number)
    firsts = sorted(first_by_type.values())[: making.count] if len(first_by_type) > 1 else []
    others = (number for number in choose_spread(len(samples), making.count) if number not in firsts)
    return sorted([*firsts, *others][: making.count])


def _sort(content: bytes) -> tuple[str, int]:
    try:
        with Image.open(io.BytesIO(content)) as picture:
            return picture.mode, int(picture.getexif().get(ExifTags.Base.Orientation, 1))
    except (OSError, ValueError, SyntaxError):  # not an image, or a broken one: decoding reports it
        return "", 1


def _describe(tensors: Sequence[NDArray[Any]]) -> dict[str, Any]:
    """Describe the tensors of all samples; ``largest`` is the greatest finite magnitude."""
    flat = np.concatenate([tensor.reshape(-1) for tensor in tensors]).astype(np.float64)
    finite = np.abs(flat[np.isfinite(flat)])
    return {
        "dtype": str(tensors[0].dtype),
        "shape": [len(tensors), *tensors[0].shape],
        "largest": float(finite.max()) if finite.size else 0.0,
    }
