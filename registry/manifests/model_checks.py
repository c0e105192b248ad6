"""Validation rules of model manifests: format, inputs, outputs, steps, and the geometry of boxes.

Boxes are mapped back to the original picture. Code of the model's author may change values, but nothing states how it
moves them, so it must keep the size of a picture. Where the size before it depends on the sample, the run checks each
picture.
"""

from collections.abc import Sequence

from msgspec import UNSET

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.artifact_names import parse_name
from benchlock.registry.manifests.file_checks import check_file_reference
from benchlock.registry.manifests.manifest_types import (
    AudioInput,
    Claim,
    Detections,
    ImageInput,
    Input,
    Model,
    Output,
    TensorInput,
    TextInput,
)
from benchlock.registry.manifests.metric_definitions import check_metrics
from benchlock.registry.manifests.model_call_checks import check_calls
from benchlock.registry.manifests.step_shapes import apply_steps
from benchlock.registry.manifests.steps import Frame, Pad, Python, Step, TokenizerJson, Words
from benchlock.registry.manifests.tensor_shapes import Tensor, check_result, declare_tensor, fixed_batch, format_sizes
from benchlock.registry.text.collected_problems import Problems
from benchlock.registry.text.decoder import describe_key
from benchlock.registry.text.parsed_text import Place
from benchlock.registry.versions.version_ranges import Constraint

_INSTEAD = "resize, pad and crop by steps of these names, which are followed; code may change values alone"


def check_geometry(model: Model, place: Place) -> None:
    """Check that the steps of a detection model's first picture can be traced back to the original.

    Raises:
        InvalidInputError: A step certainly changes the size of the picture in a way that cannot be traced.
    """
    ports = ((port, place.at("inputs", index)) for index, port in enumerate(model.inputs))
    port, port_place = next((pair for pair in ports if isinstance(pair[0], ImageInput)), (None, place))
    if model.predictions is UNSET or not isinstance(port, ImageInput):
        return
    for index, step in enumerate(port.steps):
        if len(step.present()) != 1:
            return  # reported as a problem of the step
        here = port_place.at("steps", index, step.name)
        if isinstance(step.arguments, Pad) and step.arguments.length is not UNSET:
            what = "a picture whose first axis is cut or padded to a length cannot be laid over the original any more"
            raise here.at("length").error(what, "write top, bottom, left, right, which are followed")
        if isinstance(step.arguments, Python):
            try:
                before, after = (
                    apply_steps(Tensor(), port.steps[:index], port_place.at("steps")),
                    declare_tensor(port, port_place),
                )
            except InvalidInputError:
                return  # reported as a problem of the steps
            _check_code_geometry(before, after, here)
            return  # the steps after the code are not traced


def _check_code_geometry(before: Tensor, after: Tensor, place: Place) -> None:
    """Check that code keeps the size of a picture.

    Args:
        before: The tensor before the code.
        after: The tensor that the model takes; no step after the code changes a size.
        place: The place of the step.
    """
    sides = [(before.size(letter), after.size(letter)) for letter in "HW"]
    if not any(isinstance(old, int) and isinstance(new, int) and new != old for old, new in sides):
        return
    old, new = (" x ".join("?" if size is None else str(size) for size in pair) for pair in zip(*sides, strict=True))
    what = f"code makes {new} pixels of {old}, and the position of its boxes in the original picture is unknown"
    raise place.error(what, _INSTEAD)


FRAMEWORKS: dict[str, tuple[str, ...]] = {
    "onnx": ("onnxruntime",),
    "torchscript": ("pytorch",),
    "torch-export": ("pytorch",),
    "safetensors": ("pytorch", "tensorflow"),
    "state-dict": ("pytorch",),
    "savedmodel": ("tensorflow",),
    "keras": ("tensorflow",),
    "hdf5": ("tensorflow",),
    "frozen-graph": ("tensorflow",),
    "tflite": ("tensorflow", "litert"),
}
"""The frameworks that can load each format."""

WEIGHTS_ALONE = ("safetensors", "state-dict")
"""Formats without a graph: code builds the network around the weights."""

