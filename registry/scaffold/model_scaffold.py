"""Model manifests from a model file: format, framework, inputs, outputs and files."""

import math
import posixpath
import zipfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchlock.registry.inspection.formats import model_graphs
from benchlock.registry.inspection.formats.model_graphs import GraphSignature, GraphTensor, Size
from benchlock.registry.inspection.formats.tensor_files import StoredTensor, read_header
from benchlock.registry.manifests.model_checks import FRAMEWORKS, WEIGHTS_ALONE
from benchlock.registry.scaffold.source_files import ScaffoldSource, heading, name_of
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
_RGB = 3
TORCHVISION = (
    "where torchvision's Resize(SIDE) and CenterCrop prepared the pictures: resize: {shorter: SIDE, rounding: down, "
    "method: bilinear, antialias: true} and center_crop: {size: [HEIGHT, WIDTH], offset: half_even}"
)
"""The steps that reproduce the pixels of torchvision's transforms for evaluation."""


def port_lines(graph: GraphSignature, notes: ImportNotes, *, resized: bool) -> Lines:
    """Return the keys ``inputs`` and ``outputs``; ``resized`` says that the predictor can change a fixed batch size."""
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


def _listed(key: str, ports: Iterable[Lines], notes: ImportNotes) -> Lines:
    """Return a key with its inputs or outputs; a TODO line if there are none."""
    lines = [line for port in ports for line in port]
    if lines:
        return block_lines(key, lines)
    return [notes.todo(key, f"no-{key}", key, "the graph declares none", "describe each")]  # type: ignore[arg-type]


def _input(tensor: GraphTensor, path: str, notes: ImportNotes, *, resized: bool, producer: str) -> Lines:
    """Return the lines of an input."""
    missing = "the graph does not state what the tensor contains"
    lines = entry_lines("name", tensor.name)
    lines.append(notes.todo(f"{path}.type", "input-type", "type", missing, _INPUT_TYPE))
    lines += [*_dtype(tensor, path, notes), *_shape(tensor, path, notes), *_batch(tensor, path, notes, resized=resized)]
    if tensor.sizes is not None and len(tensor.sizes) == _PICTURE_AXES:
        what = "four axes, possibly those of a picture"
        lines.append(
            notes.todo(
                f"{path}.layout", "layout", "layout", what, "write NHWC or NCHW for one, otherwise delete this line"
            )
        )
    missing = "the graph does not state how a sample becomes this tensor"
    if tensor.quantization is not None:
        scale, zero = tensor.quantization.scale, tensor.quantization.zero_point
        missing += f", only that its values represent (x - {zero}) * {scale}"
    ask = f"{_STEPS}; {TORCHVISION}" if producer == _PYTORCH and _is_color_picture(tensor) else _STEPS
    return element_lines([*lines, notes.todo(f"{path}.steps", "steps", "steps", missing, ask)])


def _is_color_picture(tensor: GraphTensor) -> bool:
    """Return whether a tensor has the shape of RGB pictures."""
    return (
        tensor.sizes is not None and len(tensor.sizes) == _PICTURE_AXES and _RGB in (tensor.sizes[1], tensor.sizes[3])
    )


def _output(tensor: GraphTensor, path: str, notes: ImportNotes) -> Lines:
    """Return the lines of an output."""
    lines = entry_lines("name", tensor.name)
    missing = "the graph does not state what the tensor means"
    lines.append(notes.todo(f"{path}.type", "output-type", "type", missing, _OUTPUT_TYPE))
    lines += _dtype(tensor, path, notes)
    if tensor.sizes is not None:
        lines += _shape(tensor, path, notes)
    if tensor.quantization is not None:
        scale, zero = tensor.quantization.scale, tensor.quantization.zero_point
        lines.append(f"# its values represent (x - {zero}) * {scale}: add a step dequantize to convert them")
    return element_lines(lines)


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


def _batch(tensor: GraphTensor, path: str, notes: ImportNotes, *, resized: bool) -> Lines:
    """Return the lines about the batch axis; none of them is certain, since a graph only has sizes."""
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
        return [notes.todo(f"{path}.shape", "inferred", "confirm", what, "check, then delete this line")]
    what = f"axis 0 has the fixed size {first}"
    ask = f"write batch_axis: 0 if it is a batch of {first}, or batch_axis: none"
    if resized:
        ask += f"; or replace {first} by null, here and in the outputs, if samples are independent: "
        ask += "the predictor sets the batch"
    return [notes.todo(f"{path}.batch_axis", "batch-axis", "batch_axis", what, printable(ask))]


