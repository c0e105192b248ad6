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
from benchlock.registry.text.problems import ImportNotes, format_original, printable
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
"""The steps that give torchvision's pixels, of its transforms for evaluation."""


def port_lines(graph: GraphSignature, notes: ImportNotes, *, resized: bool) -> Lines:
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


def _listed(key: str, ports: Iterable[Lines], notes: ImportNotes) -> Lines:
    lines = [line for port in ports for line in port]
    if lines:
        return block_lines(key, lines)
    return [notes.todo(key, f"no-{key}", key, "the graph declares none", "describe each")]  # type: ignore[arg-type]


def _input(tensor: GraphTensor, path: str, notes: ImportNotes, *, resized: bool, producer: str) -> Lines:
    unsaid = "the graph does not say what the tensor holds"
    lines = entry_lines("name", tensor.name)
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
    return element_lines([*lines, notes.todo(f"{path}.steps", "steps", "steps", unsaid, ask)])


def _is_color_picture(tensor: GraphTensor) -> bool:
    return (
        tensor.sizes is not None and len(tensor.sizes) == _PICTURE_AXES and _RGB in (tensor.sizes[1], tensor.sizes[3])
    )


def _output(tensor: GraphTensor, path: str, notes: ImportNotes) -> Lines:
    lines = entry_lines("name", tensor.name)
    unsaid = "the graph does not say what the tensor means"
    lines.append(notes.todo(f"{path}.type", "output-type", "type", unsaid, _OUTPUT_TYPE))
    lines += _dtype(tensor, path, notes)
    if tensor.sizes is not None:
        lines += _shape(tensor, path, notes)
    if tensor.quantization is not None:
        scale, zero = tensor.quantization.scale, tensor.quantization.zero_point
        lines.append(f"# its values stand for (x - {zero}) * {scale}: a step dequantize would make them so")
    return element_lines(lines)


def _dtype(tensor: GraphTensor, path: str, notes: ImportNotes) -> Lines:
    if tensor.dtype is not None:
        return entry_lines("dtype", tensor.dtype)
    what = "the graph has a type for which manifests have no word, or says none"
    return [notes.todo(f"{path}.dtype", "dtype", "dtype", what, "write the type that the predictor is given")]


def _shape(tensor: GraphTensor, path: str, notes: ImportNotes) -> Lines:
    if tensor.sizes is None:
        what = "the graph does not say the number of its axes"
        return [notes.todo(f"{path}.shape", "shape", "shape", what, "write a number, null or a name for each axis")]
    batch = 1 if _is_like_a_state(tensor) else 0
    sizes = [
        None if axis == batch and not isinstance(size, int) else _named(size, axis)
        for axis, size in enumerate(tensor.sizes)
    ]
    return [f"shape: {format_flow(sizes)}"]


def _is_like_a_state(tensor: GraphTensor) -> bool:
    """Whether a tensor has the shape of a recurrent state, [layers, batch, width], with the batch alone free."""
    sizes = tensor.sizes or ()
    free = [axis for axis, size in enumerate(sizes) if not isinstance(size, int)]
    return len(sizes) == _STATE_AXES and free == [1]


def _with_sizes_of_state(tensor: GraphTensor, states: Sequence[GraphTensor]) -> GraphTensor:
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


def _batch(tensor: GraphTensor, path: str, notes: ImportNotes, *, resized: bool) -> Lines:
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
        called = f", and calls it {format_original(first)}" if first else ""
        what = f"the graph leaves axis 0 free{called}: null says that it is the batch axis"
        return [notes.todo(f"{path}.shape", "inferred", "confirm", what, "check, then delete this line")]
    what = f"the graph fixes axis 0 at {first}"
    ask = f"write batch_axis: 0 if it is a batch of {first}, or batch_axis: none"
    if resized:
        ask += f"; or put null in place of the {first}, here and in the outputs, if samples are independent: "
        ask += "the predictor sets the batch"
    return [notes.todo(f"{path}.batch_axis", "batch-axis", "batch_axis", what, printable(ask))]


