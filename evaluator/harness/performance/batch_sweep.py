"""The scenario batch_sweep: interleaved calls in batches of several sizes."""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core.failures import Failure, classify_errors
from ..core.job import Job
from ..core.phase_reports import Progress
from ..core.resource_usage import measure_usage
from ..core.scenarios import ROUNDS, BatchSweep
from ..inference.mlperf_audits import check_answers
from ..inference.pipeline import Prediction
from ..inference.predictions import PREDICTIONS
from .call_meter import Columns, Meter, save
from .loadgen_traces import describe_sweep
from .measurement_overhead import overhead
from .model_timing import SAMPLES, audit_caching
from .phase_setup import PreparedSamples, Stage, open_stage, warm_up
from .pipeline_timing import SAMPLES as PIPELINE_SAMPLES
from .pipeline_timing import PipelineUnits

# The least number of calls and seconds of a turn, and its greatest number of seconds, which takes precedence.
_CALLS_A_TURN = 5
_SECONDS_A_TURN = 0.1
_MAX_SECONDS_A_TURN = 2.0
# Each batch size cycles through several units, so that consecutive units differ: as many as fit into the bytes.
_MAX_UNITS = 8
_MAX_BYTES = 256 << 20


class BatchTurn(NamedTuple):
    """The measurement of one batch size.

    ``predictions`` returns the predictions of a number of samples in an answer.
    """

    meter: Meter
    read: Callable[[Sequence[int]], None]
    units: Iterator[Sequence[int]]
    predictions: Callable[[int, Any], list[Prediction]]


def run(job: Job, folder: Path, output: Path) -> dict[str, Any]:
    """Time batches of several sizes on prepared tensors; return the report of the phase.

    Raises:
        Failure: As in every timed phase.
    """
    stage = _open("performance", job, folder)
    caching = audit_caching(stage)
    overhead_report = overhead(stage, min(_batches(job)))
    turns: dict[int, BatchTurn] = {}
    warmup: list[int] = []
    for batch in _batches(job):
        prepared = PreparedSamples(stage, batch)
        units = _units(stage, batch, prepared.unit_bytes)
        prepared.load([index for unit in units for index in unit])
        warmup += warm_up(stage, partial(prepared.ask, prepared.first))
        turns[batch] = BatchTurn(*_reader(stage, prepared.gather, prepared.ask), cycle(units), prepared.predictions)
    with measure_usage() as usage:
        report = _measure_turns(stage, turns, warmup, output, SAMPLES)
    audits = {"caching": caching, **report["audits"]}
    return report | {
        "performance": report["performance"] | {"overhead": overhead_report, "resources": usage},
        "audits": audits,
    }


def run_pipeline(job: Job, folder: Path, output: Path) -> dict[str, Any]:
    """Time batches of several sizes from stored bytes to the last output step; return the report."""
    stage = _open("pipeline", job, folder)
    turns: dict[int, BatchTurn] = {}
    warmup: list[int] = []
    for batch in _batches(job):
        pipeline_units = PipelineUnits(stage, batch, overlapped=False)
        units = _units(stage, batch, 0)
        warmup += warm_up(stage, partial(pipeline_units.at_once, units[0]))
        turns[batch] = BatchTurn(
            *_reader(stage, pipeline_units.gather, pipeline_units.ask), cycle(units), lambda _count, answer: answer
        )
    return _measure_turns(stage, turns, warmup, output, PIPELINE_SAMPLES)


def _batches(job: Job) -> tuple[int, ...]:
    assert isinstance(job.scenario, BatchSweep)
    return job.scenario.batches


def _open(phase: str, job: Job, folder: Path) -> Stage:
    stage = open_stage(phase, job, folder)
    for batch in _batches(job):
        if (size := stage.pipeline.batch_size(batch)) != batch:
            raise Failure("load", f"the model takes only batches of {size}, but the sweep requests {batch}")
    return stage


def _units(stage: Stage, batch: int, size: int) -> list[list[int]]:
    """Return the samples of each unit of a batch size, in the order of the split; ``size`` is the bytes of a unit."""
    share = _MAX_BYTES // len(_batches(stage.job))
    number = max(1, min(_MAX_UNITS, share // max(size, 1)))
    total = len(stage.samples)
    return [[position % total for position in range(unit * batch, (unit + 1) * batch)] for unit in range(number)]


def _reader(
    stage: Stage, gather: Callable[[Sequence[int]], Any], ask: Callable[[Any], Any]
) -> tuple[Meter, Callable[[Sequence[int]], None]]:
    meter = Meter(stage.predictor, stage.job.threads, 1 / len(_batches(stage.job)))
    return meter, meter.reader(gather, ask, lambda _made: None)


def _measure_turns(
    stage: Stage, turns: dict[int, BatchTurn], warmup: list[int], output: Path, name: str
) -> dict[str, Any]:
    progress = Progress(stage.phase, ROUNDS * len(turns))
    with stage.timings.of("queries"), classify_errors("predict", "a call"):
        for number in range(ROUNDS):
            for index, turn in enumerate(turns.values()):
                _run_turn(turn.read, turn.units)
                progress.at(number * len(turns) + index + 1)
    progress.finish()
    with stage.timings.of("audit"):
        audit = check_answers(_answers(turns.values()), stage.job.model, output / PREDICTIONS)
    stage.predictor.close()
    columns = _columns({batch: turn.meter for batch, turn in turns.items()})
    save(columns, warmup, output / name, stage.job.file_metadata)
    return {
        "performance": {
            **describe_sweep(columns),
            "cpu_scope": next(iter(turns.values())).meter.scope,
            "warmup_calls": len(warmup),
            "rounds": ROUNDS,
            "timed": "predict on prepared tensors" if stage.phase == "performance" else "from stored bytes to the end",
        },
        "audits": {"answers": audit},
        **stage.report(),
    }


def _answers(turns: Iterable[BatchTurn]) -> Iterator[tuple[int, Prediction]]:
    """Yield the samples whose answers were stored, of all batch sizes, with their predictions."""
    for turn in turns:
        for indices, answer in turn.meter.reservoir.answers:
            yield from zip(indices, turn.predictions(len(indices), answer), strict=True)


def _run_turn(read: Callable[[Sequence[int]], None], units: Iterator[Sequence[int]]) -> None:
    """Run one turn of a batch size."""
    start = time.perf_counter()
    calls = 0
    while calls < 1 or (elapsed := time.perf_counter() - start) < _MAX_SECONDS_A_TURN:
        if calls >= _CALLS_A_TURN and elapsed >= _SECONDS_A_TURN:
            break
        read(next(units))
        calls += 1


def _columns(meters: dict[int, Meter]) -> Columns:
    """Return the raw samples of all batch sizes, one after the other; the column ``batch`` has the size."""
    parts = [meter.columns() | {"batch": np.full(len(meter.rows), batch)} for batch, meter in meters.items()]
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
