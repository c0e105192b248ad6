"""Load patterns of a job, and the checks of JSON fields that read them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

_Number = TypeVar("_Number", int, float)


class JobError(Exception):
    """The job cannot be understood: a fault of what wrote it, so no result of a run."""


def read_required(table: Mapping[str, Any], key: str, kind: Any, where: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    """What stands under ``key``, of the type ``kind``; ``JobError`` if nothing does, or something of another type."""
    value = read_optional(table, key, kind, where)
    if value is None:
        raise JobError(f"{path(where, key)}: absent")
    return value


def read_optional(table: Any, key: str, kind: Any, where: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    """As ``demanded``, but None if nothing stands there."""
    if not isinstance(table, dict):
        raise JobError(f"{where}: no table")
    value = table.get(key)
    wrong = isinstance(value, bool) and kind is not bool
    if value is not None and (wrong or not isinstance(value, kind)):
        raise JobError(f"{path(where, key)}: {value!r} is of a wrong type")
    return value


def check_minimum(least: _Number, value: _Number, where: str) -> _Number:
    if value < least:
        raise JobError(f"{where}: {value} is less than {least}")
    return value


def path(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


ROUNDS = 10
"""How many turns each batch of a sweep has."""


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The accuracy phase alone, in batches of ``batch`` after ``warmup`` calls."""

    warmup: int
    batch: int


@dataclass(frozen=True, slots=True)
class SingleStream:
    """One sample a query, the next one on completion, until both minima are met."""

    warmup: int
    min_queries: int
    min_duration: float


@dataclass(frozen=True, slots=True)
class MultiStream:
    """Several samples a query, the next one on completion, until both minima are met."""

    warmup: int
    min_queries: int
    min_duration: float
    samples_per_query: int


@dataclass(frozen=True, slots=True)
class Server:
    """One sample a query, arriving as a Poisson process of ``target_qps``; to be answered within ``target_latency``."""

    warmup: int
    min_queries: int
    min_duration: float
    target_qps: float
    target_latency: float


@dataclass(frozen=True, slots=True)
class Offline:
    """One query of ``min_samples`` samples or more, enough to last ``min_duration``, answered in calls of ``batch``."""

    warmup: int
    batch: int
    min_samples: int
    min_duration: float


@dataclass(frozen=True, slots=True)
class BatchSweep:
    """Call after call, as long in each of ``batches``."""

    warmup: int
    batches: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ColdStart:
    """``repeats`` fresh processes from their start to the first answer, after ``warmup`` that do not count."""

    warmup: int
    repeats: int


Queried = SingleStream | MultiStream | Server | Offline
"""Scenarios that LoadGen drives."""
Scenario = Accuracy | Queried | BatchSweep | ColdStart


def samples_per_query(scenario: Queried) -> int:
    """Return how many samples come with each query; an offline run has one row of raw samples a call, and counts 1."""
    return scenario.samples_per_query if isinstance(scenario, MultiStream) else 1


def accuracy_batch(scenario: Scenario) -> tuple[int, int]:
    """Samples a call in the accuracy phase, and its calls of warm-up."""
    if isinstance(scenario, Accuracy):
        return scenario.batch, scenario.warmup
    return (scenario.batch if isinstance(scenario, Offline) else 1), 0


def parse_scenario(table: Mapping[str, Any]) -> Scenario:
    """Raises ``JobError`` with the path of the key that is wrong."""
    name = read_required(table, "name", str, "scenario")
    if name not in _SCENARIOS:
        raise JobError(f"scenario.name: {name!r} is not built")
    made, keys = _SCENARIOS[name]
    settings = {key: _SETTINGS[key](table, key) for key in ("warmup", *keys)}
    return made(**settings)


def _whole(least: int) -> Callable[[Mapping[str, Any], str], int]:
    return lambda table, key: check_minimum(least, read_required(table, key, int, "scenario"), f"scenario.{key}")


def _number(table: Mapping[str, Any], key: str) -> float:
    return check_minimum(0.0, float(read_required(table, key, (int, float), "scenario")), f"scenario.{key}")


def _positive(table: Mapping[str, Any], key: str) -> float:
    if not (found := _number(table, key)):
        raise JobError(f"scenario.{key}: 0 is too little")
    return found


def _batches(table: Mapping[str, Any], key: str) -> tuple[int, ...]:
    found = read_required(table, key, list, "scenario")
    for index, batch in enumerate(found):
        if not isinstance(batch, int) or isinstance(batch, bool) or batch < 1:
            raise JobError(f"scenario.{key}[{index}]: {batch!r} is no number of samples")
    if not found:
        raise JobError(f"scenario.{key}: there is none")
    return tuple(sorted(set(found)))


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
}
_SCENARIOS: Mapping[str, tuple[Callable[..., Scenario], tuple[str, ...]]] = {
    "accuracy": (Accuracy, ("batch",)),
    "single_stream": (SingleStream, ("min_queries", "min_duration")),
    "multi_stream": (MultiStream, ("min_queries", "min_duration", "samples_per_query")),
    "server": (Server, ("min_queries", "min_duration", "target_qps", "target_latency")),
    "offline": (Offline, ("batch", "min_samples", "min_duration")),
    "batch_sweep": (BatchSweep, ("batches",)),
    "cold_start": (ColdStart, ("repeats",)),
}
