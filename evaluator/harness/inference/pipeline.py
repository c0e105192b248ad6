"""Bind a model's steps to its inputs and outputs: samples to calls, answers to predictions; with prefetching."""

import threading
import time
from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from ..core.failures import Failure, classify_errors
from ..core.job import Input, Job, Model, Output
from ..datasets import Samples
from ..predictors import CPU, Tensors
from ..steps import BoundStep, Kind, Source, Tensor, bind
from ..steps.step_tensor import Geometry

_Result = TypeVar("_Result")


class Prefetcher(Generic[_Result]):
    """The results of ``make(0)``, ``make(1)``, … up to ``count``, in order, computed ahead by ``threads`` threads.

    The caller is one of the threads: while its next result is not ready, it computes pending ones itself. At most
    ``depth`` results are started and not yet yielded. Without other threads each result is computed on demand.
    ``busy`` is the seconds spent in ``make``, summed over the threads; ``waited`` is the seconds that the caller waited
    for results. An exception of ``make`` is raised in place of its result, and nothing more is started.
    """

    def __init__(self, make: Callable[[int], _Result], count: int, threads: int, depth: int) -> None:
        """Start no work yet; iteration does."""
        self.busy = 0.0
        self.waited = 0.0
        self._make = make
        self._count = count
        self._others = max(threads - 1, 0)
        self._depth = max(depth, threads) if self._others else 1
        self._lock = threading.Lock()
        self._pending: deque[tuple[int, Future[_Result]]] = deque()

    def __iter__(self) -> Iterator[_Result]:
        """Yield the results in order."""
        begun: deque[Future[_Result]] = deque()
        with ThreadPoolExecutor(self._others or 1, "ahead") as pool:
            try:
                for number in range(self._count):
                    begun.append(Future())
                    self._pending.append((number, begun[-1]))
                    if self._others:
                        pool.submit(self._take)
                    if len(begun) == self._depth:
                        yield self._next(begun.popleft())
                yield from map(self._next, begun)
            finally:
                self._pending.clear()

    def _take(self) -> bool:
        """Compute the first pending result; return False if none is pending."""
        try:
            number, future = self._pending.popleft()
        except IndexError:
            return False
        start = time.perf_counter()
        try:
            future.set_result(self._make(number))
        except BaseException as error:  # noqa: BLE001 - raised in place of the result
            future.set_exception(error)
        with self._lock:
            self.busy += time.perf_counter() - start
        return True

    def _next(self, future: Future[_Result]) -> _Result:
        while not future.done() and self._take():
            pass
        start = time.perf_counter()
        result = future.result()
        self.waited += time.perf_counter() - start
        return result


Prediction = dict[str, NDArray[Any]]


@dataclass(frozen=True, slots=True)
class PreparedSample:
    """One sample after the steps of its inputs: the inputs of each call, without constants and states.

    ``geometry`` describes, by input name, how each image was made from its original.
    """

    calls: tuple[dict[str, NDArray[Any]], ...]
    geometry: Mapping[str, Geometry]


