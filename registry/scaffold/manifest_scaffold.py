"""Entry point of ``init``: a commented manifest of any kind, and those of frameworks and images."""

import posixpath
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from benchlock.artifacts.atomic_files import open_regular
from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.artifact_names import Kind, find_close
from benchlock.registry.inspection.formats.image_documents import read_wheels
from benchlock.registry.scaffold.dataset_scaffold import dataset_lines
from benchlock.registry.scaffold.model_scaffold import MODEL_SUFFIXES, model_lines
from benchlock.registry.scaffold.scaffold_answers import TODO_NOTE, join_lines
from benchlock.registry.scaffold.source_files import ScaffoldSource, heading
from benchlock.registry.text.collected_problems import Finding, ImportNotes, printable
from benchlock.registry.text.yaml import Lines, block_lines, element_lines, entry_lines
from benchlock.registry.versions.semantic_version import from_pep440

_SUFFIXES = (*MODEL_SUFFIXES, ".yaml", ".yml", ".json", ".csv", ".jsonl", ".ndjson", ".parquet", ".npz", ".idx", ".gz")
"""The file name extensions of models, datasets and manifests."""
_MOST_FILES = 10_000
"""Files of a folder that are compared with the name of a missing one."""
_PREDICTORS = {
    "onnxruntime": ("onnxruntime", "onnxruntime"), "onnxruntime-gpu": ("onnxruntime", "onnxruntime"),
    "torch": ("pytorch", "pytorch"),
    "tensorflow": ("tensorflow", "tensorflow"), "tensorflow-cpu": ("tensorflow", "tensorflow"),
    "ai-edge-litert": ("litert", "litert"),
}  # fmt: skip
"""The framework and its predictor, by Python distribution."""


def framework_lines(source: ScaffoldSource | None, notes: ImportNotes) -> Lines:
    """Return the manifest of the framework in a wheel; only TODO lines without a source."""
    if source is None:
        return [*heading("framework", None, "", notes), *_bare_framework(notes)]
    try:
        distribution, version, _, _ = parse_wheel_filename(source.path.name)
    except InvalidWheelFilename as error:
        what = f"{source.path.name} is not a wheel file name: {error}"
        raise InvalidInputError(what, where=str(source.path), next_step="choose a wheel (.whl), or no file") from error
    name, predictor = _PREDICTORS.get(distribution, (str(distribution), None))
    lines = heading("framework", name, source.path.name, notes, version=str(from_pep440(str(version))))
    if predictor is None:
        ask = "write onnxruntime, pytorch, tensorflow or litert"
        lines.append(
            notes.todo("predictor", "no-predictor", "predictor", f"no predictor is known for {distribution}", ask)
        )
    else:
        lines.append(f"predictor: {predictor}")
    return [*lines, *entry_lines("distributions", [str(distribution)])]


def image_lines(source: ScaffoldSource | None, notes: ImportNotes) -> Lines:
    """Return the manifest of the image with a lock of wheels (PEP 751); only TODO lines without a source."""
    lines = heading("image", None, "" if source is None else source.path.name, notes)
    what = "no file states the framework of this environment"
    ask = "write framework: NAME and version: VERSION; building an image writes all of this"
    lines.append(notes.todo("provides", "provides", "provides", what, ask))
    if source is None:
        platform = "write os, arch, device, python and wheels for each"
        return [
            *lines,
            notes.todo("platforms", "platforms", "platforms", "no wheels lock given", platform),
            notes.todo("files", "no-files", "files", "no wheels lock given", "list the wheels lock and the wheels"),
        ]
    with open_regular(source.path) as stream:
        wheels = read_wheels(stream.read(), source.path.name)
    ask = 'write os, arch, device and python, such as linux, amd64, cpu and "3.11"'
    todo = notes.todo(
        "platforms[0]", "platforms", "os, arch, device, python", "the wheels lock is for one platform", ask
    )
    lines += block_lines("platforms", element_lines([*entry_lines("wheels", source.path.name), todo]))
    files = source.file(source.path, "wheels")
    for wheel in wheels:
        wheel_path = Path(posixpath.join(source.path.parent.as_posix(), wheel.path))
        files += source.file(wheel_path, "wheels", called=wheel.path)
    return [*lines, *block_lines("files", files)]


def operator_lines(source: ScaffoldSource | None, notes: ImportNotes) -> Lines:
    """Return the manifest of the operator with a reference in Python; the rest are TODO lines."""
    lines = heading("operator", None, "" if source is None else source.path.name, notes)
    asks = {
        "op": "write type and opset, such as {type: Conv, opset: 21}",
        "dtype": "write float32 or float64",
        "inputs": "list the inputs of the operator, such as {name: X}",
        "reference": "write file and function of Python code in float64, or onnx",
        "fill": "write {kind: normal, generator: pcg64}",
        "tolerance": "write l2 and linf, such as {l2: 1.0, linf: 1.0}",
        "cases": "write name, shapes, arguments and reduction of each",
    }
    lines += [notes.todo(key, "operator", key, "no file states it", ask) for key, ask in asks.items()]
    return [*lines, *([] if source is None else block_lines("files", source.file(source.path, "code")))]


