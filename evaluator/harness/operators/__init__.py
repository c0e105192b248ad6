"""Operators alone: one module per framework builds them: the name of its predictor, and `_operators`.

A module has ``build(operator, case, inputs, place) -> BuiltOperator`` and, where the framework computes gradients,
``differentiate(operator, case) -> Differentiable``. Only this module imports its framework.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..core.failures import Failure, classify_errors
from ..core.job import Axes, Input, Model, Output
from ..core.operator_job import Case, Operator, OperatorJob
from ..predictors import Place, Predictor, Tensors

OUTPUT = "Y"
"""The name of an operator's output."""
NO_GRADIENT = {"onnxruntime": "ONNX Runtime computes no gradients"}
"""Why a framework has no gradients."""


class BuiltOperator(Protocol):
    """An operator in one framework, with the inputs of one case."""

    @property
    def predictor(self) -> Predictor:
        """The operator as benchlock's predictor, which gets and returns arrays."""

    @property
    def feeds(self) -> Tensors:
        """The inputs of the predictor, in the layout of the framework."""

    def repeat(self, calls: int) -> Any:  # noqa: ANN401 - a tensor of any framework
        """Call the operator itself on prepared tensors, ``calls`` times; return the last output."""

    def to_array(self, output: Any) -> NDArray[Any]:  # noqa: ANN401 - as above
        """Return an output as an array in the layout of ONNX."""


class Differentiable(Protocol):
    """An operator in float64 with its gradient; arrays have the layout of ONNX."""

    def forward(self, inputs: Tensors) -> NDArray[np.float64]:
        """Return the output."""

    def gradients(self, inputs: Tensors, cotangent: NDArray[np.float64]) -> Tensors:
        """Return the gradient of ``sum(output * cotangent)`` with respect to each input."""


def build(job: OperatorJob, case: Case, inputs: Tensors) -> BuiltOperator:
    """Build a case of the job's operator.

    Raises:
        Failure: ``load``: the framework does not have the operator or an argument, or it has another device.
    """
    where = f"operator {job.operator.type}, predictor {job.predictor}, case {case.name}"
    with classify_errors("load", where):
        module = import_module(f".{job.predictor}_operators", __name__)
        built: BuiltOperator = module.build(job.operator, case, inputs, Place(job.threads, job.device))
    if built.predictor.device != job.device:
        raise Failure("load", f"{where}: it runs on device {built.predictor.device}, but {job.device} was requested")
    return built


def differentiate(job: OperatorJob, case: Case) -> Differentiable:
    """Return a case of the job's operator with its gradient. Raise as ``build``."""
    with classify_errors("load", f"operator {job.operator.type}, predictor {job.predictor}, case {case.name}"):
        module = import_module(f".{job.predictor}_operators", __name__)
        differentiable: Differentiable = module.differentiate(job.operator, case)
    return differentiable


def draw(operator: Operator, case: Case) -> Tensors:
    """Return the inputs of a case in the type of the operator, input after input from one generator."""
    generator = np.random.Generator(np.random.PCG64(case.seed))
    tensors: Tensors = {}
    for port in operator.inputs:
        shape = case.shapes[port.name]
        values = (
            generator.standard_normal(shape)
            if operator.distribution == "normal"
            else generator.uniform(-1.0, 1.0, shape)
        )
        tensors[port.name] = values.astype(operator.dtype)
    return tensors


def describe_model(operator: Operator, predictor: str) -> Model:
    """Return the model that a predictor needs: one with the operator's inputs and its output."""
    axes = Axes(None, 1, None)
    inputs = tuple(Input(port.name, "tensor", operator.dtype, None, axes, ()) for port in operator.inputs)
    output = Output(OUTPUT, "tensor", operator.dtype, axes, 0, None, ())
    return Model("onnx", predictor, "tensor", None, inputs, (output,), ())


def take(arguments: Mapping[str, Any], known: Mapping[str, Any], what: str) -> dict[str, Any]:
    """Return the arguments with ONNX's defaults for absent ones.

    Raises:
        ValueError: An argument is not in ``known``.
    """
    for name in arguments:
        if name not in known:
            raise ValueError(f"the argument {name} of {what} is not supported in this framework")
    return {**known, **arguments}


def window_of(case: Case, kind: str) -> dict[str, Any]:
    """Return kernel, strides, dilations and pads of a convolution or pooling in two dimensions.

    Raises:
        ValueError: An argument is not supported, or the input has another number of dimensions.
    """
    shapes = list(case.shapes.values())
    kernel = shapes[1][2:] if kind == "Conv" else None
    if len(shapes[0]) != 4:  # noqa: PLR2004 - NCHW
        raise ValueError(f"{kind} is supported in two dimensions, but the input has {len(shapes[0])} axes")
    known = {"kernel_shape": kernel, "strides": [1, 1], "pads": [0, 0, 0, 0], "dilations": [1, 1], "group": 1}
    return take(case.arguments, known if kind == "Conv" else {k: v for k, v in known.items() if k != "group"}, kind)
