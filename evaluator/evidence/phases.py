"""Timed phases, read back from their raw samples and LoadGen's log."""

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
from benchlock.evaluator.evidence.columns import check_columns
from benchlock.evaluator.evidence.loadgen_results import check_results, check_samples, check_summary, check_verdict
from benchlock.evaluator.evidence.logs import check_settings, describe_checked_probe, read_detail_log, read_probe_logs
from benchlock.evaluator.evidence.requirements import is_complete
from benchlock.evaluator.evidence.status import PEAK_LOGS
from benchlock.evaluator.harness.account import (
    compare_log,
    describe_account,
    describe_phase,
    describe_starts,
    describe_sweep,
)
from benchlock.evaluator.harness.loadgen_log import Log
from benchlock.evaluator.harness.trace import agreement
from benchlock.evaluator.runner.trust import InvalidLoadError
from benchlock.evaluator.statistics.samples import read_columns, samples_of
from benchlock.evaluator.statistics.timing import Performance
from benchlock.registry.lockfile import Lock

LARGEST_SAMPLES: Final = 512 << 20
LARGEST_LOG: Final = 64 << 20
LARGEST_ACCOUNT: Final = 16 << 10
"""Bytes of what the result states of a phase, as JSON: lists leave out what is larger, LoadGen's verdict with it."""
_CLOSE: Final = 1e-9
_NEEDED: Final = ("start_ns", "end_ns", "index", "preempted")

Columns = Mapping[str, NDArray[Any]]
Table = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Phase:
    """Where a timed phase leaves its evidence, and what a message calls it."""

    name: str
    samples: str
    log: str
    summary: str


PERFORMANCE: Final = Phase("performance", "samples", "loadgen-detail", "loadgen-summary")
PIPELINE: Final = Phase("pipeline", "pipeline-samples", "pipeline-loadgen-detail", "pipeline-loadgen-summary")


@dataclass(frozen=True, slots=True)
class PhaseReader:
    """Reads the timed phases of one run.

    Attributes:
        lock: The lock of the run.
        files: The files of the run's blobs, by role.
        total: The number of samples in the split.
    """

    lock: Lock
    files: Mapping[str, Path]
    total: int

    def read(self, phase: Phase, stated: Table | None, account: Table | None) -> Performance | None:
        """Read the samples of a phase, and compare with them what the result states of the phase.

        Args:
            phase: Which phase.
            stated: What the result says of the phase; None if it was not timed.
            account: What the result says of LoadGen; None if LoadGen did not drive the phase.

        Raises:
            InvalidInputError: Samples or the log are missing or malformed, or the result states something else.
            InvalidLoadError: LoadGen logged an error, or a minimum that was not met.
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
            told = {} if log is None else self._account(log, columns)
            if log is not None and not log.errors:
                self._check_log(phase, log, columns)
        except (ValueError, KeyError, IndexError, TypeError, ArithmeticError) as error:
            raise InvalidInputError(
                f"the samples or the log of the {phase.name} phase are malformed: {error}",
                where=phase.samples,
                next_step="run the lock again",
            ) from error
        if log is not None and log.errors:
            raise InvalidLoadError(f"LoadGen logged {len(log.errors)} errors: {shown(log.errors[0])}")
        _check_equal(phase.name, stated, facts)
        _check_equal(f"{phase.name}: loadgen", account or {}, told)
        duration: float = facts["duration_s"] if facts else stated["duration_s"]
        return Performance(samples, stated["samples_per_query"], duration)

    def read_first_probe(self, rate: float) -> dict[str, Any]:
        """Return what LoadGen's log of the performance phase says of the rate ``rate``, in queries a second.

        Raises:
            InvalidInputError: There is no such log, or it is malformed.
        """
        if PERFORMANCE.log not in self.files:
            raise InvalidInputError("LoadGen's log of the performance phase is missing")
        log = read_detail_log(PERFORMANCE.log, self.files[PERFORMANCE.log])
        return describe_checked_probe(PERFORMANCE.log, rate, log)

    def read_probes(self, rates: Sequence[float]) -> list[dict[str, Any]] | None:
        """Return what LoadGen's logs say of the probes of the peak phase; None of a harness that left no such logs.

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
            raise InvalidInputError(f"the harness says that it made {len(rates)} probes, and left {len(logs)} logs")
        found = []
        for number, (rate, log) in enumerate(zip(rates, logs, strict=True), start=1):
            place = f"{PEAK_LOGS}, log {number}"
            if log.errors:
                raise InvalidLoadError(f"{place}: LoadGen logged {len(log.errors)} errors: {shown(log.errors[0])}")
            check_settings(place, log, self.lock.scenario, rate)
            check_verdict(place, log, self.lock.scenario["name"])
            check_results(place, log, self.lock.scenario, rate)
            found.append(describe_checked_probe(place, rate, log))
        return found

    def _read_columns(self, phase: Phase, stated: Table) -> Columns:
        if phase.samples not in self.files:
            raise InvalidInputError(
                f"the harness timed {stated['queries']} queries and left no {phase.samples} of them"
            )
        columns = read_columns(self.files[phase.samples])
        if len(columns["latency_ns"]) != stated["queries"]:
            raise InvalidInputError(
                f"the harness counted {stated['queries']} queries and left {len(columns['latency_ns'])} samples"
            )
        if is_complete(self.lock):
            check_columns(phase.samples, columns, self.lock.scenario, self.total)
            if len(columns["warmup_ns"]) != stated["warmup_calls"]:
                raise InvalidInputError(
                    f"the harness says {phase.name} warmup_calls is {shown(stated['warmup_calls'])}, and its samples "
                    f"say {len(columns['warmup_ns'])}"
                )
        return columns

    def _read_log(self, phase: Phase, account: Table | None) -> Log | None:
        if account is None:
            return None
        if phase.log not in self.files:
            raise InvalidInputError(f"the harness tells of LoadGen in the {phase.name} phase and left no {phase.log}")
        log = read_detail_log(phase.log, self.files[phase.log])
        if is_complete(self.lock):
            check_settings(phase.log, log, self.lock.scenario)
        return log

    def _check_log(self, phase: Phase, log: Log, columns: Columns) -> None:
        """Raise where LoadGen's verdict or results contradict each other, the samples or the summary."""
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
        return describe_account(log, columns, agreement(log, np.asarray(latency)))