_PICKLES = (".pkl", ".pickle", ".joblib")
_CLASSES = ("class-scores", "class-index", "mask")
_SIDES = 4  # of a box
_ANSWERS: dict[str, tuple[str, ...]] = {
    "image-classification": ("class-scores", "class-index"),
    "audio-classification": ("class-scores", "class-index"),
    "text-classification": ("class-scores", "class-index"),
    "semantic-segmentation": ("mask",),
    "regression": ("value",),
}
"""The output types of which a model of the task has exactly one."""


def check_model(model: Model, place: Place, problems: Problems) -> None:
    """Check the rules of a model's manifest.

    Args:
        model: The model.
        place: The place of the manifest.
        problems: Receives every broken rule.
    """
    with problems.noted():
        if model.family is not UNSET:
            place.at("family").parsed(parse_name, model.family)
    with problems.noted():
        place.at("framework", "name").parsed(parse_name, model.framework.name)
    with problems.noted():
        place.at("framework", "version").parsed(Constraint.parse, model.framework.version)
    with problems.noted():
        _check_format(model, place, problems)
    with problems.noted():
        if model.code is not UNSET:
            check_file_reference(model.files, model.code.file, place.at("code", "file"))
    with problems.noted():
        _check_pickles(model, place, problems)
    with problems.noted():
        _check_graph(model, place)
    with problems.noted():
        _check_inputs(model, place.at("inputs"), problems)
    with problems.noted():
        _check_outputs(model, place.at("outputs"), problems)
    with problems.noted():
        _check_batches(model, place.at("inputs"))
    with problems.noted():
        _check_answers(model, place)
    with problems.noted():
        check_calls(model, place, problems)
    with problems.noted():
        for index, claim in enumerate(() if model.claims is UNSET else model.claims):
            _check_claim(model, claim, place.at("claims", index), problems)


def _check_format(model: Model, place: Place, problems: Problems) -> None:
    """Check that the framework loads the format, and that the format has its keys."""
    readers = FRAMEWORKS[model.format]
    if model.framework.name not in readers:
        what = f"{model.framework.name} does not read {model.format}: {' or '.join(readers)} does"
        problems.add(place.at("framework", "name").error(what, "change the framework or the format"))
    for key, present, is_required in (
        ("signature", model.signature is not UNSET, model.format == "savedmodel"),
        ("code", model.code is not UNSET, model.format in WEIGHTS_ALONE),
    ):
        if is_required and not present:
            what = f"the key {key!r} is missing: a model in {model.format} needs it"
            problems.add(place.at(key).error(what, f"write {describe_key(Model, key)}"))
        if present and not is_required:
            problems.add(place.at(key).error(f"a model in {model.format} has no {key}", "remove it"))


def _check_pickles(model: Model, place: Place, problems: Problems) -> None:
    """Check that the manifest declares pickles as unsafe."""
    for index, file in enumerate(model.files):
        with problems.noted():
            if file.path.endswith(_PICKLES) and model.unsafe is not True:
                what = f"{file.path} is a pickle, which executes code when it is read"
                step = "store the weights in another format, or write unsafe: true"
                raise place.at("files", index, "path").error(what, step)


def _check_graph(model: Model, place: Place) -> None:
    """Check the file that the framework loads: one graph, or weights for code."""
    role = "weights" if model.format in WEIGHTS_ALONE else "graph"
    indices = [index for index, file in enumerate(model.files) if file.role == role]
    if not indices or (len(indices) > 1 and model.format != "safetensors"):
        what = f"a model in {model.format} has one file of the role {role}, found {len(indices)}"
        raise place.at("files").error(what, f"give one file the role {role}")
    path = model.files[indices[0]].path
    if path.endswith("/") != (model.format == "savedmodel") and not path.endswith("/saved_model.pb"):
        what = "a SavedModel is a folder" if model.format == "savedmodel" else f"a graph in {model.format} is one file"
        step = "end the path of a folder, and only of one, in /"
        raise place.at("files", indices[0], "path").error(what, step)


