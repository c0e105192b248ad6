"""Metrics of a batch in several numbers of parts, recomputed from the outputs and times of each."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import msgspec
import numpy as np
from msgspec import UNSET, Meta, Struct
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.harness.core.failures import Failure
from benchlock.evaluator.harness.core.job_parser import parse_job
from benchlock.evaluator.harness.performance.micro_batch import check_outputs, output_axes
from benchlock.evaluator.runner.job_folder import job_document
from benchlock.evaluator.runner.run_outcome import outputs_role
from benchlock.evaluator.statistics.confidence_intervals import quantile
from benchlock.evaluator.statistics.metric_types import Interval, Metric, find_definitions
from benchlock.registry.artifact_names import Kind
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests import Manifest
from benchlock.registry.manifests.metric_definitions import NETWORK

_NANOSECONDS: Final = 1e-9
_MEDIAN: Final = 0.5
_FEWEST_LATENCIES: Final = 16

Outputs = Mapping[str, NDArray[Any]]
Value = tuple[float, int, Interval]


class PartPeak(Struct, frozen=True):
    """The peak of the resident memory of a process; None where the kernel did not show it."""

    bytes: Annotated[int, Meta(gt=0, lt=1 << 62)] | None
    since: Literal["first call", "start of the process"]


class PartFailure(Struct, frozen=True, rename={"kind": "class"}):
    """Why a batch was not computed: its memory ran out. Any other failure fails the run."""

    kind: Literal["out-of-memory"]
    message: str


class NetworkPart(Struct, frozen=True):
    """The result of a batch in a number of parts: times in nanoseconds and a peak, or a failure."""

    parts: int
    outcome: Literal["done", "failed"]
    failure: PartFailure | None = None
    latency_ns: tuple[Annotated[int, Meta(gt=0, lt=1 << 53)], ...] = ()
    peak: PartPeak | None = None

    def __post_init__(self) -> None:
        """Check that there is either a failure, or times and a peak."""
        is_done = self.outcome == "done"
        if is_done != (self.failure is None) or is_done != bool(self.latency_ns) or is_done != (self.peak is not None):
            raise ValueError("a batch has either a failure, or times and a peak")


@dataclass(frozen=True, slots=True)
class NetworkEvidence:
    """The metrics of a run, the seconds of all timed batches, and the digest of their latencies."""

    metrics: tuple[Metric, ...]
    claimed: float
    measurement: Digest | None


def is_micro_batch(lock: Lock) -> bool:
    """Return whether a run of the lock computes one batch in several numbers of parts."""
    return lock.scenario["name"] in NETWORK


def read_parts(network: Any) -> tuple[NetworkPart, ...]:  # noqa: ANN401 - JSON
    """Return the results by number of parts from the key ``network`` of a result or of a record's details.

    Raises:
        InvalidInputError: They are malformed.
    """
    try:
        return msgspec.convert(network["parts"], tuple[NetworkPart, ...])
    except (msgspec.ValidationError, KeyError, TypeError) as error:
        raise InvalidInputError(f"the results of the numbers of parts are malformed: {error}") from error


def measure_network(
    lock: Lock, manifests: Mapping[Kind, Manifest], files: Mapping[str, Path], document: Mapping[str, Any]
) -> NetworkEvidence:
    """Compute the metrics of a finished run from the outputs and the result.

    Args:
        lock: A lock of the level network.
        manifests: Its manifests.
        files: The files of the blobs, by role.
        document: The ``result.json``.

    Raises:
        InvalidInputError: A blob is malformed, or contradicts the lock or the result.
    """
    parts = read_parts(document["network"])
    if [part.parts for part in parts] != list(lock.scenario["parts"]):
        raise InvalidInputError("the result has other numbers of parts than the lock")
    axes = output_axes(parse_job(job_document(lock, "cpu", manifests)).model)
    first: Outputs | None = None
    others: list[tuple[bool, float]] = []  # two sets of outputs are in memory at a time
    for place, part in enumerate(parts):
        if part.outcome == "failed":
            if outputs_role(place) in files:
                raise InvalidInputError(f"{_name(part)} ran out of memory, but has outputs")
            continue
        if len(part.latency_ns) != lock.scenario["repeats"]:
            raise InvalidInputError(f"{_name(part)} has {len(part.latency_ns)} times, which the lock does not state")
        outputs = _load(outputs_role(place), files, axes, lock.scenario["batch"])
        if first is None:
            first = outputs
        else:
            others.append((_is_equal(first, outputs), find_difference(first, outputs)))
    if first is None:
        raise InvalidInputError("the memory never sufficed, so the run is not done")
    values = dict(_measure(parts, others))
    metrics = tuple(
        Metric(
            definition.name, value, definition.unit, definition.direction, n, ci, definition.version, case=case or UNSET
        )
        for definition in find_definitions(lock)
        for (name, case), (value, n, ci) in values.items()
        if name == definition.name
    )
    durations = np.array([duration for part in parts for duration in part.latency_ns], np.int64)
    measurement = digest_bytes(durations.tobytes()) if len(durations) >= _FEWEST_LATENCIES else None
    return NetworkEvidence(metrics, float(durations.sum()) * _NANOSECONDS, measurement)


def _measure(
    parts: Sequence[NetworkPart], others: Sequence[tuple[bool, float]]
) -> Iterator[tuple[tuple[str, str], Value]]:
    """Yield the metrics by name and number of parts; the number is empty for those of all parts.

    ``others`` has whether outputs equal those of the fewest parts, and the difference, for each other number of parts.
    One set of outputs alone has nothing to agree with.
    """
    if others:
        n, equal = len(others) + 1, float(all(is_equal for is_equal, _ in others))
        difference = max(difference for _, difference in others)
        yield ("outputs_equal", ""), (equal, n, Interval(equal, equal))
        if math.isfinite(difference):
            yield ("outputs_difference", ""), (difference, n, Interval(difference, difference))
    for part in parts:
        if part.peak is not None and part.peak.bytes is not None:
            peak = float(part.peak.bytes)
            yield ("peak_memory", str(part.parts)), (peak, 1, Interval(None, None))
        if part.latency_ns:
            median, ci = quantile(np.sort(np.array(part.latency_ns, np.int64) * _NANOSECONDS), _MEDIAN)
            yield ("batch_latency", str(part.parts)), (median, len(part.latency_ns), ci)


def _is_equal(first: Outputs, other: Outputs) -> bool:
    """Return whether two sets of outputs have the same names, types, shapes and bits."""
    return all(
        (values.dtype, values.shape) == (other[name].dtype, other[name].shape)
        and values.tobytes() == other[name].tobytes()
        for name, values in first.items()
    )


def find_difference(first: Outputs, other: Outputs) -> float:
    """Return the largest difference of any output, relative to the output's largest value.

    It is infinite if shapes differ, or if a value is not finite on one side alone.
    """
    return max((_find_difference(values, other[name]) for name, values in first.items()), default=0.0)


def _find_difference(first: NDArray[Any], other: NDArray[Any]) -> float:
    if first.shape != other.shape:
        return math.inf
    before, after = first.astype(np.float64), other.astype(np.float64)
    with np.errstate(invalid="ignore"):
        gap = np.abs(after - before)
    gap[(before == after) | (np.isnan(before) & np.isnan(after))] = 0.0
    largest = float(np.abs(before[np.isfinite(before)]).max(initial=0.0))
    most = float(gap.max(initial=0.0))
    if not most:
        return 0.0
    return most / largest if largest and math.isfinite(most) else math.inf


def _load(role: str, files: Mapping[str, Path], axes: Mapping[str, int], batch: int) -> Outputs:
    """Return the outputs of a number of parts.

    Raises:
        InvalidInputError: They are missing or malformed, or have another number of samples than the batch.
    """
    try:
        outputs: Outputs = load_file(files[role])
        check_outputs(outputs, axes, batch)
    except Failure as error:
        raise InvalidInputError(f"the blob {role}: {error.message}") from error
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(f"the blob {role} is missing or malformed: {error}") from error
    return outputs


def _name(part: NetworkPart) -> str:
    return f"the batch in {part.parts} part{'s' * (part.parts != 1)}"
