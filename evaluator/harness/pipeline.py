"""From a stored sample to what a model takes, and from what a model returns to the prediction of a sample."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .datasets import Samples
from .failures import Failure, failing
from .job import Input, Model, Output, Step
from .predictors import Tensors
from .steps import STEPS, Tensor
from .steps.picture import Source


def prepared(model: Model, samples: Samples, number: int) -> dict[str, NDArray[Any]]:
    """The sample of that number after the steps of each input, by the input's name.

    Raises:
        Failure: ``load``: it cannot be read; ``step``: a step cannot be done, or the result is not of the declared
            dtype, shape and layout.
    """
    sample = f"sample {number} ({samples.names[number]})"
    with failing("load", sample):
        source = samples.read(number)
    found = {}
    for port in model.inputs:
        where = f"{sample}, input {port.name}"
        tensor = _follow(port.steps, source, where)
        _check_input(port, tensor, where)
        found[port.name] = tensor.values
    return found


def stack(model: Model, samples: Sequence[Mapping[str, NDArray[Any]]]) -> Tensors:
    """What one call takes; where the graph fixes the batch, its rest is the last of ``samples``.

    Raises:
        Failure: ``step``: samples of different shapes.
    """
    size = model.batch or len(samples)
    padded = [*samples, *[samples[-1]] * (size - len(samples))]
    tensors: Tensors = {}
    for port in model.inputs:
        values = [sample[port.name] for sample in padded]
        with failing("step", f"input {port.name}, a batch of {size}"):
            axis = port.axes.axis
            tensors[port.name] = np.ascontiguousarray(values[0]) if axis is None else np.stack(values, axis)
    return tensors


def answers(outputs: Sequence[Output], tensors: Tensors, count: int, where: str) -> list[dict[str, NDArray[Any]]]:
    """The first ``count`` samples' predictions: each output after its steps, by the output's name.

    Raises:
        Failure: ``predict``: not the declared dtype or shape; ``step``: a step cannot be done.
    """
    found: list[dict[str, NDArray[Any]]] = [{} for _ in range(count)]
    for port in outputs:
        place = f"{where}, output {port.name}"
        rows = _rows(port, tensors[port.name], count, place)
        for prediction, row in zip(found, rows, strict=True):
            prediction[port.name] = _follow(port.steps, Tensor(row), place).values
    return found


def _follow(steps: Sequence[Step], start: Source | Tensor, where: str) -> Tensor:
    tensor: Any = start
    for index, step in enumerate(steps):
        place = f"{where}, steps[{index}].{step.name}"
        if step.name not in STEPS:
            raise Failure("step", f"{place}: no such step")
        with failing("step", place):
            tensor = STEPS[step.name](tensor, **step.arguments)
    if not isinstance(tensor, Tensor):
        raise Failure("step", f"{where}: the first step of a picture is decode")
    return tensor


def _check_input(port: Input, tensor: Tensor, where: str) -> None:
    values, layout = tensor
    wanted = port.layout.replace("N", "") if port.layout else layout
    if values.dtype == port.dtype and _fits(values.shape, port.axes.sample) and layout in (None, wanted):
        return
    declared = list(port.axes.sample) if port.axes.sample is not None else "any shape"
    raise Failure(
        "step",
        f"{where}: the steps give {values.dtype} {list(values.shape)} {layout or ''}".rstrip()
        + f", the manifest says {port.dtype} {declared} {wanted or ''}".rstrip(),
    )


def _rows(port: Output, values: NDArray[Any], count: int, where: str) -> list[NDArray[Any]]:
    if port.dtype is not None and values.dtype != port.dtype:
        raise Failure("predict", f"{where}: the model returns {values.dtype}, the manifest says {port.dtype}")
    axis = port.axes.axis
    if axis is None:
        rows = [values]
    elif values.ndim <= axis or values.shape[axis] < count:
        raise Failure("predict", f"{where}: {list(values.shape)} has no {count} samples on axis {axis}")
    else:
        rows = list(np.moveaxis(values, axis, 0)[:count])
    if not _fits(rows[0].shape, port.axes.sample):
        declared = list(port.axes.sample or ())
        raise Failure("predict", f"{where}: a sample is {list(rows[0].shape)}, the manifest says {declared}")
    return rows


def _fits(shape: tuple[int, ...], declared: tuple[int | None, ...] | None) -> bool:
    return declared is None or (
        len(shape) == len(declared) and all(want in (None, size) for size, want in zip(shape, declared, strict=True))
    )
