"""LoadGen's logs, verdict and results, read without trust and checked against the samples.

The results follow ``results.cc`` and ``early_stopping.cc`` of LoadGen. A log of ``server`` has the latencies of its
samples. In the other scenarios the harness reads its clock inside LoadGen's interval, so each result has a range.
"""

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.harness.performance.loadgen_traces import (
    SEPARATOR,
    Entry,
    Log,
    describe_probe,
    split_entries,
    summarize_log,
)
from benchlock.evaluator.runner.self_reported_times import InvalidLoadError
from benchlock.evaluator.statistics.early_stopping import CONFIDENCE, SHARES, count_discarded, find_risk

LARGEST_SUMMARY: Final = 1 << 20
TARGET_PERCENTILE: Final = SHARES["server"]
"""The share of the queries of ``server`` that must be answered within ``target_latency``."""
_SHARES: Final = {"50.00": 0.5, "90.00": 0.9, "95.00": 0.95, "97.00": 0.97, "99.00": 0.99, "99.90": 0.999}
_RISK: Final = 1 - CONFIDENCE
_RISK_ERROR: Final = 1e-6
"""The maximum error of LoadGen's probability, which it computes as the sum of a series."""
_DIGITS: Final = 1e-5
"""The relative error of LoadGen's numbers: it writes six digits of a number that is not whole."""
_DRIFT, _DRIFT_NS = 0.005, 2_000
"""The maximum drift between the harness's clock and LoadGen's, as a share and in nanoseconds."""
_EDGE_NS: Final = 1_000_000_000
"""The maximum time by which LoadGen's clock starts before the first query and stops after the last one."""
_RARE: Final = 18.0
"""The exponent of the bound on rates of random arrivals: one further away has a probability below exp(-18)."""
_VERDICT: Final = re.compile(rb"^Result is : (VALID|INVALID)\s*$", re.MULTILINE)
_MET: Final = ("result_min_duration_met", "result_min_queries_met", "early_stopping_met")

Columns = Mapping[str, NDArray[Any]]
Results = Mapping[str, Any]
Range = tuple[float, float]


def check_verdict(role: str, log: Log, name: str) -> None:
    """Raise unless the verdict of a log follows from the conditions that it lists as met.

    Args:
        role: The role of the log's blob.
        log: The log.
        name: The scenario.

    Raises:
        InvalidLoadError: A condition is missing, or the verdict differs.
    """
    for key in (*_MET, *(("result_perf_constraints_met",) if name == "server" else ())):
        if key not in log.results:
            raise _error(role, f"LoadGen's log has no {key}")
    met = {key: value for key, value in log.results.items() if key.endswith("_met")}
    verdict = "VALID" if all(met.values()) else "INVALID"
    if log.results["result_validity"] != verdict:
        failed = ", ".join(key for key, value in met.items() if not value) or "every condition is met"
        raise _error(
            role,
            f"LoadGen's result_validity is {log.results['result_validity']!r:.20}, which contradicts the log: {failed}",
        )
    if ("result_invalid_reason" in log.results) != (verdict == "INVALID"):
        raise _error(role, f"result_invalid_reason of LoadGen contradicts the log, which is {verdict}")


def check_summary(role: str, path: Path, log: Log) -> None:
    """Raise unless LoadGen's summary has the verdict of its detail log."""
    verdicts = [match.decode() for match in _VERDICT.findall(path.read_bytes())]
    if verdicts != ["VALID" if log.valid else "INVALID"]:
        raise _error(role, f"LoadGen's summary states {verdicts[:2]}, its detail log {log.results['result_validity']}")


def check_results(role: str, log: Log, scenario: Mapping[str, Any], rate: float | None = None) -> None:
    """Raise if the results of one log contradict each other or the settings of the run.

    Args:
        role: The role of the log's blob.
        log: The log.
        scenario: The scenario of the lock.
        rate: The rate of arrival of a probe, in queries a second; None for the scenario's own.

    Raises:
        InvalidLoadError: A result is missing, or contradicts others.
    """
    name, results = scenario["name"], log.results
    try:
        _check_early_stopping(role, results, name)
        if name == "server":
            _check_overlatency(role, results, round(scenario["target_latency"] * 1e9))
            _check_rates(role, results, float(scenario["target_qps"] if rate is None else rate))
    except KeyError as error:
        raise _error(role, f"LoadGen's log has no {error.args[0]}") from error
    except (TypeError, ValueError, ArithmeticError) as error:
        raise _error(role, f"LoadGen's results are impossible: {error}") from error


