"""Load patterns of a job, and the checks of JSON fields that read them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

_Number = TypeVar("_Number", int, float)


class JobError(Exception):
    """A malformed job: a fault of the program that wrote it, so not a result of a run."""


def read_required(table: Mapping[str, Any], key: str, kind: Any, where: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value of ``key``, of the type ``kind``.

    Args:
        table: A JSON object.
        key: The key to read.
        kind: The accepted type, or a tuple of types.
        where: The path of ``table`` in the document, for messages.

    Raises:
        JobError: The key is missing, or its value has another type.
    """
    value = read_optional(table, key, kind, where)
    if value is None:
        raise JobError(f"{path(where, key)}: absent")
    return value


def read_optional(table: Any, key: str, kind: Any, where: str) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value of ``key`` as ``read_required`` does, but None where the key is missing or null."""
    if not isinstance(table, dict):
        raise JobError(f"{where}: not a table")
    value = table.get(key)
    wrong = isinstance(value, bool) and kind is not bool
    if value is not None and (wrong or not isinstance(value, kind)):
        raise JobError(f"{path(where, key)}: {value!r} has the wrong type")
    return value


def check_minimum(least: _Number, value: _Number, where: str) -> _Number:
    """Return ``value``, or raise ``JobError`` where it is less than ``least``."""
    if value < least:
        raise JobError(f"{where}: {value} is less than {least}")
    return value


def path(where: str, key: str) -> str:
    """Return the path of ``key`` inside the table at ``where``."""
    return f"{where}.{key}" if where else key


MAX_NETWORKS = 8
"""The maximum length of the list of numbers of parts."""
PART = "parts-"
"""The beginning of the name of a phase that computes a batch in parts; the place in the list follows."""
ROUNDS = 10
"""The number of turns of each batch size in a sweep."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The accuracy phase only, in batches of ``batch`` after ``warmup`` calls."""

    warmup: int
    batch: int


@dataclass(frozen=True, slots=True)
class SingleStream:
    """One sample per query, the next query on completion, until both minima are met."""

    warmup: int
    min_queries: int
    min_duration: float


@dataclass(frozen=True, slots=True)
class MultiStream:
    """Several samples per query, the next query on completion, until both minima are met."""

    warmup: int
    min_queries: int
    min_duration: float
    samples_per_query: int


@dataclass(frozen=True, slots=True)
class Server:
    """One sample per query, in Poisson arrivals at ``target_qps``, to be answered within ``target_latency`` seconds."""

    warmup: int
    min_queries: int
    min_duration: float
    target_qps: float
    target_latency: float


@dataclass(frozen=True, slots=True)
class Offline:
    """One query of at least ``min_samples`` samples and ``min_duration`` seconds, in calls of ``batch`` samples."""

    warmup: int
    batch: int
    min_samples: int
    min_duration: float


@dataclass(frozen=True, slots=True)
class BatchSweep:
    """Consecutive calls, for the same time in each batch size of ``batches``."""

    warmup: int
    batches: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ColdStart:
    """``repeats`` fresh processes, each until its first answer, after ``warmup`` processes that do not count."""

    warmup: int
    repeats: int


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One batch in each number of ``parts``, in a fresh process each: ``repeats`` timed batches after the warm-up."""

    warmup: int
    batch: int
    parts: tuple[int, ...]
    repeats: int


LoadGenScenario = SingleStream | MultiStream | Server | Offline
"""Scenarios that LoadGen drives."""
Scenario = Accuracy | LoadGenScenario | BatchSweep | ColdStart | MicroBatch


def samples_per_query(scenario: LoadGenScenario) -> int:
    """Return the number of samples per query; 1 for an offline run, whose raw samples have one row per call."""
    return scenario.samples_per_query if isinstance(scenario, MultiStream) else 1


def accuracy_batch(scenario: Scenario) -> tuple[int, int]:
    """Return the batch size and the number of warm-up calls of the accuracy phase."""
    if isinstance(scenario, Accuracy):
        return scenario.batch, scenario.warmup
    return (scenario.batch if isinstance(scenario, Offline) else 1), 0


def parse_scenario(table: Mapping[str, Any]) -> Scenario:
    """Parse the scenario of a job.

    Raises:
        JobError: A key is missing or wrong; the message has its path.
    """
    name = read_required(table, "name", str, "scenario")
    if name not in _SCENARIOS:
        raise JobError(f"scenario.name: {name!r} is not supported")
    create, keys = _SCENARIOS[name]
    settings = {key: _SETTINGS[key](table, key) for key in ("warmup", *keys)}
    return create(**settings)


def _whole(least: int) -> Callable[[Mapping[str, Any], str], int]:
    return lambda table, key: check_minimum(least, read_required(table, key, int, "scenario"), f"scenario.{key}")


def _number(table: Mapping[str, Any], key: str) -> float:
    return check_minimum(0.0, float(read_required(table, key, (int, float), "scenario")), f"scenario.{key}")


def _positive(table: Mapping[str, Any], key: str) -> float:
    if not (value := _number(table, key)):
        raise JobError(f"scenario.{key}: must be greater than 0")
    return value


def _parts(table: Mapping[str, Any], key: str) -> tuple[int, ...]:
    """Return the numbers of parts of a batch, ascending."""
    parts = _batches(table, key)
    if len(parts) > MAX_NETWORKS or parts[-1] > read_required(table, "batch", int, "scenario"):
        raise JobError(f"scenario.{key}: at most {MAX_NETWORKS} numbers, none above the batch")
    return parts


def _batches(table: Mapping[str, Any], key: str) -> tuple[int, ...]:
    batches = read_required(table, key, list, "scenario")
    for index, batch in enumerate(batches):
        if not isinstance(batch, int) or isinstance(batch, bool) or batch < 1:
            raise JobError(f"scenario.{key}[{index}]: {batch!r} is not a number of samples")
    if not batches:
        raise JobError(f"scenario.{key}: must not be empty")
    return tuple(sorted(set(batches)))


_SETTINGS: Mapping[str, Callable[[Mapping[str, Any], str], Any]] = {
    "warmup": _whole(0),
    "batch": _whole(1),
    "min_queries": _whole(1),
    "min_samples": _whole(1),
    "samples_per_query": _whole(1),
    "repeats": _whole(1),
    "min_duration": _number,
    "target_qps": _positive,
    "target_latency": _positive,
    "batches": _batches,
    "parts": _parts,
}
_SCENARIOS: Mapping[str, tuple[Callable[..., Scenario], tuple[str, ...]]] = {
    "accuracy": (Accuracy, ("batch",)),
    "single_stream": (SingleStream, ("min_queries", "min_duration")),
    "multi_stream": (MultiStream, ("min_queries", "min_duration", "samples_per_query")),
    "server": (Server, ("min_queries", "min_duration", "target_qps", "target_latency")),
    "offline": (Offline, ("batch", "min_samples", "min_duration")),
    "batch_sweep": (BatchSweep, ("batches",)),
    "cold_start": (ColdStart, ("repeats",)),
    "micro_batch": (MicroBatch, ("batch", "parts", "repeats")),
}
