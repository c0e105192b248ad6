"""Inputs and outputs of a model manifest, from the graph and the metadata beside it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from benchlock.registry.inspection.formats.graph_operations import GraphOperations
from benchlock.registry.inspection.formats.model_graphs import GraphSignature, GraphTensor, Size
from benchlock.registry.manifests.field_types import Layout
from benchlock.registry.scaffold.hub_metadata import CONFIG, HubMetadata
from benchlock.registry.scaffold.image_preprocessing import ImagePort, has_image_processor, image_steps
from benchlock.registry.text.collected_problems import ImportNotes, format_original, printable
from benchlock.registry.text.yaml import Lines, block_lines, element_lines, entry_lines, format_flow

_PYTORCH = "pytorch"
"""The producer that PyTorch's exporters write into an ONNX model."""
_INPUT_TYPE = "write image, audio, text, tensor, constant or state"
_OUTPUT_TYPE = (
    "write class-scores, class-index or mask, and below it label_offset (class index minus dataset label, 0 where they "
    "are equal) and, if a file names the classes, labels: FILE; or, without these, tensor, value, boxes, box-scores "
    "or state"
)
_STEPS = (
    "write the steps in their order; an image, audio or text begins with decode, a tensor may have none; instead of "
    "steps a constant has value, and a state from: OUTPUT, initial: zeros and reset: sample or never"
)
_PICTURE_AXES = 4
_STATE_AXES = 3
_LIST_AXES = 2
_RGB = 3
_CHANNELS = (1, _RGB)
_BATCH_NAMES = ("batch", "batch_size", "batchsize", "n")
TORCHVISION = (
    "where torchvision's Resize(SIDE) and CenterCrop prepared the pictures: resize: {shorter: SIDE, rounding: down, "
    "method: bilinear, antialias: true} and center_crop: {size: [HEIGHT, WIDTH], offset: half_even}"
)
"""The steps that reproduce the pixels of torchvision's transforms for evaluation."""


@dataclass(frozen=True, slots=True)
class PortEvidence:
    """What is known about the inputs and outputs of a model.

    Attributes:
        graph: The inputs and outputs as the graph declares them.
        operations: The operations of an ONNX or TFLite graph; None for other formats.
        metadata: The metadata beside the model.
        labels: The path of the file with the names of the classes; None without one.
        resized: Whether the predictor can change a fixed batch size.
    """

    graph: GraphSignature
    operations: GraphOperations | None = None
    metadata: HubMetadata = field(default_factory=HubMetadata)
    labels: str | None = None
    resized: bool = False

    def find_layout(self, tensor: GraphTensor) -> tuple[Layout | None, str]:
        """Return the layout of an input with four axes, if something tells it, and the reason."""
        if tensor.sizes is None or len(tensor.sizes) != _PICTURE_AXES:
            return None, ""
        layout = self.operations.layouts.get(tensor.name) if self.operations else None
        if layout is not None:
            return layout, "the first operations of the graph read pictures in this layout"
        channels = [axis for axis in (1, 3) if tensor.sizes[axis] in _CHANNELS]
        if len(channels) != 1 or tensor.sizes[2] in _CHANNELS:
            return None, ""
        axis = channels[0]
        count = "1 channel" if tensor.sizes[axis] == 1 else f"{tensor.sizes[axis]} channels"
        return ("NCHW" if axis == 1 else "NHWC"), f"only axis {axis} has a size of channels: {count}"

    def is_image(self, tensor: GraphTensor) -> bool:
        """Return whether the metadata tells that an input is an image: it is the only one with four axes."""
        pictures = [port.name for port in self.graph.inputs if len(port.sizes or ()) == _PICTURE_AXES]
        stated = self.metadata.reads_images or has_image_processor(self.metadata.processor)
        return stated and pictures == [tensor.name]

    def find_scores(self, tensor: GraphTensor) -> str:
        """Return the reason why an output has one score for each class; empty if nothing tells it."""
        width = _width(tensor)
        count, task = len(self.metadata.classes), self.metadata.task or ""
        is_only = sum(_width(output) is not None for output in self.graph.outputs) == 1
        if task.endswith("-classification") and is_only and width is not None and (width == count or not count):
            return f"{self.metadata.architecture} in {CONFIG} has one output of scores, {width} for each sample"
        if self.last_operation(tensor) == "Softmax" and width is not None:
            return f"the last operation of the graph is a softmax of {width} values"
        return ""

    def last_operation(self, tensor: GraphTensor) -> str:
        """Return the operation that computes an output; empty if it is unknown."""
        return self.operations.last.get(tensor.name, "") if self.operations else ""


