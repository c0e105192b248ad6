"""LoadGen scenarios from stored bytes to the last output step.

Where the samples are known in advance (``offline``), other threads prepare them while the model predicts; the thread
that predicts helps while the next is not ready. Where several samples arrive together (``multi_stream``), one thread
per CPU prepares them.
"""

import time
from array import array
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core.job import Job
from ..core.scenarios import LoadGenScenario, Offline, Server, samples_per_query
from ..inference.mlperf_audits import check_answers
from ..inference.pipeline import Prediction, Prefetcher, PreparedSample, count_prefetch_threads
from ..inference.predictions import PREDICTIONS
from .call_meter import Meter, collect_columns, save
from .loadgen import drive, per_unit
from .loadgen_traces import describe_account, describe_phase
from .phase_setup import Stage, estimate, open_stage, spread, warm_up

SAMPLES = "pipeline-samples.safetensors"
LOGS = "loadgen-pipeline"

_STAGES = ("prepare_ns", "predict_ns", "outputs_ns")
_AHEAD = 4
"""Units prepared in advance beyond those in preparation, because files differ in preparation time."""


class Unit(NamedTuple):
    """Prepared samples, and the nanoseconds of their preparation."""

    samples: list[PreparedSample]
    duration_ns: int


class PipelineUnits:
    """Units of ``size`` samples, from stored bytes to predictions.

    With ``overlapped``, other threads prepare samples before the clock of their unit starts.
    """

    def __init__(self, stage: Stage, size: int, *, overlapped: bool) -> None:
        """Start the threads that ``multi_stream`` needs."""
        self._stage = stage
        self._batch = stage.pipeline.batch_size(size)
        self._overlapped = overlapped
        self._coming: Iterator[Unit] = iter(())
        self._stages = array("q")
        workers = count_prefetch_threads(stage.pipeline, stage.job) if overlapped or size > 1 else 0
        self.workers = workers if overlapped else min(workers, stage.job.threads)
        self._pool = ThreadPoolExecutor(self.workers) if self.workers and not overlapped else None
        self.most = len(stage.samples)
        self.ask = self._answer if overlapped else self._prepare_and_answer

    def load(self, indices: Sequence[int]) -> None:
        """Do nothing: the bytes stay in their files."""

    def expect(self, units: Sequence[Sequence[int]]) -> None:
        """Start preparing ``units`` ahead, if the preparation is overlapped."""
        if self._overlapped:
            depth = self.workers + _AHEAD
            self._coming = iter(
                Prefetcher(lambda number: self._prepare(units[number]), len(units), self.workers, depth)
            )

    def gather(self, indices: Sequence[int]) -> Any:  # noqa: ANN401 - the argument of ``ask``
        """Return the next prepared unit, or ``indices`` where preparation is timed."""
        return next(self._coming) if self._overlapped else indices

    def at_once(self, indices: Sequence[int]) -> object:
        """Answer a unit, with its preparation."""
        return self._prepare_and_answer(indices)

    def seconds(self) -> float:
        """Return the shortest time of a unit since the last call of this method."""
        fastest = np.frombuffer(self._stages, np.int64).reshape(-1, len(_STAGES)).min(axis=0)
        del self._stages[:]
        prepare, other_stages = int(fastest[0]), int(fastest[1:].sum())
        return (
            max(prepare / self.workers, other_stages) / 1e9
            if self._overlapped and self.workers
            else (prepare + other_stages) / 1e9
        )

    def columns(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return the nanoseconds of each stage by column name, a row per unit."""
        rows = np.frombuffer(self._stages, np.int64).reshape(-1, len(_STAGES))
        return {name: rows[:, index].copy() for index, name in enumerate(_STAGES)}

    def _prepare(self, indices: Sequence[int]) -> Unit:
        start = time.perf_counter_ns()
        samples = [self._stage.pipeline.prepare(self._stage.samples, index) for index in indices]
        return Unit(samples, time.perf_counter_ns() - start)

    def _prepare_and_answer(self, indices: Sequence[int]) -> list[Prediction]:
        if self._pool is None:
            return self._answer(self._prepare(indices))
        start = time.perf_counter_ns()
        samples = list(self._pool.map(partial(self._stage.pipeline.prepare, self._stage.samples), indices))
        return self._answer(Unit(samples, time.perf_counter_ns() - start))

    def _answer(self, unit: Unit) -> list[Prediction]:
        """Call the model in its batch size, and apply the output steps."""
        predict_ns = outputs_ns = 0
        predictions: list[Prediction] = []
        for start in range(0, len(unit.samples), self._batch):
            samples = unit.samples[start : start + self._batch]
            begin = time.perf_counter_ns()
            calls = self._calls(samples)
            between = time.perf_counter_ns()
            predictions += self._predictions(samples, calls)
            predict_ns += between - begin
            outputs_ns += time.perf_counter_ns() - between
        self._stages.extend((unit.duration_ns, predict_ns, outputs_ns))
        return predictions

    def _calls(self, samples: Sequence[PreparedSample]) -> list[Any]:
        pipeline, session = self._stage.pipeline, self._stage.session
        session.start_sample()
        call_numbers = range(len(samples[0].calls))
        return [
            session.predict(pipeline.stack([sample.calls[number] for sample in samples])) for number in call_numbers
        ]

    def _predictions(self, samples: Sequence[PreparedSample], calls: Sequence[Any]) -> list[Prediction]:
        pipeline = self._stage.pipeline
        answers = [pipeline.answers(tensors, len(samples), "the pipeline phase") for tensors in calls]
        return [pipeline.combine(of_sample) for of_sample in zip(*answers, strict=True)]


def run(job: Job, folder: Path, output: Path) -> dict[str, Any]:
    """Time the pipeline; write the raw samples and return the report of the phase.

    Raises:
        Failure: Of class ``load``, ``step``, ``predict``, ``loadgen-invalid`` or ``out-of-memory``.
    """
    scenario = job.scenario
    assert isinstance(scenario, LoadGenScenario)
    overlapped = isinstance(scenario, Offline)
    stage = open_stage("pipeline", job, folder, shared=overlapped)
    size = per_unit(stage, scenario)
    work = PipelineUnits(stage, size, overlapped=overlapped)
    total = len(stage.samples)
    units = [[number % total for number in range(start, start + size)] for start in spread(stage)]
    warmup = warm_up(stage, partial(work.at_once, units[0]))
    estimate(stage, [partial(work.at_once, unit) for unit in units])
    meter = Meter(stage.predictor, job.threads)
    log = drive(stage, meter, work, work.seconds(), output / LOGS)
    columns, comparisons = collect_columns(meter, scenario, log, output / LOGS)
    answers = (
        pair for indices, predictions in meter.reservoir.answers for pair in zip(indices, predictions, strict=True)
    )
    audit = check_answers(answers, job.model, output / PREDICTIONS)
    stage.predictor.close()
    save(columns | work.columns(), warmup, output / SAMPLES, job.file_metadata)
    arrival = "from the scheduled arrival of a query, through its wait, " if isinstance(scenario, Server) else ""
    return {
        "performance": {
            **describe_phase(columns, samples_per_query(scenario)),
            "cpu_scope": meter.scope,
            "batch": stage.pipeline.batch_size(size),
            "preparing_threads": work.workers,
            "warmup_calls": len(warmup),
            "timed": f"{arrival}from stored bytes to the last output step",
            "loadgen": describe_account(log, columns, comparisons),
        },
        "audits": {"answers": audit},
        **stage.report(),
    }
