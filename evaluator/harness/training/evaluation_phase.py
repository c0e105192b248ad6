"""The phase ``evaluate``: the trained weights of each repeat, in a process that trained nothing."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import load_file, save_file

from .. import predictors
from ..core.phase_reports import Progress, Timings
from ..core.training_job import RECIPE, WEIGHTS, TrainingJob
from ..datasets import Samples, open_samples
from ..inference.model_session import Session, call
from ..inference.pipeline import Pipeline
from ..inference.predictions import PREDICTIONS
from ..predictors import Place
from .train_phase import Columns, apply_environment, find_scores, repeat_file, weights_file

SAMPLES = "samples.safetensors"


def run(job: TrainingJob, folder: Path, output: Path) -> dict[str, Any]:
    """Predict the evaluated split with the weights of each repeat; write scores and all samples.

    Raises:
        Failure: ``load``, ``step`` or ``predict``.
    """
    apply_environment(job)
    timings, scores, columns = Timings(), Columns(), Columns()
    with timings.of("open"):
        samples = open_samples(job.evaluation.dataset, folder / "dataset")
    progress = Progress("evaluate", len(job.seeds))
    for repeat in range(len(job.seeds)):
        columns |= {f"{repeat}/{name}": values for name, values in load_file(output / repeat_file(repeat)).items()}
        model = output / f"model-{repeat}"
        shutil.copytree(folder / RECIPE, model)
        shutil.copyfile(output / weights_file(repeat), model / WEIGHTS)
        with timings.of("evaluate"):
            scores[str(repeat)] = _predict(job, model, samples)
        shutil.rmtree(model)
        (output / repeat_file(repeat)).unlink()
        progress.at(repeat + 1)
    progress.finish()
    save_file(scores, output / PREDICTIONS, metadata=job.file_metadata)
    save_file(columns, output / SAMPLES, metadata=job.file_metadata)
    return {"timings": timings.seconds}


def _predict(job: TrainingJob, folder: Path, samples: Samples) -> np.ndarray[Any, Any]:
    evaluation, output = job.evaluation, find_scores(job)
    predictor = predictors.load(evaluation.model, folder, Place(job.threads, job.device))
    session, pipeline = Session(predictor, evaluation.model), Pipeline(evaluation.model, folder)
    size, answers = job.settings["evaluate"]["batch"], []
    for start in range(0, len(samples), size):
        numbers = range(start, min(start + size, len(samples)))
        batch = pipeline.stack([pipeline.prepare(samples, number).calls[0] for number in numbers])
        where = f"samples {numbers[0]} to {numbers[-1]}"
        answers.append(call(session, batch, where)[output.name][: len(numbers)])
    predictor.close()
    return np.ascontiguousarray(np.concatenate(answers))
