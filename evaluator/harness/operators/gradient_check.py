"""Central differences in float64, compared with the gradient of the framework.

The loss is ``sum(output * cotangent)`` with a random cotangent. Its derivative by one element is
``(loss(x + step) - loss(x - step)) / (2 * step)``. Where the slopes to the left and to the right of an element differ,
the operator has a kink within ten steps, and another element is drawn instead.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..core.operator_job import Case, GradientCheck, Operator
from ..predictors import Tensors
from . import Differentiable, draw

_WIDE = 10
_BEND, _FLAT = 1e-3, 1e-6
"""The relative difference of two slopes that is a kink, and the slope below which none is seen."""
_ATTEMPTS = 4
"""The number of elements that may be drawn for each that is needed."""

Gradients = dict[str, tuple[NDArray[np.float64], NDArray[np.float64]]]


@dataclass(frozen=True, slots=True)
class GradientSamples:
    """For each input the numeric and the framework's derivative by the chosen elements; ``redrawn`` counts kinks.

    ``scales`` has the largest derivative of the framework by any element of each input.
    """

    derivatives: Gradients
    scales: dict[str, float]
    redrawn: int


def sample_gradients(
    differentiable: Differentiable, operator: Operator, case: Case, check: GradientCheck
) -> GradientSamples:
    """Return derivatives of the operator by elements that a generator chooses by the seed of the case.

    Raises:
        ValueError: Nearly every element is at a kink.
    """
    inputs = {name: values.astype(np.float64) for name, values in draw(operator, case).items()}
    generator = np.random.Generator(np.random.PCG64(case.seed))
    cotangent = generator.standard_normal(differentiable.forward(inputs).shape)
    gradients = differentiable.gradients(inputs, cotangent)
    derivatives: Gradients = {}
    redrawn = 0
    for name, values in inputs.items():
        order = generator.permutation(values.size)
        count = min(check.elements, values.size)
        numeric: dict[int, float] = {}
        for element in order[: count * _ATTEMPTS]:
            if len(numeric) == count:
                break
            derivative = _differentiate(differentiable, inputs, (name, int(element)), cotangent, check.step)
            if derivative is None:
                redrawn += 1
            else:
                numeric[int(element)] = derivative
        if not numeric:
            raise ValueError(f"every element of {name} that was drawn is at a kink of the operator")
        own = gradients[name].reshape(-1)[list(numeric)]
        derivatives[name] = np.array(list(numeric.values())), own.astype(np.float64)
    scales = {name: float(np.abs(gradients[name]).max()) for name in inputs}
    return GradientSamples(derivatives, scales, redrawn)


def gradient_error(numeric: NDArray[np.float64], own: NDArray[np.float64]) -> float:
    """Return the largest difference, relative to the largest numeric derivative of the sample."""
    scale = float(np.abs(numeric).max())
    return float(np.abs(numeric - own).max()) / scale if scale else float(np.abs(own).max())


def _differentiate(
    differentiable: Differentiable,
    inputs: Tensors,
    place: tuple[str, int],
    cotangent: NDArray[np.float64],
    step: float,
) -> float | None:
    """Return the central difference by one element; None at a kink."""
    name, element = place

    def move(distance: float) -> NDArray[np.float64]:
        values = inputs[name].copy()
        values.reshape(-1)[element] += distance
        return differentiable.forward({**inputs, name: values})

    def slope(low: NDArray[np.float64], high: NDArray[np.float64], distance: float) -> float:
        # Outputs are subtracted before they are added up, because most are equal.
        return float(np.sum((high - low) * cotangent)) / distance

    middle, wide = differentiable.forward(inputs), _WIDE * step
    left, right = slope(move(-wide), middle, wide), slope(middle, move(wide), wide)
    largest = max(abs(left), abs(right))
    if largest > _FLAT and abs(left - right) > _BEND * largest:
        return None
    return slope(move(-step), move(step), 2 * step)
