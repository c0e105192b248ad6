"""Parser of job.json, with checks of every field.

The schema has a major number only. A job with another major number is refused, because it could be misread.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast, get_args

from .distributed_job import DistributedJob, parse_distributed_job
from .job import (
    CLASS_METRICS,
    QUALITY_METRICS,
    TIME_METRICS,
    Axes,
    Code,
    Dataset,
    Detections,
    File,
    GoldenTask,
    Input,
    Job,
    Model,
    Output,
    Seeds,
    Stage,
    Step,
    Suppression,
    Tolerance,
    TraceLevel,
)
from .operator_job import OperatorJob, parse_operator_job
from .scenarios import Accuracy, JobError, check_minimum, parse_scenario, read_optional, read_required
from .training_job import TrainingJob, parse_training_job

AnyJob = Job | OperatorJob | TrainingJob | DistributedJob
"""A job of any level."""
_INPUTS = ("image", "audio", "text", "tensor", "constant", "state")
_OUTPUTS = ("class-scores", "class-index", "tensor", "value", "mask", "boxes", "box-scores", "state")
_RESETS = ("sample", "never")
_REDUCTIONS = ("max", "mean", "last", "none")


def read_input(table: Mapping[str, Any], where: str) -> Input:
    """Read an input of the model.

    Raises:
        JobError: A key is missing or wrong; the message has its path. This holds for every function here.
    """
    kind = _one_of(_INPUTS, read_required(table, "type", str, where), f"{where}.type")
    axes = _axes(table, where)
    if axes is None:
        raise JobError(f"{where}.shape: no axis is null and batch_axis is absent")
    state = kind == "state"
    if state:
        _one_of(("zeros",), read_required(table, "initial", str, where), f"{where}.initial")
    if kind == "constant" and "value" not in table:
        raise JobError(f"{where}.value: absent")
    steps = (read_optional if kind in ("tensor", "constant", "state") else read_required)(table, "steps", list, where)
    return Input(
        name=read_required(table, "name", str, where),
        type=kind,
        dtype=read_required(table, "dtype", str, where),
        layout=read_optional(table, "layout", str, where),
        axes=axes,
        steps=_steps(steps or [], f"{where}.steps"),
        field=read_optional(table, "field", str, where),
        value=table.get("value"),
        source=read_required(table, "from", str, where) if state else None,
        reset=_one_of(_RESETS, read_required(table, "reset", str, where), f"{where}.reset") if state else None,
        tolerance=_tolerance(table, where),
    )


def read_output(table: Mapping[str, Any], where: str) -> Output:
    """Read an output of the model."""
    threshold = read_optional(table, "threshold", (int, float), where)
    reduce = read_optional(table, "reduce", str, where)
    return Output(
        name=read_required(table, "name", str, where),
        type=_one_of(_OUTPUTS, read_required(table, "type", str, where), f"{where}.type"),
        dtype=read_optional(table, "dtype", str, where),
        axes=_axes(table, where) or _output_axes(table),
        label_offset=read_optional(table, "label_offset", int, where) or 0,
        threshold=None if threshold is None else float(threshold),
        steps=_steps(read_optional(table, "steps", list, where) or [], f"{where}.steps"),
        reduce=None if reduce is None else _one_of(_REDUCTIONS, reduce, f"{where}.reduce"),
        tolerance=_tolerance(table, where),
        allow_non_finite=read_optional(table, "allow_non_finite", bool, where) or False,
    )


def _tolerance(table: Mapping[str, Any], where: str) -> Tolerance | None:
    tolerance = read_optional(table, "tolerance", dict, where)
    if tolerance is None:
        return None
    absolute, relative = (
        read_required(tolerance, key, (int, float), f"{where}.tolerance") for key in ("absolute", "relative")
    )
    return Tolerance(float(absolute), float(relative))


def _one_of(choices: Sequence[str], value: str, where: str) -> str:
    if value not in choices:
        raise JobError(f"{where}: {value!r} is not supported")
    return value


def _axes(table: Mapping[str, Any], where: str) -> Axes | None:
    """Return the axes of a tensor; None where neither ``shape`` nor ``batch_axis`` defines the batch axis."""
    shape: Sequence[Any] | None = read_optional(table, "shape", list, where)
    declared = table.get("batch_axis")
    if declared == "none":
        return Axes(None, 1, None if shape is None else _sizes(shape))
    axis = declared if declared is not None else (shape.index(None) if shape and None in shape else None)
    if axis is None:
        return None
    return _batched(shape, axis, where)


def _output_axes(table: Mapping[str, Any]) -> Axes:
    """Return the axes of an output without a declared batch axis: axis 0, if the output has axes."""
    shape: Sequence[Any] | None = table.get("shape")
    return Axes(None, 1, ()) if shape is not None and not shape else _batched(shape, 0, "")


def _batched(shape: Sequence[Any] | None, axis: object, where: str) -> Axes:
    if not isinstance(axis, int) or axis < 0 or (shape is not None and axis >= len(shape)):
        raise JobError(f"{where}.batch_axis: {axis!r} is not an axis of {shape}")
    if shape is None:
        return Axes(axis, None, None)
    size = shape[axis]
    return Axes(axis, size if isinstance(size, int) else None, _sizes([*shape[:axis], *shape[axis + 1 :]]))


def _sizes(shape: Sequence[Any]) -> tuple[int | None, ...]:
    """Return the sizes of axes, with None for a dynamic axis, whose size is a name or null."""
    return tuple(size if isinstance(size, int) else None for size in shape)


def _steps(entries: Sequence[Any], where: str) -> tuple[Step, ...]:
    steps = []
    for index, entry in enumerate(entries):
        if not isinstance(entry, dict) or len(entry) != 1:
            raise JobError(f"{where}[{index}]: a step has one key, its name")
        ((name, arguments),) = entry.items()
        if not isinstance(arguments, dict):
            raise JobError(f"{where}[{index}].{name}: expected a table of arguments")
        steps.append(Step(name, arguments))
    return tuple(steps)


SCHEMA = 1

_CLASSES = ("class-scores", "class-index")
_JUDGED = {"top1": _CLASSES, "top5": _CLASSES, "miou": ("mask",), "mae": ("value",), "rmse": ("value",)}
_JUDGED |= dict.fromkeys(CLASS_METRICS, _CLASSES)
"""The types of outputs to which a metric applies."""
_DETECTING = ("map", "map_50")
_PREDICTOR = re.compile(r"[a-z][a-z0-9_]*")


def read_job(path: Path) -> AnyJob:
    """Read the job in the file ``path``.

    Raises:
        JobError: The file cannot be read, has another schema, or requests something that this harness does not support.
    """
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise JobError(f"{path}: {error}") from error
    if not isinstance(document, dict):
        raise JobError(f"{path}: not a JSON object")
    if document.get("schema") != SCHEMA:
        raise JobError(f"{path}: schema {document.get('schema')!r}, this harness reads {SCHEMA}")
    if "operator" in document:
        return parse_operator_job(document)
    if "distribution" in document:
        return parse_distributed(document)
    return parse_training(document) if "network" in document else parse_job(document)


def parse_training(document: Mapping[str, Any]) -> TrainingJob:
    """Parse the content of a job.json with a recipe and a target. Raise as ``parse_job``."""
    return parse_training_job(document, _parse_evaluation(document))


def parse_distributed(document: Mapping[str, Any]) -> DistributedJob:
    """Parse the content of a job.json with a recipe and a distribution. Raise as ``parse_job``."""
    return parse_distributed_job(document, _parse_evaluation(document))


def _parse_evaluation(document: Mapping[str, Any]) -> Job:
    evaluation = read_required(document, "evaluation", dict, "")
    isolation = read_optional(document, "isolation", str, "") or ""
    return parse_job({**evaluation, "isolation": isolation})


def parse_job(document: Mapping[str, Any]) -> Job:
    """Parse the content of job.json.

    Raises:
        JobError: A key is missing or wrong; the message has its path.
    """
    metrics = tuple(read_required(document, "metrics", list, ""))
    for index, name in enumerate(metrics):
        if name not in QUALITY_METRICS + TIME_METRICS:
            raise JobError(f"metrics[{index}]: {name!r} is not supported")
    job = Job(
        model=_model(read_required(document, "model", dict, ""), read_optional(document, "task", str, "") or "tensor"),
        dataset=_dataset(read_required(document, "dataset", dict, "")),
        scenario=parse_scenario(read_required(document, "scenario", dict, "")),
        metrics=metrics,
        threads=check_minimum(1, read_required(document, "threads", int, ""), "threads"),
        seeds=_seeds(read_required(document, "seeds", dict, "")),
        device=read_optional(document, "device", str, "") or "cpu",
        golden=_golden(document.get("golden")),
        stage=_stage(document),
        order_seed=read_optional(document, "order_seed", str, "") or "",
        lock_fingerprint=read_optional(document, "lock_fingerprint", str, "") or "",
        trace=_trace(document),
        isolation=read_optional(document, "isolation", str, "") or "",
    )
    if job.trace != "none" and isinstance(job.scenario, Accuracy):
        raise JobError("trace: a scenario that times calls is needed, but accuracy is requested")
    for metric in job.quality_metrics:
        _check_judged(metric, job.model)
    return job


def _check_judged(metric: str, model: Model) -> None:
    """Raise unless the model has the outputs that ``metric`` applies to."""
    if metric in _DETECTING:
        if model.detections is None:
            raise JobError(f"metrics: {metric} needs predictions of type detections")
    elif not any(output.type in _JUDGED[metric] for output in model.outputs):
        raise JobError(f"metrics: {metric} needs an output of type {' or '.join(_JUDGED[metric])}")


def _model(table: Mapping[str, Any], task: str) -> Model:
    predictor = read_required(table, "predictor", str, "model")
    if not _PREDICTOR.fullmatch(predictor):
        raise JobError(f"model.predictor: unknown predictor {predictor!r}")
    ports: dict[str, list[Any]] = {
        key: read_required(table, key, list, "model") for key in ("inputs", "outputs", "files")
    }
    model = Model(
        format=read_required(table, "format", str, "model"),
        predictor=predictor,
        task=task,
        signature=read_optional(table, "signature", str, "model"),
        inputs=tuple(read_input(entry, f"model.inputs[{i}]") for i, entry in enumerate(ports["inputs"])),
        outputs=tuple(read_output(entry, f"model.outputs[{i}]") for i, entry in enumerate(ports["outputs"])),
        files=tuple(_file(entry, f"model.files[{i}]") for i, entry in enumerate(ports["files"])),
        code=_code(read_optional(table, "code", dict, "model")),
        unsafe=bool(read_optional(table, "unsafe", bool, "model")),
        detections=_detections(read_optional(table, "predictions", dict, "model"), "model.predictions"),
    )
    _check(model)
    return model


def _check(model: Model) -> None:
    """Check the ports together: fixed batch sizes are equal, and states come from outputs of type state."""
    sizes = {port.axes.size for port in model.inputs if port.axes.axis is not None and port.axes.size is not None}
    if len(sizes) > 1:
        raise JobError(f"model.inputs: batch sizes differ: {sorted(sizes)}")
    states = {port.name for port in model.outputs if port.type == "state"}
    for index, port in enumerate(model.inputs):
        if port.type == "state" and port.source not in states:
            raise JobError(f"model.inputs[{index}].from: {port.source!r} is not an output of type state")


def _file(table: Mapping[str, Any], where: str) -> File:
    return File(read_required(table, "path", str, where), read_required(table, "role", str, where))


def _code(table: Mapping[str, Any] | None) -> Code | None:
    if table is None:
        return None
    return Code(read_required(table, "file", str, "model.code"), read_required(table, "function", str, "model.code"))


def _detections(table: Mapping[str, Any] | None, where: str) -> Detections | None:
    if table is None:
        return None
    nms = read_optional(table, "nms", dict, where)
    return Detections(
        boxes=read_required(table, "boxes", str, where),
        scores=read_required(table, "scores", str, where),
        classes=read_optional(table, "classes", str, where),
        count=read_optional(table, "count", str, where),
        box_format=read_required(table, "box_format", str, where),
        background=read_optional(table, "background", int, where),
        label_offset=read_required(table, "label_offset", int, where),
        score_threshold=float(read_required(table, "score_threshold", (int, float), where)),
        nms=None if nms is None else _suppression(nms, f"{where}.nms"),
        max_detections=read_optional(table, "max_detections", int, where),
    )


def _suppression(table: Mapping[str, Any], where: str) -> Suppression:
    return Suppression(
        float(read_required(table, "iou", (int, float), where)), bool(read_required(table, "per_class", bool, where))
    )


def _dataset(table: Mapping[str, Any]) -> Dataset:
    return Dataset(
        format=read_required(table, "format", str, "dataset"),
        split=read_required(table, "split", dict, "dataset"),
        labels=read_optional(table, "labels", str, "dataset"),
        ignore_label=read_optional(table, "ignore_label", int, "dataset"),
    )


def _golden(value: object) -> GoldenTask | Literal["check"] | None:
    if value is None or value == "check":
        return "check" if value else None
    if not isinstance(value, dict):
        raise JobError(f"golden: {value!r} is neither check nor a table")
    return GoldenTask(
        count=check_minimum(1, read_required(value, "count", int, "golden"), "golden.count"),
        numbers=tuple(read_required(value, "numbers", list, "golden")),
        judged_count=check_minimum(0, read_required(value, "judged", int, "golden"), "golden.judged"),
    )


def _stage(document: Mapping[str, Any]) -> Stage:
    stage = read_optional(document, "stage", str, "") or "whole"
    if stage not in get_args(Stage):
        raise JobError(f"stage: {stage!r} is not supported")
    return cast(Stage, stage)


def _trace(document: Mapping[str, Any]) -> TraceLevel:
    level = read_optional(document, "trace", str, "") or "none"
    return cast(TraceLevel, _one_of(get_args(TraceLevel), level, "trace"))


def _seeds(table: Mapping[str, Any]) -> Seeds:
    values = {key: read_required(table, key, int, "seeds") for key in ("qsl", "sample_index", "schedule")}
    for key, value in values.items():
        # LoadGen's generator takes 32 bits and silently drops the rest.
        if not 0 <= value < 1 << 32:
            raise JobError(f"seeds.{key}: {value} is not a 32-bit number")
    return Seeds(**values)
