"""Set-up of a timed phase: model, warm-up calls and samples prepared before the clock starts."""

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import predictors
from ..core.failures import classify_errors
from ..core.job import Job, Model
from ..core.phase_reports import Progress, Timings
from ..datasets import Samples, open_samples
from ..inference.model_session import Session, query
from ..inference.pipeline import Pipeline, Prediction
from ..predictors import Place, Predictor, Tensors

# LoadGen needs an estimate of a call, and counts its first query: there is always some warm-up.
_FEWEST_WARMUP_CALLS = 3
# The estimate is the fastest of several calls: with a slow one LoadGen would run out of queries.
_MAX_ESTIMATES = 50
_SECONDS_OF_ESTIMATES = 0.02
_SPREAD = 8


@dataclass(frozen=True, slots=True)
class Stage:
    """The set-up of a timed phase; ``phase`` is its name in progress lines and reports."""

    phase: str
    job: Job
    predictor: Predictor
    session: Session
    pipeline: Pipeline
    samples: Samples
    timings: Timings

    def report(self) -> dict[str, Any]:
        """Return the part of the report that every phase has."""
        return {
            "threads": dict(self.predictor.threads),
            "device": self.predictor.device,
            "timings": self.timings.seconds,
        }


def open_stage(phase: str, job: Job, folder: Path, *, shared: bool = False) -> Stage:
    """Load the model and open the samples of a timed phase.

    Args:
        phase: The name of the phase in progress lines and reports.
        job: The job.
        folder: The folder of the job.
        shared: Whether other threads prepare samples while the model predicts.

    Raises:
        Failure: ``load`` or ``out-of-memory``.
    """
    timings = Timings()
    with timings.of("load"):
        predictor = predictors.load(job.model, folder / "model", Place(job.threads, job.device, shared))
        session, pipeline = Session(predictor, job.model), Pipeline(job.model, folder / "model")
    return Stage(phase, job, predictor, session, pipeline, open_samples(job.dataset, folder / "dataset"), timings)


def warm_up(stage: Stage, ask: Callable[[], object]) -> list[int]:
    """Make the warm-up calls; return the nanoseconds of each."""
    with stage.timings.of("warmup"), classify_errors("predict", "warm-up"):
        durations = [time_call(ask) for _ in range(max(stage.job.scenario.warmup, _FEWEST_WARMUP_CALLS))]
    stage.session.restart()
    return durations


def spread(stage: Stage) -> list[int]:
    """Return indices of some samples across the split, because samples differ in size."""
    last = len(stage.samples) - 1
    return sorted({round(index * last / (_SPREAD - 1)) for index in range(_SPREAD)})


def estimate(stage: Stage, asks: Sequence[Callable[[], object]]) -> float:
    """Return the seconds of the fastest call of ``asks``."""
    durations: list[int] = []
    call_cycle = cycle(asks)
    with stage.timings.of("estimate"), classify_errors("predict", "warm-up"):
        end = time.perf_counter() + _SECONDS_OF_ESTIMATES
        while len(durations) < len(asks) or (len(durations) < _MAX_ESTIMATES and time.perf_counter() < end):
            durations.append(time_call(next(call_cycle)))
    stage.session.restart()
    return max(1, min(durations)) / 1e9


def time_call(ask: Callable[[], object]) -> int:
    """Return the nanoseconds of one call."""
    start = time.perf_counter_ns()
    answer = ask()
    stop = time.perf_counter_ns()
    del answer
    return stop - start


# The greatest number of prepared samples in memory, and of their bytes. The bound is the same on every host, because
# LoadGen's traffic depends on it.
_MAX_LOADED = 1024
_MAX_BYTES = 256 << 20

Call = Mapping[str, NDArray[Any]]


