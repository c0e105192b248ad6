"""Metrics of the memory of a training step, recomputed from every change of memory within the profiled steps."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.harness.training import GRADIENTS, SAVED, TRANSIENT
from benchlock.evaluator.harness.training.breakdown_phase import MOST_KINDS, STEPS, count_kinds
from benchlock.evaluator.statistics.metric_types import Interval, Metric
from benchlock.registry.manifests.metric_definitions import DEFINITIONS

_NO_INTERVAL: Final = Interval(None, None)
_MOST: Final = 1 << 53
_CATEGORIES: Final = frozenset((TRANSIENT, GRADIENTS, SAVED))
_LONGEST: Final = 200
_ROUNDING: Final = 1e-6


def measure_breakdown(path: Path) -> dict[str, Metric]:
    """Return all metrics of the memory of a step, by name.

    The parts are those at the instant of the largest amount, in the step that has it, so they sum to it.

    Raises:
        InvalidInputError: The file is malformed.
    """
    try:
        columns: Mapping[str, NDArray[Any]] = load_file(path)
    except (SafetensorError, OSError, TypeError, ValueError) as error:
        raise InvalidInputError(f"the blob breakdown is missing or malformed: {error}") from error
    weights, optimizer = (int(value) for value in _read(columns, "held", 2))
    if min(weights, optimizer) < 0:
        raise InvalidInputError("the breakdown holds a negative amount of memory")
    steps = [_Step(columns, number) for number in range(STEPS)]
    largest = max(steps, key=lambda step: step.peak)
    values = {
        "step_memory": weights + optimizer + largest.peak,
        "memory_weights": weights,
        "memory_gradients": largest.parts[GRADIENTS],
        "memory_optimizer": optimizer,
        "memory_saved": largest.parts[SAVED],
        "memory_transient": largest.parts[TRANSIENT],
        "memory_growth": float(np.median([step.growth for step in steps])),
    }
    return {name: _make_metric(name, value) for name, value in values.items()}


class _Step:
    """The memory of one step: its peak beside what is held, the parts of that, and what the step does not release."""

    def __init__(self, columns: Mapping[str, NDArray[Any]], number: int) -> None:
        changes = _read(columns, f"{number}/bytes")
        categories = _read(columns, f"{number}/category", len(changes))
        if not set(np.unique(categories).tolist()) <= _CATEGORIES:
            raise InvalidInputError(f"the breakdown of step {number} has an unknown category")
        amounts = _accumulate(changes)
        end = int(amounts.argmax())
        self.peak = int(amounts[end])
        amounts_of = {kind: _accumulate(np.where(categories == kind, changes, 0)) for kind in _CATEGORIES}
        if any(amounts_of[kind].min() < 0 for kind in (GRADIENTS, SAVED)):
            raise InvalidInputError(f"the breakdown of step {number} releases more than it allocates")
        self.growth = int(amounts[-1] - amounts_of[GRADIENTS][-1])
        self.parts = {kind: int(amounts_of[kind][end]) for kind in _CATEGORIES}


def _accumulate(changes: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the amount before the first change and after each."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(changes)])


def _read(columns: Mapping[str, NDArray[Any]], name: str, length: int | None = None) -> NDArray[np.int64]:
    values = columns.get(name)
    if values is None or values.dtype != np.int64 or values.ndim != 1 or length not in (None, len(values)):
        raise InvalidInputError(f"the blob breakdown lacks {name}")
    if float(np.abs(values.astype(np.float64)).sum()) > _MOST:
        raise InvalidInputError(f"the breakdown has values out of range in {name}")
    return values


def _make_metric(name: str, value: float) -> Metric:
    definition = DEFINITIONS[name]
    return Metric(name, value, definition.unit, definition.direction, STEPS, _NO_INTERVAL, definition.version)


def check_ranking(document: Mapping[str, Any]) -> None:
    """Raise unless the report ranks kinds of operators by shares, and counts those that take 90 % of the time.

    Raises:
        InvalidInputError: It does not.
    """
    breakdown = document["training"].get("breakdown")
    ranked = breakdown.get("operators") if isinstance(breakdown, Mapping) else None
    if not isinstance(ranked, list) or not 0 < len(ranked) <= MOST_KINDS or not all(map(_is_share, ranked)):
        raise InvalidInputError("the result has no operators of a breakdown")
    shares = [entry["share"] for entry in ranked]
    if sorted(shares, reverse=True) != shares or sum(shares) > 1 + _ROUNDING:
        raise InvalidInputError("the operators of the breakdown are not ranked by their shares")
    kinds, needed = (breakdown.get(name) for name in ("kinds", "kinds_for_90_percent"))
    counted = count_kinds(shares)
    if type(kinds) is not int or kinds < len(ranked) or type(needed) is not int or not counted <= needed <= kinds:
        raise InvalidInputError("the breakdown counts its kinds of operators wrongly")
    if counted < len(shares) and needed != counted:
        raise InvalidInputError("the breakdown counts the kinds that take most of the time wrongly")


def _is_share(entry: object) -> bool:
    if not isinstance(entry, Mapping) or not isinstance(entry.get("kind"), str) or len(entry["kind"]) > _LONGEST:
        return False
    share = entry.get("share")
    return isinstance(share, float) and 0 <= share <= 1