def _check_early_stopping(role: str, results: Results, name: str) -> None:
    queries, over = results["result_query_count"], results["result_overlatency_query_count"] if name == "server" else 1
    is_met = name not in SHARES
    if not is_met:
        risk = find_risk(queries, over, SHARES[name])
        if abs(risk - _RISK) < _RISK_ERROR:
            return
        is_met = risk < _RISK
    if results["early_stopping_met"] != is_met:
        raise _error(role, f"LoadGen's early_stopping_met is {not is_met}, which contradicts {queries} queries")


def _check_overlatency(role: str, results: Results, target: int) -> None:
    """Compare the latencies with each other, and with the number of queries beyond the target."""
    queries, over = results["result_query_count"], results["result_overlatency_query_count"]
    places = {"min": 0, **{f"{text}_percentile": int(queries * share) for text, share in _SHARES.items()}}
    before = 0
    for key, place in (*places.items(), ("max", queries - 1)):
        value = results[f"result_{key}_latency_ns"]
        if value < before or (value > target) != (over >= queries - place):
            raise _error(
                role,
                f"LoadGen's result_{key}_latency_ns is {value}, which contradicts the others, or that {over} of "
                f"{queries} queries exceed {target} ns",
            )
        before = value
    if not results["result_min_latency_ns"] <= results["result_mean_latency_ns"] <= before:
        raise _error(role, "LoadGen's result_mean_latency_ns is not between the minimum and maximum latency")
    if results["result_perf_constraints_met"] != (results["result_99.00_percentile_latency_ns"] <= target):
        raise _error(role, f"LoadGen's result_perf_constraints_met contradicts its 99.00 percentile and {target} ns")


def _check_rates(role: str, results: Results, target: float) -> None:
    """Compare the rates of ``server`` with the target: arrivals are a Poisson process, answers follow the last one."""
    intervals = results["result_query_count"] - 1
    scheduled, completed = results["result_scheduled_samples_per_sec"], results["result_completed_samples_per_sec"]
    # The bound on a chi-squared deviate by Laurent and Massart (2000), lemma 1.
    if abs(target / scheduled - 1) > math.sqrt(2 * _RARE / intervals) + _RARE / intervals:
        raise _error(role, f"LoadGen's result_scheduled_samples_per_sec is {scheduled}, but its target is {target:.6g}")
    last = (intervals / completed - intervals / scheduled) * 1e9
    error = _DIGITS * intervals / completed * 1e9
    if not results["result_min_latency_ns"] - error <= last <= results["result_max_latency_ns"] + error:
        raise _error(
            role,
            f"LoadGen's result_completed_samples_per_sec is {completed}, which contradicts {scheduled} scheduled",
        )


def check_samples(role: str, log: Log, scenario: Mapping[str, Any], columns: Columns) -> None:
    """Raise unless a log has each result that follows from the samples of its queries.

    Args:
        role: The role of the log's blob.
        log: The log.
        scenario: The scenario of the lock.
        columns: The raw samples of the phase.

    Raises:
        InvalidLoadError: A result is missing, or outside its range.
    """
    for key, (least, most) in _ranges(scenario, columns, log.results).items():
        value = log.results.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
            raise _error(
                role,
                f"LoadGen's {key} is {value!r:.40}, but its queries give {least:.15g} to {most:.15g}",
            )


def _ranges(scenario: Mapping[str, Any], columns: Columns, results: Results) -> dict[str, Range]:
    """Return the range of each result."""
    name = scenario["name"]
    least, most = (np.sort(bound) for bound in _bound_latencies(name, columns, results))
    ranges = _latency_ranges(least, most, "latency_ns", "percentile_latency_ns")
    ranges["result_query_count"] = (len(least), len(least))
    if name == "offline":
        own = float(columns["end_ns"].max() - columns["start_ns"].min())
        ranges["result_max_latency_ns"] = (own * (1 - _DRIFT) - _DRIFT_NS, math.inf)
        ranges["result_samples_per_second"] = _about(len(columns["index"]) * 1e9 / results["result_max_latency_ns"])
    elif name == "server":
        return ranges | _arrival_ranges(columns, least, round(scenario["target_latency"] * 1e9))
    elif name == "single_stream":
        ranges |= _issue_ranges(columns)
        ranges["result_qps_without_loadgen_overhead"] = _about(1e9 / results["result_mean_latency_ns"])
        ranges["early_stopping_latency_ss"] = _estimate_range(least, most, SHARES[name])
        ranges["early_stopping_latency_ms"] = _estimate_range(least, most, SHARES["multi_stream"])
    else:
        ranges |= _latency_ranges(least, most, "query_latency_ns", "percentile_per_query_latency_ns")
        ranges["early_stopping_latency_ms"] = _estimate_range(least, most, SHARES[name])
    return ranges


