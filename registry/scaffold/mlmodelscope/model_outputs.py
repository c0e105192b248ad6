"""Outputs of both MLModelScope forms: tensors, types, labels, and the task."""

from collections.abc import Callable
from dataclasses import dataclass

from benchlock.registry.scaffold.mlmodelscope.model_metadata import Files
from benchlock.registry.scaffold.mlmodelscope.original_manifest import (
    Network,
    OriginalMapping,
    description_comment,
    dtype_lines,
    name_lines,
)
from benchlock.registry.text.collected_problems import format_original
from benchlock.registry.text.yaml import Lines, block_lines, element_lines, entry_lines, format_flow

TASKS = {
    "classification": "image-classification",
    "probability": "image-classification",
    "boundingbox": "object-detection",
    "semanticsegment": "semantic-segmentation",
}
"""The task that follows from the type of an output, if the input is a picture."""

_LAYERS = ("boxes_layer", "probabilities_layer", "classes_layer", "masks_layer")
_TYPES = {"boxes_layer": "boxes", "probabilities_layer": "box-scores", "classes_layer": "tensor"}
_OFFSET = "unknown whether class indices begin with a background class"
_ASK_OFFSET = "write class index minus dataset label, 0 where they are equal"
_DETECTION_KEYS = "count, box_format, background, label_offset, score_threshold, nms, max_detections"


@dataclass(frozen=True, slots=True)
class Outputs:
    """The lines of the task, of the outputs, and of predictions that need several outputs."""

    task: Lines
    outputs: Lines
    predictions: Lines


def read_outputs(top: OriginalMapping, network: Network, files: Files) -> Outputs:
    """Return the task, outputs and predictions of the original; labels files are added to ``files``."""
    key = "output" if top.has_value("output") else "outputs"
    ports = top.elements(key)
    inputs = top.value.get("inputs")
    first = inputs[0] if isinstance(inputs, list) and inputs else inputs
    has_image_input = isinstance(first, dict) and first.get("type") == "image"
    if not ports:
        what = "the original describes no output"
        missing = [top.notes.todo(top.path(key), "no-outputs", "task and outputs", what, "write them")]
        return Outputs(missing, [], [])
    kind = ports[0].text("type")
    task = _task_lines(ports[0], kind if has_image_input else None, kind)
    lines, predictions = Lines(), Lines()
    for port in ports:
        output_type = port.text("type")
        parameters = port.mapping("parameters") or port
        described = description_comment(port)
        if output_type == "boundingbox":
            detected, predictions = _detections(parameters, network, files)
            lines += [*described, *detected]
        else:
            lines += _FORMS.get(output_type or "", _unknown)(port, parameters, described, network, files)
    return Outputs(task, block_lines("outputs", lines), predictions)


def _task_lines(port: OriginalMapping, kind: str | None, output_type: str | None) -> Lines:
    """Return the line of the task, or a TODO line."""
    task = TASKS.get(kind or "")
    if task:
        return entry_lines("task", task)
    what = (
        f"cannot be derived from an output of type {format_original(output_type)}"
        if output_type
        else "the original states no type of output"
    )
    ask = "write image-classification, object-detection, semantic-segmentation, or another type of the manifest format"
    return [port.notes.todo(port.path("type"), "task", "task", what, ask)]


def _classes(
    port: OriginalMapping, parameters: OriginalMapping, described: Lines, network: Network, files: Files
) -> Lines:
    """Return the lines of an output with one list of scores per sample."""
    lines = name_lines(parameters, "probabilities_layer", 0, "output", network)[1]
    lines += ["type: class-scores", *dtype_lines(parameters)[1], *_labels(parameters, files, named=True)]
    lines.append(port.notes.todo(parameters.path("label_offset"), "label-offset", "label_offset", _OFFSET, _ASK_OFFSET))
    transform = parameters.text("probabilities_transform")
    path = parameters.path("probabilities_transform")
    steps = _paper_steps(port, files)
    if transform == "softmax":
        parameters.notes.tell(path, "softmax", "softmax over the scores of a sample", "written along the last axis")
        steps.append(f"- softmax: {format_flow({'axis': -1})}")
    elif transform:
        steps.append(
            port.notes.todo(
                path, "transform", "steps", f"{format_original(transform)} is not a known step", "write what it does"
            )
        )
    labelled = [line for line in steps if line.startswith("labels:")]
    steps = [line for line in steps if not line.startswith("labels:")]
    return element_lines([*described, *lines, *labelled, *(block_lines("steps", steps) if steps else [])])


