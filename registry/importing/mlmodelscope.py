"""MLModelScope's manifests in the native form, in both of the forms that they were written in.

The *paper's* form lists ordered steps for inputs and outputs; the *program's* has flat parameters, one ``output`` and
MD5 checksums. What the program's code did with the flat parameters is read as an inference, which the author confirms.
"""

import re
from dataclasses import dataclass

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.importing.attributes import attribute_lines
from benchlock.registry.importing.findings import Finding, Notes, printable, shown
from benchlock.registry.importing.heading import (
    description_lines,
    framework_lines,
    license_lines,
    list_images,
    name_lines,
    version_lines,
)
from benchlock.registry.importing.inputs import inputs_lines, list_code
from benchlock.registry.importing.leftovers import list_leftovers
from benchlock.registry.importing.original import Original
from benchlock.registry.importing.outline import Lines, entry
from benchlock.registry.importing.outputs import read_outputs
from benchlock.registry.importing.ports import Network
from benchlock.registry.importing.sources import Files, files_lines, model_files
from benchlock.registry.yaml import Document, Oddity, Place, read_tolerantly

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
"""What a graph file most likely is, by framework and ending."""

_ENDING = re.compile(r"\.([A-Za-z0-9]+)(\?.*)?$")
_CERTAIN = ("onnx", "tflite", "keras")


@dataclass(frozen=True, slots=True)
class Imported:
    """A native manifest as it was written, its name if it has one, and what was found in the original.

    ``used`` are the paths of the original that are said by the text, or by findings of other paths.
    """

    name: str | None
    text: str
    findings: tuple[Finding, ...]
    used: frozenset[str]

    @property
    def todos(self) -> int:
        return sum(finding.todo for finding in self.findings)


@dataclass(frozen=True, slots=True)
class NotImported:
    """A text that is no manifest of MLModelScope's: ``error`` says why; ``broken`` that it is no readable YAML."""

    error: InvalidInputError
    broken: bool


def import_all(originals: "dict[str, bytes]") -> "dict[str, Imported | NotImported]":
    """Each original, by what it is called: in order, so that the second of two equal names is told of the first."""
    taken: dict[tuple[str, str], str] = {}
    return {called: _import_one(text, called, taken) for called, text in originals.items()}


def _import_one(text: bytes, called: str, taken: dict[tuple[str, str], str]) -> Imported | NotImported:
    try:
        document, oddities = read_tolerantly(text, called)
    except InvalidInputError as error:
        return NotImported(error, broken=True)
    reason = _other(document.value)
    if reason:
        ask = "name a model manifest of MLModelScope's: it has framework, inputs, output or outputs, and model"
        return NotImported(InvalidInputError(reason, where=called, next_step=ask), broken=False)
    return _imported(document, oddities, called, taken)


def _other(value: object) -> str:
    """Why a document is no manifest of MLModelScope's; empty if it is one."""
    if isinstance(value, dict) and "schema" in value and "kind" in value:
        return "this is a manifest of benchlock itself"
    if not isinstance(value, dict) or "framework" not in value or not any(key in value for key in _PORTS):
        return "this is no model manifest of MLModelScope's"
    return ""


def _imported(
    document: Document, oddities: tuple[Oddity, ...], called: str, taken: dict[tuple[str, str], str]
) -> Imported:
    notes = Notes()
    for odd in oddities:
        ask = "check what was meant, then delete this line"
        what = f"{printable(odd.what)} (line {odd.line})"
        if odd.passed is not None:
            what += f", passing over {shown(odd.passed)}"
        notes.todo_unplaced(odd.path, "yaml", what, ask)
    top = Original(Place(document), document.value, notes)
    name, lines = _lines(top, called, taken)
    list_leftovers(document.value, notes)
    head: Lines = [
        f"# From the MLModelScope manifest {printable(called)}.",
        "# What it leaves unsaid is left out under a TODO line: do what each asks for, and delete it.",
        *notes.unplaced,
    ]
    text = "".join(f"{line}\n" for line in [*head, *lines])
    return Imported(name, text, tuple(notes.findings), frozenset(notes.used))


def _lines(top: Original, called: str, taken: dict[tuple[str, str], str]) -> tuple[str | None, Lines]:
    """The native manifest from its first key on."""
    name, named = name_lines(top, taken, called)
    heading = [*named, *version_lines(top), *license_lines(top), *description_lines(top)]
    framework, framed = framework_lines(top)
    list_images(top)
    list_code(top)
    files = Files(top.notes, [], set())
    form, formatted = _format_lines(top, framework, model_files(top, files))
    network = Network(form)
    inputs = inputs_lines(top, network)
    answers = read_outputs(top, network, files)
    body = [*answers.task, *framed, *formatted, *inputs, *answers.outputs, *answers.predictions, *files_lines(files)]
    return name, ["schema: 1", "kind: model", *heading, *body, *attribute_lines(top)]


def _format_lines(top: Original, framework: str | None, graph: str) -> tuple[str | None, Lines]:
    """The format of the graph file: certain from few endings, likely from others."""
    path, ended = top.place.at("model", "graph_path").path, _ENDING.search(graph)
    ending = ended[1].lower() if ended else ""
    form = _FORMATS.get((framework or "", ending))
    if form is None:
        what = f"none follows from {framework or 'the framework'} and a file that ends in .{ending}"
        if not ending:
            what = "the graph's name has no ending, from which one could follow"
        if not graph:
            what = "the original names no graph"
        return None, [top.notes.todo(path, "format", "format", what, "write how the graph file is written")]
    if form in _CERTAIN:
        return form, entry("format", form)
    what = f"{form} is what .{ending} was to their {framework} program, and the name of a file proves nothing"
    if form == "frozen-graph":
        what += "; layers are named by operations, of which the first tensor, NAME:0, was meant"
    todo = top.notes.todo(path, "inferred", "confirm", what, "check, then delete this line")
    return form, [todo, *entry("format", form)]
