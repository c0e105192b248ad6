"""One experiment of a trace: a process that calls the model in blocks, each when the parent orders it.

Standard input is a socket to the parent. The process writes a line when it is ready, with the nanoseconds of a call,
and one after each block. It waits in the kernel between blocks, so that it takes no CPU time from other experiments.
"""

import gc
import hashlib
import json
import os
import resource
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from .. import predictors
from ..core.failures import classify_errors
from ..core.job import Job
from ..core.scenarios import BatchSweep, MultiStream, Offline
from ..datasets import open_samples
from ..inference.model_session import Session
from ..inference.pipeline import Pipeline
from ..inference.predictions import save_tensors
from ..predictors import Place, Predictor, Tensors
from . import UNKNOWN, Profile, Profiler, Row
from .row_matrix import measure_offset, to_monotonic
from .system_counters import SystemCounters
from .trace_levels import CALL_TENSORS, SETTLING_CALLS, UNITS, Experiment

GRAPH: Final = "graph"
"""The name of the process that describes the model's graph, which is no experiment."""
_PROBE: Final = "probe"
"""The name of the process that tries the profiler before the timed phases, which is no experiment."""
BLOCK, END = b"b", b"e"
"""The orders of the parent: make a block of calls, end."""
MODEL_ROWS: Final = tuple(Row("model", name, name) for name in ("prepare", "predict", "outputs"))
_PREPARE, _PREDICT, _OUTPUTS = range(len(MODEL_ROWS))
_KERNELS: Final = {"pytorch": "onednn", "tensorflow": "onednn"}
"""The module whose rows are the kernels of a predictor. Other frameworks have no profiler of kernels."""
_LIBRARIES: Final = {"pytorch": "torch", "litert": "ai_edge_litert"}
"""The Python module of a framework that is not named like its predictor."""
_UNTRACED: Final = ("tensorflow",)
"""Predictors whose profiler needs another executor; calls without a profiler are made by that executor too."""
_FEWEST_WARMUP, _MOST_WARMUP = 3, 20
_BLOCK_COLUMN: Final = CALL_TENSORS.index("block")


def find_kernel_module(predictor: str) -> str | None:
    """Return the module that profiles kernels of a predictor; None where its framework has no such profiler."""
    return _KERNELS.get(predictor)


def experiment_file(output: Path, name: str, suffix: str) -> Path:
    """Return the path of a file that an experiment leaves for its parent."""
    return output / f"trace-{name}.{suffix}"


def run(name: str, job: Job, folder: Path, output: Path, since_ns: int) -> dict[str, Any]:
    """Run an experiment, or describe the graph; leave files for the parent and return the report.

    Args:
        name: The experiment, ``graph`` or ``probe``.
        job: The job.
        folder: The folder of the job.
        output: The folder of results.
        since_ns: The monotonic clock when the parent started this process.

    Raises:
        Failure: ``load``, ``step``, ``predict`` or ``out-of-memory``.
    """
    if name == GRAPH:
        return _describe_graph(job, folder, output)
    if name == _PROBE:
        return _probe_profiler(job, folder)
    experiment, predictor = cast(Experiment, name), job.model.predictor
    counters = SystemCounters() if experiment == "system" else None
    offset = measure_offset()
    predictors.import_framework(job.model)
    imported = time.monotonic_ns()
    subject = _open_subject(experiment, job, folder)
    loaded = time.monotonic_ns()
    calls = _Calls(experiment, subject, job, folder, counters)
    first, second = calls.warm_up()
    _serve(calls)
    calls.save(output, offset)
    phases = {"import": imported - since_ns, "load": loaded - imported, "first_call": first, "second_call": second}
    return {
        "threads": dict(getattr(subject, "threads", {})),
        "device": getattr(subject, "device", job.device),
        "timings": {},
        "batch": calls.batch_size,
        "version": getattr(sys.modules.get(_LIBRARIES.get(predictor, predictor)), "__version__", None),
        "phases": {f"{phase}_ns": value for phase, value in phases.items()},
    }


def _probe_profiler(job: Job, folder: Path) -> dict[str, Any]:
    """Trace calls and drop the profile, so that a trace that is impossible fails before anything is timed."""
    predictors.import_framework(job.model)
    profiler = cast(Profiler, _open_subject("framework", job, folder))
    _Calls("framework", profiler, job, folder, None).warm_up()
    with classify_errors("predict", "the profile of a probe"):
        profiler.finish()
    return {"timings": {}}


def choose_batch(job: Job, pipeline: Pipeline) -> int:
    """Return the samples of a traced call: those of a call of the timed phase, of a sweep the smallest batch."""
    scenario = job.scenario
    requested = 1
    if isinstance(scenario, Offline):
        requested = scenario.batch
    elif isinstance(scenario, MultiStream):
        requested = scenario.samples_per_query
    elif isinstance(scenario, BatchSweep):
        requested = min(scenario.batches)
    return pipeline.batch_size(requested)


