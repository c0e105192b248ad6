"""``job.json``, read and checked.

Its schema has a major number alone: what a harness of another major would misread is refused, not guessed.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from .job import (
    QUALITY_METRICS,
    TIME_METRICS,
    Accuracy,
    Axes,
    Dataset,
    File,
    Input,
    Job,
    Model,
    Output,
    Seeds,
    SingleStream,
    Step,
)

SCHEMA = 1

_PREDICTOR = re.compile(r"[a-z][a-z0-9_]*")
_Number = TypeVar("_Number", int, float)


class JobError(Exception):
    """The job cannot be understood: a fault of what wrote it, so no result of a run."""


def read_job(path: Path) -> Job:
    """The job that the file holds.

    Raises:
        JobError: it cannot be read, is of another schema, or asks for what this harness has not.
    """
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise JobError(f"{path}: {error}") from error
    if not isinstance(document, dict):
        raise JobError(f"{path}: no JSON object")
    if document.get("schema") != SCHEMA:
        raise JobError(f"{path}: schema {document.get('schema')!r}, this harness reads {SCHEMA}")
    return parse_job(document)


def parse_job(document: Mapping[str, Any]) -> Job:
    """Raises ``JobError`` with the path of the key that is wrong."""
    trace = document.get("trace", "none")
    if trace != "none":
        raise JobError(f"trace: {trace!r} is not built")
    metrics = tuple(_get(document, "metrics", list, ""))
    for index, name in enumerate(metrics):
        if name not in QUALITY_METRICS + TIME_METRICS:
            raise JobError(f"metrics[{index}]: {name!r} is not built")
    job = Job(
        model=_model(_get(document, "model", dict, "")),
        dataset=_dataset(_get(document, "dataset", dict, "")),
        scenario=_scenario(_get(document, "scenario", dict, "")),
        metrics=metrics,
        threads=_at_least(1, _get(document, "threads", int, ""), "threads"),
        seeds=_seeds(_get(document, "seeds", dict, "")),
        device=_optional(document, "device", str, "") or "cpu",
    )
    if job.quality_metrics and not any(output.type.startswith("class-") for output in job.model.outputs):
        raise JobError("metrics: a quality metric needs an output of type class-scores or class-index")
    return job


def _model(table: Mapping[str, Any]) -> Model:
    predictor = _get(table, "predictor", str, "model")
    if not _PREDICTOR.fullmatch(predictor):
        raise JobError(f"model.predictor: {predictor!r} is no name of a predictor")
    inputs = tuple(_input(entry, f"model.inputs[{i}]") for i, entry in enumerate(_get(table, "inputs", list, "model")))
    outputs = _get(table, "outputs", list, "model")
    files = _get(table, "files", list, "model")
    sizes = {port.axes.size for port in inputs if port.axes.size is not None}
    if len(sizes) > 1:
        raise JobError(f"model.inputs: their batches differ: {sorted(sizes)}")
    return Model(
        format=_get(table, "format", str, "model"),
        predictor=predictor,
        signature=_optional(table, "signature", str, "model"),
        inputs=inputs,
        outputs=tuple(_output(entry, f"model.outputs[{i}]") for i, entry in enumerate(outputs)),
        files=tuple(
            File(_get(entry, "path", str, f"model.files[{i}]"), _get(entry, "role", str, f"model.files[{i}]"))
            for i, entry in enumerate(files)
        ),
    )


def _input(table: Mapping[str, Any], where: str) -> Input:
    kind = _get(table, "type", str, where)
    if kind != "image":
        raise JobError(f"{where}.type: {kind!r} is not built")
    field = table.get("field", "image")
    if field != "image":
        raise JobError(f"{where}.field: the dataset has the field 'image' alone, not {field!r}")
    axes = _axes(table, where)
    if axes is None:
        raise JobError(f"{where}.shape: no axis is null and batch_axis is absent")
    return Input(
        name=_get(table, "name", str, where),
        dtype=_get(table, "dtype", str, where),
        layout=_optional(table, "layout", str, where),
        axes=axes,
        steps=_steps(_get(table, "steps", list, where), f"{where}.steps"),
    )


def _output(table: Mapping[str, Any], where: str) -> Output:
    threshold = _optional(table, "threshold", (int, float), where)
    return Output(
        name=_get(table, "name", str, where),
        type=_get(table, "type", str, where),
        dtype=_optional(table, "dtype", str, where),
        axes=_axes(table, where) or Axes(0, None, None),
        label_offset=_optional(table, "label_offset", int, where) or 0,
        threshold=None if threshold is None else float(threshold),
        steps=_steps(_optional(table, "steps", list, where) or [], f"{where}.steps"),
    )


def _axes(table: Mapping[str, Any], where: str) -> Axes | None:
    """None where neither ``shape`` nor ``batch_axis`` says which axis is the batch."""
    shape: Sequence[Any] | None = _optional(table, "shape", list, where)
    declared = table.get("batch_axis")
    if declared == "none":
        return Axes(None, 1, None if shape is None else _sizes(shape))
    axis = declared if declared is not None else (shape.index(None) if shape and None in shape else None)
    if axis is None:
        return None
    if not isinstance(axis, int) or axis < 0 or (shape is not None and axis >= len(shape)):
        raise JobError(f"{where}.batch_axis: {axis!r} is no axis of {shape}")
    if shape is None:
        return Axes(axis, None, None)
    size = shape[axis]
    return Axes(axis, size if isinstance(size, int) else None, _sizes([*shape[:axis], *shape[axis + 1 :]]))


def _sizes(shape: Sequence[Any]) -> tuple[int | None, ...]:
    """A name is a free axis."""
    return tuple(size if isinstance(size, int) else None for size in shape)


def _steps(entries: Sequence[Any], where: str) -> tuple[Step, ...]:
    steps = []
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict) or len(entry) != 1:
            raise JobError(f"{where}[{index}]: a step has one key, its name")
        ((name, arguments),) = entry.items()
        if not isinstance(arguments, dict):
            raise JobError(f"{where}[{index}].{name}: no table of arguments")
        steps.append(Step(name, arguments))
    return tuple(steps)


def _dataset(table: Mapping[str, Any]) -> Dataset:
    return Dataset(
        format=_get(table, "format", str, "dataset"),
        split=_get(table, "split", dict, "dataset"),
        labels=_optional(table, "labels", str, "dataset"),
    )


def _scenario(table: Mapping[str, Any]) -> Accuracy | SingleStream:
    name = _get(table, "name", str, "scenario")
    warmup = _at_least(0, _get(table, "warmup", int, "scenario"), "scenario.warmup")
    if name == "accuracy":
        return Accuracy(warmup, _at_least(1, _get(table, "batch", int, "scenario"), "scenario.batch"))
    if name == "single_stream":
        queries = _at_least(1, _get(table, "min_queries", int, "scenario"), "scenario.min_queries")
        duration = float(_get(table, "min_duration", (int, float), "scenario"))
        return SingleStream(warmup, queries, _at_least(0.0, duration, "scenario.min_duration"))
    raise JobError(f"scenario.name: {name!r} is not built")


def _seeds(table: Mapping[str, Any]) -> Seeds:
    values = {key: _get(table, key, int, "seeds") for key in ("qsl", "sample_index", "schedule")}
    for key, value in values.items():
        # LoadGen's generator takes 32 bits and drops the rest in silence.
        if not 0 <= value < 1 << 32:
            raise JobError(f"seeds.{key}: {value} is no 32-bit number")
    return Seeds(**values)


def _get(table: Mapping[str, Any], key: str, kind: Any, where: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    value = _optional(table, key, kind, where)
    if value is None:
        raise JobError(f"{_path(where, key)}: absent")
    return value


def _optional(table: Any, key: str, kind: Any, where: str) -> Any:  # noqa: ANN401 - whatever JSON holds
    if not isinstance(table, dict):
        raise JobError(f"{where}: no table")
    value = table.get(key)
    if value is not None and (not isinstance(value, kind) or isinstance(value, bool)):
        raise JobError(f"{_path(where, key)}: {value!r} is of a wrong type")
    return value


def _at_least(least: _Number, value: _Number, where: str) -> _Number:
    if value < least:
        raise JobError(f"{where}: {value} is less than {least}")
    return value


def _path(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key
