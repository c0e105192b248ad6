"""LoadGen's detail logs, read without trust: every line that counts is checked against its form."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.evidence.loadgen_results import TARGET_PERCENTILE
from benchlock.evaluator.harness.account import describe_probe
from benchlock.evaluator.harness.loadgen_log import SEPARATOR, Entry, Log, split_entries, summarize_log

_COUNTING: Final = ("effective_", "result_", "early_stopping_", "loadgen_version")
"""Prefixes of the keys whose values are figures, settings or verdicts: one text, truth value or number each."""
_NUMBERS: Final = ("_ns", "_count", "_per_sec", "_per_query", "_seed")
"""Suffixes of those that are numbers."""
_TRUTHS: Final = ("_met",)
_GREATEST: Final = 2.0**63
_MOST_PROBES: Final = 128
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
        role: The role of its blob, which messages name.
        path: The file.

    Raises:
        InvalidInputError: A line is malformed, or the log is not complete; the message says which line.
    """
    return _parse_log(role, path.read_bytes())


def read_probe_logs(role: str, path: Path) -> list[Log]:
    """Read the logs of the probes of a peak, in their order.

    Args:
        role: The role of the blob.
        path: The file.

    Raises:
        InvalidInputError: It is no such file, or a log in it is malformed.
    """
    first, *logs = path.read_bytes().split(SEPARATOR, _MOST_PROBES + 1)
    if first or not logs or len(logs) > _MOST_PROBES:
        raise InvalidInputError(f"{role} is not a list of 1 to {_MOST_PROBES} logs", where=role, next_step=_NEXT)
    return [_parse_log(f"{role}, log {number}", content) for number, content in enumerate(logs, start=1)]


def describe_checked_probe(role: str, rate: float, log: Log) -> dict[str, Any]:
    """Summarise the log of a probe of the rate ``rate``, in queries a second.

    Raises:
        InvalidInputError: The log says nothing of what a probe is about.
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
                raise _malformed(role, number, f"{entry.key:.80} is there twice")
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
    """Return why the value of a key that counts is impossible."""
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
    """Raise unless LoadGen was told what the scenario of the lock says.

    Args:
        role: The role of the log's blob.
        log: The log.
        scenario: The scenario of the lock.
        rate: The rate of arrival of a probe, in queries a second; None for the scenario's own.

    Raises:
        InvalidInputError: A setting is missing, or another one.
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
        found = log.settings.get(name)
        if not _is_same(found, value):
            raise InvalidInputError(
                f"{role}: LoadGen ran with {name} {found!r:.80}, and the lock says {value!r}",
                where=role,
                next_step=_NEXT,
            )


def _is_same(found: object, expected: object) -> bool:
    """Compare a setting; LoadGen writes six digits of a number that is not whole."""
    if isinstance(found, bool) or not isinstance(expected, float) or not isinstance(found, int | float):
        return type(found) is type(expected) and found == expected
    return math.isclose(found, expected, rel_tol=1e-5)