def _describe_graph(job: Job, folder: Path, output: Path) -> dict[str, Any]:
    predictors.import_framework(job.model)
    pipeline = Pipeline(job.model, folder / "model")
    units = _Units(job, folder, pipeline)
    module = import_module(f".{job.model.predictor}", __package__)
    batches: list[Tensors] = []

    class Noting:
        """A predictor that notes the complete inputs of the call, with constants and states, and makes no call."""

        def predict(self, batch: Tensors) -> Tensors:
            batches.append(batch)
            raise _CallInterruption

    with suppress(_CallInterruption):
        Session(cast(Predictor, Noting()), job.model).predict(units.batches[0])
    place = Place(job.threads, job.device)
    with classify_errors("load", f"the graph of the model, predictor {job.model.predictor}"):
        graph = module.describe_graph(folder / "model", job.model, place, batches[0])
        document = asdict(graph)
    experiment_file(output, GRAPH, "json").write_text(json.dumps(document), encoding="utf-8")
    return {"timings": {}}


class _CallInterruption(Exception):  # noqa: N818 - ends a call whose inputs are all that matters
    """The inputs of a call are known."""


def _open_subject(experiment: Experiment, job: Job, folder: Path) -> Predictor | Profiler:
    place, predictor = Place(job.threads, job.device), job.model.predictor
    deepest = {"framework": predictor, "system": find_kernel_module(predictor)}
    is_traced = deepest.get(experiment) is not None
    name, opener = (deepest[experiment], "open_profiler") if is_traced else (predictor, "load_untraced")
    if not is_traced and (predictor not in _UNTRACED or experiment == "system"):
        return predictors.load(job.model, folder / "model", place)
    with classify_errors("load", f"the profiler of {name}, predictor {predictor}"):
        module = import_module(f".{name}", __package__)
        return cast(Profiler, getattr(module, opener)(folder / "model", job.model, place))


class _Units:
    """The inputs of different calls, prepared once, and the times of their preparation."""

    def __init__(self, job: Job, folder: Path, pipeline: Pipeline) -> None:
        samples = open_samples(job.dataset, folder / "dataset")
        size = choose_batch(job, pipeline)
        self.batches: list[Tensors] = []
        self.times: list[tuple[int, int]] = []
        pipeline.prepare(samples, 0)  # loads the libraries of the steps
        for first in range(0, min(UNITS * size, max(len(samples), size)), size):
            start = time.monotonic_ns()
            indices = [(first + offset) % len(samples) for offset in range(size)]
            self.batches.append(pipeline.stack([pipeline.prepare(samples, index).calls[0] for index in indices]))
            self.times.append((start, time.monotonic_ns() - start))
        self.size = size


