"""Timed phases read back from raw samples and LoadGen's log, with consistency checks."""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.evidence.loadgen_checks import (
    check_results,
    check_samples,
    check_settings,
    check_summary,
    check_verdict,
    describe_checked_probe,
    read_detail_log,
    read_probe_logs,
)
from benchlock.evaluator.evidence.required_evidence import is_complete
from benchlock.evaluator.harness.core.job import COLD_PHASES
from benchlock.evaluator.harness.performance.loadgen_traces import (
    Log,
    compare_log,
    compare_percentiles,
    describe_account,
    describe_phase,
    describe_starts,
    describe_sweep,
)
from benchlock.evaluator.records.evidence_status import PEAK_LOGS
from benchlock.evaluator.runner.self_reported_times import InvalidLoadError
from benchlock.evaluator.statistics.time_metrics import Performance, read_columns, samples_of
from benchlock.registry.lock.lockfile import Lock

SampleColumns = Mapping[str, NDArray[Any]]

_GREATEST: Final = 1 << 62
_DURATIONS: Final = ("latency_ns", "cpu_ns", "before_ns", "service_ns", "prepare_ns", "predict_ns", "outputs_ns")
_ROWS: Final = (*_DURATIONS, "preempted", "start_ns", "end_ns", "samples", "batch", "issue_delay_ns")
"""Columns with one value per query or per call."""
_STAGES: Final = ("prepare_ns", "predict_ns", "outputs_ns")
_SEQUENTIAL: Final = ("single_stream", "multi_stream", "offline")
_SLACK: Final = 1.01
"""The maximum ratio of two clocks."""


def check_columns(role: str, columns: SampleColumns, scenario: Mapping[str, Any], total: int) -> None:
    """Raise unless the columns of a timed phase agree with one another and with the scenario.

    Args:
        role: The role of their blob, for messages.
        columns: The columns that such a phase has, see ``required_evidence``.
        scenario: The scenario of the lock.
        total: The number of samples in the split.

    Raises:
        InvalidInputError: They do not agree.
    """
    _check_shapes(role, columns)
    name = scenario["name"]
    if name == "cold_start":
        parts = sum(columns[f"{phase}_ns"] for phase in COLD_PHASES)
        _demand(role, np.array_equal(columns["latency_ns"], parts), "the phases of a start do not add up to latency_ns")
        return
    index, samples = columns["index"], columns["samples"]
    _demand(role, int(samples.sum()) == len(index), f"samples adds up to {samples.sum()}, but index has {len(index)}")
    _demand(role, bool((index < total).all()), f"index has a sample number out of range: the split has {total}")
    expected = _samples_of_query(scenario, columns)
    if expected is not None:
        _demand(role, bool((samples == expected).all()), "samples differs from the samples per query of the lock")
    _check_times(role, columns, name)


def _check_shapes(role: str, columns: SampleColumns) -> None:
    """Raise unless the columns are integer series of one length, with sums that do not overflow."""
    rows = len(columns["latency_ns"])
    _demand(role, rows > 0, "there are no samples")
    known = (*_ROWS, "index", "warmup_ns", *(f"{phase}_ns" for phase in COLD_PHASES))
    for name in (name for name in known if name in columns):
        column = columns[name]
        _demand(role, column.ndim == 1 and column.dtype in (np.int64, np.uint8), f"{name} is not a series of integers")
        is_within = not len(column) or (column.min() >= 0 and column.max() < _GREATEST)
        _demand(role, bool(is_within), f"{name} is out of range")
        if name.endswith("_ns") and name not in ("start_ns", "end_ns"):
            _demand(role, float(column.sum(dtype=np.float64)) < _GREATEST, f"the sum of {name} is out of range")
        if name not in ("index", "warmup_ns"):
            _demand(role, len(column) == rows, f"{name} has {len(column)} values, but latency_ns {rows}")
    if "samples" in columns:
        total = float(columns["samples"].sum(dtype=np.float64))
        _demand(role, total < _GREATEST, "the sum of samples is out of range")


def _samples_of_query(scenario: Mapping[str, Any], columns: SampleColumns) -> Any:  # noqa: ANN401 - a number or a column
    """Return the number of samples of each query; None for an offline run, whose calls need not be full."""
    name = scenario["name"]
    if name == "offline":
        return None
    return columns["batch"] if name == "batch_sweep" else scenario.get("samples_per_query", 1)


def _check_times(role: str, columns: SampleColumns, name: str) -> None:
    start, before, latency, end = (columns[f"{part}_ns"] for part in ("start", "before", "latency", "end"))
    if name == "server":
        served = columns["service_ns"]
        _demand(role, np.array_equal(end, start + latency), "end_ns is not the sum of start_ns and latency_ns")
        within = float(served.sum()) <= float(latency.sum()) * _SLACK
        _demand(role, within, "service_ns exceeds the latency of the same query")
    else:
        served = latency
        whole = np.array_equal(end, start + before + latency)
        _demand(role, whole, "end_ns is not the sum of start_ns, before_ns and latency_ns")
    if name in _SEQUENTIAL:
        _demand(role, bool((start[1:] >= end[:-1]).all()), "a query starts before the end of the previous one")
    if all(stage in columns for stage in _STAGES):
        # Samples of an offline run are prepared before the clock of their call starts.
        stages = _STAGES[1:] if name == "offline" else _STAGES
        spent = sum(columns[stage] for stage in stages)
        _demand(role, bool((spent <= served).all()), f"the sum of {', '.join(stages)} exceeds the call")