def _bound_latencies(name: str, columns: Columns, results: Results) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the smallest and the largest latency in nanoseconds that LoadGen can have measured, by query."""
    if name == "server":
        return columns["latency_ns"], columns["latency_ns"]
    if name == "offline":  # LoadGen completes all its samples at once
        both = np.asarray([results["result_max_latency_ns"]], np.int64)
        return both, both
    start, end = columns["start_ns"], columns["end_ns"]
    earlier = np.concatenate([start[:1] - _EDGE_NS, end[:-1]])
    later = np.concatenate([start[1:], end[-1:] + _EDGE_NS])
    least = (columns["before_ns"] + columns["latency_ns"]) * (1 - _DRIFT) - _DRIFT_NS
    most = (later - earlier) * (1 + _DRIFT) + _DRIFT_NS
    return np.floor(least).astype(np.int64), np.ceil(most).astype(np.int64)


def _latency_ranges(
    least: NDArray[np.int64], most: NDArray[np.int64], ending: str, percentile_ending: str
) -> dict[str, Range]:
    rows = len(least)
    ranges: dict[str, Range] = {
        f"result_min_{ending}": (int(least[0]), int(most[0])),
        f"result_max_{ending}": (int(least[-1]), int(most[-1])),
        f"result_mean_{ending}": (int(least.sum()) // rows, int(most.sum()) // rows),
    }
    for text, share in _SHARES.items():
        place = int(rows * share)
        ranges[f"result_{text}_{percentile_ending}"] = (int(least[place]), int(most[place]))
    return ranges


def _arrival_ranges(columns: Columns, ordered: NDArray[np.int64], target: int) -> dict[str, Range]:
    intervals, start = len(ordered) - 1, columns["start_ns"]
    seconds = int(start[-1] - start[0]) / 1e9
    over = int((ordered > target).sum())
    return {
        "result_overlatency_query_count": (over, over),
        "result_scheduled_samples_per_sec": _about(intervals / seconds),
        "result_completed_samples_per_sec": _about(intervals / (seconds + int(columns["latency_ns"][-1]) / 1e9)),
    }


def _issue_ranges(columns: Columns) -> dict[str, Range]:
    """Return the range of the rate of issue: the last query is issued between the one before it and its own start."""
    start, end = columns["start_ns"], columns["end_ns"]
    intervals = len(start) - 1
    before = float(end[-2:][0] - start[0]) * (1 - _DRIFT) - _DRIFT_NS
    after = float(start[-1] - start[0]) * (1 + _DRIFT) + _EDGE_NS
    most = intervals * 1e9 / before if before > 0 else math.inf
    return {"result_qps_with_loadgen_overhead": (intervals * 1e9 / after * (1 - _DIGITS), most * (1 + _DIGITS))}


def _estimate_range(least: NDArray[np.int64], most: NDArray[np.int64], share: float) -> Range:
    """Return the range of early stopping's estimate of a percentile, which is 0 for too few queries."""
    rows = len(least)
    fewest, greatest = (count_discarded(rows, share, _RISK + error) for error in (-_RISK_ERROR, _RISK_ERROR))
    return (
        int(least[rows - greatest]) if fewest else 0,
        int(most[rows - fewest]) if fewest else int(most[rows - greatest]) if greatest else 0,
    )


def _about(value: float) -> Range:
    return value * (1 - _DIGITS), value * (1 + _DIGITS)


def _error(role: str, what: str) -> InvalidLoadError:
    next_step = "run the lock again; adjusting the system clock during a run has this effect, too"
    return InvalidLoadError(f"{role}: {what}", where=role, next_step=next_step)


_COUNTING: Final = ("effective_", "result_", "early_stopping_", "loadgen_version")
"""Prefixes of the keys of results, settings and verdicts; each value is a text, a truth value or a number."""
_NUMBERS: Final = ("_ns", "_count", "_per_sec", "_per_query", "_seed")
"""Suffixes of the keys whose values are numbers."""
_TRUTHS: Final = ("_met",)
_GREATEST: Final = 2.0**63
_MAX_PROBES: Final = 128
_NEXT: Final = "run the lock again"


class _Metadata(msgspec.Struct, frozen=True):
    is_error: bool = False


class _Line(msgspec.Struct, frozen=True):
    key: str
    value: Any
    metadata: _Metadata


def read_detail_log(role: str, path: Path) -> Log:
    """Read LoadGen's detail log of a phase.

    Args:
        role: The role of its blob, for messages.
        path: The file.

    Raises:
        InvalidInputError: A line is malformed, or the log is incomplete; the message names the line.
    """
    return _parse_log(role, path.read_bytes())