_SHOWN = 40
_BY_ENDING = {
    ".onnx": "onnx", ".tflite": "tflite", ".lite": "tflite", ".safetensors": "safetensors", ".keras": "keras",
    ".h5": "hdf5", ".hdf5": "hdf5", ".pb": "frozen-graph", ".pt2": "torch-export",
}  # fmt: skip
_TORCHVISION = "/code/__torch__/torchvision/models/"
"""The folder in a TorchScript archive with the code of a torchvision network."""
_TORCH = (".pt", ".pth", ".th", ".bin", ".ckpt")


@dataclass(frozen=True, slots=True)
class _ModelFacts:
    """What a file states: its format and graph if these are known, and its own keys and files."""

    form: str | None
    graph: GraphSignature | None
    lines: Lines
    files: Lines


def model_lines(source: ScaffoldSource | None, notes: ImportNotes) -> Lines:
    """Return the manifest of the model in a file or folder; only TODO lines without a source."""
    if source is None:
        return [*heading("model", None, "", notes), *_bare(notes)]
    facts = _describe(source)
    lines = heading("model", name_of(source.path), source.path.name, notes)
    lines.append(_task(notes))
    lines += [*_framework(facts.form, notes), *_format(facts.form, source.path.name, notes), *facts.lines]
    if facts.graph is not None:
        lines += port_lines(facts.graph, notes, resized=facts.form == "tflite")
    else:
        what = f"a file in {facts.form} does not contain them" if facts.form else "the file is not read"
        for key in ("inputs", "outputs"):
            lines.append(_ports(key, what, notes))
    return [*lines, *block_lines("files", facts.files)]


def detect_format(path: Path) -> str | None:
    """Return the format of a model's file or folder, by content where that is certain, else by file name extension."""
    if path.is_dir():
        if (path / model_graphs.FILE).is_file():
            return "savedmodel"
        return "safetensors" if any(path.glob("*.safetensors")) else None
    if path.name == model_graphs.FILE:
        return "savedmodel"
    if path.suffix.lower() in _TORCH:
        # An archive of TorchScript has constants; anything else that torch.save writes is a pickle.
        return "torchscript" if any(name.endswith("/constants.pkl") for name in _members(path)) else "state-dict"
    return _BY_ENDING.get(path.suffix.lower())


def _members(path: Path) -> list[str]:
    """Return the names in an archive; none if the file is not an archive."""
    if not zipfile.is_zipfile(path):
        return []
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return []


def _describe(source: ScaffoldSource) -> _ModelFacts:
    """Read what a model's file or folder states."""
    form = detect_format(source.path)
    readers: dict[str, Callable[[ScaffoldSource], _ModelFacts]] = {
        "onnx": _onnx,
        "tflite": _tflite,
        "savedmodel": _savedmodel,
        "safetensors": _safetensors,
    }
    if form in readers:
        return readers[form](source)
    lines = _code(source.notes) if form in WEIGHTS_ALONE else []
    if form == "torchscript" and any(_TORCHVISION in name for name in _members(source.path)):
        lines = [f"# the network is torchvision's; {TORCHVISION}"]
    role = "weights" if form in WEIGHTS_ALONE else "graph"
    return _ModelFacts(form, None, lines, source.file(source.path, role))


def _onnx(source: ScaffoldSource) -> _ModelFacts:
    """Read an ONNX model."""
    path = source.path
    graph = source.read(path, model_graphs.read_onnx_graph, "ONNX model")
    files = source.file(path, "graph")
    outside = source.read(path, model_graphs.external_files, "ONNX model")
    for location in dict.fromkeys(tensor.location for tensor in outside):
        files += source.file(path.parent / location, "weights", called=posixpath.normpath(location))
    return _ModelFacts("onnx", graph, [], files)


def _tflite(source: ScaffoldSource) -> _ModelFacts:
    """Read a TFLite graph."""
    graph = source.read(source.path, model_graphs.read_tflite_graph, "TFLite graph")
    return _ModelFacts("tflite", graph, [], source.file(source.path, "graph"))


