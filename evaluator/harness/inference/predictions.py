"""Predictions of a run in safetensors files: writing, reading and splitting by sample.

``predictions.safetensors`` has a tensor per output in the form of ``join_samples``, with the sample as the first axis.
Outputs that boxes are made of are left out; ``detections`` float64 [K, 7] replaces them: sample, class index, score,
x1, y1, x2, y2 in pixels of the original image. ``OUTPUT.geometry`` float64 [samples, 8] describes, for an output of
type mask, how the network's image was made from its original: scale (x, y), offset (x, y), original and new size
(height, width); NaN where the steps do not determine it.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray
from safetensors import safe_open
from safetensors.numpy import save_file

from ..core.failures import Failure, classify_errors
from ..core.job import Model
from ..predictors import Tensors
from ..steps.step_tensor import UNKNOWN_GEOMETRY, Geometry
from .detections import COLUMNS, detect, number_rows


def save_tensors(path: Path, tensors: Mapping[str, NDArray[Any]], metadata: Mapping[str, str] | None = None) -> None:
    """Write ``tensors`` and text ``metadata`` atomically, readable by all users as every result."""
    draft = path.with_name(path.name + ".draft")
    save_file(dict(tensors), draft, None if metadata is None else dict(metadata))
    draft.chmod(0o644)
    draft.replace(path)


def join_samples(name: str, samples: Sequence[NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Join the tensors of all samples; the first axis is the sample.

    Tensors that differ only along their first axis are joined along it, and ``NAME.rows`` has their lengths. For other
    differences the elements are joined in row-major order, and ``NAME.shapes`` has the shapes.

    Raises:
        ValueError: The tensors differ in their number of axes.
    """
    shapes = [values.shape for values in samples]
    if len(set(shapes)) == 1:
        return {name: np.stack(samples)}
    if len({len(shape) for shape in shapes}) > 1:
        raise ValueError("different numbers of axes: " + ", ".join(map(str, sorted(set(shapes))[:3])))
    if len({shape[1:] for shape in shapes}) == 1:
        return {name: np.concatenate(samples), f"{name}.rows": np.asarray([shape[0] for shape in shapes], np.int64)}
    flat = np.concatenate([values.reshape(-1) for values in samples])
    return {name: flat, f"{name}.shapes": np.asarray(shapes, np.int64)}


PREDICTIONS = "predictions.safetensors"
DETECTIONS = "detections"
GEOMETRY = ".geometry"

Prediction = Mapping[str, NDArray[Any]]
_NUMBERS = 8


def check_picture(model: Model) -> None:
    """Raise unless a model that makes boxes has an image input.

    Raises:
        Failure: ``load``: no input is an image.
    """
    if model.detections is not None and model.first_image is None:
        raise Failure("load", "model: boxes are in pixels of a picture, but no input has type image")


def add_detections(model: Model, prediction: Prediction, geometry: Geometry | None) -> Prediction:
    """Return ``prediction``, with the tensor ``detections`` [K, 6] added where the model makes boxes.

    Raises:
        Failure: ``predict``: the outputs make no boxes, or the original of the image cannot be determined.
    """
    if model.detections is None:
        return prediction
    if geometry is None:
        reason = f"{UNKNOWN_GEOMETRY}: code (python) changes size or order of axes, or pad changes a length"
        raise Failure("predict", f"input {model.first_image}: {reason}; resize, pad and center_crop are followed")
    return {**prediction, DETECTIONS: detect(model.detections, prediction, geometry)}


class PredictionRecorder:
    """A collector of the predictions of all samples, in order, in the form of the file."""

    def __init__(self, model: Model) -> None:
        """Start without any prediction of ``model``."""
        self._left_out = model.detections.outputs if model.detections is not None else ()
        self._detects = model.detections is not None
        self._masks = [port.name for port in model.prediction_outputs if port.type == "mask"]
        self._outputs: list[dict[str, NDArray[Any]]] = []
        self._detections: list[NDArray[np.float64]] = []
        self._geometry: list[NDArray[np.float64]] = []

    def add(self, prediction: Prediction, geometry: Geometry | None) -> None:
        """Add one sample, after ``add_detections``."""
        tensors = dict(prediction)
        if self._detects:
            self._detections.append(tensors.pop(DETECTIONS))
        self._outputs.append({name: values for name, values in tensors.items() if name not in self._left_out})
        if self._masks:
            self._geometry.append(_numbers(geometry))

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self._outputs)

    def tensors(self) -> Tensors:
        """Return the content of the file.

        Raises:
            Failure: ``predict``: the samples differ in the number of axes of an output.
        """
        tensors = join_outputs(self._outputs)
        if self._detects:
            tensors[DETECTIONS] = number_rows(self._detections)
        return tensors | {f"{name}{GEOMETRY}": np.asarray(self._geometry) for name in self._masks}


