"""The clock and the counters of timed calls, as columns checked against LoadGen's log."""

import resource
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.failures import classify_errors
from ..core.scenarios import LoadGenScenario, Offline, Server
from ..inference.mlperf_audits import AnswerReservoir
from ..inference.predictions import save_tensors
from ..predictors import Predictor
from .loadgen_traces import TRACE, Log, compare_log, read_trace

Columns = dict[str, NDArray[Any]]

_COLUMNS = 6
_NO_FEWER_SWITCHES = 0


class Meter:
    """Measurements of timed units, one row each: wall clock, CPU time, preemption, start, preparation and sample count.

    Times are in nanoseconds. CPU time and involuntary context switches are those of the calling thread where it does
    all work, else of the process. ``index`` has the samples in the order of the queries. ``reservoir`` has answers,
    within ``share`` of the memory for answers.
    """

    def __init__(self, predictor: Predictor, threads: int, share: float = 1.0) -> None:
        """Start without any row."""
        self.scope = "thread" if predictor.in_caller and threads == 1 else "process"
        self.reservoir = AnswerReservoir(share)
        self.index = array("q")
        self._rows = array("q")

    def reader(
        self, gather: Callable[[Sequence[int]], Any], ask: Callable[[Any], Any], after: Callable[[int], None]
    ) -> Callable[[Sequence[int]], None]:
        """Return a function that measures ``ask`` on the result of ``gather``.

        The clock runs only around ``ask``: counters are read before it starts and after it stops.

        Args:
            gather: Returns the argument of ``ask`` for the indices of samples.
            ask: The function to measure.
            after: Receives the number of measurements so far, after each.
        """
        extend, order, reservoir = self._rows.extend, self.index.extend, self.reservoir
        wall, usage = time.perf_counter_ns, resource.getrusage
        cpu = time.thread_time_ns if self.scope == "thread" else time.process_time_ns
        who = resource.RUSAGE_THREAD if self.scope == "thread" else resource.RUSAGE_SELF
        calls = 0

        def read(indices: Sequence[int]) -> None:
            nonlocal calls
            entered = wall()
            unit = gather(indices)
            switches = usage(who).ru_nivcsw
            used = cpu()
            start = wall()
            answer = ask(unit)
            stop = wall()
            used = cpu() - used
            switches = usage(who).ru_nivcsw - switches
            extend((stop - start, used, switches, entered, start - entered, len(indices)))
            order(indices)
            calls += 1
            if calls == reservoir.next:
                reservoir.take(indices, answer)
            del answer
            after(calls)

        return read

    @property
    def rows(self) -> NDArray[np.int64]:
        """The measurements as int64 [units, 6]."""
        return np.frombuffer(self._rows, np.int64).reshape(-1, _COLUMNS)

    def columns(self) -> Columns:
        """Return the rows by column name, with times since the first unit was requested.

        ``start_ns`` is when a unit was requested, ``before_ns`` the time until its clock started, ``end_ns`` when the
        clock stopped.
        """
        rows = self.rows
        return {
            "latency_ns": rows[:, 0].copy(),
            "cpu_ns": rows[:, 1].copy(),
            "preempted": (rows[:, 2] > _NO_FEWER_SWITCHES).astype(np.uint8),
            "start_ns": rows[:, 3] - rows[0, 3],
            "before_ns": rows[:, 4].copy(),
            "end_ns": rows[:, 3] + rows[:, 4] + rows[:, 0] - rows[0, 3],
            "samples": rows[:, 5].copy(),
            "index": np.frombuffer(self.index, np.int64).copy(),
        }


def save(columns: Columns, warmup: Sequence[int], path: Path, metadata: Mapping[str, str]) -> None:
    """Write the raw samples of a phase.

    Args:
        columns: The samples by name.
        warmup: Nanoseconds of the warm-up calls, which are not samples.
        path: The file.
        metadata: The metadata of the file.
    """
    save_tensors(path, columns | {"warmup_ns": np.asarray(warmup, np.int64)}, metadata)


def collect_columns(
    meter: Meter, scenario: LoadGenScenario, log: Log, folder: Path
) -> tuple[Columns, list[dict[str, float]]]:
    """Return the raw samples, a row per unit, and LoadGen's percentiles beside those of the same samples.

    In ``server`` a latency starts when the query was scheduled, from LoadGen's trace in ``folder``, which is then
    removed; ``service_ns`` is the harness's own measurement.

    Raises:
        Failure: ``loadgen-invalid``: LoadGen reports other queries, or its clock and the harness's disagree.
    """
    columns = meter.columns()
    with classify_errors("loadgen-invalid", "LoadGen's account"):
        if isinstance(scenario, Server):
            columns = _read_scheduled(columns, folder / TRACE)
        return columns, compare_log(log, columns, _name(scenario))


def _name(scenario: LoadGenScenario) -> str:
    if isinstance(scenario, Offline):
        return "offline"
    return "server" if isinstance(scenario, Server) else "sequential"


def _read_scheduled(columns: Columns, trace: Path) -> Columns:
    queries = read_trace(trace, columns["index"])
    trace.unlink()
    return columns | {
        "latency_ns": queries.latency,
        "service_ns": columns["latency_ns"],
        "start_ns": queries.at,
        "end_ns": queries.at + queries.latency,
        "issue_delay_ns": queries.issued,
    }
