"""Entry point of the MLModelScope import, for both forms of its manifests, with a list of unused keys.

The form of the *paper* lists ordered steps for inputs and outputs. The form of the *program* has flat parameters, one
``output`` and MD5 checksums. The effect of flat parameters follows from the program's code; such an inference is
marked, and the author confirms it.
"""

import re
from dataclasses import dataclass
from typing import Any

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.artifact_names import find_close
from benchlock.registry.scaffold.mlmodelscope.model_inputs import inputs_lines, list_code
from benchlock.registry.scaffold.mlmodelscope.model_metadata import (
    Files,
    attribute_lines,
    description_lines,
    files_lines,
    framework_lines,
    license_lines,
    list_images,
    model_files,
    name_lines,
    version_lines,
)
from benchlock.registry.scaffold.mlmodelscope.model_outputs import read_outputs
from benchlock.registry.scaffold.mlmodelscope.original_manifest import Network, OriginalMapping
from benchlock.registry.text.collected_problems import Finding, ImportNotes, format_original, printable
from benchlock.registry.text.parsed_text import Document, Place, child_path
from benchlock.registry.text.yaml import Lines, Oddity, entry_lines, read_yaml_tolerantly

KNOWN: dict[str, tuple[str, ...]] = {
    "": (
        *("name", "version", "description", "author", "references", "license", "hidden", "hide", "attributes"),
        *("framework", "container", "inputs", "output", "outputs", "model"),
        *("before_preprocess", "preprocess", "after_preprocess"),
        *("before_postprocess", "postprocess", "after_postprocess"),
    ),
    "framework": ("name", "version"),
    "model": (
        *("base_url", "graph_path", "weights_path", "is_archive"),
        *("graph_checksum", "weights_checksum", "checksum"),
    ),
    "inputs": ("type", "description", "parameters", "layer_name", "element_type", "steps"),
    "outputs": ("type", "description", "parameters", "layer_name", "element_type", "steps"),
    "inputs.parameters": (
        *("element_type", "input_layer", "layer_name", "layout", "color_mode", "dimensions", "mean", "scale"),
        *("max_dimension", "min_dimension", "keep_aspect_ratio", "crop_method", "crop_ratio"),
    ),
    "outputs.parameters": (
        *("element_type", "probabilities_layer", "boxes_layer", "classes_layer", "masks_layer", "layer_name"),
        *("probabilities_transform", "features_url", "features_checksum", "background_index"),
    ),
    "inputs.steps": ("decode", "resize", "crop", "normalize", "cast"),
    "inputs.steps.decode": ("data_layout", "color_mode", "element_type"),
    "inputs.steps.resize": ("dimensions", "method", "keep_aspect_ratio"),
    "inputs.steps.normalize": ("mean", "rescale"),
    "inputs.steps.cast": ("element_type",),
    "outputs.steps": ("argsort", "softmax"),
    "outputs.steps.argsort": ("labels_url",),
}
"""The keys of both forms, by section."""

_AMBIGUOUS = frozenset(".[]")


def list_leftovers(value: dict[str, Any], notes: ImportNotes) -> None:
    """List every unused key below the top level; a mapping of which nothing was used is listed as a whole."""
    used_parents = {path[:end] for path in notes.used for end in range(len(path)) if path[end] in ".["}
    _walk(value, "", "", used_parents, notes)


def _walk(value: Any, path: str, section: str, used_parents: set[str], notes: ImportNotes) -> None:  # noqa: ANN401
    """List the unused keys of one mapping or list."""
    keyed = value.items() if isinstance(value, dict) else enumerate(value)
    for key, inner in keyed:
        key_path = child_path(path, key)
        # A key with a dot equals the path of another key, and belongs to neither form.
        is_ambiguous = isinstance(key, str) and (not key or not _AMBIGUOUS.isdisjoint(key))
        if key_path in notes.used and not is_ambiguous:
            continue
        if key_path in used_parents and not is_ambiguous and isinstance(inner, dict | list):
            _walk(inner, key_path, section if isinstance(key, int) else _section(section, key), used_parents, notes)
        else:
            known = KNOWN.get(section, ())
            close = find_close(str(key), known) if key not in known else []
            hint = f" (did you mean {close[0]}?)" if close else ""
            ask = "if it affects a result, express it in the native form; then delete this line"
            notes.todo_unplaced(key_path, "unknown-key", f"{format_original(inner)} is unknown{hint}", ask)


def _section(section: str, key: str) -> str:
    """Return the section of a key in ``KNOWN``."""
    name = "outputs" if key == "output" and not section else key
    return f"{section}.{name}" if section else name


_PORTS = ("inputs", "output", "outputs", "model")
_FORMATS = {
    ("tensorflow", "pb"): "frozen-graph",
    ("tensorflow", "h5"): "hdf5",
    ("tensorflow", "hdf5"): "hdf5",
    ("tensorflow", "keras"): "keras",
    ("tensorflow", "tflite"): "tflite",
    ("litert", "tflite"): "tflite",
    ("onnxruntime", "onnx"): "onnx",
    ("pytorch", "pt"): "torchscript",
    ("pytorch", "pth"): "torchscript",
}
"""The most likely format of a graph file, by framework and file name extension."""