class Pipeline:
    """The steps of a model, bound to its files."""

    def __init__(self, model: Model, folder: Path) -> None:
        """Bind the steps of ``model`` to the files in ``folder``.

        Raises:
            Failure: ``load``: a step is unknown, or a file is missing.
        """
        self._model = model
        self._fed = tuple(port for port in model.inputs if port.is_fed)
        self._bound: dict[str, tuple[BoundStep, ...]] = {}
        self._finishing: dict[str, tuple[BoundStep, ...]] = {}
        for port in self._fed:
            with classify_errors("load", f"input {port.name}"):
                self._bound[port.name] = bind(cast(Kind, port.type), port.steps, folder)
        self._each = {name for name, steps in self._bound.items() if any(step.each for step in steps)}
        for output in model.prediction_outputs:
            with classify_errors("load", f"output {output.name}"):
                self._finishing[output.name] = bind("output", output.steps, folder)

    @property
    def takes_several_calls(self) -> bool:
        """Whether a sample takes several calls, one per frame."""
        return bool(self._each)

    @property
    def runs_code(self) -> bool:
        """Whether a step is code that came with the model."""
        ports: list[Input | Output] = [*self._fed, *self._model.prediction_outputs]
        return any(step.name == "python" for port in ports for step in port.steps)

    @property
    def is_single_sample(self) -> bool:
        """Whether a call takes only one sample.

        That is so where a tensor has no batch axis, a sample takes several calls, or the model has a state, which the
        next call continues.
        """
        ports: list[Input | Output] = [*self._fed, *self._model.prediction_outputs]
        stateful = any(port.type == "state" for port in self._model.inputs)
        return self.takes_several_calls or stateful or any(port.axes.axis is None for port in ports)

    def batch_size(self, requested: int) -> int:
        """Return the number of samples per call: one where samples go alone, else the graph's, else ``requested``."""
        return 1 if self.is_single_sample else self._model.batch or requested

    def prepare(self, samples: Samples, number: int) -> PreparedSample:
        """Read and prepare the sample ``number``.

        Raises:
            Failure: ``load``: the sample cannot be read. ``step``: a step fails, or its result does not have the
                declared dtype, shape and layout.
        """
        sample = f"sample {number} ({samples.names[number]})"
        with classify_errors("load", sample):
            fields = samples.read(number)
        rows: dict[str, list[Tensor]] = {}
        for port in self._fed:
            where = f"{sample}, input {port.name}"
            rows[port.name] = _prepare_input(port, self._bound[port.name], _source(port, fields, where), where)
            for tensor in rows[port.name]:
                _check_input(port, tensor, where)
        calls = _calls(rows, self._each, sample)
        return PreparedSample(calls, {name: row[0].geometry for name, row in rows.items() if row[0].geometry})

    def stack(self, calls: Sequence[Mapping[str, NDArray[Any]]]) -> Tensors:
        """Stack several samples into the tensors of one call, in C order; a fixed batch is padded with the last sample.

        Raises:
            Failure: ``step``: the samples differ in shape.
        """
        size = self._model.batch or len(calls)
        padded = [*calls, *[calls[-1]] * (size - len(calls))]
        tensors: Tensors = {}
        for port in self._fed:
            values = [call[port.name] for call in padded]
            with classify_errors("step", f"input {port.name}, a batch of {size}"):
                axis = port.axes.axis
                # Always copy: a framework must not share memory with the dataset.
                if axis is None:
                    tensors[port.name] = np.array(values[0], order="C")
                elif size == 1:
                    tensors[port.name] = np.expand_dims(np.array(values[0], order="C"), axis)
                else:
                    tensors[port.name] = np.asarray(np.stack(values, axis), order="C")
        return tensors

    def answers(self, tensors: Tensors, count: int, where: str) -> list[Prediction]:
        """Return the predictions of the first ``count`` samples of a call: each output after its steps, by name.

        Args:
            tensors: The answer to the call.
            count: The number of samples, without padding.
            where: The name of the call in messages.

        Raises:
            Failure: ``predict``: an output does not have the declared dtype or shape. ``step``: a step fails.
        """
        predictions: list[Prediction] = [{} for _ in range(count)]
        for port in self._model.prediction_outputs:
            location = f"{where}, output {port.name}"
            rows = _rows(port, tensors[port.name], count, location)
            for prediction, row in zip(predictions, rows, strict=True):
                prediction[port.name] = _apply_steps(self._finishing[port.name], Tensor(row), location).values
        return predictions

    def combine(self, answers: Sequence[Prediction]) -> Prediction:
        """Combine the answers to the calls of a sample: stack them on a new first axis, then reduce it.

        Raises:
            Failure: ``predict``: the answers differ in shape.
        """
        if not self.takes_several_calls:
            return answers[0]
        combined: Prediction = {}
        for port in self._model.prediction_outputs:
            with classify_errors("predict", f"output {port.name}, the answers to {len(answers)} calls"):
                combined[port.name] = _REDUCTIONS[port.reduce](np.stack([answer[port.name] for answer in answers]))
        return combined


def trace_geometry(model: Model, source: Source, where: str) -> Geometry | None:
    """Return how the steps, except code steps, make the model's first image from its original.

    Args:
        model: The model, whose files are not needed.
        source: The sample as the dataset stores it.
        where: The name of the sample in messages.

    Raises:
        Failure: ``load``, ``step``: a step cannot be bound, or fails.
    """
    port = next(port for port in model.inputs if port.name == model.first_image)
    with classify_errors("load", f"input {port.name}"):
        steps = bind("image", [step for step in port.steps if step.name != "python"], Path())
    return _apply_steps(steps, source, where).geometry


def find_source(model: Model, fields: Mapping[str, Source], where: str) -> Source:
    """Return the field of a sample that feeds the model's first image.

    Raises:
        Failure: ``load``: the dataset has no such field.
    """
    return _source(next(port for port in model.inputs if port.name == model.first_image), fields, where)


def _mean(calls: NDArray[Any]) -> NDArray[Any]:
    """Return the mean, computed in float64, in the calls' floating type; float32 for integers."""
    dtype = calls.dtype if calls.dtype.kind == "f" else np.dtype(np.float32)
    return np.asarray(calls.mean(axis=0, dtype=np.float64)).astype(dtype)


_REDUCTIONS: Mapping[str | None, Callable[[NDArray[Any]], NDArray[Any]]] = {
    "max": lambda calls: np.asarray(calls.max(axis=0)),
    "mean": _mean,
    "last": lambda calls: calls[-1],
    "none": lambda calls: calls,
    None: lambda calls: calls,
}


def _source(port: Input, fields: Mapping[str, Source], where: str) -> Source:
    """Return the field that feeds ``port``: the field that it names, else the only field."""
    field_names = ", ".join(sorted(fields))
    if port.field is not None:
        if port.field not in fields:
            raise Failure("load", f"{where}: the dataset has no field {port.field!r}; it has {field_names}")
        return fields[port.field]
    if len(fields) != 1:
        raise Failure("load", f"{where}: it names no field, and the dataset has {field_names}")
    return next(iter(fields.values()))


