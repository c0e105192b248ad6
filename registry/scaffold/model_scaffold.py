"""Model manifests from a model file: format, framework, inputs, outputs and files."""

import math
import posixpath
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchlock.registry.inspection.formats import model_graphs
from benchlock.registry.inspection.formats.graph_operations import GraphOperations, trace_onnx, trace_tflite
from benchlock.registry.inspection.formats.model_graphs import GraphSignature
from benchlock.registry.inspection.formats.tensor_files import StoredTensor, read_header
from benchlock.registry.manifests.model_checks import FRAMEWORKS, WEIGHTS_ALONE
from benchlock.registry.scaffold.framework_versions import (
    FrameworkVersions,
    keras_versions,
    onnxruntime_versions,
    savedmodel_versions,
)
from benchlock.registry.scaffold.hub_metadata import CONFIG, HubMetadata, read_metadata
from benchlock.registry.scaffold.model_ports import TORCHVISION, PortEvidence, port_lines
from benchlock.registry.scaffold.source_files import ScaffoldSource, heading
from benchlock.registry.text.collected_problems import ImportNotes, printable
from benchlock.registry.text.yaml import Lines, block_lines, entry_lines

_SHOWN = 40
_BY_ENDING = {
    ".onnx": "onnx", ".tflite": "tflite", ".lite": "tflite", ".safetensors": "safetensors", ".keras": "keras",
    ".h5": "hdf5", ".hdf5": "hdf5", ".pb": "frozen-graph", ".pt2": "torch-export",
}  # fmt: skip
_TORCHVISION = "/code/__torch__/torchvision/models/"
"""The folder in a TorchScript archive with the code of a torchvision network."""
_TORCH = (".pt", ".pth", ".th", ".bin", ".ckpt")
MODEL_SUFFIXES: Final = (*_BY_ENDING, *_TORCH)
"""The file name extensions of models, in lower case."""

_LABELS = "labels.txt"


@dataclass(frozen=True, slots=True)
class _ModelFacts:
    """What a file states: its format, graph and versions if these are known, and its own keys and files."""

    form: str | None
    graph: GraphSignature | None
    lines: Lines
    files: Lines
    operations: GraphOperations | None = None
    versions: FrameworkVersions | None = None


def model_lines(source: ScaffoldSource | None, notes: ImportNotes) -> Lines:
    """Return the manifest of the model in a file or folder; only TODO lines without a source."""
    if source is None:
        return [*heading("model", None, "", notes), *_bare(notes)]
    facts, metadata = _describe(source), read_metadata(source.path)
    lines = heading(
        "model", source.name, source.origin, notes, license_text=metadata.license, name_origin=source.name_origin
    )
    lines += _task(metadata, notes)
    lines += _framework(facts.form, facts.versions, notes)
    lines += [*_format(facts.form, source.path.name, notes), *facts.lines]
    labels, files = None, facts.files
    if facts.graph is not None:
        if metadata.classes and any(_has_scores(facts, metadata)):
            labels = _LABELS
            text = "".join(f"{name}\n" for name in metadata.classes)
            files = [*files, *source.generated_file(_LABELS, text, role="labels")]
        evidence = PortEvidence(facts.graph, facts.operations, metadata, labels, resized=facts.form == "tflite")
        lines += port_lines(evidence, notes)
    else:
        what = f"a file in {facts.form} does not contain them" if facts.form else "the file is not read"
        for key in ("inputs", "outputs"):
            lines.append(_ports(key, what, notes))
    return [*lines, *block_lines("files", files)]


def _has_scores(facts: _ModelFacts, metadata: HubMetadata) -> list[bool]:
    """Return for each output whether it has scores of exactly the classes of the metadata."""
    assert facts.graph is not None
    evidence = PortEvidence(facts.graph, facts.operations, metadata)
    return [
        bool(evidence.find_scores(tensor)) and (tensor.sizes or (None,))[-1] == len(metadata.classes)
        for tensor in facts.graph.outputs
    ]


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
    versions = keras_versions(source.path) if form == "keras" else None
    return _ModelFacts(form, None, lines, source.file(source.path, role), versions=versions)