def _describe(columns: Columns, scenario: Table) -> dict[str, Any]:
    """Count what the samples say; nothing where an older harness left too few columns."""
    name = scenario["name"]
    if name == "cold_start":
        return describe_starts(columns)
    if any(column not in columns for column in _NEEDED):
        return {}
    if name == "batch_sweep":
        return describe_sweep(columns)
    return describe_phase(columns, scenario.get("samples_per_query", 1))


def _check_size(phase: Phase, document: Table | None) -> None:
    """Raise where the result states more of a phase than a list of runs can show."""
    if (size := len(json.dumps(document))) > LARGEST_ACCOUNT:
        raise InvalidInputError(
            f"the harness states {size} bytes about the {phase.name} phase, and at most {LARGEST_ACCOUNT} are read",
            where=phase.name,
            next_step="run the lock again",
        )


def _check_equal(where: str, stated: Table, found: Table) -> None:
    """Raise where the result states another value than its samples or its log have."""
    for name, value in found.items():
        if name in stated and not equal(stated[name], value):
            raise InvalidInputError(
                f"the harness says {where} {name} is {shown(stated[name])}, and its samples and logs say {shown(value)}"
            )


def equal(one: object, other: object) -> bool:
    """Return whether two JSON values are equal; where one is not whole, within 1e-9 of the greater.

    Sums may differ in their last bits between machines, and nothing else may: counts, times and seeds are exact.
    """
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(equal(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(equal, one, other))
    if _is_number(one) and _is_number(other):
        is_exact = isinstance(one, int) and isinstance(other, int)
        with suppress(OverflowError):  # a whole number beyond all floats
            return one == other or (not is_exact and math.isclose(one, other, rel_tol=_CLOSE))  # type: ignore[arg-type]
        return False
    return type(one) is type(other) and one == other


def shown(value: object) -> str:
    """Return the value as short as a message needs it."""
    text = repr(value)
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


_MOST_CHARACTERS: Final = 80


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