def read_probe_logs(role: str, path: Path) -> list[Log]:
    """Read the logs of the probes of a peak search, in their order.

    Args:
        role: The role of the blob.
        path: The file.

    Raises:
        InvalidInputError: The file has another format, or a log in it is malformed.
    """
    first, *logs = path.read_bytes().split(SEPARATOR, _MAX_PROBES + 1)
    if first or not logs or len(logs) > _MAX_PROBES:
        raise InvalidInputError(f"{role} is not a list of 1 to {_MAX_PROBES} logs", where=role, next_step=_NEXT)
    return [_parse_log(f"{role}, log {number}", content) for number, content in enumerate(logs, start=1)]


def describe_checked_probe(role: str, rate: float, log: Log) -> dict[str, Any]:
    """Summarise the log of a probe of the rate ``rate``, in queries a second.

    Raises:
        InvalidInputError: The log lacks an entry that a probe needs.
    """
    try:
        return describe_probe(rate, log)
    except KeyError as error:
        raise InvalidInputError(f"{role}: LoadGen's log has no {error}", where=role, next_step=_NEXT) from error


def _parse_log(role: str, content: bytes) -> Log:
    try:
        text = content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise _malformed(role, line, "it is not UTF-8") from error
    entries: list[Entry] = []
    keys: set[str] = set()
    for number, document in split_entries(text):
        entry = _parse_entry(role, number, document)
        entries.append(entry)
        if entry.key.startswith(_COUNTING):
            if entry.key in keys:
                raise _malformed(role, number, f"duplicate key {entry.key:.80}")
            keys.add(entry.key)
    try:
        return summarize_log(entries)
    except ValueError as error:
        raise InvalidInputError(f"{role}: {error}", where=role, next_step=_NEXT) from error


def _parse_entry(role: str, number: int, text: str) -> Entry:
    try:
        line = msgspec.json.decode(text, type=_Line)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise _malformed(role, number, str(error)) from error
    except RecursionError as error:
        raise _malformed(role, number, "it is nested too deeply") from error
    if line.key.startswith(_COUNTING) and (fault := _value_fault(line.key, line.value)):
        raise _malformed(role, number, f"{line.key:.80} {fault}")
    return Entry(line.key, line.value, line.metadata.is_error)


def _value_fault(key: str, value: object) -> str | None:
    """Return why the value of a result, setting or verdict is impossible; None if it is possible."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        is_number = key.endswith(_NUMBERS)
        is_wrong = is_number or (key.endswith(_TRUTHS) and not isinstance(value, bool))
        return f"is {'not a number' if is_number else 'neither true nor false'}" if is_wrong else None
    if isinstance(value, int | float):
        if key.endswith(_TRUTHS):
            return "is neither true nor false"
        return None if -_GREATEST < value < _GREATEST else "is out of range"
    return "is a list or a table"


def _malformed(role: str, line: int, reason: str) -> InvalidInputError:
    return InvalidInputError(
        f"{role}, line {line}: malformed entry of LoadGen's log: {reason}",
        where=f"{role}, line {line}",
        next_step=_NEXT,
    )


def check_settings(role: str, log: Log, scenario: Mapping[str, Any], rate: float | None = None) -> None:
    """Raise unless LoadGen ran with the settings that the lock's scenario demands.

    Args:
        role: The role of the log's blob.
        log: The log.
        scenario: The scenario of the lock.
        rate: The rate of arrival of a probe, in queries a second; None for the scenario's own.

    Raises:
        InvalidInputError: A setting is missing or differs.
    """
    seeds = scenario["seeds"]
    expected = {
        "scenario": scenario["name"].replace("_", " ").title().replace(" ", ""),
        "test_mode": "PerformanceOnly",
        "qsl_rng_seed": seeds["qsl"],
        "sample_index_rng_seed": seeds["sample_index"],
        "schedule_rng_seed": seeds["schedule"],
        "min_duration_ms": round(scenario["min_duration"] * 1000),
    }
    if scenario["name"] == "server":
        expected["target_qps"] = float(scenario["target_qps"] if rate is None else rate)
        expected["target_latency_ns"] = round(scenario["target_latency"] * 1e9)
        expected["target_latency_percentile"] = TARGET_PERCENTILE
    for name, value in expected.items():
        actual = log.settings.get(name)
        if not _is_same(actual, value):
            raise InvalidInputError(
                f"{role}: LoadGen ran with {name} {actual!r:.80}, but the lock has {value!r}",
                where=role,
                next_step=_NEXT,
            )


def _is_same(actual: object, expected: object) -> bool:
    """Compare a setting; LoadGen writes six digits of a number that is not whole."""
    if isinstance(actual, bool) or not isinstance(expected, float) or not isinstance(actual, int | float):
        return type(actual) is type(expected) and actual == expected
    return math.isclose(actual, expected, rel_tol=1e-5)
