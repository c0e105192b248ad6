"""The score phase: quality metrics from stored predictions and the labels.

It is a phase of its own, because the process that runs a model has no labels, and the process with labels runs no
model.
"""

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..core.failures import Failure
from ..core.job import GoldenTask, Job, Model
from ..core.phase_reports import Progress, Timings
from ..datasets import Samples, open_samples
from ..datasets.samples import choose_spread
from ..inference.finite_checks import FiniteCheck
from ..inference.pipeline import find_source, trace_geometry
from ..inference.predictions import DETECTIONS, PREDICTIONS, StoredPredictions, restore_order, save_tensors
from ..predictors import Tensors
from ..quality.class_scores import ClassTally
from ..quality.tally import Tally, open_tally
from ..steps.step_tensor import Geometry
from .label_removal import ORDER, read_order

MEASURES = "quality.safetensors"

_TYPES = {"miou": ("mask",), "mae": ("value",), "rmse": ("value",)}
_CLASSES = ("class-scores", "class-index")


class Score(NamedTuple):
    """The quality of a run.

    ``quality`` is the content of ``result.json``: by metric ``n``, and ``correct`` or ``value``. ``measures`` has the
    contribution of each sample to the metrics that are not counts, for confidence intervals; it is empty where every
    metric is a count. ``samples`` has the same for all metrics, including counts. ``decided`` is int64 [samples, 2],
    label and predicted label, where each sample has one class.
    """

    quality: dict[str, Any]
    measures: Tensors
    samples: Tensors
    decided: NDArray[np.int64] | None = None


def score(
    job: Job,
    dataset: Path,
    predictions: Path,
    progress: Progress | None = None,
    *,
    admits_non_finite: bool = False,
) -> Score:
    """Compare stored predictions with the labels of the dataset.

    Args:
        job: Has the metrics, the split and the outputs of the model; the files of the model are not needed.
        dataset: The folder of the dataset's files, with labels.
        predictions: ``predictions.safetensors`` of the run.
        progress: Receives the number of compared samples.
        admits_non_finite: Whether NaN and infinite values are ordinary values, as in harnesses before 1.3.0.

    Raises:
        Failure: ``load``: the split has no labels, or labels of another kind; a library is missing. ``predict``: the
            predictions are malformed, have another number of samples, or cannot be compared with the labels.
            ``non-finite``: an output has NaN or infinite values, which the manifest does not allow.
    """
    if not job.quality_metrics:
        return Score({}, {}, {})
    samples = open_samples(job.dataset, dataset, job.model.task)
    if isinstance(job.golden, GoldenTask):
        samples = samples.subset(choose_spread(len(samples), job.golden.judged_count))
    if samples.labels is None:
        raise Failure("load", "dataset: the split has no labels, which quality metrics need")
    tally = open_tally(job, ranks_nan=admits_non_finite)
    stored = StoredPredictions(predictions, job.model, [_compared_tensor(job)], len(samples))
    if not admits_non_finite:
        finite = FiniteCheck(job.model, samples.names, when=" after its steps")
        finite.add_stored(predictions)
        finite.check()
    table = stored.table(_compared_tensor(job))
    if table is not None and isinstance(tally, ClassTally) and tally.add_all(table, samples.labels):
        return _summarise(tally)
    for number, (prediction, geometry) in enumerate(stored):
        try:
            if geometry is not None and job.model.runs_code:
                _check_geometry(job.model, samples, number, geometry)
            tally.add(prediction, samples.labels[number], geometry)
        except Failure as error:
            raise Failure(error.kind, f"sample {number} ({samples.names[number]}): {error.message}") from error
        if progress is not None:
            progress.at(number + 1)
    return _summarise(tally)


def _summarise(tally: Tally) -> Score:
    document, measures = tally.document(), tally.measures()
    if isinstance(tally, ClassTally):
        return Score(document, measures, tally.samples(), tally.decided())
    return Score(document, measures, measures)


def _check_geometry(model: Model, samples: Samples, number: int, geometry: Geometry) -> None:
    """Raise unless the model's steps lead to the declared geometry; code of a model could declare another crop.

    Raises:
        Failure: ``predict``: the steps of the model lead to another geometry.
    """
    source = find_source(model, samples.read(number), "dataset")
    if trace_geometry(model, source, "picture") != geometry:
        raise Failure("predict", f"the recorded geometry {geometry} of its mask contradicts the steps of the model")


def run(job: Job, folder: Path, output: Path) -> dict[str, Any]:
    """Score the predictions in ``output``, write the measures there, and return the report of the phase.

    In a stage of its own, the phase first restores the order of the split for the predictions in the folder ``shown``
    of the job. Predictions that accompany golden tensors are those of some samples, already in that order.

    Raises:
        Failure: As ``score``.
    """
    timings = Timings()
    predictions = output / PREDICTIONS
    if isinstance(job.golden, GoldenTask):
        predictions = folder / "shown" / PREDICTIONS
    elif job.stage == "score":
        with timings.of("order"):
            shuffled = folder / "shown"
            order = read_order(shuffled / ORDER)
            restore_order(shuffled / PREDICTIONS, output / PREDICTIONS, job.model, order, job.file_metadata)
    with timings.of("score"):
        progress = Progress("score", int(job.dataset.split.get("samples", 0)))
        result = score(job, folder / "dataset", predictions, progress)
        progress.finish()
    if result.measures:
        with timings.of("save"):
            save_tensors(output / MEASURES, result.measures, job.file_metadata)
    return {"quality": result.quality, "timings": timings.seconds}


def _compared_tensor(job: Job) -> str:
    """Return the name of the stored tensor that the metrics compare with the labels."""
    if job.model.detections is not None:
        return DETECTIONS
    types = _TYPES.get(job.quality_metrics[0], _CLASSES)
    return next(output.name for output in job.model.outputs if output.type in types)
