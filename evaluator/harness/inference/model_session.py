"""Calls of a model with its constants and states."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..core.failures import Failure, classify_errors
from ..core.job import Input, Model
from ..predictors import Predictor, Tensors


class Session:
    """A predictor with the constants and states of its model.

    ``predict`` takes the inputs that the dataset feeds and returns the predictions of a call. For a model without
    constants and states it is the predictor's own method, so that a clock times nothing else.
    """

    def __init__(self, predictor: Predictor, model: Model) -> None:
        """Check the constants and states.

        Raises:
            Failure: ``load``: a constant or state does not have the declared shape or type.
        """
        self._model = model
        self._predict = predictor.predict
        self._states: dict[str, NDArray[Any]] = {}
        self._hidden = tuple(port.name for port in model.outputs if port.type == "state")
        self._constants = tuple((port, _constant(port)) for port in model.inputs if port.type == "constant")
        self._repeat: dict[int, Tensors] = {}
        self._sources = tuple((port, str(port.source)) for port in model.inputs if port.type == "state")
        for port, _ in self._sources:
            _zeros(port, 1)
        self.predict = self._predict_with if self._constants or self._hidden else predictor.predict

    @property
    def stateful(self) -> bool:
        """Whether the model has states."""
        return bool(self._sources)

    def restart(self) -> None:
        """Clear every state, for instance after warm-up."""
        self._states.clear()

    def start_sample(self) -> None:
        """Clear the states that are reset for each sample."""
        for port, _ in self._sources:
            if port.reset == "sample":
                self._states.pop(port.name, None)

    def _predict_with(self, batch: Tensors) -> Tensors:
        count = self._count(batch)
        inputs = {**batch, **self._constants_for(count), **self._states}
        for port, _ in self._sources:
            if port.name not in inputs:
                inputs[port.name] = _zeros(port, count)
        outputs = self._predict(inputs)
        for port, source in self._sources:
            self._states[port.name] = _check_state(port, outputs[source], inputs[port.name])
        return {name: values for name, values in outputs.items() if name not in self._hidden}

    def _constants_for(self, count: int) -> Tensors:
        """Return the constants for a call of ``count`` samples."""
        if count not in self._repeat:
            self._repeat[count] = {port.name: _repeat(port, values, count) for port, values in self._constants}
        return self._repeat[count]

    def _count(self, batch: Tensors) -> int:
        """Return the number of samples of the call, from the first input with a batch axis."""
        for port in self._model.inputs:
            if port.is_fed and port.axes.axis is not None:
                return int(batch[port.name].shape[port.axes.axis])
        return self._model.batch or 1


def query(session: Session, calls: Sequence[Tensors]) -> list[Tensors]:
    """Return the answers to the calls of one sample."""
    session.start_sample()
    return [session.predict(call) for call in calls]


def call(session: Session, batch: Tensors, where: str) -> Tensors:
    """Return the answer to one call.

    Raises:
        Failure: ``predict`` or ``out-of-memory``, with the framework's reason.
    """
    with classify_errors("predict", where):
        return session.predict(batch)


def _constant(port: Input) -> NDArray[Any]:
    """Return the value of a constant for one sample."""
    where = f"input {port.name}, value"
    with classify_errors("load", where):
        declared = np.asarray(port.value)
        values = declared.astype(port.dtype)
        if values.dtype.kind != "f" and not np.array_equal(values, declared):
            raise ValueError(f"{port.value} is not of type {port.dtype}")
        shape = port.axes.sample or ()
        if len(shape) != values.ndim or any(
            want not in (None, size) for size, want in zip(values.shape, shape, strict=True)
        ):
            raise ValueError(f"its shape is {list(values.shape)}, but the manifest states {list(shape)}")
        return values


def _repeat(port: Input, values: NDArray[Any], count: int) -> NDArray[Any]:
    if port.axes.axis is None:
        return values
    return np.stack([values] * count, port.axes.axis)


def _zeros(port: Input, count: int) -> NDArray[Any]:
    shape = [*(port.axes.sample or ())]
    if None in shape:
        raise Failure("load", f"input {port.name}: a state starts as zeros, so its shape cannot have a dynamic axis")
    if port.axes.axis is not None:
        shape.insert(port.axes.axis, count)
    return np.zeros([size for size in shape if size is not None], port.dtype)


def _check_state(port: Input, values: NDArray[Any], before: NDArray[Any]) -> NDArray[Any]:
    """Return the state for the next call, which must have the shape and type of the last."""
    if values.shape != before.shape or values.dtype != before.dtype:
        raise ValueError(
            f"output {port.source} is {values.dtype} {list(values.shape)}, "
            f"but state {port.name} is {before.dtype} {list(before.shape)}"
        )
    return values