def _check_unique(ports: Sequence[Input | Output], place: Place, problems: Problems) -> None:
    """Check that no two inputs or outputs have the same name."""
    names = set[str]()
    for index, port in enumerate(ports):
        with problems.noted():
            if port.name in names:
                raise place.at(index, "name").error(f"duplicate name {port.name!r}", "give each its own name")
            names.add(port.name)


def _check_inputs(model: Model, place: Place, problems: Problems) -> None:
    """Check each input."""
    _check_unique(model.inputs, place, problems)
    for index, port in enumerate(model.inputs):
        with problems.noted():
            _check_input(model, port, place.at(index))


def _check_outputs(model: Model, place: Place, problems: Problems) -> None:
    """Check each output."""
    _check_unique(model.outputs, place, problems)
    for index, output in enumerate(model.outputs):
        _check_output(model, output, place.at(index), problems)


def _check_input(model: Model, port: Input, place: Place) -> None:
    """Check that the steps of an input give the declared tensor."""
    declared = declare_tensor(port, place)
    if isinstance(port, ImageInput | AudioInput | TextInput | TensorInput):
        steps = () if port.steps is UNSET else port.steps
        _check_steps(model, steps, place.at("steps"))
        if not isinstance(port, TensorInput):
            _check_decode(port.type, steps, place.at("steps"))
        check_result(apply_steps(Tensor(), steps, place.at("steps")), declared, place)


def _check_batches(model: Model, place: Place) -> None:
    """Check that all inputs with a fixed batch size have the same one."""
    sizes = {index: fixed_batch(port, place.at(index)) for index, port in enumerate(model.inputs)}
    fixed = {index: size for index, size in sizes.items() if size is not None}
    for index, size in fixed.items():
        first = min(fixed)
        if size != fixed[first]:
            what = f"a batch of {size}, where inputs[{first}] has {fixed[first]}"
            raise place.at(index, "shape").error(what, "give all inputs the same batch, or batch_axis: none")


def _check_steps(model: Model, steps: tuple[Step, ...], place: Place) -> None:
    """Check that each step has one name, that at most one makes several calls, and that their files exist."""
    steps_with_calls: list[int] = []
    for index, step in enumerate(steps):
        here = place.at(index)
        present = step.present()
        if len(present) != 1:
            what = f"a step has one key, its name; found {', '.join(present) or 'none'}"
            raise here.error(what, "write each step as an element of its own")
        arguments = step.arguments
        if isinstance(arguments, Frame) and arguments.calls == "each":
            steps_with_calls.append(index)
        if len(steps_with_calls) > 1:
            what = f"calls: each stands in steps[{steps_with_calls[0]}] too, and a sample is cut into calls once"
            raise here.at(step.name, "calls").error(what, "write calls: one in one of them")
        if isinstance(arguments, Words):
            check_file_reference(model.files, arguments.vocabulary, here.at(step.name, "vocabulary"))
        elif isinstance(arguments, Python | TokenizerJson):
            check_file_reference(model.files, arguments.file, here.at(step.name, "file"))


def _check_decode(kind: str, steps: tuple[Step, ...], place: Place) -> None:
    """Check that the first step, and no other, decodes."""
    names = [step.name for step in steps]
    if names[:1] != ["decode"]:
        raise place.at(0).error(f"the first step of an input of type {kind} is decode", "put it first")
    if "decode" in names[1:]:
        raise place.at(names.index("decode", 1)).error("duplicate step decode", "remove the second one")


def _check_output(model: Model, output: Output, place: Place, problems: Problems) -> None:
    """Check the labels, the steps and the type of an output."""
    with problems.noted():
        check_file_reference(model.files, output.labels, place.at("labels"))
    with problems.noted():
        _check_offset(output, place)
    with problems.noted():
        steps = () if output.steps is UNSET else output.steps
        _check_steps(model, steps, place.at("steps"))
        result = apply_steps(declare_tensor(output, place), steps, place.at("steps"))
        _check_scores(output, result, place)
        if output.type == "class-index" and result.dtype is not None and result.dtype.startswith(("float", "bool")):
            what = f"the output has the dtype {result.dtype}, which is not a class index"
            raise place.at("type").error(what, "add an argmax as a step")