_SHOWN = 40
_BY_ENDING = {
    ".onnx": "onnx", ".tflite": "tflite", ".lite": "tflite", ".safetensors": "safetensors", ".keras": "keras",
    ".h5": "hdf5", ".hdf5": "hdf5", ".pb": "frozen-graph", ".pt2": "torch-export",
}  # fmt: skip
_TORCHVISION = "/code/__torch__/torchvision/models/"
"""Where a TorchScript archive holds the code of a network of torchvision."""
_TORCH = (".pt", ".pth", ".th", ".bin", ".ckpt")


@dataclass(frozen=True, slots=True)
class _Described:
    """What a file says: its format if that follows, its graph if that is read, and its own keys and files."""

    form: str | None
    graph: GraphSignature | None
    lines: Lines
    files: Lines


def model_lines(given: ScaffoldSource | None, notes: ImportNotes) -> Lines:
    """The manifest of the model in a file or folder; a bare one where nothing is given."""
    if given is None:
        return [*heading("model", None, "", notes), *_bare(notes)]
    found = _describe(given)
    lines = heading("model", name_of(given.path), given.path.name, notes)
    lines.append(_task(notes))
    lines += [*_framework(found.form, notes), *_format(found.form, given.path.name, notes), *found.lines]
    if found.graph is not None:
        lines += port_lines(found.graph, notes, resized=found.form == "tflite")
    else:
        what = f"a file in {found.form} is not asked for them" if found.form else "nothing reads the file"
        for key in ("inputs", "outputs"):
            lines.append(_ports(key, what, notes))
    return [*lines, *block_lines("files", found.files)]


def detect_format(path: Path) -> str | None:
    """The format of a model's file or folder, by its content where it is certain, else by its ending."""
    if path.is_dir():
        if (path / model_graphs.FILE).is_file():
            return "savedmodel"
        return "safetensors" if any(path.glob("*.safetensors")) else None
    if path.name == model_graphs.FILE:
        return "savedmodel"
    if path.suffix.lower() in _TORCH:
        return _torch_form(path)
    return _BY_ENDING.get(path.suffix.lower())


def _torch_form(path: Path) -> str:
    """A TorchScript archive holds its constants; what else ``torch.save`` writes is a pickle of weights, or of code."""
    return "torchscript" if any(name.endswith("/constants.pkl") for name in _members(path)) else "state-dict"


def _members(path: Path) -> list[str]:
    """The names in an archive; none where it is no archive."""
    if not zipfile.is_zipfile(path):
        return []
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.namelist()
    except (OSError, zipfile.BadZipFile):
        return []


def _describe(given: ScaffoldSource) -> _Described:
    form = detect_format(given.path)
    readers: dict[str, Callable[[ScaffoldSource], _Described]] = {
        "onnx": _onnx,
        "tflite": _tflite,
        "savedmodel": _savedmodel,
        "safetensors": _safetensors,
    }
    if form in readers:
        return readers[form](given)
    lines = _code(given.notes) if form in WEIGHTS_ALONE else []
    if form == "torchscript" and any(_TORCHVISION in name for name in _members(given.path)):
        lines = [f"# the network is torchvision's; {TORCHVISION}"]
    role = "weights" if form in WEIGHTS_ALONE else "graph"
    return _Described(form, None, lines, given.file(given.path, role))


def _onnx(given: ScaffoldSource) -> _Described:
    path = given.path
    graph = given.read(path, model_graphs.read_onnx_graph, "ONNX model")
    files = given.file(path, "graph")
    outside = given.read(path, model_graphs.external_files, "ONNX model")
    for location in dict.fromkeys(tensor.location for tensor in outside):
        files += given.file(path.parent / location, "weights", called=posixpath.normpath(location))
    return _Described("onnx", graph, [], files)


def _tflite(given: ScaffoldSource) -> _Described:
    graph = given.read(given.path, model_graphs.read_tflite_graph, "TFLite graph")
    return _Described("tflite", graph, [], given.file(given.path, "graph"))


