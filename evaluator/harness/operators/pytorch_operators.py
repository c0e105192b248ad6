"""Operators in PyTorch: functions of ``torch.nn.functional``."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812 - its usual name
from numpy.typing import NDArray

from ..core.operator_job import Case, Operator
from ..predictors import CPU, Place, Tensors
from ..predictors.pytorch import PyTorch, set_threads
from . import OUTPUT, describe_model, take, window_of

Function = Callable[..., Any]


def _conv(case: Case) -> Function:
    window = window_of(case, "Conv")
    padding, padded = _padding(window["pads"])
    options = {"stride": window["strides"], "dilation": window["dilations"], "groups": window["group"]}
    return lambda x, w, b=None: F.conv2d(padded(x, 0.0), w, b, padding=padding, **options)


def _max_pool(case: Case) -> Function:
    window = window_of(case, "MaxPool")
    padding, padded = _padding(window["pads"])
    options = {"stride": window["strides"], "dilation": window["dilations"], "padding": padding}
    return lambda x: F.max_pool2d(padded(x, -torch.inf), window["kernel_shape"], **options)


def _padding(pads: list[int]) -> tuple[tuple[int, int], Callable[[Any, float], Any]]:
    """Return the symmetric padding of a window, and the function that adds an asymmetric one."""
    top, left, bottom, right = pads
    if (top, left) == (bottom, right):
        return (top, left), lambda x, _value: x
    return (0, 0), lambda x, value: F.pad(x, (left, right, top, bottom), value=value)


def _gemm(case: Case) -> Function:
    options = take(case.arguments, {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}, "Gemm")

    def gemm(a: Any, b: Any, c: Any = None) -> Any:  # noqa: ANN401 - torch has no types here
        a, b = (x.t() if options[key] else x for x, key in ((a, "transA"), (b, "transB")))
        if c is None:
            return options["alpha"] * (a @ b) if options["alpha"] != 1 else a @ b
        return torch.addmm(c, a, b, beta=options["beta"], alpha=options["alpha"])

    return gemm


def _plain(function: Function, kind: str) -> Callable[[Case], Function]:
    def make(case: Case) -> Function:
        take(case.arguments, {}, kind)
        return function

    return make


def _softmax(case: Case) -> Function:
    axis = take(case.arguments, {"axis": -1}, "Softmax")["axis"]
    return lambda x: F.softmax(x, dim=axis)


_FUNCTIONS: Mapping[str, Callable[[Case], Function]] = {
    "Conv": _conv,
    "MaxPool": _max_pool,
    "Gemm": _gemm,
    "Softmax": _softmax,
    "MatMul": _plain(torch.matmul, "MatMul"),
    "Add": _plain(torch.add, "Add"),
    "Mul": _plain(torch.mul, "Mul"),
    "Relu": _plain(torch.relu, "Relu"),
    "Tanh": _plain(torch.tanh, "Tanh"),
    "Sigmoid": _plain(torch.sigmoid, "Sigmoid"),
}


class _Module(torch.nn.Module):  # type: ignore[misc] # torch has no types here
    def __init__(self, function: Function) -> None:
        super().__init__()
        self._function = function

    def forward(self, *inputs: Any) -> Any:  # noqa: ANN401 - tensors
        return self._function(*inputs)


class PyTorchOperator:
    """An operator in PyTorch; its native call is the function on prepared tensors."""

    def __init__(self, operator: Operator, case: Case, inputs: Tensors, place: Place) -> None:
        """Build the function, and the predictor around it."""
        if place.device != CPU:
            raise ValueError(f"device {place.device!r} is not supported for operators")
        set_threads(place.threads)
        self.feeds = inputs
        self._function = _find(operator, case)
        self._tensors = [torch.from_numpy(inputs[port.name]) for port in operator.inputs]
        self.predictor = PyTorch(_Module(self._function), describe_model(operator, "pytorch"), place.threads)
        self.predictor.predict(inputs)  # the first call examines the module

    def repeat(self, calls: int) -> Any:  # noqa: ANN401 - a tensor
        """Call the function; return the last output."""
        function, tensors, answer = self._function, self._tensors, None
        with torch.inference_mode():
            for _ in range(calls):
                answer = function(*tensors)
        return answer

    def to_array(self, output: Any) -> NDArray[Any]:  # noqa: ANN401 - as above
        """Return the array, which has the layout of ONNX."""
        array: NDArray[Any] = output[OUTPUT] if isinstance(output, dict) else output.numpy()
        return array


class PyTorchGradient:
    """An operator in float64 with PyTorch's own gradient."""

    def __init__(self, function: Function) -> None:
        """Keep the function of the operator."""
        self._function = function

    def forward(self, inputs: Tensors) -> NDArray[np.float64]:
        """Return the output."""
        with torch.inference_mode():
            array: NDArray[np.float64] = self._function(*map(torch.from_numpy, inputs.values())).numpy()
        return array

    def gradients(self, inputs: Tensors, cotangent: NDArray[np.float64]) -> Tensors:
        """Return the gradient with respect to each input."""
        tensors = [torch.from_numpy(values).clone().requires_grad_() for values in inputs.values()]
        found = torch.autograd.grad(self._function(*tensors), tensors, torch.from_numpy(cotangent))
        return {name: tensor.numpy() for name, tensor in zip(inputs, found, strict=True)}


def _find(operator: Operator, case: Case) -> Function:
    if operator.type not in _FUNCTIONS:
        raise ValueError(f"the operator {operator.type} has no implementation for PyTorch")
    return _FUNCTIONS[operator.type](case)


def build(operator: Operator, case: Case, inputs: Tensors, place: Place) -> PyTorchOperator:
    """Build the operator."""
    return PyTorchOperator(operator, case, inputs, place)


def differentiate(operator: Operator, case: Case) -> PyTorchGradient:
    """Build the operator with its gradient."""
    return PyTorchGradient(_find(operator, case))
