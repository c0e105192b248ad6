"""The job of an operator: its cases, the reference, and how calls are measured."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from .job import Code
from .scenarios import JobError, check_minimum, read_optional, read_required

Argument = int | float | str | list[int] | list[float]
METRICS = (
    "operator_latency",
    "wrapper_overhead",
    "wrapper_overhead_share",
    "error_l2",
    "error_linf",
    "gradient_error",
)
EPSILON = {"float32": 2.0**-23, "float64": 2.0**-52}
"""The distance from 1 to the next number of each type."""
_PREDICTOR = re.compile(r"[a-z][a-z0-9_]*")


@dataclass(frozen=True, slots=True)
class OperatorInput:
    """An input of the operator; ``layout`` is NCHW, OIHW or None."""

    name: str
    layout: str | None


@dataclass(frozen=True, slots=True)
class Case:
    """One size of the operator, with the seed of its inputs.

    ``reduction`` is the number of products that are added up for one element of the output.
    """

    name: str
    shapes: Mapping[str, tuple[int, ...]]
    arguments: Mapping[str, Argument]
    reduction: int
    seed: int


@dataclass(frozen=True, slots=True)
class Tolerance:
    """The largest errors: ``l2`` and ``linf`` in units of the rounding error of a sum, ``gradient`` relative."""

    l2: float
    linf: float
    gradient: float | None


@dataclass(frozen=True, slots=True)
class Operator:
    """An operator of ONNX's standard operator set; ``reference`` is code, or None for ONNX's own evaluator."""

    type: str
    opset: int
    dtype: str
    inputs: tuple[OperatorInput, ...]
    reference: Code | None
    distribution: str
    tolerance: Tolerance
    cases: tuple[Case, ...]


@dataclass(frozen=True, slots=True)
class GradientCheck:
    """Central differences with ``step``, of at most ``elements`` elements of each input."""

    step: float
    elements: int


@dataclass(frozen=True, slots=True)
class PairedScenario:
    """Blocks of native and wrapped calls in the order ABBA; ``calls`` a block, None for a calibrated number."""

    blocks: int
    calls: int | None
    warmup: int
    gradient: GradientCheck | None


@dataclass(frozen=True, slots=True)
class OperatorJob:
    """A job that measures an operator in the framework of ``predictor``."""

    operator: Operator
    predictor: str
    scenario: PairedScenario
    metrics: tuple[str, ...]
    threads: int
    device: str
    lock_fingerprint: str
    isolation: str

    @property
    def file_metadata(self) -> dict[str, str]:
        """The metadata of the tensor files that the job writes."""
        return {"lock_fingerprint": self.lock_fingerprint}

    @property
    def phases(self) -> tuple[str, ...]:
        """The phases to run, in order: code of the author runs in another process than the measurement."""
        return ("reference", "operator")


def parse_operator_job(document: Mapping[str, Any]) -> OperatorJob:
    """Parse the content of a job.json with an operator.

    Raises:
        JobError: A key is missing or wrong; the message has its path.
    """
    metrics = tuple(read_required(document, "metrics", list, ""))
    for index, name in enumerate(metrics):
        if name not in METRICS:
            raise JobError(f"metrics[{index}]: {name!r} is not supported")
    predictor = read_required(document, "predictor", str, "")
    if not _PREDICTOR.fullmatch(predictor):
        raise JobError(f"predictor: unknown predictor {predictor!r}")
    return OperatorJob(
        operator=_operator(read_required(document, "operator", dict, ""), read_required(document, "seeds", dict, "")),
        predictor=predictor,
        scenario=_scenario(read_required(document, "scenario", dict, "")),
        metrics=metrics,
        threads=check_minimum(1, read_required(document, "threads", int, ""), "threads"),
        device=read_required(document, "device", str, ""),
        lock_fingerprint=read_required(document, "lock_fingerprint", str, ""),
        isolation=read_optional(document, "isolation", str, "") or "",
    )


def _operator(table: Mapping[str, Any], seeds: Mapping[str, Any]) -> Operator:
    where = "operator"
    op, tolerance = (read_required(table, key, dict, where) for key in ("op", "tolerance"))
    inputs = tuple(
        OperatorInput(read_required(port, "name", str, f"{where}.inputs"), read_optional(port, "layout", str, where))
        for port in read_required(table, "inputs", list, where)
    )
    dtype = read_required(table, "dtype", str, where)
    if dtype not in EPSILON:
        raise JobError(f"{where}.dtype: {dtype!r} is not supported")
    gradient = read_optional(tolerance, "gradient", (int, float), f"{where}.tolerance")
    l2, linf = (read_required(tolerance, key, (int, float), f"{where}.tolerance") for key in ("l2", "linf"))
    return Operator(
        type=read_required(op, "type", str, f"{where}.op"),
        opset=read_required(op, "opset", int, f"{where}.op"),
        dtype=dtype,
        inputs=inputs,
        reference=_reference(read_required(table, "reference", (dict, str), where)),
        distribution=_distribution(read_required(table, "fill", dict, where)),
        tolerance=Tolerance(float(l2), float(linf), None if gradient is None else float(gradient)),
        cases=tuple(_case(case, seeds, inputs) for case in read_required(table, "cases", list, where)),
    )


def _distribution(table: Mapping[str, Any]) -> str:
    kind: str = read_required(table, "kind", str, "operator.fill")
    if (kind, table.get("generator")) not in (("normal", "pcg64"), ("uniform", "pcg64")):
        raise JobError(f"operator.fill: {dict(table)!r} is not supported")
    return kind


def _reference(value: Mapping[str, Any] | str) -> Code | None:
    if isinstance(value, str):
        if value != "onnx":
            raise JobError(f"operator.reference: {value!r} is not supported")
        return None
    file, function = (read_required(value, key, str, "operator.reference") for key in ("file", "function"))
    return Code(file, function)


def _case(table: Mapping[str, Any], seeds: Mapping[str, Any], inputs: tuple[OperatorInput, ...]) -> Case:
    name = read_required(table, "name", str, "operator.cases")
    where = f"operator.cases.{name}"
    shapes = read_required(table, "shapes", dict, where)
    return Case(
        name=name,
        shapes={port.name: tuple(read_required(shapes, port.name, list, f"{where}.shapes")) for port in inputs},
        arguments=read_required(table, "arguments", dict, where),
        reduction=check_minimum(1, read_required(table, "reduction", int, where), f"{where}.reduction"),
        seed=read_required(seeds, name, int, "seeds"),
    )


def _scenario(table: Mapping[str, Any]) -> PairedScenario:
    where = "scenario"
    if (table.get("name"), table.get("order")) != ("paired", "abba"):
        raise JobError("scenario: only paired in the order abba is supported")
    calls: int | Literal["auto"] = read_required(table, "calls", (int, str), where)
    gradient = read_optional(table, "gradient", dict, where)
    return PairedScenario(
        blocks=check_minimum(1, read_required(table, "blocks", int, where), "scenario.blocks"),
        calls=check_minimum(1, calls, "scenario.calls") if isinstance(calls, int) else None,
        warmup=check_minimum(0, read_required(table, "warmup", int, where), "scenario.warmup"),
        gradient=None if gradient is None else _gradient(gradient),
    )


def _gradient(table: Mapping[str, Any]) -> GradientCheck:
    where = "scenario.gradient"
    if table.get("dtype") != "float64":
        raise JobError(f"{where}.dtype: only float64 is supported")
    step = float(read_required(table, "step", (int, float), where))
    return GradientCheck(step, check_minimum(1, read_required(table, "elements", int, where), f"{where}.elements"))