def _width(tensor: GraphTensor) -> int | None:
    """Return the number of values per sample of an output [batch, values]; None for any other one."""
    sizes = tensor.sizes or ()
    is_list = len(sizes) == _LIST_AXES and isinstance(sizes[1], int) and sizes[1] > 1
    return sizes[1] if is_list else None  # type: ignore[return-value] # an integer, as checked


def port_lines(evidence: PortEvidence, notes: ImportNotes) -> Lines:
    """Return the keys ``inputs`` and ``outputs``."""
    graph = evidence.graph
    inputs = (_input(tensor, f"inputs[{index}]", evidence, notes) for index, tensor in enumerate(graph.inputs))
    states = [tensor for tensor in graph.inputs if _is_like_a_state(tensor)]
    outputs = (
        _output(_with_sizes_of_state(tensor, states), f"outputs[{index}]", evidence, notes)
        for index, tensor in enumerate(graph.outputs)
    )
    return [*_listed("inputs", inputs, notes), *_listed("outputs", outputs, notes)]


def _listed(key: str, ports: Iterable[Lines], notes: ImportNotes) -> Lines:
    """Return a key with its inputs or outputs; a TODO line if there are none."""
    lines = [line for port in ports for line in port]
    if lines:
        return block_lines(key, lines)
    return [notes.todo(key, f"no-{key}", key, "the graph declares none", "describe each")]  # type: ignore[arg-type]


def _input(tensor: GraphTensor, path: str, evidence: PortEvidence, notes: ImportNotes) -> Lines:
    """Return the lines of an input."""
    layout, reason = evidence.find_layout(tensor)
    is_image = evidence.is_image(tensor)
    lines = entry_lines("name", tensor.name)
    if is_image:
        notes.tell(f"{path}.type", "input-type", "the metadata beside the model is that of an image model", "image")
        lines.append("type: image")
    else:
        ask = f"{_INPUT_TYPE}; delete layout unless it is an image" if layout else _INPUT_TYPE
        missing = "the graph does not state what the tensor contains"
        lines.append(notes.todo(f"{path}.type", "input-type", "type", missing, ask))
    lines += [*_dtype(tensor, path, notes), *_shape(tensor, path, notes)]
    lines += _batch(tensor, path, evidence, notes)
    if layout is not None:
        notes.tell(f"{path}.layout", "layout", reason, f"written as {layout}")
        lines.append(f"layout: {layout}")
    elif len(tensor.sizes or ()) == _PICTURE_AXES:
        what = "four axes, possibly those of a picture"
        ask = "write NHWC or NCHW for one, otherwise delete this line"
        lines.append(notes.todo(f"{path}.layout", "layout", "layout", what, ask))
    if is_image and evidence.metadata.processor:
        return element_lines([*lines, *image_steps(evidence.metadata.processor, _port(tensor, path, layout), notes)])
    missing = "the graph does not state how a sample becomes this tensor"
    if tensor.quantization is not None:
        scale, zero = tensor.quantization.scale, tensor.quantization.zero_point
        missing += f", only that its values represent (x - {zero}) * {scale}"
    ask = f"{_STEPS}; {TORCHVISION}" if evidence.graph.producer == _PYTORCH and _is_color_picture(tensor) else _STEPS
    return element_lines([*lines, notes.todo(f"{path}.steps", "steps", "steps", missing, ask)])


def _port(tensor: GraphTensor, path: str, layout: Layout | None) -> ImagePort:
    """Return the tensor that the steps of an image input must produce."""
    axis = {"NCHW": 1, "NHWC": 3, None: None}[layout]
    channels = tensor.sizes[axis] if tensor.sizes and axis is not None else None
    return ImagePort(path, tensor.dtype, layout, channels if isinstance(channels, int) else None)


def _is_color_picture(tensor: GraphTensor) -> bool:
    """Return whether a tensor has the shape of RGB pictures."""
    return (
        tensor.sizes is not None and len(tensor.sizes) == _PICTURE_AXES and _RGB in (tensor.sizes[1], tensor.sizes[3])
    )


def _output(tensor: GraphTensor, path: str, evidence: PortEvidence, notes: ImportNotes) -> Lines:
    """Return the lines of an output."""
    lines = [*entry_lines("name", tensor.name), *_output_type(tensor, path, evidence, notes)]
    lines += _dtype(tensor, path, notes)
    if tensor.sizes is not None:
        lines += _shape(tensor, path, notes)
    if tensor.quantization is not None:
        scale, zero = tensor.quantization.scale, tensor.quantization.zero_point
        lines.append(f"# its values represent (x - {zero}) * {scale}: add a step dequantize to convert them")
    return element_lines(lines)