def _paper_steps(port: OriginalMapping, files: Files) -> Lines:
    """Return the steps of an output in the paper's form; argsort only orders a display, but names the labels."""
    lines = Lines()
    for step in port.elements("steps") if port.has_value("steps") else []:
        for name in step.value:
            arguments = step.mapping(name) if name == "argsort" and isinstance(step.value[name], dict) else None
            if arguments is not None:
                step.notes.tell(step.path(name), "argsort", "argsort orders scores for people", "omitted")
                lines += _label_file(arguments, "labels_url", "labels_checksum", files)
            elif name == "softmax" and not step.value[name]:
                step.use(name)
                step.notes.tell(
                    step.path(name), "softmax", "softmax without a stated axis", "written along the last one"
                )
                lines.append(f"- softmax: {format_flow({'axis': -1})}")
            else:
                what = f"{format_original({name: step.use(name)})} is not a known step"
                lines.append(step.notes.todo(step.path(name), "unknown-step", "steps", what, "write what it does"))
    return lines


def _mask(
    port: OriginalMapping, parameters: OriginalMapping, described: Lines, network: Network, files: Files
) -> Lines:
    """Return the lines of an output with one class index per pixel."""
    lines = name_lines(parameters, "masks_layer", 0, "output", network)[1]
    lines += ["type: mask", *dtype_lines(parameters)[1], *_labels(parameters, files, named=True)]
    lines.append(port.notes.todo(parameters.path("label_offset"), "label-offset", "label_offset", _OFFSET, _ASK_OFFSET))
    return element_lines([*described, *lines])


def _detections(parameters: OriginalMapping, network: Network, files: Files) -> tuple[Lines, Lines]:
    """Return one output each for boxes, scores and classes, and the predictions that combine them."""
    outputs, names, notes = Lines(), dict[str, str | None](), parameters.notes
    for position, key in enumerate(_ordered(parameters, list(_TYPES))):
        names[key], name_part = name_lines(parameters, key, position, "output", network)
        outputs += element_lines([*name_part, f"type: {_TYPES[key]}", *dtype_lines(parameters)[1]])
    known = {"boxes": names["boxes_layer"], "scores": names["probabilities_layer"], "classes": names["classes_layer"]}
    lines = ["type: detections", *(line for key, name in known.items() if name for line in entry_lines(key, name))]
    order = [f"{key} is {format_original(parameters.use(key))}" for key in _BOX_KEYS if parameters.has_value(key)]
    statement = (
        "MLModelScope read boxes as ymin, xmin, ymax, xmax" if not order else f"the original states {', '.join(order)}"
    )
    what = f"the original does not state {_DETECTION_KEYS}; {statement}"
    ask = "write each, null where there is none"
    lines.append(notes.todo(parameters.path("boxes_layer"), "detections", "predictions", what, ask))
    _labels(parameters, files, named=False)
    return outputs, block_lines("predictions", lines)


_BOX_KEYS = (
    *("background_index", "xmin_index", "ymin_index", "xmax_index", "ymax_index"),
    *("scale_width", "scale_height", "masks_layer"),
)


def _ordered(parameters: OriginalMapping, keys: list[str]) -> list[str]:
    """Return the layers ordered by position if all are positions; otherwise in their own order."""
    values = [parameters.value.get(key) for key in keys]
    positions = [value for value in values if type(value) is int]
    return [key for _, key in sorted(zip(positions, keys, strict=True))] if len(positions) == len(keys) else keys


def _unknown(
    port: OriginalMapping, parameters: OriginalMapping, described: Lines, network: Network, files: Files
) -> Lines:
    """Return the names of outputs whose type has no native form, with TODO lines."""
    kind = port.text("type")
    what = (
        f"an output of type {format_original(kind)} has no native equivalent" if kind else "the original states no type"
    )
    if kind == "feature":
        what = "an output of type feature has class probabilities in older manifests and features in others"
    lines = Lines()
    layers = [key for key in _LAYERS if parameters.has_value(key)]
    for position, key in enumerate(_ordered(parameters, layers or ["layer_name"])):
        todo = port.notes.todo(port.path("type"), "output-type", "type", what, "write a type of the manifest format")
        name_part = name_lines(parameters, key, position, "output", network)[1]
        lines += element_lines([*([] if position else described), *name_part, todo, *dtype_lines(parameters)[1]])
    _labels(parameters, files, named=False)
    return lines


def _labels(parameters: OriginalMapping, files: Files, *, named: bool) -> Lines:
    """Add the labels file, and return its line if ``named``."""
    lines = _label_file(parameters, "features_url", "features_checksum", files)
    return lines if named else []


def _label_file(port: OriginalMapping, key: str, checksum: str, files: Files) -> Lines:
    """Add a labels file, and return its line."""
    url = port.text(key)
    if not url:
        if port.has_value(checksum):
            what = f"{format_original(port.use(checksum))} is the checksum of unnamed labels"
            port.notes.tell(port.path(checksum), "checksum", what, "omitted")
        return []
    path = files.add("labels", (port.path(key), port.path(checksum)), url, port.text(checksum))
    return entry_lines("labels", path) if path else []


_FORMS: dict[str, Callable[[OriginalMapping, OriginalMapping, Lines, Network, Files], Lines]] = {
    "classification": _classes,
    "probability": _classes,
    "semanticsegment": _mask,
}