def _start(port: Input, source: Source, where: str) -> Source | Tensor:
    """Return the input of the first step: an array for type tensor, else the encoded source."""
    if port.type != "tensor":
        return source
    if not isinstance(source, np.ndarray):
        kind = "a text" if isinstance(source, str) else "an encoded file"
        raise Failure("load", f"{where}: its type is tensor, and the dataset holds {kind}")
    return Tensor(source)


def _prepare_input(port: Input, steps: Sequence[BoundStep], source: Source, where: str) -> list[Tensor]:
    """Return the tensors of ``source`` by call: one, unless a step makes several."""
    start = _start(port, source, where)
    splits = [index for index, step in enumerate(steps) if step.each]
    cut = splits[0] + 1 if splits else len(steps)
    tensor = _apply_steps(steps[:cut], start, where)
    if not splits:
        return [tensor]
    return [_apply_steps(steps[cut:], tensor._replace(values=row), where, cut) for row in tensor.values]


def _calls(
    rows: Mapping[str, Sequence[Tensor]], each: Container[str], where: str
) -> tuple[dict[str, NDArray[Any]], ...]:
    """Return the inputs of each call; an input with a single tensor repeats it in every call."""
    counts = {name: len(tensors) for name, tensors in rows.items() if name in each}
    if len(set(counts.values())) > 1 or 0 in counts.values():
        raise Failure(
            "step", f"{where}: the inputs have " + ", ".join(f"{n} frames ({name})" for name, n in counts.items())
        )
    number = next(iter(counts.values()), 1)
    # A transposed image is a view with other strides: frameworks would copy it in every call, or compute differently.
    values = {name: [np.asarray(tensor.values, order="C") for tensor in tensors] for name, tensors in rows.items()}
    return tuple(
        {name: tensors[index if name in each else 0] for name, tensors in values.items()} for index in range(number)
    )


def _apply_steps(steps: Sequence[BoundStep], start: Source | Tensor, where: str, first: int = 0) -> Tensor:
    """Apply ``steps`` to ``start``; ``first`` is the index of the first step in the manifest."""
    tensor: Any = start
    for index, step in enumerate(steps, first):
        with classify_errors("step", f"{where}, steps[{index}].{step.name}"):
            tensor = step.apply(tensor)
    if not isinstance(tensor, Tensor):
        raise Failure("step", f"{where}: the first step of what is stored encoded is decode")
    return tensor


def _check_input(port: Input, tensor: Tensor, where: str) -> None:
    values, layout = tensor.values, tensor.layout
    expected_layout = port.layout.replace("N", "") if port.layout else layout
    if values.dtype == port.dtype and _fits(values.shape, port.axes.sample) and layout in (None, expected_layout):
        return
    declared = list(port.axes.sample) if port.axes.sample is not None else "any shape"
    raise Failure(
        "step",
        f"{where}: the steps give {values.dtype} {list(values.shape)} {layout or ''}".rstrip()
        + f", the manifest says {port.dtype} {declared} {expected_layout or ''}".rstrip(),
    )


def _rows(port: Output, values: NDArray[Any], count: int, where: str) -> list[NDArray[Any]]:
    if not isinstance(values, np.ndarray | np.generic):  # a sequence or a map of ONNX, as ZipMap makes
        raise Failure("predict", f"{where}: the model returns a {type(values).__name__}, which is no tensor")
    if port.dtype is not None and values.dtype != port.dtype:
        raise Failure("predict", f"{where}: the model returns {values.dtype}, the manifest says {port.dtype}")
    axis = port.axes.axis
    if axis is None:
        rows = [values]
    elif values.ndim <= axis or values.shape[axis] < count:
        raise Failure("predict", f"{where}: {list(values.shape)} has no {count} samples on axis {axis}")
    elif values.shape[axis] != (port.axes.size or values.shape[axis]):
        reason = f"{list(values.shape)} has {values.shape[axis]} samples on axis {axis}"
        raise Failure("predict", f"{where}: {reason}, the manifest says {port.axes.size}")
    else:
        rows = list(values[:count] if axis == 0 else np.moveaxis(values, axis, 0)[:count])
    if not _fits(rows[0].shape, port.axes.sample):
        declared = list(port.axes.sample or ())
        raise Failure("predict", f"{where}: a sample is {list(rows[0].shape)}, the manifest says {declared}")
    return rows


def _fits(shape: tuple[int, ...], declared: tuple[int | None, ...] | None) -> bool:
    return declared is None or (
        len(shape) == len(declared) and all(want in (None, size) for size, want in zip(shape, declared, strict=True))
    )


def count_prefetch_threads(pipeline: Pipeline, job: Job) -> int:
    """Return the number of threads that prepare samples, the caller included: one per CPU, as in every runtime.

    On an accelerator it is one more, because the caller mostly waits for the accelerator. It is 0 with one CPU, where
    nothing is gained, and with code steps, which may not be thread-safe.
    """
    if job.threads == 1 or pipeline.runs_code:
        return 0
    return job.threads + (job.device != CPU)