_ENDING = re.compile(r"\.([A-Za-z0-9]+)(\?.*)?$")
_CERTAIN = ("onnx", "tflite", "keras")


@dataclass(frozen=True, slots=True)
class ImportedManifest:
    """A native manifest, its name if it has one, and the findings about the original.

    ``used`` has the paths of the original that the text, or findings of other paths, cover.
    """

    name: str | None
    text: str
    findings: tuple[Finding, ...]
    used: frozenset[str]

    @property
    def todos(self) -> int:
        """The number of TODO lines."""
        return sum(finding.todo for finding in self.findings)


@dataclass(frozen=True, slots=True)
class ImportFailure:
    """The error of a text that is not an MLModelScope manifest; ``broken`` if it is not readable YAML."""

    error: InvalidInputError
    broken: bool


def import_all(originals: "dict[str, bytes]") -> "dict[str, ImportedManifest | ImportFailure]":
    """Import originals by name, in order, so that the second of two equal model names refers to the first."""
    seen: dict[tuple[str, str], str] = {}
    return {source: _import_one(text, source, seen) for source, text in originals.items()}


def _import_one(text: bytes, source: str, seen: dict[tuple[str, str], str]) -> ImportedManifest | ImportFailure:
    """Import one original."""
    try:
        document, oddities = read_yaml_tolerantly(text, source)
    except InvalidInputError as error:
        return ImportFailure(error, broken=True)
    reason = _reject_reason(document.value)
    if reason:
        ask = "choose a model manifest of MLModelScope: it has framework, inputs, output or outputs, and model"
        return ImportFailure(InvalidInputError(reason, where=source, next_step=ask), broken=False)
    return _convert(document, oddities, source, seen)


def _reject_reason(value: object) -> str:
    """Return why a document is not an MLModelScope manifest; empty if it is one."""
    if isinstance(value, dict) and "schema" in value and "kind" in value:
        return "this is already a benchlock manifest"
    if not isinstance(value, dict) or "framework" not in value or not any(key in value for key in _PORTS):
        return "this is not a model manifest of MLModelScope"
    return ""


def _convert(
    document: Document, oddities: tuple[Oddity, ...], source: str, seen: dict[tuple[str, str], str]
) -> ImportedManifest:
    """Convert an MLModelScope manifest."""
    notes = ImportNotes()
    for oddity in oddities:
        ask = "check what was meant, then delete this line"
        what = f"{printable(oddity.what)} (line {oddity.line})"
        if oddity.lost_value is not None:
            what += f", ignoring {format_original(oddity.lost_value)}"
        notes.todo_unplaced(oddity.path, "yaml", what, ask)
    top = OriginalMapping(Place(document), document.value, notes)
    name, lines = _lines(top, source, seen)
    list_leftovers(document.value, notes)
    head: Lines = [
        f"# From the MLModelScope manifest {printable(source)}.",
        "# Values that it does not state are omitted, each with a TODO line: add the value, then delete the line.",
        *notes.unplaced,
    ]
    text = "".join(f"{line}\n" for line in [*head, *lines])
    return ImportedManifest(name, text, tuple(notes.findings), frozenset(notes.used))


def _lines(top: OriginalMapping, source: str, seen: dict[tuple[str, str], str]) -> tuple[str | None, Lines]:
    """Return the name and the lines of the native manifest."""
    name, name_part = name_lines(top, seen, source)
    heading = [*name_part, *version_lines(top), *license_lines(top), *description_lines(top)]
    framework, framework_part = framework_lines(top)
    list_images(top)
    list_code(top)
    files = Files(top.notes, [], set())
    form, format_part = _format_lines(top, framework, model_files(top, files))
    network = Network(form)
    inputs = inputs_lines(top, network)
    outputs = read_outputs(top, network, files)
    body = [
        *outputs.task,
        *framework_part,
        *format_part,
        *inputs,
        *outputs.outputs,
        *outputs.predictions,
        *files_lines(files),
    ]
    return name, ["schema: 1", "kind: model", *heading, *body, *attribute_lines(top)]


def _format_lines(top: OriginalMapping, framework: str | None, graph: str) -> tuple[str | None, Lines]:
    """Return the format of the graph file, which is certain for a few file name extensions only."""
    path, match = top.place.at("model", "graph_path").path, _ENDING.search(graph)
    ending = match[1].lower() if match else ""
    form = _FORMATS.get((framework or "", ending))
    if form is None:
        what = f"cannot be derived from {framework or 'the framework'} and the extension .{ending}"
        if not ending:
            what = "cannot be derived: the graph's file name has no extension"
        if not graph:
            what = "the original does not name a graph"
        return None, [top.notes.todo(path, "format", "format", what, "write the format of the graph file")]
    if form in _CERTAIN:
        return form, entry_lines("format", form)
    what = f"{form} is what MLModelScope's {framework} agent read from .{ending} files; a file name is no proof"
    if form == "frozen-graph":
        what += "; layers are named by operations, and their first tensor, NAME:0, is meant"
    todo = top.notes.todo(path, "inferred", "confirm", what, "check, then delete this line")
    return form, [todo, *entry_lines("format", form)]
