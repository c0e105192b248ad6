"""The scenario micro_batch: one batch in a number of parts, with the memory that its calls need."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.failures import Failure, classify_errors
from ..core.job import Job, Model
from ..core.phase_reports import Progress
from ..core.resource_usage import read_peak, reset_peak
from ..core.scenarios import PART, MicroBatch
from ..inference.predictions import save_tensors
from ..predictors import Tensors
from .phase_setup import Stage, open_stage, time_call


def outputs_file(place: int) -> str:
    """Return the name of the file with the outputs for a place in the list of numbers of parts."""
    return f"outputs-{place}.safetensors"


def run(job: Job, folder: Path, output: Path, place: int) -> dict[str, Any]:
    """Compute the batch of the scenario in a number of parts; return the report of the phase.

    Args:
        job: The job, whose scenario is micro_batch.
        folder: The folder of the job.
        output: The folder for the outputs.
        place: The place of the number in the scenario's list.

    Raises:
        Failure: ``load``, ``step``, ``predict``, or ``out-of-memory`` where a framework reports it.
    """
    assert isinstance(job.scenario, MicroBatch)
    stage = open_stage(f"{PART}{place}", job, folder)
    chunks = _prepare(stage, job.scenario.batch, job.scenario.parts[place])
    axes = output_axes(job.model)

    def compute() -> Tensors:
        return join([stage.session.predict(chunk) for chunk in chunks], axes)

    since_calls, progress = reset_peak(), Progress(stage.phase, job.scenario.warmup + job.scenario.repeats)
    with classify_errors("predict", "a batch"):
        with stage.timings.of("warmup"):
            for done in range(job.scenario.warmup):
                compute()
                progress.at(done + 1)
        durations = []
        with stage.timings.of("queries"):
            for done in range(job.scenario.repeats):
                durations.append(time_call(compute))
                progress.at(job.scenario.warmup + done + 1)
        peak = read_peak()  # before the call whose outputs are stored, which holds nothing else
        outputs = compute()
    progress.finish()
    check_outputs(outputs, axes, job.scenario.batch)
    stored = {name: np.ascontiguousarray(values) for name, values in outputs.items()}
    save_tensors(output / outputs_file(place), stored, job.file_metadata)
    stage.predictor.close()
    since = "first call" if since_calls else "start of the process"
    part = {"latency_ns": durations, "peak": {"bytes": peak, "since": since}}
    return {"part": part, **stage.report()}


def _prepare(stage: Stage, batch: int, parts: int) -> list[Tensors]:
    """Return the first samples of the split in nearly equal chunks, the larger ones first."""
    pipeline = stage.pipeline
    if pipeline.batch_size(batch) != batch:
        raise Failure("load", "the model does not take batches of any size, but micro_batch changes their size")
    if len(stage.samples) < batch:
        raise Failure("load", f"the split has {len(stage.samples)} samples, but a batch needs {batch}")
    with stage.timings.of("prepare"):
        calls = [pipeline.prepare(stage.samples, number).calls[0] for number in range(batch)]
        return [pipeline.stack([calls[index] for index in chunk]) for chunk in np.array_split(np.arange(batch), parts)]


def output_axes(model: Model) -> dict[str, int]:
    """Return the axis of the samples of each output of a model whose calls take several samples."""
    return {port.name: port.axes.axis for port in model.prediction_outputs if port.axes.axis is not None}


def join(answers: Sequence[Tensors], axes: Mapping[str, int]) -> Tensors:
    """Join the outputs of consecutive calls along their axes of samples."""
    return {name: np.concatenate([answer[name] for answer in answers], axis) for name, axis in axes.items()}


def check_outputs(outputs: Mapping[str, NDArray[Any]], axes: Mapping[str, int], batch: int) -> None:
    """Require that the outputs are those of the model, with as many samples as the batch.

    Raises:
        Failure: ``predict``: they are not.
    """
    if outputs.keys() != axes.keys():
        raise Failure("predict", f"the outputs are {', '.join(sorted(outputs))}, not {', '.join(sorted(axes))}")
    for name, values in outputs.items():
        if values.ndim <= axes[name] or values.shape[axes[name]] != batch:
            raise Failure("predict", f"output {name}: {list(values.shape)} has no {batch} samples on axis {axes[name]}")