class _Calls:
    """The calls of an experiment, with their times, spans and counters."""

    def __init__(
        self,
        experiment: Experiment,
        subject: Predictor | Profiler,
        job: Job,
        folder: Path,
        counters: SystemCounters | None,
    ) -> None:
        self._experiment, self._job = experiment, job
        self._subject = subject
        self._pipeline = Pipeline(job.model, folder / "model")
        self._session = Session(cast(Predictor, subject), job.model)
        self._units = _Units(job, folder, self._pipeline)
        self._spans: list[tuple[int, int]] = []
        self._predict = self._session.predict if experiment == "none" else _spanned(self._session.predict, self._spans)
        alone = job.threads == 1 and bool(getattr(subject, "in_caller", True))
        self._who = resource.RUSAGE_THREAD if alone else resource.RUSAGE_SELF
        self._cpu = time.thread_time_ns if alone else time.process_time_ns
        self._times: list[tuple[int, ...]] = []
        self._outputs: list[tuple[int, int]] = []
        self._answers = hashlib.sha256()
        self._counters = counters

    @property
    def batch_size(self) -> int:
        """The samples of a call."""
        return self._units.size

    def warm_up(self) -> tuple[int, int]:
        """Make the calls that are not recorded; return the nanoseconds of the first two."""
        count = min(max(self._job.scenario.warmup, _FEWEST_WARMUP), _MOST_WARMUP)
        with classify_errors("predict", "warm-up of a trace"):
            first, second, *_ = [self._call(number)[1] for number in range(count)]
            if start := getattr(self._subject, "start", None):
                start()
            for number in range(SETTLING_CALLS):
                self.call_ns = self._call(number)[1]
        self._session.restart()
        self._spans.clear()
        if self._counters:
            self._counters.clear()
        gc.collect()
        gc.freeze()
        gc.disable()
        return first, second

    def make_block(self, count: int) -> None:
        """Make ``count`` calls, then the output steps of their answers."""
        block = self._times[-1][_BLOCK_COLUMN] + 1 if self._times else 0
        answers: list[Tensors] = []
        with classify_errors("predict", "a traced call"):
            for _ in range(count):
                self._times.append(self._call(len(self._times), answers, block))
        for answer in answers:
            start = time.monotonic_ns()
            self._pipeline.answers(answer, self._units.size, "a traced call")
            self._outputs.append((start, time.monotonic_ns() - start))
            for name in sorted(answer):
                self._answers.update(np.ascontiguousarray(answer[name]).tobytes())

    def _call(self, number: int, answers: list[Tensors] | None = None, block: int = 0) -> tuple[int, ...]:
        """Return the times and counters of a call in the order of ``CALL_TENSORS``."""
        batch = self._units.batches[number % len(self._units.batches)]
        self._session.start_sample()
        predict, clock, who = self._predict, time.monotonic_ns, self._who
        if self._counters:
            self._counters.begin()
        before, cpu = resource.getrusage(who), self._cpu()
        start = clock()
        answer = predict(batch)
        stop = clock()
        cpu, after = self._cpu() - cpu, resource.getrusage(who)
        if self._counters:
            self._counters.end()
        if answers is not None:
            answers.append(answer)
        preempted, faults = after.ru_nivcsw - before.ru_nivcsw, after.ru_minflt - before.ru_minflt
        return start, stop - start, block, preempted, faults, cpu

    def save(self, output: Path, offset: int) -> None:
        """Write the experiment for the parent; ``offset`` is that of the real-time clock before the first call."""
        last, document = measure_offset(), {}
        counters = None if self._counters is None else self._counters.read()
        rows, starts, durations = self._model_rows()
        if finish := getattr(self._subject, "finish", None):
            with classify_errors("predict", f"the profile of the experiment {self._experiment}"):
                profile: Profile = finish()
                expected = (len(self._times) + SETTLING_CALLS, len(profile.rows))
                if not profile.starts.shape == profile.durations.shape == expected:
                    raise ValueError(f"the profile has the shape {profile.starts.shape}, expected {expected}")
            begun, notes = profile.starts, [*profile.notes]
            if profile.clock == "realtime":
                begun, unknown = to_monotonic(begun, offset, last)
                notes += unknown
            starts = np.concatenate([starts, begun[SETTLING_CALLS:]], axis=1)
            durations = np.concatenate([durations, profile.durations[SETTLING_CALLS:]], axis=1)
            rows += [_under_predict(row) for row in profile.rows]
            document = {
                "source": getattr(self._subject, "source", None),
                "start_source": profile.start_source,
                "resolution_ns": profile.resolution_ns,
                "incomplete": profile.incomplete,
                "notes": notes,
            }
            experiment_file(output, self._experiment, "native").write_bytes(profile.native)
        document = {
            "deepest": self._experiment,
            "source": None,
            "start_source": "measured",
            "resolution_ns": 1,
            "rows": [asdict(row) for row in rows],
            "incomplete": None,
            "notes": [],
            "counters": counters,
            "answers_sha256": self._answers.hexdigest(),
            **document,
        }
        columns = np.asarray(self._times, np.int64).reshape(-1, len(CALL_TENSORS))
        tensors = {name: columns[:, index].copy() for index, name in enumerate(CALL_TENSORS)}
        tensors |= {"start": starts, "duration": durations}
        path = experiment_file(output, self._experiment, "safetensors")
        save_tensors(path, tensors, {"experiment": json.dumps(document)})

    def _model_rows(self) -> tuple[list[Row], NDArray[np.int64], NDArray[np.int64]]:
        """Return the parts of a call, and their starts and durations [calls, rows]."""
        calls, rows = len(self._times), [] if self._experiment == "none" else list(MODEL_ROWS)
        values = np.full((2, calls, len(rows)), UNKNOWN, np.int64)
        parts = ((_PREPARE, self._units.times[:calls]), (_PREDICT, self._spans), (_OUTPUTS, self._outputs))
        for row, spans in parts if rows else ():
            values[:, : len(spans), row] = np.asarray(spans, np.int64).T
        return rows, values[0], values[1]


def _under_predict(row: Row) -> Row:
    """Return a row of a profile as a part of ``predict``, with the index of its parent among all rows."""
    return replace(row, parent=_PREDICT if row.parent is None else row.parent + len(MODEL_ROWS))


def _spanned(predict: Callable[[Tensors], Tensors], spans: list[tuple[int, int]]) -> Callable[[Tensors], Tensors]:
    """Return ``predict`` with a span of every call."""
    clock = time.monotonic_ns

    def timed(batch: Tensors) -> Tensors:
        start = clock()
        answer = predict(batch)
        spans.append((start, clock() - start))
        return answer

    return timed


def _serve(calls: _Calls) -> None:
    """Follow the parent's orders: a byte for the order, then a byte for the number of calls."""
    _tell(calls.call_ns)
    while (order := os.read(0, 1)) == BLOCK:
        calls.make_block(os.read(0, 1)[0])
        _tell(0)
    if order != END:
        raise SystemExit(1)  # the parent has ended


def _tell(value: int) -> None:
    os.write(0, b"%d\n" % value)
