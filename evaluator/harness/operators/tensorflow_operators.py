"""Operators in TensorFlow: functions of ``tf.function``, with pictures in the layout NHWC, which CPUs have."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from ..core.operator_job import Case, Operator
from ..predictors import CPU, Place, Tensors
from ..predictors.tensorflow import TracedFunction, set_threads
from . import OUTPUT, describe_model, take, window_of

Function = Callable[..., Any]
_TO_NATIVE = {"NCHW": (0, 2, 3, 1), "OIHW": (2, 3, 1, 0)}
_FROM_NHWC = (0, 3, 1, 2)
_PICTURES = ("Conv", "MaxPool")


def _conv(case: Case) -> Function:
    window = window_of(case, "Conv")
    if window["group"] != 1:
        raise ValueError("the argument group of Conv is not supported in TensorFlow on CPUs")
    options = {"strides": window["strides"], "dilations": window["dilations"], "padding": _padding(window["pads"])}

    def conv(x: Any, w: Any, b: Any = None) -> Any:  # noqa: ANN401 - TensorFlow has no types here
        y = tf.nn.conv2d(x, w, **options)
        return y if b is None else tf.nn.bias_add(y, b)

    return conv


def _max_pool(case: Case) -> Function:
    window = window_of(case, "MaxPool")
    if list(window["dilations"]) != [1, 1]:
        raise ValueError("the argument dilations of MaxPool is not supported in TensorFlow")
    padding = _padding(window["pads"])
    return lambda x: tf.nn.max_pool2d(x, window["kernel_shape"], window["strides"], padding)


def _padding(pads: list[int]) -> list[list[int]] | str:
    top, left, bottom, right = pads
    return [[0, 0], [top, bottom], [left, right], [0, 0]] if any(pads) else "VALID"


def _gemm(case: Case) -> Function:
    options = take(case.arguments, {"alpha": 1.0, "beta": 1.0, "transA": 0, "transB": 0}, "Gemm")

    def gemm(a: Any, b: Any, c: Any = None) -> Any:  # noqa: ANN401 - TensorFlow has no types here
        y = tf.linalg.matmul(a, b, transpose_a=bool(options["transA"]), transpose_b=bool(options["transB"]))
        y = y * options["alpha"] if options["alpha"] != 1 else y
        return y if c is None else y + (c * options["beta"] if options["beta"] != 1 else c)

    return gemm


def _plain(function: Function, kind: str) -> Callable[[Case], Function]:
    def make(case: Case) -> Function:
        take(case.arguments, {}, kind)
        return function

    return make


def _softmax(case: Case) -> Function:
    axis = take(case.arguments, {"axis": -1}, "Softmax")["axis"]
    return lambda x: tf.nn.softmax(x, axis=axis)


_FUNCTIONS: Mapping[str, Callable[[Case], Function]] = {
    "Conv": _conv,
    "MaxPool": _max_pool,
    "Gemm": _gemm,
    "Softmax": _softmax,
    "MatMul": _plain(tf.linalg.matmul, "MatMul"),
    "Add": _plain(tf.add, "Add"),
    "Mul": _plain(tf.multiply, "Mul"),
    "Relu": _plain(tf.nn.relu, "Relu"),
    "Tanh": _plain(tf.tanh, "Tanh"),
    "Sigmoid": _plain(tf.sigmoid, "Sigmoid"),
}


class TensorFlowOperator:
    """An operator in TensorFlow; its native call is the traced function on prepared tensors."""

    def __init__(self, operator: Operator, case: Case, inputs: Tensors, place: Place) -> None:
        """Trace the function, and build the predictor around it."""
        set_threads(place.threads, CPU)
        self._is_picture = operator.type in _PICTURES
        self.feeds = _to_native(operator, inputs)
        self.predictor = TracedFunction(
            _find(operator, case), describe_model(operator, "tensorflow"), place.threads, CPU
        )
        self._tensors = [tf.constant(self.feeds[port.name]) for port in operator.inputs]

    def repeat(self, calls: int) -> Any:  # noqa: ANN401 - a tensor
        """Call the traced function; return the last output."""
        function, tensors, answer = self.predictor.function, self._tensors, None
        for _ in range(calls):
            answer = function(*tensors)
        return answer

    def to_array(self, output: Any) -> NDArray[Any]:  # noqa: ANN401 - as above
        """Return the array in the layout of ONNX."""
        array: NDArray[Any] = output[OUTPUT] if isinstance(output, dict) else output.numpy()
        return array.transpose(_FROM_NHWC) if self._is_picture else array


class TensorFlowGradient:
    """An operator in float64 with TensorFlow's own gradient."""

    def __init__(self, operator: Operator, case: Case) -> None:
        """Keep the function of the operator."""
        self._operator = operator
        self._function = _find(operator, case)

    def forward(self, inputs: Tensors) -> NDArray[np.float64]:
        """Return the output."""
        array: NDArray[np.float64] = self._call([tf.constant(values) for values in inputs.values()]).numpy()
        return array

    def gradients(self, inputs: Tensors, cotangent: NDArray[np.float64]) -> Tensors:
        """Return the gradient with respect to each input."""
        tensors = [tf.constant(values) for values in inputs.values()]
        with tf.GradientTape() as tape:
            for tensor in tensors:
                tape.watch(tensor)
            output = self._call(tensors)
        found = tape.gradient(output, tensors, output_gradients=tf.constant(cotangent))
        return {name: tensor.numpy() for name, tensor in zip(inputs, found, strict=True)}

    def _call(self, tensors: list[Any]) -> Any:  # noqa: ANN401 - as above
        native = [
            tensor if port.layout is None else tf.transpose(tensor, _TO_NATIVE[port.layout])
            for port, tensor in zip(self._operator.inputs, tensors, strict=True)
        ]
        output = self._function(*native)
        return tf.transpose(output, _FROM_NHWC) if self._operator.type in _PICTURES else output


def _to_native(operator: Operator, inputs: Tensors) -> Tensors:
    return {
        port.name: inputs[port.name]
        if port.layout is None
        else np.ascontiguousarray(inputs[port.name].transpose(_TO_NATIVE[port.layout]))
        for port in operator.inputs
    }


def _find(operator: Operator, case: Case) -> Function:
    if operator.type not in _FUNCTIONS:
        raise ValueError(f"the operator {operator.type} has no implementation for TensorFlow")
    return _FUNCTIONS[operator.type](case)


def build(operator: Operator, case: Case, inputs: Tensors, place: Place) -> TensorFlowOperator:
    """Build the operator."""
    return TensorFlowOperator(operator, case, inputs, place)


def differentiate(operator: Operator, case: Case) -> TensorFlowGradient:
    """Build the operator with its gradient."""
    return TensorFlowGradient(operator, case)