def _onnx(source: ScaffoldSource) -> _ModelFacts:
    """Read an ONNX model."""
    path = source.path
    graph = source.read(path, model_graphs.read_onnx_graph, "ONNX model")
    files = source.file(path, "graph")
    outside = source.read(path, model_graphs.external_files, "ONNX model")
    for location in dict.fromkeys(tensor.location for tensor in outside):
        files += source.file(path.parent / location, "weights", called=posixpath.normpath(location))
    versions, operations = source.read(path, trace_onnx, "ONNX model")
    return _ModelFacts("onnx", graph, [], files, operations, onnxruntime_versions(versions))


def _tflite(source: ScaffoldSource) -> _ModelFacts:
    """Read a TFLite graph."""
    graph = source.read(source.path, model_graphs.read_tflite_graph, "TFLite graph")
    operations = source.read(source.path, trace_tflite, "TFLite graph")
    return _ModelFacts("tflite", graph, [], source.file(source.path, "graph"), operations)


def _savedmodel(source: ScaffoldSource) -> _ModelFacts:
    """Read a SavedModel."""
    folder = source.path if source.path.is_dir() else source.path.parent
    signatures = source.read(folder / model_graphs.FILE, model_graphs.read_signatures, "SavedModel")
    files = source.file(folder, "graph")
    versions = source.read(folder / model_graphs.FILE, savedmodel_versions, "SavedModel")
    if not signatures:
        todo = source.notes.todo("signature", "signature", "signature", "the SavedModel has none", "export it with one")
        return _ModelFacts("savedmodel", None, [todo], files, versions=versions)
    chosen = "serving_default" if "serving_default" in signatures else next(iter(signatures))
    lines = entry_lines("signature", chosen)
    if len(signatures) > 1:
        what = f"the SavedModel also has {', '.join(printable(name) for name in signatures if name != chosen)}"
        ask = "check that this is the right one, then delete this line"
        lines.insert(0, source.notes.todo("signature", "signature", "confirm", what, ask))
    return _ModelFacts("savedmodel", signatures[chosen], lines, files, versions=versions)


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


def _framework(form: str | None, versions: FrameworkVersions | None, notes: ImportNotes) -> Lines:
    """Return the lines of the framework."""
    names = FRAMEWORKS[form] if form else ()
    ask = 'the tested versions, such as ">=1.20 <2"'
    if len(names) != 1:
        what = f"both {' and '.join(names)} read {form}" if names else "cannot be derived"
        ask = f"write name{': ' if names else ''}{' or '.join(names)}, and version: {ask}"
        return [notes.todo("framework", "no-framework", "framework", what, ask)]
    lines = entry_lines("name", names[0])
    if versions is not None and versions.constraint is not None:
        notes.tell("framework.version", "inferred", versions.reason, f"written as {versions.constraint}")
        return block_lines("framework", [*lines, *entry_lines("version", versions.constraint)])
    what = versions.reason if versions else "no file states the compatible versions"
    todo = notes.todo("framework.version", "no-framework-version", "framework.version", what, f"write {ask}")
    return block_lines("framework", [*lines, todo])


def _task(metadata: HubMetadata, notes: ImportNotes) -> Lines:
    """Return the line of the task, or its TODO line."""
    if metadata.task is not None:
        what = f"{CONFIG} has the architecture {printable(metadata.architecture)}"
        notes.tell("task", "task", what, f"written as {metadata.task}")
        return entry_lines("task", metadata.task)
    ask = "write image-classification, object-detection, semantic-segmentation, audio-classification, "
    ask += "text-classification, regression or tensor"
    return [notes.todo("task", "task", "task", "no file states the task of the model", ask)]


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
        *_task(HubMetadata(), notes),
        *_framework(None, None, notes),
        *_format(None, "", notes),
        _ports("inputs", what, notes),
        _ports("outputs", what, notes),
        notes.todo("files", "no-graph", "files", what, ask),
    ]
