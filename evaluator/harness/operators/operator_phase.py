"""The phase ``operator``: outputs, errors, gradients and times of each case, in a process without author's code."""

import gc
import math
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from ..core.failures import Failure, classify_errors
from ..core.operator_job import EPSILON, Case, Operator, OperatorJob
from ..core.phase_reports import Progress, Timings
from ..inference.predictions import PREDICTIONS
from . import NO_GRADIENT, BuiltOperator, build, differentiate, draw
from .gradient_check import gradient_error, sample_gradients
from .reference_phase import REFERENCE

SAMPLES = "samples.safetensors"
GRADIENT = "gradient_error"
_SECONDS_A_BLOCK = 1e-3
_MOST_CALLS = 10_000
_ORDER = ("native", "wrapped", "wrapped", "native")

Columns = dict[str, NDArray[Any]]


def run(job: OperatorJob, output: Path) -> dict[str, Any]:
    """Measure each case; write outputs and raw samples, and return the report of the phase.

    Raises:
        Failure: ``load``, ``predict`` or ``non-finite``. ``golden``: an error is above its tolerance.
    """
    timings, cases, threads = Timings(), dict[str, Any](), dict[str, int]()
    outputs, columns = Columns(), Columns()
    references = load_file(output / REFERENCE)
    progress = Progress("operator", len(job.operator.cases))
    for number, case in enumerate(job.operator.cases, 1):
        with timings.of("load"):
            built = build(job, case, draw(job.operator, case))
        with classify_errors("predict", f"case {case.name}"):
            outputs[case.name] = np.ascontiguousarray(built.to_array(built.repeat(1)))
            wrapped = np.ascontiguousarray(built.to_array(built.predictor.predict(built.feeds)))
        check_output(job.operator, case, outputs[case.name], references[case.name])
        if wrapped.tobytes() != outputs[case.name].tobytes():
            check_output(job.operator, case, wrapped, references[case.name])
        with timings.of("gradients"):
            gradients, facts = _check_gradients(job, case)
        with timings.of("measure"), classify_errors("predict", f"case {case.name}"):
            samples, calls = measure(built, job)
        threads = dict(built.predictor.threads)
        built.predictor.close()
        columns |= {f"{case.name}/{name}": values for name, values in (gradients | samples).items()}
        cases[case.name] = {"calls": calls, "output_shape": list(outputs[case.name].shape), **facts}
        progress.at(number)
    progress.finish()
    save_file(outputs, output / PREDICTIONS, metadata=job.file_metadata)
    save_file(columns, output / SAMPLES, metadata=job.file_metadata)
    return {
        "operator": {"clock": "thread CPU time", "cases": cases},
        "threads": threads,
        "device": job.device,
        "timings": timings.seconds,
    }


def errors_of(result: NDArray[Any], reference: NDArray[np.float64]) -> tuple[float, float]:
    """Return the L2 error relative to the norm of the reference, and the largest one relative to its largest value."""
    difference = result.astype(np.float64) - reference
    l2 = float(np.linalg.norm(difference.reshape(-1)) / np.linalg.norm(reference.reshape(-1)))
    return l2, float(np.abs(difference).max() / np.abs(reference).max())


def rounding_error(operator: Operator, case: Case) -> float:
    """Return the unit of the tolerances: the machine epsilon times the square root of the reduction."""
    return EPSILON[operator.dtype] * math.sqrt(case.reduction)


def check_output(operator: Operator, case: Case, result: NDArray[Any], reference: NDArray[np.float64]) -> None:
    """Raise unless an output agrees with the reference.

    Raises:
        Failure: ``golden``: another shape or type, or an error above its tolerance. ``non-finite``: not all finite.
    """
    where = f"case {case.name}"
    if result.shape != reference.shape or result.dtype != operator.dtype:
        found, expected = f"{result.dtype} {list(result.shape)}", f"{operator.dtype} {list(reference.shape)}"
        raise Failure("golden", f"{where}: the output is {found}, but the reference has {expected}")
    if not np.isfinite(result).all():
        raise Failure("non-finite", f"{where}: the output is not finite")
    unit = rounding_error(operator, case)
    tolerances = (operator.tolerance.l2, operator.tolerance.linf)
    for name, error, factor in zip(("l2", "linf"), errors_of(result, reference), tolerances, strict=True):
        if not error <= factor * unit:
            bound = f"{factor:g} * {EPSILON[operator.dtype]:.3g} * sqrt({case.reduction}) = {factor * unit:.3g}"
            raise Failure("golden", f"{where}: error_{name} is {error:.3g}, but the tolerance is {bound}")


