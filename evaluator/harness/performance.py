"""The performance phase: what one call takes, on prepared tensors, query after query as LoadGen draws them."""

import gc
import hashlib
import resource
import time
from array import array
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import loadgen, predictors
from .calling import Session, call, query
from .datasets import Samples, open_samples
from .failures import failing
from .job import Job
from .pipeline import Pipeline
from .predictors import Predictor, Tensors
from .reports import Progress, Timings
from .scenarios import SingleStream
from .tensorfiles import save_tensors

SAMPLES = "samples.safetensors"

# Prepared tensors are kept in memory: at most this many samples, and at most this many bytes of them. The bound is
# the same on every host, since LoadGen's traffic depends on it.
_MOST_LOADED = 1024
_MOST_BYTES = 256 << 20
# LoadGen needs an estimate of a call, and counts its first query: something was called before, whatever is asked.
_FEWEST_WARMUP_CALLS = 3
_COLUMNS = 5


class Meter:
    """One row a call: nanoseconds of wall clock and of CPU, involuntary context switches, the index, the start.

    CPU time and switches are the calling thread's where all work is done there, else the process's.
    """

    def __init__(self, predictor: Predictor, threads: int) -> None:
        self.scope = "thread" if predictor.in_caller and threads == 1 else "process"
        self.rows = array("q")

    def reader(
        self, ask: Callable[[Any], object], prepared: dict[int, Any], after: Callable[[int], None]
    ) -> Callable[[int], None]:
        """A function that measures ``ask`` on the sample of an index, then tells ``after`` how many were made.

        The clock runs around the call alone: counters are read before it starts and after it stopped.
        """
        extend, wall, usage = self.rows.extend, time.perf_counter_ns, resource.getrusage
        cpu = time.thread_time_ns if self.scope == "thread" else time.process_time_ns
        who = resource.RUSAGE_THREAD if self.scope == "thread" else resource.RUSAGE_SELF
        made = 0

        def read(index: int) -> None:
            nonlocal made
            sample = prepared[index]
            switches = usage(who).ru_nivcsw
            used = cpu()
            start = wall()
            answer = ask(sample)
            stop = wall()
            used = cpu() - used
            switches = usage(who).ru_nivcsw - switches
            extend((stop - start, used, switches, index, start))
            del answer
            made += 1
            after(made)

        return read


def run(job: Job, folder: Path, output: Path) -> dict[str, Any]:
    """The phase's report; the samples are written beside it.

    Raises:
        Failure: of class ``load``, ``step``, ``predict``, ``loadgen-invalid`` or ``out-of-memory``.
    """
    assert isinstance(job.scenario, SingleStream)
    timings = Timings()
    with timings.of("load"):
        predictor = predictors.load(job.model, folder / "model", job.threads, job.device)
        session, pipeline = Session(predictor, job.model), Pipeline(job.model, folder / "model")
    traffic = _Traffic(job, session, pipeline, open_samples(job.dataset, folder / "dataset"), timings)
    with timings.of("warmup"):
        warmup = _warm_up(session, traffic.first, max(job.scenario.warmup, _FEWEST_WARMUP_CALLS))
    meter = Meter(predictor, job.threads)
    log = traffic.measure(meter, min(warmup), output / "loadgen")
    predictor.close()
    rows = np.frombuffer(meter.rows, np.int64).reshape(-1, _COLUMNS)
    _save(rows, warmup, output / SAMPLES)
    return {
        "performance": {
            "queries": len(rows),
            "samples_per_query": 1,
            "duration_s": float(rows[-1, 4] + rows[-1, 0] - rows[0, 4]) / 1e9,
            "preempted": int((rows[:, 2] > 0).sum()),
            "cpu_scope": meter.scope,
            "loaded_samples": traffic.loaded,
            "warmup_calls": len(warmup),
        },
        "loadgen": {
            "version": log.version,
            "valid": log.valid,
            "errors": list(log.errors),
            "settings": log.settings,
            "results": log.results,
            "sequence_sha256": hashlib.sha256(rows[:, 3].astype("<i8").tobytes()).hexdigest(),
        },
        "threads": dict(predictor.threads),
        "device": predictor.device,
        "timings": timings.seconds,
    }


class _Traffic:
    """The samples that LoadGen chooses, prepared once before it starts the clock, and its run over them."""

    def __init__(self, job: Job, session: Session, pipeline: Pipeline, samples: Samples, timings: Timings) -> None:
        self._job = job
        self._pipeline = pipeline
        self._samples = samples
        self._timings = timings
        self._prepared: dict[int, Any] = {}
        # Where no sample takes several calls and no state begins anew with it, a query is the call and nothing else.
        self._one = not (pipeline.several or session.stateful)
        self._ask: Callable[[Any], object] = session.predict if self._one else partial(query, session)
        calls = self._calls(0)
        self.first = calls[0]
        size = sum(values.nbytes for call in calls for values in call.values())
        self.loaded = min(len(samples), _MOST_LOADED, max(1, _MOST_BYTES // max(size, 1)))

    def measure(self, meter: Meter, fastest_ns: int, folder: Path) -> loadgen.Log:
        """LoadGen's account of the run; ``fastest_ns`` is the fastest call so far."""
        scenario = self._job.scenario
        assert isinstance(scenario, SingleStream)
        expected = max(scenario.min_queries, round(scenario.min_duration * 1e9 / fastest_ns))
        progress = Progress("performance", expected)
        settings = loadgen.Settings(
            min_queries=scenario.min_queries,
            min_duration=scenario.min_duration,
            # Less than any call so far: LoadGen must never run out of the queries that it generates before it starts.
            expected_latency_ns=max(1, fastest_ns * 3 // 4),
            seeds=self._job.seeds,
        )
        source = loadgen.Source(len(self._samples), self.loaded, self._load)
        start = time.perf_counter()
        with failing("predict", "a query"):
            log = loadgen.single_stream(meter.reader(self._ask, self._prepared, progress.at), source, settings, folder)
        progress.finish()
        self._timings.seconds["queries"] = time.perf_counter() - start - self._timings.seconds["prepare"]
        return log

    def _load(self, indices: Sequence[int]) -> None:
        chosen = dict.fromkeys(indices)
        progress = Progress("prepare", len(chosen))
        with self._timings.of("prepare"):
            for done, index in enumerate(chosen, start=1):
                calls = self._calls(index)
                self._prepared[index] = calls[0] if self._one else calls
                progress.at(done)
        progress.finish()
        # No collection of garbage between here and the end of the process falls into a call.
        gc.collect()
        gc.freeze()
        gc.disable()

    def _calls(self, index: int) -> list[Tensors]:
        return [self._pipeline.stack([call]) for call in self._pipeline.prepare(self._samples, index).calls]


def _warm_up(session: Session, batch: Tensors, calls: int) -> list[int]:
    """Nanoseconds of each of ``calls`` calls, which are no samples."""
    found = []
    for _ in range(calls):
        start = time.perf_counter_ns()
        call(session, batch, "warm-up")
        found.append(time.perf_counter_ns() - start)
    session.restart()
    return found


def _save(rows: NDArray[np.int64], warmup: Sequence[int], path: Path) -> None:
    columns: dict[str, NDArray[Any]] = {
        "latency_ns": rows[:, 0].copy(),
        "cpu_ns": rows[:, 1].copy(),
        "preempted": (rows[:, 2] > 0).astype(np.uint8),
        "index": rows[:, 3].copy(),
        "warmup_ns": np.asarray(warmup, np.int64),
    }
    save_tensors(path, columns)
