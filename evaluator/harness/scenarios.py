"""Load patterns: what a job may ask for, and how it is read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .tables import JobError, at_least, demanded


@dataclass(frozen=True, slots=True)
class Accuracy:
    """The accuracy phase alone, in batches of ``batch`` after ``warmup`` calls."""

    warmup: int
    batch: int


@dataclass(frozen=True, slots=True)
class SingleStream:
    """One sample a query, the next one on completion, until both minima are met (``min_duration`` in seconds)."""

    warmup: int
    min_queries: int
    min_duration: float


Scenario = Accuracy | SingleStream


def parse_scenario(table: Mapping[str, Any]) -> Scenario:
    """Raises ``JobError`` with the path of the key that is wrong."""
    name = demanded(table, "name", str, "scenario")
    warmup = at_least(0, demanded(table, "warmup", int, "scenario"), "scenario.warmup")
    if name == "accuracy":
        return Accuracy(warmup, at_least(1, demanded(table, "batch", int, "scenario"), "scenario.batch"))
    if name == "single_stream":
        queries = at_least(1, demanded(table, "min_queries", int, "scenario"), "scenario.min_queries")
        duration = float(demanded(table, "min_duration", (int, float), "scenario"))
        return SingleStream(warmup, queries, at_least(0.0, duration, "scenario.min_duration"))
    raise JobError(f"scenario.name: {name!r} is not built")