def check_gradient(operator: Operator, case: Case, name: str, error: float) -> None:
    """Raise ``Failure`` (``golden``) if the error of a gradient is above the tolerance."""
    tolerance = operator.tolerance.gradient
    if tolerance is not None and not error <= tolerance:
        message = f"the gradient by {name} has the error {error:.3g}, but the tolerance is {tolerance:g}"
        raise Failure("golden", f"case {case.name}: {message}")


def _check_gradients(job: OperatorJob, case: Case) -> tuple[Columns, dict[str, Any]]:
    """Return the derivatives of a case as columns, and facts; neither if no gradient is requested."""
    check = job.scenario.gradient
    if GRADIENT not in job.metrics or check is None:
        return {}, {}
    if job.predictor in NO_GRADIENT:
        return {}, {GRADIENT: None, "reason": NO_GRADIENT[job.predictor]}
    with classify_errors("predict", f"the gradient of case {case.name}"):
        samples = sample_gradients(differentiate(job, case), job.operator, case, check)
    columns: Columns = {}
    for name, (numeric, own) in samples.derivatives.items():
        check_gradient(job.operator, case, name, gradient_error(numeric, own))
        columns |= {f"gradient/{name}/numeric": numeric, f"gradient/{name}/framework": own}
    return columns, {"redrawn": samples.redrawn}


def measure(built: BuiltOperator, job: OperatorJob) -> tuple[Columns, int]:
    """Return the raw samples of a case, and the number of calls of a block.

    The column ``calls`` has that number, too. ``native_ns`` and ``wrapped_ns`` have two thread CPU times for each
    group of four blocks; ``latency_ns``, ``cpu_ns`` and ``preempted`` are of single native calls.
    """
    scenario, wrapped = job.scenario, _wrap(built)
    for _ in range(max(scenario.warmup, 1)):
        built.repeat(1)
        wrapped(1)
    calls = scenario.calls or _calibrate(built.repeat)
    gc.collect()
    gc.disable()
    try:
        blocks = _pair(built.repeat, wrapped, scenario.blocks, calls)
        singles = _time_singles(built.repeat, scenario.blocks)
    finally:
        gc.enable()
    return blocks | singles | {"calls": np.array([calls], dtype=np.int64)}, calls


def _wrap(built: BuiltOperator) -> Callable[[int], Any]:
    """Return calls as a timed phase makes them: of the predictor, between two clocks, each with its row."""
    predict, feeds, clock = built.predictor.predict, built.feeds, time.perf_counter_ns

    def repeat(calls: int) -> list[int]:
        rows: list[int] = []
        for _ in range(calls):
            start = clock()
            answer = predict(feeds)
            stop = clock()
            rows.append(stop - start)
            del answer
        return rows

    return repeat


def _calibrate(native: Callable[[int], Any]) -> int:
    """Return the number of calls that take about a millisecond."""
    durations = []
    for _ in range(5):
        start = time.perf_counter()
        native(1)
        durations.append(time.perf_counter() - start)
    return max(1, min(_MOST_CALLS, round(_SECONDS_A_BLOCK / max(min(durations), 1e-9))))


def _pair(native: Callable[[int], Any], wrapped: Callable[[int], Any], blocks: int, calls: int) -> Columns:
    functions = {"native": native, "wrapped": wrapped}
    rows: dict[str, list[list[int]]] = {name: [] for name in functions}
    for _ in range(blocks):
        times: dict[str, list[int]] = {name: [] for name in functions}
        for name in _ORDER:
            start = time.thread_time_ns()
            answer = functions[name](calls)
            times[name].append(time.thread_time_ns() - start)
            del answer
        for name, row in times.items():
            rows[name].append(row)
    return {f"{name}_ns": np.array(table, dtype=np.int64) for name, table in rows.items()}


def _time_singles(native: Callable[[int], Any], count: int) -> Columns:
    latency, cpu = np.zeros(count, np.int64), np.zeros(count, np.int64)
    preempted = np.zeros(count, np.uint8)
    for index in range(count):
        switches = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw
        worked = time.thread_time_ns()
        start = time.perf_counter_ns()
        answer = native(1)
        latency[index] = time.perf_counter_ns() - start
        cpu[index] = time.thread_time_ns() - worked
        preempted[index] = resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw > switches
        del answer
    return {"latency_ns": latency, "cpu_ns": cpu, "preempted": preempted}