def _savedmodel(given: ScaffoldSource) -> _Described:
    folder = given.path if given.path.is_dir() else given.path.parent
    signatures = given.read(folder / model_graphs.FILE, model_graphs.read_signatures, "SavedModel")
    files = given.file(folder, "graph")
    if not signatures:
        todo = given.notes.todo("signature", "signature", "signature", "the SavedModel has none", "export it with one")
        return _Described("savedmodel", None, [todo], files)
    chosen = "serving_default" if "serving_default" in signatures else next(iter(signatures))
    lines = entry_lines("signature", chosen)
    if len(signatures) > 1:
        what = f"the SavedModel also has {', '.join(printable(name) for name in signatures if name != chosen)}"
        ask = "check which one is meant, then delete this line"
        lines.insert(0, given.notes.todo("signature", "signature", "confirm", what, ask))
    return _Described("savedmodel", signatures[chosen], lines, files)


def _safetensors(given: ScaffoldSource) -> _Described:
    found = sorted(given.path.glob("*.safetensors")) if given.path.is_dir() else [given.path]
    tensors = [tensor for path in found for tensor in given.read(path, read_header, "safetensors file")]
    files = [line for path in found for line in given.file(path, "weights")]
    return _Described("safetensors", None, [*_listing(tensors), *_code(given.notes)], files)


def _listing(tensors: list[StoredTensor]) -> Lines:
    """The weights as comments: what the code must build around."""
    count = sum(math.prod(tensor.shape) for tensor in tensors)
    lines = [f"# {len(tensors)} tensors of {count} elements:"]
    lines += [f"#   {printable(tensor.name)} {tensor.dtype} {list(tensor.shape)}" for tensor in tensors[:_SHOWN]]
    more = len(tensors) - _SHOWN
    return [*lines, f"#   and {more} more"] if more > 0 else lines


def _format(form: str | None, called: str, notes: ImportNotes) -> Lines:
    if form is not None:
        return entry_lines("format", form)
    ask = f"write one of {', '.join(FRAMEWORKS)}"
    return [notes.todo("format", "format", "format", f"none follows from {printable(called) or 'no file'}", ask)]


def _framework(form: str | None, notes: ImportNotes) -> Lines:
    names = FRAMEWORKS[form] if form else ()
    ask = 'the set that you have tried, such as ">=1.20 <2"'
    if len(names) != 1:
        what = f"{' and '.join(names)} both read {form}" if names else "none follows"
        ask = f"write name{': ' if names else ''}{' or '.join(names)}, and version: {ask}"
        return [notes.todo("framework", "no-framework", "framework", what, ask)]
    what = "no file says which versions give its results"
    todo = notes.todo("framework.version", "no-framework-version", "framework.version", what, f"write {ask}")
    return block_lines("framework", [*entry_lines("name", names[0]), todo])


def _task(notes: ImportNotes) -> str:
    ask = "write image-classification, object-detection, semantic-segmentation, audio-classification, "
    ask += "text-classification, regression or tensor"
    return notes.todo("task", "task", "task", "no file says what the model is for", ask)


def _ports(key: str, what: str, notes: ImportNotes) -> str:
    ask = (
        "write each with name, type, dtype, shape and steps"
        if key == "inputs"
        else "write each with name, type and dtype"
    )
    return notes.todo(key, "no-inputs" if key == "inputs" else "no-outputs", key, what, ask)


def _code(notes: ImportNotes) -> Lines:
    what = "weights alone do not say their network"
    ask = "write code: {file: FILE.py, function: NAME}, and add the file with the role code"
    return [notes.todo("code", "code", "code", what, ask)]


def _bare(notes: ImportNotes) -> Lines:
    what = "no file was named"
    ask = "list each with path, role and source; one has the role graph, or weights"
    return [
        _task(notes),
        *_framework(None, notes),
        *_format(None, "", notes),
        _ports("inputs", what, notes),
        _ports("outputs", what, notes),
        notes.todo("files", "no-graph", "files", what, ask),
    ]