def join_outputs(predictions: Sequence[Prediction]) -> Tensors:
    """Join each output of all samples, as ``join_samples`` does.

    Raises:
        Failure: ``predict``: the samples differ in their number of axes.
    """
    tensors: Tensors = {}
    for name in predictions[0] if predictions else ():
        with classify_errors("predict", f"output {name} of all samples"):
            tensors |= join_samples(name, [prediction[name] for prediction in predictions])
    return tensors


class StoredPredictions:
    """The predictions in a file, by sample."""

    def __init__(self, path: Path, model: Model, names: Sequence[str], count: int) -> None:
        """Read the tensors ``names`` of ``count`` samples, and the geometry of masks.

        Args:
            path: The file.
            model: The model that predicted; it determines which tensors there are.
            names: Outputs, or ``detections``.
            count: The number of samples of the dataset's split.

        Raises:
            Failure: ``predict``: the file is malformed, lacks a tensor, or has another number of samples.
        """
        with classify_errors("predict", PREDICTIONS), safe_open(path, framework="numpy") as file:
            self._samples = {name: _read_samples(file, name, count, model) for name in names}
            masks = [port.name for port in model.prediction_outputs if port.type == "mask" and port.name in names]
            self._geometry = _read_geometry(file, masks[0], count) if masks else [None] * count

    def table(self, name: str) -> NDArray[Any] | None:
        """Return the tensor of all samples, with the sample as the first axis; None if shapes differ."""
        samples: Any = self._samples[name]
        return samples if isinstance(samples, np.ndarray) else None

    def __iter__(self) -> Iterator[tuple[Tensors, Geometry | None]]:
        """Yield the tensors and the geometry of each sample."""
        for number, geometry in enumerate(self._geometry):
            yield {name: samples[number] for name, samples in self._samples.items()}, geometry


def restore_order(
    shuffled: Path, target: Path, model: Model, order: NDArray[np.int64], metadata: Mapping[str, str] | None = None
) -> None:
    """Write predictions in the order of the split.

    Args:
        shuffled: The file of predictions, in the order in which the samples were shown.
        target: The file to write.
        model: The model that predicted; tensors that are not its predictions are dropped.
        order: int64 [samples], the number in the split of each shown sample.
        metadata: The metadata of the file.

    Raises:
        Failure: ``predict``: the file is malformed, lacks a tensor, or has another number of samples.
    """
    left_out = model.detections.outputs if model.detections is not None else ()
    names = [port.name for port in model.prediction_outputs if port.name not in left_out]
    names += [DETECTIONS] if model.detections is not None else []
    positions = np.argsort(order)
    tensors: Tensors = {}
    with classify_errors("predict", PREDICTIONS), safe_open(shuffled, framework="numpy") as file:
        for name in names:
            samples = _read_samples(file, name, len(order), model)
            ordered = [samples[position] for position in positions]
            if model.detections is not None and name == DETECTIONS:
                tensors[name] = number_rows(ordered)
            else:
                tensors |= join_samples(name, ordered)
        for port in model.prediction_outputs:
            if port.type == "mask":
                geometries = _read_geometry(file, port.name, len(order))
                tensors[f"{port.name}{GEOMETRY}"] = np.asarray(
                    [_numbers(geometries[position]) for position in positions]
                )
    save_tensors(target, tensors, metadata)


