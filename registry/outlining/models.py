"""A model's manifest from its file: format, framework, inputs and outputs, the files that belong together."""

import math
import posixpath
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchlock.registry.importing.findings import Notes, printable
from benchlock.registry.importing.outline import Lines, block, entry
from benchlock.registry.inspection import onnx_graphs, savedmodels, tflite_graphs
from benchlock.registry.inspection.graphs import FoundGraph
from benchlock.registry.inspection.safetensors import StoredTensor, read_header
from benchlock.registry.manifests.model_checks import FRAMEWORKS, WEIGHTS_ALONE
from benchlock.registry.outlining.given import Given, heading, name_of
from benchlock.registry.outlining.ports import TORCHVISION, port_lines

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
    graph: FoundGraph | None
    lines: Lines
    files: Lines


def model_lines(given: Given | None, notes: Notes) -> Lines:
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
    return [*lines, *block("files", found.files)]


def form_of(path: Path) -> str | None:
    """The format of a model's file or folder, by its content where it is certain, else by its ending."""
    if path.is_dir():
        if (path / savedmodels.FILE).is_file():
            return "savedmodel"
        return "safetensors" if any(path.glob("*.safetensors")) else None
    if path.name == savedmodels.FILE:
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


def _describe(given: Given) -> _Described:
    form = form_of(given.path)
    readers: dict[str, Callable[[Given], _Described]] = {
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


def _onnx(given: Given) -> _Described:
    path = given.path
    graph = given.read(path, onnx_graphs.read_graph, "ONNX model")
    files = given.file(path, "graph")
    outside = given.read(path, onnx_graphs.external_files, "ONNX model")
    for location in dict.fromkeys(tensor.location for tensor in outside):
        files += given.file(path.parent / location, "weights", called=posixpath.normpath(location))
    return _Described("onnx", graph, [], files)


def _tflite(given: Given) -> _Described:
    graph = given.read(given.path, tflite_graphs.read_graph, "TFLite graph")
    return _Described("tflite", graph, [], given.file(given.path, "graph"))


def _savedmodel(given: Given) -> _Described:
    folder = given.path if given.path.is_dir() else given.path.parent
    signatures = given.read(folder / savedmodels.FILE, savedmodels.read_signatures, "SavedModel")
    files = given.file(folder, "graph")
    if not signatures:
        todo = given.notes.todo("signature", "signature", "signature", "the SavedModel has none", "export it with one")
        return _Described("savedmodel", None, [todo], files)
    chosen = "serving_default" if "serving_default" in signatures else next(iter(signatures))
    lines = entry("signature", chosen)
    if len(signatures) > 1:
        what = f"the SavedModel also has {', '.join(printable(name) for name in signatures if name != chosen)}"
        ask = "check which one is meant, then delete this line"
        lines.insert(0, given.notes.todo("signature", "signature", "confirm", what, ask))
    return _Described("savedmodel", signatures[chosen], lines, files)


def _safetensors(given: Given) -> _Described:
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


def _format(form: str | None, called: str, notes: Notes) -> Lines:
    if form is not None:
        return entry("format", form)
    ask = f"write one of {', '.join(FRAMEWORKS)}"
    return [notes.todo("format", "format", "format", f"none follows from {printable(called) or 'no file'}", ask)]


def _framework(form: str | None, notes: Notes) -> Lines:
    names = FRAMEWORKS[form] if form else ()
    ask = 'the set that you have tried, such as ">=1.20 <2"'
    if len(names) != 1:
        what = f"{' and '.join(names)} both read {form}" if names else "none follows"
        ask = f"write name{': ' if names else ''}{' or '.join(names)}, and version: {ask}"
        return [notes.todo("framework", "no-framework", "framework", what, ask)]
    what = "no file says which versions give its results"
    todo = notes.todo("framework.version", "no-framework-version", "framework.version", what, f"write {ask}")
    return block("framework", [*entry("name", names[0]), todo])


def _task(notes: Notes) -> str:
    ask = "write image-classification, object-detection, semantic-segmentation, audio-classification, "
    ask += "text-classification, regression or tensor"
    return notes.todo("task", "task", "task", "no file says what the model is for", ask)


def _ports(key: str, what: str, notes: Notes) -> str:
    ask = (
        "write each with name, type, dtype, shape and steps"
        if key == "inputs"
        else "write each with name, type and dtype"
    )
    return notes.todo(key, "no-inputs" if key == "inputs" else "no-outputs", key, what, ask)


def _code(notes: Notes) -> Lines:
    what = "weights alone do not say their network"
    ask = "write code: {file: FILE.py, function: NAME}, and add the file with the role code"
    return [notes.todo("code", "code", "code", what, ask)]


def _bare(notes: Notes) -> Lines:
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
