"""``job.json``, read and checked.

Its schema has a major number alone: what a harness of another major would misread is refused, not guessed.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, cast, get_args

from .job import (
    QUALITY_METRICS,
    TIME_METRICS,
    Code,
    Dataset,
    Detections,
    File,
    Job,
    Making,
    Model,
    Seeds,
    Stage,
    Suppression,
)
from .ports import read_input, read_output
from .scenarios import parse_scenario
from .tables import JobError, at_least, demanded, optional

SCHEMA = 1

_CLASSES = ("class-scores", "class-index")
_JUDGED = {"top1": _CLASSES, "top5": _CLASSES, "miou": ("mask",), "mae": ("value",), "rmse": ("value",)}
"""The types of outputs that a metric is about."""
_DETECTING = ("map", "map_50")
_PREDICTOR = re.compile(r"[a-z][a-z0-9_]*")


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
    metrics = tuple(demanded(document, "metrics", list, ""))
    for index, name in enumerate(metrics):
        if name not in QUALITY_METRICS + TIME_METRICS:
            raise JobError(f"metrics[{index}]: {name!r} is not built")
    job = Job(
        model=_model(demanded(document, "model", dict, ""), optional(document, "task", str, "") or "tensor"),
        dataset=_dataset(demanded(document, "dataset", dict, "")),
        scenario=parse_scenario(demanded(document, "scenario", dict, "")),
        metrics=metrics,
        threads=at_least(1, demanded(document, "threads", int, ""), "threads"),
        seeds=_seeds(demanded(document, "seeds", dict, "")),
        device=optional(document, "device", str, "") or "cpu",
        golden=_golden(document.get("golden")),
        stage=_stage(document),
        order_seed=optional(document, "order_seed", str, "") or "",
        lock_fingerprint=optional(document, "lock_fingerprint", str, "") or "",
    )
    for metric in job.quality_metrics:
        _check_judged(metric, job.model)
    return job


def _check_judged(metric: str, model: Model) -> None:
    """The model has what ``metric`` is about."""
    if metric in _DETECTING:
        if model.detections is None:
            raise JobError(f"metrics: {metric} needs predictions of type detections")
    elif not any(output.type in _JUDGED[metric] for output in model.outputs):
        raise JobError(f"metrics: {metric} needs an output of type {' or '.join(_JUDGED[metric])}")


def _model(table: Mapping[str, Any], task: str) -> Model:
    predictor = demanded(table, "predictor", str, "model")
    if not _PREDICTOR.fullmatch(predictor):
        raise JobError(f"model.predictor: {predictor!r} is no name of a predictor")
    ports: dict[str, list[Any]] = {key: demanded(table, key, list, "model") for key in ("inputs", "outputs", "files")}
    model = Model(
        format=demanded(table, "format", str, "model"),
        predictor=predictor,
        task=task,
        signature=optional(table, "signature", str, "model"),
        inputs=tuple(read_input(entry, f"model.inputs[{i}]") for i, entry in enumerate(ports["inputs"])),
        outputs=tuple(read_output(entry, f"model.outputs[{i}]") for i, entry in enumerate(ports["outputs"])),
        files=tuple(_file(entry, f"model.files[{i}]") for i, entry in enumerate(ports["files"])),
        code=_code(optional(table, "code", dict, "model")),
        unsafe=bool(optional(table, "unsafe", bool, "model")),
        detections=_detections(optional(table, "predictions", dict, "model"), "model.predictions"),
    )
    _check(model)
    return model


def _check(model: Model) -> None:
    """What no port says alone: batches are equal, and states come from outputs that are states."""
    sizes = {port.axes.size for port in model.inputs if port.axes.axis is not None and port.axes.size is not None}
    if len(sizes) > 1:
        raise JobError(f"model.inputs: their batches differ: {sorted(sizes)}")
    states = {port.name for port in model.outputs if port.type == "state"}
    for index, port in enumerate(model.inputs):
        if port.type == "state" and port.source not in states:
            raise JobError(f"model.inputs[{index}].from: {port.source!r} is no output of type state")


def _file(table: Mapping[str, Any], where: str) -> File:
    return File(demanded(table, "path", str, where), demanded(table, "role", str, where))


def _code(table: Mapping[str, Any] | None) -> Code | None:
    if table is None:
        return None
    return Code(demanded(table, "file", str, "model.code"), demanded(table, "function", str, "model.code"))


def _detections(table: Mapping[str, Any] | None, where: str) -> Detections | None:
    if table is None:
        return None
    nms = optional(table, "nms", dict, where)
    return Detections(
        boxes=demanded(table, "boxes", str, where),
        scores=demanded(table, "scores", str, where),
        classes=optional(table, "classes", str, where),
        count=optional(table, "count", str, where),
        box_format=demanded(table, "box_format", str, where),
        background=optional(table, "background", int, where),
        label_offset=demanded(table, "label_offset", int, where),
        score_threshold=float(demanded(table, "score_threshold", (int, float), where)),
        nms=None if nms is None else _suppression(nms, f"{where}.nms"),
        max_detections=optional(table, "max_detections", int, where),
    )


def _suppression(table: Mapping[str, Any], where: str) -> Suppression:
    return Suppression(
        float(demanded(table, "iou", (int, float), where)), bool(demanded(table, "per_class", bool, where))
    )


def _dataset(table: Mapping[str, Any]) -> Dataset:
    return Dataset(
        format=demanded(table, "format", str, "dataset"),
        split=demanded(table, "split", dict, "dataset"),
        labels=optional(table, "labels", str, "dataset"),
        ignore_label=optional(table, "ignore_label", int, "dataset"),
    )


def _golden(told: object) -> Making | Literal["check"] | None:
    if told is None or told == "check":
        return "check" if told else None
    if not isinstance(told, dict):
        raise JobError(f"golden: {told!r} is neither check nor a table")
    return Making(
        count=at_least(1, demanded(told, "count", int, "golden"), "golden.count"),
        numbers=tuple(demanded(told, "numbers", list, "golden")),
        judged=at_least(0, demanded(told, "judged", int, "golden"), "golden.judged"),
    )


def _stage(document: Mapping[str, Any]) -> Stage:
    stage = optional(document, "stage", str, "") or "whole"
    if stage not in get_args(Stage):
        raise JobError(f"stage: {stage!r} is not built")
    return cast(Stage, stage)


def _seeds(table: Mapping[str, Any]) -> Seeds:
    values = {key: demanded(table, key, int, "seeds") for key in ("qsl", "sample_index", "schedule")}
    for key, value in values.items():
        # LoadGen's generator takes 32 bits and drops the rest in silence.
        if not 0 <= value < 1 << 32:
            raise JobError(f"seeds.{key}: {value} is no 32-bit number")
    return Seeds(**values)