def _savedmodel(source: ScaffoldSource) -> _ModelFacts:
    """Read a SavedModel."""
    folder = source.path if source.path.is_dir() else source.path.parent
    signatures = source.read(folder / model_graphs.FILE, model_graphs.read_signatures, "SavedModel")
    files = source.file(folder, "graph")
    if not signatures:
        todo = source.notes.todo("signature", "signature", "signature", "the SavedModel has none", "export it with one")
        return _ModelFacts("savedmodel", None, [todo], files)
    chosen = "serving_default" if "serving_default" in signatures else next(iter(signatures))
    lines = entry_lines("signature", chosen)
    if len(signatures) > 1:
        what = f"the SavedModel also has {', '.join(printable(name) for name in signatures if name != chosen)}"
        ask = "check that this is the right one, then delete this line"
        lines.insert(0, source.notes.todo("signature", "signature", "confirm", what, ask))
    return _ModelFacts("savedmodel", signatures[chosen], lines, files)


def _safetensors(source: ScaffoldSource) -> _ModelFacts:
    """Read one safetensors file, or all in a folder."""
    paths = sorted(source.path.glob("*.safetensors")) if source.path.is_dir() else [source.path]
    tensors = [tensor for path in paths for tensor in source.read(path, read_header, "safetensors file")]
    files = [line for path in paths for line in source.file(path, "weights")]
    return _ModelFacts("safetensors", None, [*_listing(tensors), *_code(source.notes)], files)


def _listing(tensors: list[StoredTensor]) -> Lines:
    """Return the weights as comments, for the author of the code."""
    count = sum(math.prod(tensor.shape) for tensor in tensors)
    lines = [f"# {len(tensors)} tensors of {count} elements:"]
    lines += [f"#   {printable(tensor.name)} {tensor.dtype} {list(tensor.shape)}" for tensor in tensors[:_SHOWN]]
    more = len(tensors) - _SHOWN
    return [*lines, f"#   and {more} more"] if more > 0 else lines


def _format(form: str | None, file_name: str, notes: ImportNotes) -> Lines:
    """Return the line of the format."""
    if form is not None:
        return entry_lines("format", form)
    ask = f"write one of {', '.join(FRAMEWORKS)}"
    return [
        notes.todo(
            "format",
            "format",
            "format",
            f"cannot be derived from {printable(file_name)}" if file_name else "no file given",
            ask,
        )
    ]


def _framework(form: str | None, notes: ImportNotes) -> Lines:
    """Return the lines of the framework."""
    names = FRAMEWORKS[form] if form else ()
    ask = 'the tested versions, such as ">=1.20 <2"'
    if len(names) != 1:
        what = f"both {' and '.join(names)} read {form}" if names else "cannot be derived"
        ask = f"write name{': ' if names else ''}{' or '.join(names)}, and version: {ask}"
        return [notes.todo("framework", "no-framework", "framework", what, ask)]
    what = "no file states the compatible versions"
    todo = notes.todo("framework.version", "no-framework-version", "framework.version", what, f"write {ask}")
    return block_lines("framework", [*entry_lines("name", names[0]), todo])


def _task(notes: ImportNotes) -> str:
    """Return the TODO line of the task."""
    ask = "write image-classification, object-detection, semantic-segmentation, audio-classification, "
    ask += "text-classification, regression or tensor"
    return notes.todo("task", "task", "task", "no file states the task of the model", ask)


def _ports(key: str, what: str, notes: ImportNotes) -> str:
    """Return the TODO line of the inputs or outputs."""
    ask = (
        "write each with name, type, dtype, shape and steps"
        if key == "inputs"
        else "write each with name, type and dtype"
    )
    return notes.todo(key, "no-inputs" if key == "inputs" else "no-outputs", key, what, ask)


def _code(notes: ImportNotes) -> Lines:
    """Return the TODO line of the code."""
    what = "weights do not contain the network"
    ask = "write code: {file: FILE.py, function: NAME}, and add the file with the role code"
    return [notes.todo("code", "code", "code", what, ask)]


def _bare(notes: ImportNotes) -> Lines:
    """Return the TODO lines of a model about which nothing is known."""
    what = "no file given"
    ask = "list each with path, role and source; one has the role graph, or weights"
    return [
        _task(notes),
        *_framework(None, notes),
        *_format(None, "", notes),
        _ports("inputs", what, notes),
        _ports("outputs", what, notes),
        notes.todo("files", "no-graph", "files", what, ask),
    ]