def _output_type(tensor: GraphTensor, path: str, evidence: PortEvidence, notes: ImportNotes) -> Lines:
    """Return the lines of the type, and of class scores also those of the classes."""
    reason = evidence.find_scores(tensor)
    if not reason:
        missing, operation = "the graph does not state what the tensor means", evidence.last_operation(tensor)
        if operation and _width(tensor) is not None:
            missing += f"; its last operation is {printable(operation)}, not a softmax"
        return [notes.todo(f"{path}.type", "output-type", "type", missing, _OUTPUT_TYPE)]
    notes.tell(f"{path}.type", "output-type", reason, "written as class-scores")
    lines = ["type: class-scores"]
    count = len(evidence.metadata.classes)
    if evidence.labels is None or count != _width(tensor):
        what = "no file states the names of the classes"
        ask = "write class index minus dataset label, 0 where they are equal; if a file names the classes, write "
        ask += "labels: FILE too, and list it in files"
        return [*lines, notes.todo(f"{path}.label_offset", "label-offset", "label_offset", what, ask)]
    what = f"id2label in {CONFIG} names the classes 0 to {count - 1}, by which a lock compares model and dataset"
    notes.tell(f"{path}.label_offset", "label-offset", what, "written as 0, with the names in labels")
    return [*lines, *entry_lines("labels", evidence.labels), "label_offset: 0"]


def _dtype(tensor: GraphTensor, path: str, notes: ImportNotes) -> Lines:
    """Return the line of the dtype."""
    if tensor.dtype is not None:
        return entry_lines("dtype", tensor.dtype)
    what = "the element type of the graph is unknown or not supported in manifests"
    return [notes.todo(f"{path}.dtype", "dtype", "dtype", what, "write the type that the predictor receives")]


def _shape(tensor: GraphTensor, path: str, notes: ImportNotes) -> Lines:
    """Return the line of the shape."""
    if tensor.sizes is None:
        what = "the graph does not state the number of axes"
        return [notes.todo(f"{path}.shape", "shape", "shape", what, "write a number, null or a name for each axis")]
    batch = 1 if _is_like_a_state(tensor) else 0
    sizes = [
        None if axis == batch and not isinstance(size, int) else _axis_size(size, axis)
        for axis, size in enumerate(tensor.sizes)
    ]
    return [f"shape: {format_flow(sizes)}"]


def _is_like_a_state(tensor: GraphTensor) -> bool:
    """Return whether a tensor has the shape of a recurrent state, [layers, batch, width], with only the batch free."""
    sizes = tensor.sizes or ()
    free = [axis for axis, size in enumerate(sizes) if not isinstance(size, int)]
    return len(sizes) == _STATE_AXES and free == [1]


def _with_sizes_of_state(tensor: GraphTensor, states: Sequence[GraphTensor]) -> GraphTensor:
    """Return an output with the sizes of the state that it may feed, where its own are free."""
    sizes = tensor.sizes or ()
    for state in states:
        state_sizes = state.sizes or ()
        is_compatible = all(
            not isinstance(size, int) or size == state_size
            for size, state_size in zip(sizes, state_sizes, strict=False)
        )
        if tensor.dtype == state.dtype and len(sizes) == len(state_sizes) and is_compatible:
            return replace(tensor, sizes=state_sizes)
    return tensor


def _axis_size(size: Size, axis: int) -> int | str:
    """Return a size, or a name for an axis without one."""
    return f"axis_{axis}" if size is None else size


def _batch(tensor: GraphTensor, path: str, evidence: PortEvidence, notes: ImportNotes) -> Lines:
    """Return the lines about the batch axis, which is certain only by its name or by the layout of pictures."""
    if tensor.sizes is None:
        return []
    if not tensor.sizes:
        return ["batch_axis: none"]
    if _is_like_a_state(tensor):
        what = "only axis 1 is dynamic, as in a state: null makes it the batch axis"
        return [notes.todo(f"{path}.shape", "inferred", "confirm", what, "check, then delete this line")]
    first = tensor.sizes[0]
    if not isinstance(first, int):
        name = f" and named {format_original(first)}" if first else ""
        what = f"axis 0 is dynamic{name}: null makes it the batch axis"
        reads_pictures = evidence.operations is not None and tensor.name in evidence.operations.layouts
        reads_pictures = reads_pictures and len(tensor.sizes) == _PICTURE_AXES
        if reads_pictures or (isinstance(first, str) and first.lower() in _BATCH_NAMES):
            notes.tell(f"{path}.shape", "inferred", what, "written as null")
            return []
        return [notes.todo(f"{path}.shape", "inferred", "confirm", what, "check, then delete this line")]
    what = f"axis 0 has the fixed size {first}"
    ask = f"write batch_axis: 0 if it is a batch of {first}, or batch_axis: none"
    if evidence.resized:
        ask += f"; or replace {first} by null, here and in the outputs, if samples are independent: "
        ask += "the predictor sets the batch"
    return [notes.todo(f"{path}.batch_axis", "batch-axis", "batch_axis", what, printable(ask))]