class PreparedSamples:
    """Prepared samples in *units*: the calls that answer up to ``per_unit`` samples and are timed together.

    A unit is one call where the model takes as many samples at once, else several calls. A model with states, or with
    several calls per sample, is called sample by sample.
    """

    def __init__(self, stage: Stage, per_unit: int) -> None:
        """Prepare some samples of ``stage`` to learn the size of a unit."""
        model, session, pipeline, samples = stage.job.model, stage.session, stage.pipeline, stage.samples
        self._session = session
        self._pipeline = pipeline
        self._samples = samples
        self._timings = stage.timings
        self._per_unit = per_unit
        self.batch = pipeline.batch_size(per_unit)
        self._plain = not (pipeline.takes_several_calls or session.stateful)
        self._fixed = model.batch
        # A single sample is padded to a fixed batch before the clock starts.
        self._joins = self._plain and _first_axes(model) and (per_unit > 1 or model.batch in (None, 1))
        self.ask: Callable[[Any], Any] = self._ask_each
        if self._plain:
            self.ask = session.predict if per_unit <= self.batch else self._ask_several
        self._calls: dict[int, tuple[Call, ...]] = {}
        self._units: dict[int, Any] = {}
        self._order: list[int] = []
        self._places: dict[int, int] = {}
        self._joined: dict[str, NDArray[Any]] = {}
        examples = [pipeline.prepare(samples, number).calls for number in spread(stage)]
        size = max(1, *(sum(values.nbytes for call in calls for values in call.values()) for calls in examples))
        self.unit_bytes = size * per_unit
        # A unit of one sample is padded to a batch size that the graph fixes.
        copies = model.batch or 1 if per_unit == 1 and not self._joins else 1
        self.most = min(len(samples), _MAX_LOADED, max(1, _MAX_BYTES // (size * copies)))
        units = [self._unit([calls] * per_unit) for calls in examples]
        self.first = units[0]
        self.asks = [partial(self.ask, unit) for unit in units]

    def load(self, indices: Sequence[int]) -> None:
        """Prepare samples; some may come more than once."""
        progress = Progress("prepare", len(indices))
        with self._timings.of("prepare"):
            for done, index in enumerate(indices, start=1):
                if index not in self._calls:
                    self._calls[index] = self._pipeline.prepare(self._samples, index).calls
                progress.at(done)
            if self._joins and self._join(indices):
                self._calls.clear()
            elif self._per_unit == 1:
                self._units = {index: self._unit([calls]) for index, calls in self._calls.items()}
                self._calls.clear()
        progress.finish()
        # No garbage collection from here to the end of the process can fall into a timed call.
        gc.collect()
        gc.freeze()
        gc.disable()

    def expect(self, units: Sequence[Sequence[int]]) -> None:
        """Do nothing: everything is prepared already."""

    def gather(self, indices: Sequence[int]) -> Any:  # noqa: ANN401 - the argument of ``ask``
        """Return the unit of loaded samples ``indices``, without a copy where they were loaded consecutively."""
        if self._joined:
            return self._of_joined(indices)
        if self._per_unit == 1:
            return self._units[indices[0]]
        return self._unit([self._calls[index] for index in indices])

    def predictions(self, count: int, answer: Any) -> list[Prediction]:  # noqa: ANN401 - the result of ``ask``
        """Return the predictions of the ``count`` samples of a unit."""
        where = "the performance phase"
        if not self._plain:
            return [
                self._pipeline.combine([self._pipeline.answers(tensors, 1, where)[0] for tensors in of_sample])
                for of_sample in answer
            ]
        parts = [answer] if isinstance(answer, Mapping) else answer
        counts = [min(self.batch, count - start) for start in range(0, count, self.batch)]
        predictions = [
            prediction
            for tensors, size in zip(parts, counts, strict=True)
            for prediction in self._pipeline.answers(tensors, size, where)
        ]
        return [self._pipeline.combine([prediction]) for prediction in predictions]

    def _unit(self, samples: Sequence[tuple[Call, ...]]) -> Any:  # noqa: ANN401 - the argument of ``ask``
        if not self._plain:
            return [[self._pipeline.stack([call]) for call in calls] for calls in samples]
        return self._cut([calls[0] for calls in samples], self._pipeline.stack)

    def _cut(self, rows: Sequence[Any], make: Callable[[Any], Tensors]) -> Any:  # noqa: ANN401 - the argument of ``ask``
        if self._per_unit <= self.batch:
            return make(rows)
        return [make(rows[start : start + self.batch]) for start in range(0, len(rows), self.batch)]

    def _join(self, indices: Sequence[int]) -> bool:
        """Join all loaded samples in memory, in the order of the queries; return False where shapes differ."""
        first = self._calls[indices[0]][0]
        if any(self._calls[i][0][name].shape != values.shape for i in self._calls for name, values in first.items()):
            return False
        for name in first:
            self._joined[name] = np.stack([self._calls[index][0][name] for index in indices])
        self._order = list(indices)
        for position, index in enumerate(indices):
            self._places.setdefault(index, position)
        return True

    def _of_joined(self, indices: Sequence[int]) -> Any:  # noqa: ANN401 - the argument of ``ask``
        start = self._places[indices[0]]
        if len(indices) == 1 or self._order[start : start + len(indices)] == list(indices):
            return self._cut(range(start, start + len(indices)), self._rows)
        return self._cut([self._places[index] for index in indices], self._rows)

    def _rows(self, positions: range | list[int]) -> Tensors:
        """Return the tensors at ``positions``, without a copy where they are consecutive; pad a fixed batch."""
        missing = (self._fixed or 0) - len(positions)
        if isinstance(positions, range) and missing <= 0:
            return {name: values[positions.start : positions.stop] for name, values in self._joined.items()}
        filled = [*positions, *[positions[-1]] * missing]
        return {name: values[filled] for name, values in self._joined.items()}

    def _ask_several(self, batches: Sequence[Tensors]) -> list[Tensors]:
        predict = self._session.predict
        return [predict(batch) for batch in batches]

    def _ask_each(self, samples: Sequence[Sequence[Tensors]]) -> list[list[Tensors]]:
        return [query(self._session, calls) for calls in samples]


def _first_axes(model: Model) -> bool:
    return all(port.axes.axis == 0 for port in model.inputs if port.is_fed)