def _check_offset(output: Output, place: Place) -> None:
    """Check that an output of classes, and no other, has a label offset."""
    if output.type in _CLASSES:
        if output.label_offset is UNSET:
            what = f"the key 'label_offset' is missing: an output of type {output.type} needs it"
            raise place.at("label_offset").error(what, "write class index minus dataset label, 0 where they are equal")
        return
    for key in ("labels", "label_offset"):
        if getattr(output, key) is not UNSET and (output.type, key) != ("box-scores", "labels"):
            raise place.at(key).error(f"an output of type {output.type} has no {key}", "remove it")


def _check_scores(output: Output, result: Tensor, place: Place) -> None:
    """Check that scores are one list per sample; a single score, and nothing else, needs a threshold."""
    if output.type != "class-scores":
        if output.threshold is not UNSET:
            raise place.at("threshold").error(f"an output of type {output.type} has no threshold", "remove it")
        return
    if any(step.name in ("argmax", "topk") for step in (() if output.steps is UNSET else output.steps)):
        raise place.at("type").error("the steps give an index, not scores", "write type: class-index")
    if result.sizes is None or not all(isinstance(size, int) for size in result.sizes):
        return
    wide = [size for size in result.sizes if size != 1]
    if len(wide) > 1:
        raise place.at("shape").error("scores are one list a sample", "add a reshape as a step")
    if not wide and output.threshold is UNSET:
        what = "the key 'threshold' is missing: scores of width 1 are binary"
        raise place.at("threshold").error(what, "write the lowest score that means class 1")
    if wide and output.threshold is not UNSET:
        raise place.at("threshold").error(f"scores of width {wide[0]} have no threshold", "remove it")


def _check_answers(model: Model, place: Place) -> None:
    """Check that exactly one output, or ``predictions``, has the answer of the task."""
    if (model.predictions is not UNSET) != (model.task == "object-detection"):
        what = "a model has predictions exactly if its task is object-detection"
        step = f"change the task, or write predictions, {describe_key(Model, 'predictions')}, with type: detections"
        raise place.at("predictions").error(
            what, step if model.predictions is UNSET else "remove it, or change the task"
        )
    if model.predictions is not UNSET:
        _check_detections(model, model.predictions, place)
    types = _ANSWERS.get(model.task)
    answers = [output.name for output in model.outputs if types and output.type in types]
    if types and len(answers) != 1:
        what = f"a model for {model.task} has one output of type {' or '.join(types)}, found {len(answers)}"
        raise place.at("outputs").error(what, "give the output that answers this type, and others the type tensor")


def _check_detections(model: Model, predictions: Detections, place: Place) -> None:
    """Check that the outputs of detections exist, and that boxes have four numbers."""
    outputs = {output.name: (index, output) for index, output in enumerate(model.outputs)}
    for key in ("boxes", "scores", "classes", "count"):
        name = getattr(predictions, key)
        if name is not None and name not in outputs:
            raise place.at("predictions", key).error(f"unknown output {name!r}", "write the name of an output")
        if name is not None and outputs[name][1].type == "state":
            raise place.at("predictions", key).error(
                f"the output {name!r} is a state, not a prediction", "choose another output"
            )
    index, output = outputs[predictions.boxes]
    output_place = place.at("outputs", index)
    boxes = apply_steps(
        declare_tensor(output, output_place), () if output.steps is UNSET else output.steps, output_place.at("steps")
    )
    if boxes.sizes and isinstance(boxes.sizes[-1], int) and boxes.sizes[-1] != _SIDES:
        what = f"boxes need four numbers on the last axis; the output has {format_sizes(boxes.sizes)} a sample"
        raise place.at("predictions", "boxes").error(what, "write the name of the output that has the boxes")


def _check_claim(model: Model, claim: Claim, place: Place, problems: Problems) -> None:
    """Check the metric and the dataset of a claim."""
    with problems.noted():
        place.at("metric").parsed(lambda metric: check_metrics(model.task, None, [metric]), claim.metric)
    with problems.noted():
        place.at("dataset", "name").parsed(parse_name, claim.dataset.name)
    with problems.noted():
        place.at("dataset", "version").parsed(Constraint.parse, claim.dataset.version)
