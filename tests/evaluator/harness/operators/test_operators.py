"""Operators: their ONNX graph, the tolerance of outputs, and the check of gradients, on kernels of NumPy."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx.reference import ReferenceEvaluator

from benchlock.evaluator.harness.core.failures import Failure
from benchlock.evaluator.harness.core.operator_job import Case, GradientCheck, Operator, OperatorInput, Tolerance
from benchlock.evaluator.harness.operators import draw
from benchlock.evaluator.harness.operators.gradient_check import gradient_error, sample_gradients
from benchlock.evaluator.harness.operators.onnx_model import encode_model
from benchlock.evaluator.harness.operators.operator_phase import check_gradient, check_output, errors_of
from benchlock.evaluator.harness.operators.reference_phase import check_reference

Array = NDArray[Any]
Inputs = dict[str, Array]
TOLERANCE = Tolerance(1.0, 1.0, 1e-6)


def make_case(
    name: str, shapes: dict[str, tuple[int, ...]], reduction: int, arguments: dict[str, Any] | None = None
) -> Case:
    return Case(name, shapes, arguments or {}, reduction, seed=len(name))


def make_operator(kind: str, case: Case, distribution: str = "normal") -> Operator:
    inputs = tuple(OperatorInput(name, None) for name in case.shapes)
    return Operator(kind, 21, "float32", inputs, None, distribution, TOLERANCE, (case,))


def conv_case(channels: int, side: int, filters: int, kernel: int) -> Case:
    shapes: dict[str, tuple[int, ...]] = {"X": (1, channels, side, side), "W": (filters, channels, kernel, kernel)}
    arguments = {"kernel_shape": [kernel, kernel], "pads": [kernel // 2] * 4, "strides": [1, 1]}
    return make_case(f"c{channels}-{side}-{kernel}", shapes, channels * kernel * kernel, arguments)


def gemm_case(m: int, n: int, k: int) -> Case:
    return make_case(f"m{m}-n{n}-k{k}", {"A": (m, k), "B": (k, n)}, k)


def conv(inputs: Inputs, case: Case) -> Array:
    pad = case.arguments["pads"][0]  # type: ignore[index]
    x = np.pad(inputs["X"], ((0, 0), (0, 0), (pad, pad), (pad, pad)))  # type: ignore[arg-type]
    windows = np.lib.stride_tricks.sliding_window_view(x, inputs["W"].shape[2:], axis=(2, 3))
    return np.ascontiguousarray(np.einsum("nchwij,ocij->nohw", windows, inputs["W"], optimize=True))


def gemm(inputs: Inputs, _: Case) -> Array:
    return inputs["A"] @ inputs["B"]


CASES: list[tuple[str, Case, Callable[[Inputs, Case], Array]]] = [
    *(("Conv", conv_case(*size), conv) for size in ((3, 32, 8, 3), (16, 14, 16, 5), (64, 7, 32, 1), (32, 14, 16, 3))),
    *(
        ("Gemm", gemm_case(*size), gemm)
        for size in ((64, 64, 64), (1, 16, 1760), (33, 7, 500), (128, 16, 128), (5, 5, 1))
    ),
]


def widened(inputs: Inputs) -> Inputs:
    return {name: values.astype(np.float64) for name, values in inputs.items()}


def to_bf16(values: Array) -> Array:
    """Round to bfloat16, the upper half of a float32, to the nearest."""
    bits = np.ascontiguousarray(values).view(np.uint32)
    return (((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16) << 16).astype(np.uint32).view(np.float32)


@pytest.mark.parametrize(("kind", "case", "kernel"), CASES, ids=lambda part: getattr(part, "name", ""))
def test_a_kernel_in_float32_is_within_the_tolerance_and_one_in_bfloat16_is_not(
    kind: str, case: Case, kernel: Callable[[Inputs, Case], Array]
) -> None:
    operator = make_operator(kind, case)
    inputs = draw(operator, case)
    assert {str(values.dtype) for values in inputs.values()} == {"float32"}
    reference = kernel(widened(inputs), case)
    check_output(operator, case, kernel(inputs, case), reference)
    rounded = kernel({name: to_bf16(values) for name, values in inputs.items()}, case)
    with pytest.raises(Failure, match=r"error_l2 is .* but the tolerance is 1 \* 1\.19e-07 \* sqrt") as caught:
        check_output(operator, case, rounded, reference)
    assert caught.value.kind == "golden"


def test_a_picture_in_the_wrong_layout_fails() -> None:
    case = conv_case(16, 16, 8, 3)
    operator = make_operator("Conv", case)
    inputs = draw(operator, case)
    mixed = inputs | {"X": np.ascontiguousarray(inputs["X"].transpose(0, 2, 3, 1))}
    with pytest.raises(Failure, match="error_l2"):
        check_output(operator, case, conv(mixed, case), conv(widened(inputs), case))


def test_an_output_of_another_shape_or_type_or_with_nan_fails() -> None:
    case = gemm_case(4, 4, 4)
    operator = make_operator("Gemm", case)
    reference = gemm(widened(draw(operator, case)), case)
    for output, kind in (
        (reference.astype(np.float32)[:3], "golden"),
        (reference, "golden"),
        (np.full((4, 4), np.nan, np.float32), "non-finite"),
    ):
        with pytest.raises(Failure) as caught:
            check_output(operator, case, output, reference)
        assert caught.value.kind == kind


def test_errors_are_those_of_the_definitions() -> None:
    reference = np.array([3.0, 4.0, 0.0])
    assert errors_of(np.array([3.0, 4.5, 0.0], np.float32), reference) == (0.1, 0.125)


@pytest.mark.parametrize("result", [1.0, np.ones(2, np.float32), np.zeros(2), np.array([1.0, np.inf])])
def test_a_reference_is_a_finite_array_in_float64(result: object) -> None:
    with pytest.raises(Failure, match="the reference of case m1-n1-k1"):
        check_reference(gemm_case(1, 1, 1), result)


def test_inputs_depend_on_the_seed_of_their_case_alone() -> None:
    case = gemm_case(2, 3, 4)
    normal, uniform = make_operator("Gemm", case), make_operator("Gemm", case, "uniform")
    first = draw(normal, case)
    expected = np.random.Generator(np.random.PCG64(case.seed)).standard_normal((2, 4)).astype(np.float32)
    assert np.array_equal(first["A"], expected)
    assert all(np.array_equal(first[name], values) for name, values in draw(normal, case).items())
    assert not np.array_equal(first["A"], draw(normal, replace(case, seed=99))["A"])
    assert np.abs(draw(uniform, case)["A"]).max() < 1


@pytest.mark.parametrize(
    ("kind", "case"),
    [
        ("Conv", conv_case(3, 8, 4, 3)),
        ("Conv", make_case("same", {"X": (1, 2, 5, 5), "W": (2, 2, 3, 3)}, 18, {"auto_pad": "SAME_UPPER"})),
        # Canonical JSON writes 0.5 and 2.0 as 0.5 and 2.
        ("Gemm", make_case("scaled", {"A": (2, 3), "B": (4, 3), "C": (4,)}, 3, {"alpha": 0.5, "beta": 2, "transB": 1})),
        ("Softmax", make_case("axis", {"X": (2, 3, 4)}, 4, {"axis": -2})),
    ],
    ids=["ints", "text", "floats", "negative"],
)
def test_the_graph_is_one_that_onnx_accepts_and_evaluates(kind: str, case: Case) -> None:
    operator = make_operator(kind, case)
    inputs = draw(operator, case)
    for dtype in ("float32", "float64"):
        model = onnx.load_model_from_string(encode_model(operator, case, "Y", dtype))
        typed = {name: values.astype(dtype) for name, values in inputs.items()}
        results: Any = ReferenceEvaluator(model).run(["Y"], typed)
        (output,) = results
        assert output.dtype == dtype
        if kind == "Gemm":
            np.testing.assert_allclose(output, 0.5 * typed["A"] @ typed["B"].T + 2 * typed["C"], rtol=1e-5)
        elif kind == "Softmax":
            np.testing.assert_allclose(output.sum(axis=1), 1, rtol=1e-5)


class Differentiable:
    """An operator of NumPy with its gradient, which ``factor`` falsifies."""

    def __init__(
        self, forward: Callable[..., Array], backward: Callable[..., tuple[Array, ...]], factor: float
    ) -> None:
        self._forward, self._backward, self._factor = forward, backward, factor

    def forward(self, inputs: Inputs) -> Array:
        return self._forward(*inputs.values())

    def gradients(self, inputs: Inputs, cotangent: Array) -> Inputs:
        found = self._backward(cotangent, *inputs.values())
        return {name: self._factor * values for name, values in zip(inputs, found, strict=True)}


def softmax(x: Array) -> Array:
    shifted = np.exp(x - x.max(axis=-1, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis=-1, keepdims=True))


def sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


DIFFERENTIABLE: dict[str, tuple[dict[str, tuple[int, ...]], Callable[..., Array], Callable[..., tuple[Array, ...]]]] = {
    "MatMul": ({"A": (5, 7), "B": (7, 3)}, np.matmul, lambda g, a, b: (g @ b.T, a.T @ g)),
    "Mul": ({"A": (6, 5), "B": (6, 5)}, np.multiply, lambda g, a, b: (g * b, g * a)),
    "Tanh": ({"X": (40,)}, np.tanh, lambda g, x: (g * (1 - np.tanh(x) ** 2),)),
    "Sigmoid": ({"X": (40,)}, sigmoid, lambda g, x: (g * sigmoid(x) * (1 - sigmoid(x)),)),
    "Relu": ({"X": (40,)}, lambda x: np.maximum(x, 0), lambda g, x: (g * (x > 0),)),
    "Softmax": (
        {"X": (4, 6)},
        softmax,
        lambda g, x: (softmax(x) * (g - (g * softmax(x)).sum(axis=-1, keepdims=True)),),
    ),
}


@pytest.mark.parametrize("kind", DIFFERENTIABLE)
@pytest.mark.parametrize("factor", [1.0, -1.0, 1.001])
def test_a_right_gradient_passes_and_a_wrong_sign_or_factor_fails(kind: str, factor: float) -> None:
    shapes, forward, backward = DIFFERENTIABLE[kind]
    case = make_case("case", shapes, 1)
    operator = make_operator(kind, case)
    check = GradientCheck(1e-6, 16)
    samples = sample_gradients(Differentiable(forward, backward, factor), operator, case, check)
    assert samples.derivatives.keys() == shapes.keys()
    for name, (numeric, own) in samples.derivatives.items():
        assert len(numeric) == 16
        error = gradient_error(numeric, own)
        if factor == 1.0:
            check_gradient(operator, case, name, error)
        else:
            with pytest.raises(Failure, match=f"the gradient by {name} has the error"):
                check_gradient(operator, case, name, error)


def test_elements_at_a_kink_are_drawn_again_and_counted() -> None:
    """With a step of 0.03, about a quarter of normal numbers is within ten steps of the kink at 0."""
    _, forward, backward = DIFFERENTIABLE["Relu"]
    case = make_case("case", {"X": (400,)}, 1)
    operator = make_operator("Relu", case)
    samples = sample_gradients(Differentiable(forward, backward, 1.0), operator, case, GradientCheck(0.03, 40))
    assert samples.redrawn > 3
    assert gradient_error(*samples.derivatives["X"]) < 1e-9


def test_an_operator_with_a_kink_at_every_element_has_no_gradient() -> None:
    case = make_case("case", {"X": (40,)}, 1)
    operator = make_operator("Abs", case)
    kinks = widened(draw(operator, case))["X"]
    distance = Differentiable(lambda x: np.abs(x - kinks), lambda g, x: (g * np.sign(x - kinks),), 1.0)
    with pytest.raises(ValueError, match="every element of X that was drawn is at a kink"):
        sample_gradients(distance, operator, case, GradientCheck(1e-3, 8))
