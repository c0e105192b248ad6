"""Metrics of an operator's cases, recomputed from outputs, references and raw samples."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.harness.core.failures import Failure
from benchlock.evaluator.harness.core.operator_job import Case, OperatorJob, parse_operator_job
from benchlock.evaluator.harness.operators import NO_GRADIENT
from benchlock.evaluator.harness.operators.gradient_check import gradient_error
from benchlock.evaluator.harness.operators.operator_phase import GRADIENT, check_gradient, check_output, errors_of
from benchlock.evaluator.harness.operators.reference_phase import check_reference
from benchlock.evaluator.runner.job_folder import job_document
from benchlock.evaluator.statistics.confidence_intervals import quantile_of_series
from benchlock.evaluator.statistics.metric_types import Interval, Metric, find_definitions
from benchlock.registry.artifact_names import Kind
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests import Manifest

_NANOSECONDS = 1e-9
_MEDIAN = 0.5
_FEWEST_LATENCIES = 16
_LONGEST = 1 << 62

Tensors = Mapping[str, NDArray[Any]]
Value = tuple[float, int, Interval]


class OperatorFailure(InvalidInputError):  # noqa: N818 - a failure of the run, found again in its evidence
    """An output or a gradient whose error is above its tolerance, although the harness reports a finished run."""


@dataclass(frozen=True, slots=True)
class OperatorEvidence:
    """The metrics of all cases, the seconds of all measured calls, and the digest of their latencies."""

    metrics: tuple[Metric, ...]
    claimed: float
    measurement: Digest | None


def measure_operator(
    lock: Lock, manifests: Mapping[Kind, Manifest], files: Mapping[str, Path], document: Mapping[str, Any]
) -> OperatorEvidence:
    """Compute the metrics of each case from the blobs of a finished run.

    Args:
        lock: The lock of an operator.
        manifests: Its manifests.
        files: The files of the blobs, by role.
        document: The ``result.json``.

    Raises:
        OperatorFailure: An error is above its tolerance.
        InvalidInputError: A blob is malformed, or contradicts the lock or the result.
    """
    job = parse_operator_job(job_document(lock, "cpu", manifests))
    outputs, references, samples = (_load(role, files) for role in ("predictions", "reference", "samples"))
    names = {case.name for case in job.operator.cases}
    if outputs.keys() != names or references.keys() != names:
        raise InvalidInputError("the outputs or references are not those of the operator's cases")
    values: dict[tuple[str, str], Value] = {}
    latencies: list[NDArray[np.int64]] = []
    claimed = 0
    for case in job.operator.cases:
        columns = {
            name.removeprefix(f"{case.name}/"): column
            for name, column in samples.items()
            if name.startswith(f"{case.name}/")
        }
        measured = _measure_case(job, case, (outputs[case.name], references[case.name]), columns)
        values |= {(case.name, name): value for name, value in measured}
        latencies.append(columns["latency_ns"])
        claimed += sum(int(columns[name].sum()) for name in ("latency_ns", "native_ns", "wrapped_ns"))
        _check_stated(document, case, int(columns["calls"][0]))
    metrics = tuple(
        Metric(definition.name, value, definition.unit, definition.direction, n, ci, definition.version, case=case.name)
        for definition in find_definitions(lock)
        for case in job.operator.cases
        for value, n, ci in filter(None, [values.get((case.name, definition.name))])
    )
    joined = np.concatenate(latencies)
    measurement = digest_bytes(joined.tobytes()) if len(joined) >= _FEWEST_LATENCIES else None
    return OperatorEvidence(metrics, claimed * _NANOSECONDS, measurement)


def _load(role: str, files: Mapping[str, Path]) -> Tensors:
    try:
        tensors: Tensors = load_file(files[role])
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise InvalidInputError(f"the blob {role} is missing or malformed: {error}") from error
    return tensors


def _measure_case(
    job: OperatorJob, case: Case, tensors: tuple[NDArray[Any], NDArray[Any]], columns: Tensors
) -> Iterator[tuple[str, Value]]:
    """Yield each metric of a case with its value, number of samples, and interval."""
    output, reference = tensors
    try:
        check_output(job.operator, case, output, check_reference(case, reference))
    except Failure as error:
        raise OperatorFailure(error.message) from error
    for name, error_value in zip(("error_l2", "error_linf"), errors_of(output, reference), strict=True):
        yield name, (error_value, output.size, Interval(error_value, error_value))
    latency, overhead = _read_times(job, case, columns)
    median, ci = quantile_of_series(latency, _MEDIAN)
    yield "operator_latency", (median, len(latency), ci)
    for name, series in (("wrapper_overhead", overhead), ("wrapper_overhead_share", overhead / median)):
        value, interval = quantile_of_series(series, _MEDIAN)
        yield name, (value, len(series), interval)
    if GRADIENT in job.metrics and job.predictor not in NO_GRADIENT:
        yield GRADIENT, _compare_gradients(job, case, columns)


def _read_times(job: OperatorJob, case: Case, columns: Tensors) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the seconds of single calls, and the overhead of a call in each group of four blocks."""
    blocks = job.scenario.blocks
    shapes = {"native_ns": (blocks, 2), "wrapped_ns": (blocks, 2), "latency_ns": (blocks,), "calls": (1,)}
    for name, shape in shapes.items():
        column = columns.get(name)
        if column is None or column.dtype != np.int64 or column.shape != shape:
            raise InvalidInputError(f"the samples of case {case.name} lack {name} as integers of the shape {shape}")
        if column.min() < (name in ("calls", "latency_ns")) or float(column.sum(dtype=np.float64)) > _LONGEST:
            raise InvalidInputError(f"the samples of case {case.name} have values of {name} out of range")
    calls = int(columns["calls"][0])
    if job.scenario.calls not in (None, calls):
        raise InvalidInputError(f"case {case.name} has {calls} calls a block, but the lock has {job.scenario.calls}")
    native, wrapped = (columns[name].sum(axis=1) for name in ("native_ns", "wrapped_ns"))
    overhead = (wrapped - native) / (2 * calls) * _NANOSECONDS
    return columns["latency_ns"] * _NANOSECONDS, overhead


def _compare_gradients(job: OperatorJob, case: Case, columns: Tensors) -> Value:
    """Return the largest error by any input. It is a lower bound, because only some elements are sampled."""
    assert job.scenario.gradient is not None
    largest, count = 0.0, 0
    for port in job.operator.inputs:
        pair = [columns.get(f"gradient/{port.name}/{side}") for side in ("numeric", "framework")]
        for column in pair:
            if column is None or column.dtype != np.float64 or column.ndim != 1 or not np.isfinite(column).all():
                raise InvalidInputError(f"the samples of case {case.name} lack the gradient by {port.name}")
        numeric, own = pair
        assert numeric is not None
        assert own is not None
        if not 0 < len(numeric) == len(own) <= job.scenario.gradient.elements:
            raise InvalidInputError(f"the samples of case {case.name} have gradients by {port.name} of another length")
        error = gradient_error(numeric, own)
        try:
            check_gradient(job.operator, case, port.name, error)
        except Failure as failure:
            raise OperatorFailure(failure.message) from failure
        largest, count = max(largest, error), count + len(numeric)
    return largest, count, Interval(largest, None)


def _check_stated(document: Mapping[str, Any], case: Case, calls: int) -> None:
    """Raise unless the result states the number of calls a block that the samples have."""
    stated = document["operator"]["cases"].get(case.name)
    if not isinstance(stated, Mapping) or stated.get("calls") != calls:
        raise InvalidInputError(f"the result states other calls a block of case {case.name} than its samples")
