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
from ..core.scenarios import Offline, Queried, Server
from ..inference.audits import AnswerReservoir
from ..inference.predictions import save_tensors
from ..predictors import Predictor
from .timing_facts import TRACE, Log, compare_log, read_trace

Columns = dict[str, NDArray[Any]]

_COLUMNS = 6
_NO_FEWER_SWITCHES = 0


class Meter:
    """Rows of what was timed: wall clock, CPU time, involuntary context switches, start, what came before, samples.

    Times are nanoseconds. CPU time and switches are the calling thread's where all work is done there, else the
    process's. ``index`` has the samples in the order in which they were asked for, ``kept`` some answers, in ``share``
    of the memory that there is for them.
    """

    def __init__(self, predictor: Predictor, threads: int, share: float = 1.0) -> None:
        self.scope = "thread" if predictor.in_caller and threads == 1 else "process"
        self.kept = AnswerReservoir(share)
        self.index = array("q")
        self._rows = array("q")

    def reader(
        self, gather: Callable[[Sequence[int]], Any], ask: Callable[[Any], Any], after: Callable[[int], None]
    ) -> Callable[[Sequence[int]], None]:
        """A function that measures ``ask`` on what ``gather`` makes of samples, then tells ``after`` how often it did.

        The clock runs around ``ask`` alone: counters are read before it starts and after it stopped.
        """
        extend, order, kept = self._rows.extend, self.index.extend, self.kept
        wall, usage = time.perf_counter_ns, resource.getrusage
        cpu = time.thread_time_ns if self.scope == "thread" else time.process_time_ns
        who = resource.RUSAGE_THREAD if self.scope == "thread" else resource.RUSAGE_SELF
        made = 0

        def read(indices: Sequence[int]) -> None:
            nonlocal made
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
            made += 1
            if made == kept.next:
                kept.take(indices, answer)
            del answer
            after(made)

        return read

    @property
    def rows(self) -> NDArray[np.int64]:
        return np.frombuffer(self._rows, np.int64).reshape(-1, _COLUMNS)

    def columns(self) -> Columns:
        """The rows by name, times since the first of them was asked for.

        ``start_ns`` is when it was, ``before_ns`` what passed until the clock started, ``end_ns`` when it stopped.
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
        warmup: Nanoseconds of calls that are no samples.
        path: The file.
        metadata: What the file says of itself.
    """
    save_tensors(path, columns | {"warmup_ns": np.asarray(warmup, np.int64)}, metadata)


def columns_of(meter: Meter, scenario: Queried, log: Log, folder: Path) -> tuple[Columns, list[dict[str, float]]]:
    """The raw samples, a row a unit, and LoadGen's percentiles beside those of the same samples.

    In ``server`` a latency is from the time at which the query was scheduled, out of LoadGen's trace in ``folder``,
    which is then removed; ``service_ns`` is what our own clock saw.

    Raises:
        Failure: ``loadgen-invalid``: LoadGen tells of other queries, or its clock and ours disagree.
    """
    columns = meter.columns()
    with classify_errors("loadgen-invalid", "LoadGen's account"):
        if isinstance(scenario, Server):
            columns = _scheduled(columns, folder / TRACE)
        return columns, compare_log(log, columns, _name(scenario))


def _name(scenario: Queried) -> str:
    if isinstance(scenario, Offline):
        return "offline"
    return "server" if isinstance(scenario, Server) else "sequential"


def _scheduled(columns: Columns, trace: Path) -> Columns:
    found = read_trace(trace, columns["index"])
    trace.unlink()
    return columns | {
        "latency_ns": found.latency,
        "service_ns": columns["latency_ns"],
        "start_ns": found.at,
        "end_ns": found.at + found.latency,
        "issue_delay_ns": found.issued,
    }