def _demand(role: str, is_true: bool, reason: str) -> None:
    if not is_true:
        raise InvalidInputError(f"the blob {role}: {reason}", where=role, next_step="run the lock again")


LARGEST_SAMPLES: Final = 512 << 20
LARGEST_LOG: Final = 64 << 20
LARGEST_ACCOUNT: Final = 16 << 10
"""The maximum size of a phase in the result, in bytes of JSON; lists would leave out a larger one with its verdict."""
_CLOSE: Final = 1e-9
_NEEDED: Final = ("start_ns", "end_ns", "index", "preempted")

Columns = Mapping[str, NDArray[Any]]
Table = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Phase:
    """The name of a timed phase, and the roles of its blobs."""

    name: str
    samples: str
    log: str
    summary: str


PERFORMANCE: Final = Phase("performance", "samples", "loadgen-detail", "loadgen-summary")
PIPELINE: Final = Phase("pipeline", "pipeline-samples", "pipeline-loadgen-detail", "pipeline-loadgen-summary")


@dataclass(frozen=True, slots=True)
class PhaseReader:
    """The reader of the timed phases of one run.

    Attributes:
        lock: The lock of the run.
        files: The files of the run's blobs, by role.
        total: The number of samples in the split.
    """

    lock: Lock
    files: Mapping[str, Path]
    total: int

    def read(self, phase: Phase, stated: Table | None, account: Table | None) -> Performance | None:
        """Read the samples of a phase, and compare them with the phase in the result.

        Args:
            phase: The phase.
            stated: The phase in the result; None if it was not timed.
            account: LoadGen's account in the result; None if LoadGen did not drive the phase.

        Raises:
            InvalidInputError: Samples or the log are missing or malformed, or the result contradicts them.
            InvalidLoadError: LoadGen logged an error, or a minimum was not met.
        """
        if stated is None:
            return None
        _check_size(phase, stated)
        _check_size(phase, account)
        columns = self._read_columns(phase, stated)
        scenario, samples = self.lock.scenario, samples_of(columns)
        log = self._read_log(phase, account)
        try:
            facts = _describe(columns, scenario)
            account_facts = {} if log is None else self._account(log, columns)
            if log is not None and not log.errors:
                self._check_log(phase, log, columns)
        except (ValueError, KeyError, IndexError, TypeError, ArithmeticError) as error:
            raise InvalidInputError(
                f"the samples or the log of the {phase.name} phase are malformed: {error}",
                where=phase.samples,
                next_step="run the lock again",
            ) from error
        if log is not None and log.errors:
            raise InvalidLoadError(f"LoadGen logged {len(log.errors)} errors: {shorten_value(log.errors[0])}")
        _check_equal(phase.name, stated, facts)
        _check_equal(f"{phase.name}: loadgen", account or {}, account_facts)
        duration: float = facts["duration_s"] if facts else stated["duration_s"]
        return Performance(samples, stated["samples_per_query"], duration)

    def read_first_probe(self, rate: float) -> dict[str, Any]:
        """Summarise LoadGen's log of the performance phase as a probe of ``rate``, in queries a second.

        Raises:
            InvalidInputError: There is no such log, or it is malformed.
        """
        if PERFORMANCE.log not in self.files:
            raise InvalidInputError("LoadGen's log of the performance phase is missing")
        log = read_detail_log(PERFORMANCE.log, self.files[PERFORMANCE.log])
        return describe_checked_probe(PERFORMANCE.log, rate, log)

    def read_probes(self, rates: Sequence[float]) -> list[dict[str, Any]] | None:
        """Summarise LoadGen's logs of the probes of the peak phase; None if the harness left no such logs.

        Args:
            rates: The rates of the probes as the result states them, in queries a second.

        Raises:
            InvalidInputError: The logs are malformed, or of other probes.
            InvalidLoadError: LoadGen logged an error.
        """
        if PEAK_LOGS not in self.files:
            return None
        logs = read_probe_logs(PEAK_LOGS, self.files[PEAK_LOGS])
        if len(logs) != len(rates):
            raise InvalidInputError(f"the harness reports {len(rates)} probes, but wrote {len(logs)} logs")
        probes = []
        for number, (rate, log) in enumerate(zip(rates, logs, strict=True), start=1):
            place = f"{PEAK_LOGS}, log {number}"
            if log.errors:
                raise InvalidLoadError(
                    f"{place}: LoadGen logged {len(log.errors)} errors: {shorten_value(log.errors[0])}"
                )
            check_settings(place, log, self.lock.scenario, rate)
            check_verdict(place, log, self.lock.scenario["name"])
            check_results(place, log, self.lock.scenario, rate)
            probes.append(describe_checked_probe(place, rate, log))
        return probes

    def _read_columns(self, phase: Phase, stated: Table) -> Columns:
        if phase.samples not in self.files:
            raise InvalidInputError(
                f"the harness reports {stated['queries']} timed queries, but wrote no {phase.samples}"
            )
        columns = read_columns(self.files[phase.samples])
        if len(columns["latency_ns"]) != stated["queries"]:
            raise InvalidInputError(
                f"the harness reports {stated['queries']} queries, but wrote {len(columns['latency_ns'])} samples"
            )
        if is_complete(self.lock):
            check_columns(phase.samples, columns, self.lock.scenario, self.total)
            if len(columns["warmup_ns"]) != stated["warmup_calls"]:
                raise InvalidInputError(
                    f"the harness reports {phase.name} warmup_calls {shorten_value(stated['warmup_calls'])}, "
                    f"but its samples give {len(columns['warmup_ns'])}"
                )
        return columns

    def _read_log(self, phase: Phase, account: Table | None) -> Log | None:
        if account is None:
            return None
        if phase.log not in self.files:
            raise InvalidInputError(f"the harness reports LoadGen in the {phase.name} phase, but wrote no {phase.log}")
        log = read_detail_log(phase.log, self.files[phase.log])
        if is_complete(self.lock):
            check_settings(phase.log, log, self.lock.scenario)
        return log

    def _check_log(self, phase: Phase, log: Log, columns: Columns) -> None:
        """Raise if LoadGen's verdict or results contradict each other, the samples or the summary."""
        check_verdict(phase.log, log, self.lock.scenario["name"])
        check_results(phase.log, log, self.lock.scenario)
        if is_complete(self.lock):
            check_samples(phase.log, log, self.lock.scenario, columns)
        if phase.summary in self.files:
            check_summary(phase.summary, self.files[phase.summary], log)

    def _account(self, log: Log, columns: Columns) -> dict[str, Any]:
        """Summarise LoadGen's log beside the samples of the same queries."""
        name = self.lock.scenario["name"]
        if is_complete(self.lock):
            return describe_account(log, columns, compare_log(log, columns, name))
        if "index" not in columns:
            return {"valid": log.valid, "results": log.results}
        if name == "offline":
            return describe_account(log, columns, [])
        latency = columns["latency_ns"] if name == "server" else columns["before_ns"] + columns["latency_ns"]
        return describe_account(log, columns, compare_percentiles(log, np.asarray(latency)))


