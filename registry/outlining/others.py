"""Manifests of frameworks, from a wheel's name, and of images, from the lock of their wheels."""

import posixpath
from pathlib import Path

from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.files import open_regular
from benchlock.registry.importing.findings import Notes
from benchlock.registry.importing.outline import Lines, block, element, entry
from benchlock.registry.outlining.given import Given, heading
from benchlock.registry.versions import from_pep440
from benchlock.registry.wheels import read_wheels

_PREDICTORS = {
    "onnxruntime": ("onnxruntime", "onnxruntime"), "onnxruntime-gpu": ("onnxruntime", "onnxruntime"),
    "torch": ("pytorch", "pytorch"),
    "tensorflow": ("tensorflow", "tensorflow"), "tensorflow-cpu": ("tensorflow", "tensorflow"),
    "ai-edge-litert": ("litert", "litert"),
}  # fmt: skip
"""The framework and its predictor that a distribution is."""


def framework_lines(given: Given | None, notes: Notes) -> Lines:
    """The manifest of the framework whose wheel is given; a bare one where nothing is."""
    if given is None:
        return [*heading("framework", None, "", notes), *_bare_framework(notes)]
    try:
        distribution, version, _, _ = parse_wheel_filename(given.path.name)
    except InvalidWheelFilename as error:
        what = f"{given.path.name} is no name of a wheel: {error}"
        raise InvalidInputError(what, where=str(given.path), next_step="name a wheel (.whl), or no file") from error
    name, predictor = _PREDICTORS.get(distribution, (str(distribution), None))
    lines = heading("framework", name, given.path.name, notes, version=str(from_pep440(str(version))))
    if predictor is None:
        ask = "write onnxruntime, pytorch, tensorflow or litert"
        lines.append(
            notes.todo("predictor", "no-predictor", "predictor", f"none is known to drive {distribution}", ask)
        )
    else:
        lines.append(f"predictor: {predictor}")
    return [*lines, *entry("distributions", [str(distribution)])]


def image_lines(given: Given | None, notes: Notes) -> Lines:
    """The manifest of the image whose lock of wheels (PEP 751) is given; a bare one where nothing is."""
    lines = heading("image", None, "" if given is None else given.path.name, notes)
    what = "no file says of which framework it is an environment"
    ask = "write framework: NAME and version: VERSION; benchlock image build writes all of this"
    lines.append(notes.todo("provides", "provides", "provides", what, ask))
    if given is None:
        platform = "write os, arch, device, python and wheels for each"
        return [
            *lines,
            notes.todo("platforms", "platforms", "platforms", "no lock of wheels was named", platform),
            notes.todo("files", "no-files", "files", "no lock of wheels was named", "list the lock and the wheels"),
        ]
    with open_regular(given.path) as stream:
        wheels = read_wheels(stream.read(), given.path.name)
    ask = 'write os, arch, device and python, such as linux, amd64, cpu and "3.11"'
    unsaid = notes.todo("platforms[0]", "platforms", "os, arch, device, python", "the lock is of one platform", ask)
    lines += block("platforms", element([*entry("wheels", given.path.name), unsaid]))
    files = given.file(given.path, "wheels")
    for wheel in wheels:
        place = Path(posixpath.join(given.path.parent.as_posix(), wheel.path))
        files += given.file(place, "wheels", called=wheel.path)
    return [*lines, *block("files", files)]


def _bare_framework(notes: Notes) -> Lines:
    what = "no wheel was named"
    return [
        notes.todo("predictor", "no-predictor", "predictor", what, "write onnxruntime, pytorch, tensorflow or litert"),
        notes.todo(
            "distributions", "distributions", "distributions", what, "list the Python distributions that are it"
        ),
    ]