def recipe_lines(source: ScaffoldSource | None, notes: ImportNotes) -> Lines:
    """Return the manifest of the recipe whose network is in Python; the rest are TODO lines."""
    lines = heading("recipe", None, "" if source is None else source.path.name, notes)
    asks = {
        "task": "write image-classification, audio-classification or text-classification",
        "framework": 'write name and version, such as {name: pytorch, version: ">=2.10 <3"}',
        "network": "write file and function that build the network",
        "loss": "write cross-entropy",
        "optimizer": "write name and lr, such as {name: adam, lr: 1.0e-3}",
        "batch": "write the number of samples of a step",
        "sampler": "write {kind: shuffle, last: drop}",
        "evaluate": "write {every: 1, batch: 256}",
        "inputs": "list the inputs of the network, as for a model",
        "outputs": "write one output of type class-scores",
    }
    lines += [notes.todo(key, "recipe", key, "no file states it", ask) for key, ask in asks.items()]
    return [*lines, *([] if source is None else block_lines("files", source.file(source.path, "code")))]


def _bare_framework(notes: ImportNotes) -> Lines:
    """Return the TODO lines of a framework about which nothing is known."""
    what = "no wheel given"
    return [
        notes.todo("predictor", "no-predictor", "predictor", what, "write onnxruntime, pytorch, tensorflow or litert"),
        notes.todo(
            "distributions", "distributions", "distributions", what, "list the Python distributions of the framework"
        ),
    ]


def suggest_file(text: str) -> str:
    """Return the next step for a text that names no file: the nearest file, or where it was looked for.

    The text is empty if it does not look like the path of a file.
    """
    path = Path(text)
    looks_like_file = path.suffix.lower() in _SUFFIXES or path.is_absolute() or text.startswith(".")
    if not looks_like_file and not ("/" in text and path.parent.is_dir()):
        return ""
    missing = next(place for place in (path, *path.parents) if place.parent.exists())
    try:
        names = sorted(entry.name for entry in islice(missing.parent.iterdir(), _MOST_FILES))
    except OSError:
        names = []
    near = find_close(missing.name, names)
    step = f"did you mean {missing.parent / near[0]}?" if near else "give an existing file or folder"
    return f"{missing.parent.absolute()} has no {printable(missing.name)}; {step}"


_KINDS: dict[Kind, Callable[[ScaffoldSource | None, ImportNotes], Lines]] = {
    "model": model_lines,
    "dataset": dataset_lines,
    "framework": framework_lines,
    "image": image_lines,
    "operator": operator_lines,
    "recipe": recipe_lines,
}


@dataclass(frozen=True, slots=True)
class ManifestScaffold:
    """A generated manifest, and the findings for its author; TODO lines are what the author must complete.

    ``files`` has the text of each file to write beside the manifest, by file name.
    """

    text: str
    findings: tuple[Finding, ...]
    files: Mapping[str, str] = field(default_factory=dict)

    @property
    def todos(self) -> int:
        """The number of TODO lines."""
        return sum(finding.todo for finding in self.findings)


def scaffold_manifest(kind: Kind, path: Path | None, folder: Path) -> ManifestScaffold:
    """Generate the manifest of a file or folder.

    Args:
        kind: The kind of the manifest.
        path: The absolute path of the file or folder; None for a manifest of TODO lines.
        folder: The absolute path of the folder that the manifest will be written to.

    Raises:
        InvalidInputError: The path does not exist, is not what its name says, or is of no known sort.
    """
    if path is None:
        return _make_scaffold(kind, None, ImportNotes())
    if not path.exists():
        raise InvalidInputError(f"{path} not found", where=str(path), next_step=suggest_file(str(path)))
    return scaffold_source(kind, ScaffoldSource(path, folder, ImportNotes()), printable(path.name))


def scaffold_source(kind: Kind, source: ScaffoldSource, origin: str) -> ManifestScaffold:
    """Generate the manifest of a source whose files exist; ``origin`` is its name in the first line.

    Raises:
        InvalidInputError: The file is not what its name says, or is of no known sort.
    """
    return _make_scaffold(kind, source, source.notes, f" from {origin}")


def _make_scaffold(kind: Kind, source: ScaffoldSource | None, notes: ImportNotes, origin: str = "") -> ManifestScaffold:
    lines = _KINDS[kind](source, notes)
    article = "an" if kind in ("image", "operator") else "a"
    head = [
        f"# The manifest of {article} {kind}, generated by benchlock init{origin}.",
        TODO_NOTE,
    ]
    return ManifestScaffold(join_lines([*head, *lines]), tuple(notes.findings), source.generated if source else {})