def split_samples(file: Any, name: str) -> Sequence[NDArray[Any]]:  # noqa: ANN401 - safetensors has no types here
    """Return the tensor ``name`` of each sample, also where samples differ in shape.

    Args:
        file: An open safetensors file.
        name: The tensor, as ``join_samples`` stored it.

    Raises:
        ValueError: The shapes of the samples do not match the tensor.
    """
    values = file.get_tensor(name)
    keys = set(file.keys())
    if f"{name}.rows" in keys:
        rows = _sizes(file.get_tensor(f"{name}.rows"), 1)
        if not values.ndim or sum(rows) != len(values):
            raise ValueError(f"{name}.rows does not add up to the {len(values) if values.ndim else 0} rows of {name}")
        return np.split(values, np.cumsum(rows)[:-1])
    if f"{name}.shapes" in keys:
        shapes = [tuple(shape) for shape in _sizes(file.get_tensor(f"{name}.shapes"), 2)]
        sizes = [int(np.prod(shape, dtype=object)) for shape in shapes]
        if values.ndim != 1 or sum(sizes) != len(values):
            raise ValueError(f"{name}.shapes does not add up to the {values.size} values of {name}")
        parts = np.split(values, np.cumsum(sizes)[:-1].astype(int))
        return [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
    if not values.ndim:
        raise ValueError(f"{name} is a single value")
    return cast(Sequence[NDArray[Any]], values)


def _sizes(values: NDArray[Any], axes: int) -> list[Any]:
    """Return the lengths or shapes of samples as Python integers, which cannot overflow."""
    if values.ndim != axes or values.dtype.kind not in "iu" or (values < 0).any():
        raise ValueError(f"{values.dtype} {list(values.shape)} are not sizes of samples")
    return list(values.tolist())


def _read_samples(file: Any, name: str, count: int, model: Model) -> Sequence[NDArray[Any]]:  # noqa: ANN401 - see above
    if name not in set(file.keys()):
        raise ValueError(f"no tensor {name!r}")
    if model.detections is not None and name == DETECTIONS:
        return _split_detections(file.get_tensor(name), count)
    samples = split_samples(file, name)
    if len(samples) != count:
        raise ValueError(f"{name} has {len(samples)} samples, but the dataset has {count}")
    return samples


def _split_detections(rows: NDArray[Any], count: int) -> list[NDArray[np.float64]]:
    if rows.dtype != np.float64 or rows.ndim != 2 or rows.shape[1] != 1 + COLUMNS or not np.isfinite(rows).all():  # noqa: PLR2004
        raise ValueError(
            f"{DETECTIONS}: {rows.dtype} {list(rows.shape)} is not a finite float64 array [K, {1 + COLUMNS}]"
        )
    numbers = rows[:, 0]
    if len(rows) and (numbers[0] < 0 or numbers[-1] >= count or (np.diff(numbers) < 0).any()):
        raise ValueError(f"{DETECTIONS}: samples are not 0 to {count - 1} in order")
    ends = np.searchsorted(numbers, np.arange(count), side="right")
    starts = np.searchsorted(numbers, np.arange(count), side="left")
    if int((ends - starts).sum()) != len(rows):
        raise ValueError(f"{DETECTIONS}: a sample number is not an integer")
    return [rows[start:end, 1:] for start, end in zip(starts, ends, strict=True)]


def _numbers(geometry: Geometry | None) -> NDArray[np.float64]:
    if geometry is None:
        return np.full(_NUMBERS, np.nan)
    return np.asarray([*geometry.scale, *geometry.offset, *geometry.original, *geometry.size], np.float64)


def _read_geometry(file: Any, name: str, count: int) -> list[Geometry | None]:  # noqa: ANN401 - see above
    values = file.get_tensor(f"{name}{GEOMETRY}")
    if values.dtype != np.float64 or values.shape != (count, _NUMBERS):
        raise ValueError(f"{name}{GEOMETRY}: {values.dtype} {list(values.shape)}, not float64 [{count}, {_NUMBERS}]")
    return [_geometry(row) for row in values.tolist()]


def _geometry(numbers: list[float]) -> Geometry | None:
    if all(number != number for number in numbers):  # noqa: PLR0124 - not a number
        return None
    scale, offset, original, size = (tuple(numbers[at : at + 2]) for at in range(0, _NUMBERS, 2))
    sizes = [*original, *size]
    if not np.isfinite(numbers).all() or any(side < 1 or side != int(side) for side in sizes) or 0 in scale:
        raise ValueError(f"{numbers} do not describe how a picture was transformed")
    return Geometry(
        (scale[0], scale[1]),
        (offset[0], offset[1]),
        (int(original[0]), int(original[1])),
        (int(size[0]), int(size[1])),
    )