def _describe(columns: Columns, scenario: Table) -> dict[str, Any]:
    """Summarise the samples; empty if an older harness left too few columns."""
    name = scenario["name"]
    if name == "cold_start":
        return describe_starts(columns)
    if any(column not in columns for column in _NEEDED):
        return {}
    if name == "batch_sweep":
        return describe_sweep(columns)
    return describe_phase(columns, scenario.get("samples_per_query", 1))


def _check_size(phase: Phase, document: Table | None) -> None:
    """Raise if the result states more about a phase than a list of runs can show."""
    if (size := len(json.dumps(document))) > LARGEST_ACCOUNT:
        raise InvalidInputError(
            f"the harness reports {size} bytes about the {phase.name} phase; the maximum is {LARGEST_ACCOUNT}",
            where=phase.name,
            next_step="run the lock again",
        )


def _check_equal(where: str, stated: Table, expected: Table) -> None:
    """Raise if the result states a value that differs from its samples or its log."""
    for name, value in expected.items():
        if name in stated and not is_equal(stated[name], value):
            raise InvalidInputError(
                f"the harness reports {where} {name} {shorten_value(stated[name])}, "
                f"but its samples and logs give {shorten_value(value)}"
            )


def is_equal(value: object, other: object) -> bool:
    """Return whether two JSON values are equal; a float may differ by 1e-9 of the greater value.

    Sums may differ in their last bits between machines. Everything else is exact: counts, times and seeds.
    """
    if isinstance(value, Mapping) and isinstance(other, Mapping):
        return value.keys() == other.keys() and all(is_equal(value[key], other[key]) for key in value)
    if isinstance(value, list | tuple) and isinstance(other, list | tuple):
        return len(value) == len(other) and all(map(is_equal, value, other))
    if _is_number(value) and _is_number(other):
        is_exact = isinstance(value, int) and isinstance(other, int)
        with suppress(OverflowError):  # an integer beyond the range of floats
            return value == other or (not is_exact and math.isclose(value, other, rel_tol=_CLOSE))  # type: ignore[arg-type]
        return False
    return type(value) is type(other) and value == other


def shorten_value(value: object) -> str:
    """Format the value in the length that fits a message."""
    text = repr(value)
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}…"


_MAX_CHARACTERS: Final = 80


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
