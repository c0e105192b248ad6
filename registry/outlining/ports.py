"""Inputs and outputs as a graph declares them; what they mean is asked for."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from benchlock.registry.importing.findings import Notes, printable, shown
from benchlock.registry.importing.outline import Lines, block, element, entry, flow
from benchlock.registry.inspection.graphs import FoundGraph, FoundTensor, Size

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
_RGB = 3
TORCHVISION = (
    "where torchvision's Resize(SIDE) and CenterCrop prepared the pictures: resize: {shorter: SIDE, rounding: down, "
    "method: bilinear, antialias: true} and center_crop: {size: [HEIGHT, WIDTH], offset: half_even}"
)
"""The steps that give torchvision's pixels, of its transforms for evaluation."""


def port_lines(graph: FoundGraph, notes: Notes, *, resized: bool) -> Lines:
    """``inputs`` and ``outputs``; ``resized`` says that the predictor can set a fixed batch axis."""
    inputs = (
        _input(tensor, f"inputs[{index}]", notes, resized=resized, producer=graph.producer)
        for index, tensor in enumerate(graph.inputs)
    )
    states = [tensor for tensor in graph.inputs if _is_like_a_state(tensor)]
    outputs = (
        _output(_with_sizes_of_state(tensor, states), f"outputs[{index}]", notes)
        for index, tensor in enumerate(graph.outputs)
    )
    return [*_listed("inputs", inputs, notes), *_listed("outputs", outputs, notes)]


def _listed(key: str, ports: Iterable[Lines], notes: Notes) -> Lines:
    lines = [line for port in ports for line in port]
    if lines:
        return block(key, lines)
    return [notes.todo(key, f"no-{key}", key, "the graph declares none", "describe each")]  # type: ignore[arg-type]


def _input(tensor: FoundTensor, path: str, notes: Notes, *, resized: bool, producer: str) -> Lines:
    unsaid = "the graph does not say what the tensor holds"
    lines = entry("name", tensor.name)
    lines.append(notes.todo(f"{path}.type", "input-type", "type", unsaid, _INPUT_TYPE))
    lines += [*_dtype(tensor, path, notes), *_shape(tensor, path, notes), *_batch(tensor, path, notes, resized=resized)]
    if tensor.sizes is not None and len(tensor.sizes) == _PICTURE_AXES:
        what = "four axes, which may be a picture's"
        lines.append(
            notes.todo(f"{path}.layout", "layout", "layout", what, "write NHWC or NCHW for one, else delete this line")
        )
    unsaid = "the graph does not say how a sample becomes this tensor"
    if tensor.quantization is not None:
        scale, zero = tensor.quantization.scale, tensor.quantization.zero_point
        unsaid += f", only that its values stand for (x - {zero}) * {scale}"
    ask = f"{_STEPS}; {TORCHVISION}" if producer == _PYTORCH and _is_color_picture(tensor) else _STEPS
    return element([*lines, notes.todo(f"{path}.steps", "steps", "steps", unsaid, ask)])


def _is_color_picture(tensor: FoundTensor) -> bool:
    return (
        tensor.sizes is not None and len(tensor.sizes) == _PICTURE_AXES and _RGB in (tensor.sizes[1], tensor.sizes[3])
    )


def _output(tensor: FoundTensor, path: str, notes: Notes) -> Lines:
    lines = entry("name", tensor.name)
    unsaid = "the graph does not say what the tensor means"
    lines.append(notes.todo(f"{path}.type", "output-type", "type", unsaid, _OUTPUT_TYPE))
    lines += _dtype(tensor, path, notes)
    if tensor.sizes is not None:
        lines += _shape(tensor, path, notes)
    if tensor.quantization is not None:
        scale, zero = tensor.quantization.scale, tensor.quantization.zero_point
        lines.append(f"# its values stand for (x - {zero}) * {scale}: a step dequantize would make them so")
    return element(lines)


def _dtype(tensor: FoundTensor, path: str, notes: Notes) -> Lines:
    if tensor.dtype is not None:
        return entry("dtype", tensor.dtype)
    what = "the graph has a type for which manifests have no word, or says none"
    return [notes.todo(f"{path}.dtype", "dtype", "dtype", what, "write the type that the predictor is given")]


def _shape(tensor: FoundTensor, path: str, notes: Notes) -> Lines:
    if tensor.sizes is None:
        what = "the graph does not say the number of its axes"
        return [notes.todo(f"{path}.shape", "shape", "shape", what, "write a number, null or a name for each axis")]
    batch = 1 if _is_like_a_state(tensor) else 0
    sizes = [
        None if axis == batch and not isinstance(size, int) else _named(size, axis)
        for axis, size in enumerate(tensor.sizes)
    ]
    return [f"shape: {flow(sizes)}"]


def _is_like_a_state(tensor: FoundTensor) -> bool:
    """Whether a tensor has the shape of a recurrent state, [layers, batch, width], with the batch alone free."""
    sizes = tensor.sizes or ()
    free = [axis for axis, size in enumerate(sizes) if not isinstance(size, int)]
    return len(sizes) == _STATE_AXES and free == [1]


def _with_sizes_of_state(tensor: FoundTensor, states: Sequence[FoundTensor]) -> FoundTensor:
    """Return an output with the sizes of the state that it can be fed back to, where the graph leaves its own free."""
    sizes = tensor.sizes or ()
    for state in states:
        of_state = state.sizes or ()
        alike = all(not isinstance(size, int) or size == wanted for size, wanted in zip(sizes, of_state, strict=False))
        if tensor.dtype == state.dtype and len(sizes) == len(of_state) and alike:
            return replace(tensor, sizes=of_state)
    return tensor


def _named(size: Size, axis: int) -> int | str:
    return f"axis_{axis}" if size is None else size


def _batch(tensor: FoundTensor, path: str, notes: Notes, *, resized: bool) -> Lines:
    """What follows of the batch axis: nothing certain, since a graph knows only sizes."""
    if tensor.sizes is None:
        return []
    if not tensor.sizes:
        return ["batch_axis: none"]
    if _is_like_a_state(tensor):
        what = "the graph leaves axis 1 alone free, as that of a state is: null says that it is the batch axis"
        return [notes.todo(f"{path}.shape", "inferred", "confirm", what, "check, then delete this line")]
    first = tensor.sizes[0]
    if not isinstance(first, int):
        called = f", and calls it {shown(first)}" if first else ""
        what = f"the graph leaves axis 0 free{called}: null says that it is the batch axis"
        return [notes.todo(f"{path}.shape", "inferred", "confirm", what, "check, then delete this line")]
    what = f"the graph fixes axis 0 at {first}"
    ask = f"write batch_axis: 0 if it is a batch of {first}, or batch_axis: none"
    if resized:
        ask += f"; or put null in place of the {first}, here and in the outputs, if samples are independent: "
        ask += "the predictor sets the batch"
    return [notes.todo(f"{path}.batch_axis", "batch-axis", "batch_axis", what, printable(ask))]
