"""The files from which a manifest is generated, and the name that is derived from them."""

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, TypeVar

from packaging.licenses import InvalidLicenseExpression, canonicalize_license_expression

from benchlock.artifacts.atomic_files import open_regular
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.file_trees import check_path
from benchlock.registry.inspection.formats.model_graphs import FILE
from benchlock.registry.inspection.formats.protobuf import MalformedError
from benchlock.registry.inspection.formats.untrusted_files import OverBudgetError, describe_mismatch
from benchlock.registry.scaffold.mlmodelscope.model_metadata import native_name
from benchlock.registry.text.collected_problems import ImportNotes, format_original, printable
from benchlock.registry.text.yaml import Lines, element_lines, entry_lines

T = TypeVar("T")

_CREATIVE_COMMONS = re.compile(
    r"https?://(?:www\.)?creativecommons\.org/(?:licenses|publicdomain)/([a-z-]+)/(\d\.\d)/?(?:legalcode|deed\.\w+)?"
)
_LICENSE_LIST = re.compile(
    r"https?://(?:spdx\.org/licenses|choosealicense\.com/licenses|opensource\.org/licenses?)/([\w.+-]+?)(?:\.html|/)?",
    re.ASCII,
)
_APACHE = re.compile(r"https?://(?:www\.)?apache\.org/licenses/LICENSE-2\.0(?:\.html|\.txt)?")
_LONGEST_LICENSE = 200
_USUAL_NAMES = (
    "model", "saved_model", "weights", "net", "best", "last", "final", "checkpoint", "checkpoints", "pytorch_model",
)  # fmt: skip
"""Names of files and folders that tell nothing about a model."""


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file whose source is known: the source as manifests write it, and its digest and size in bytes if stated."""

    source: str
    sha256: str | None
    size: int | None = None


@dataclass(frozen=True, slots=True)
class ScaffoldSource:
    """The files of which a manifest is generated.

    Attributes:
        path: The absolute path of a file or folder.
        folder: The absolute path of the folder for the manifest.
        notes: Receives the findings.
        repository: The name of the repository on a server; empty for local files.
        remote: The sources of files by path, where they are not the paths themselves.
        generated: Receives the texts of files to write beside the manifest, by file name.
    """

    path: Path
    folder: Path
    notes: ImportNotes
    repository: str = ""
    remote: Mapping[Path, RemoteFile] = field(default_factory=dict)
    generated: dict[str, str] = field(default_factory=dict)

    @property
    def origin(self) -> str:
        """The name of the repository or file, for messages."""
        return self.repository or self.path.name

    @property
    def name(self) -> str | None:
        """The name for the artifact: that of the repository or file; None if it does not contain a valid name."""
        return native_name(self.repository.rpartition("/")[2]) if self.repository else name_of(self.path)

    @property
    def name_origin(self) -> str:
        """What has the name of the artifact, for messages."""
        place = _find_named(self.path)
        if self.repository or place == self.path or self.path.name == FILE:
            return self.origin
        return f"the folder {place.name}, since many files are called {self.path.name}"

    def beside(self, path: Path) -> str:
        """Return a path as a source in the manifest."""
        relative = Path(os.path.relpath(path, self.folder)).as_posix()
        return relative if relative.startswith("../") else f"./{relative}"

    def read(self, path: Path, reader: Callable[[BinaryIO, int], T], form: str) -> T:
        """Return the result of ``reader`` for a file; ``form`` is the name of the expected format.

        Raises:
            InvalidInputError: The file is not of that format.
        """
        with open_regular(path) as stream:
            try:
                return reader(stream, path.stat().st_size)
            except OverBudgetError as error:
                raise InvalidInputError(
                    f"{path.name} {error}", where=str(path), next_step="choose another file"
                ) from error
            except MalformedError as error:
                what = f"{path.name} {describe_mismatch(stream, form, error)}"
                raise InvalidInputError(what, where=str(path), next_step="choose another file") from error

    def file(self, path: Path, role: str | None = None, *, called: str | None = None) -> Lines:
        """Return the entry in ``files`` of a file or folder, by its own name or as ``called``."""
        name = called or (f"{path.name}/" if path.is_dir() else path.name)
        lines = entry_lines("path", check_path(name.removesuffix("/")) + ("/" if name.endswith("/") else ""))
        lines += entry_lines("role", role) if role else []
        remote = self.remote.get(Path(os.path.normpath(path)))
        if remote is None and self.repository:
            what = f"{self.repository} has no {name} with a stated SHA-256"
            raise InvalidInputError(what, where=self.repository, next_step="download the model, and use its file")
        if remote is None:
            return element_lines([*lines, *entry_lines("source", self.beside(path))])
        lines += entry_lines("source", remote.source)
        lines += entry_lines("sha256", remote.sha256) if remote.sha256 is not None else []
        return element_lines([*lines, *(entry_lines("size", remote.size) if remote.size is not None else [])])

    def generated_file(self, path: str, text: str, role: str | None = None) -> Lines:
        """Return the entry in ``files`` of a file ``path`` that is written beside the manifest.

        Its name begins with that of the source, since a folder may have several manifests.
        """
        name = f"{self.path.name if self.path.is_dir() else self.path.stem}.{path}"
        self.generated[name] = text
        self.notes.tell("files", "inferred", f"{path} is generated", f"written as {printable(name)}")
        lines = [*entry_lines("path", path), *(entry_lines("role", role) if role else [])]
        return element_lines([*lines, *entry_lines("source", f"./{name}")])


def heading(
    kind: str,
    name: str | None,
    file_name: str,
    notes: ImportNotes,
    *,
    version: str = "",
    license_text: str = "",
    name_origin: str = "",
) -> Lines:
    """Return the first keys of any manifest; the version is 1.0.0 unless a file states it.

    Args:
        kind: The kind of the manifest.
        name: The name; None if there is none.
        file_name: The name of the file that was read; empty without one.
        notes: Receives the findings.
        version: The version that the file states; empty if it states none.
        license_text: The license that the file or its card states, as written there; empty if it states none.
        name_origin: What has the name, for a message; empty if it is the file.
    """
    lines = ["schema: 1", f"kind: {kind}"]
    if name is None:
        lines.append(notes.todo("name", "no-name", "name", "no file states one", "write lower-case letters and digits"))
    else:
        notes.tell("name", "inferred", f"the name of {name_origin or file_name}", f"written as {name}")
        lines += entry_lines("name", name)
    if not version:
        notes.tell("version", "inferred", "the first version", "written as 1.0.0")
    return [*lines, f"version: {version or '1.0.0'}", *_license_line(license_text, file_name, notes)]


def _license_line(stated: str, file_name: str, notes: ImportNotes) -> Lines:
    """Return the line of the license, or its TODO line if no SPDX expression is stated."""
    ask = "write the SPDX expression, such as Apache-2.0; or various, or proprietary"
    if not stated:
        what = f"{file_name} states none in a readable form" if file_name else "nothing states one"
        return [notes.todo("license", "no-license", "license", what, ask)]
    expression = _find_expression(stated)
    if expression is None:
        what = f"{format_original(stated)} is not an SPDX expression"
        return [notes.todo("license", "license", "license", what, ask)]
    notes.tell("license", "license", f"{format_original(stated)} is stated", f"written as {expression}")
    return entry_lines("license", expression)


def _find_expression(stated: str) -> str | None:
    """Return the SPDX expression for a license, or for the address of its text or list entry; None without one."""
    text = stated.strip()
    if match := _CREATIVE_COMMONS.fullmatch(text):
        is_zero = match[1] == "zero"
        text = f"CC0-{match[2]}" if is_zero else f"CC-{match[1]}-{match[2]}"
    elif match := _LICENSE_LIST.fullmatch(text):
        text = match[1]
    elif _APACHE.fullmatch(text):
        text = "Apache-2.0"
    try:
        return str(canonicalize_license_expression(text[:_LONGEST_LICENSE]))
    except InvalidLicenseExpression:
        return None


def name_of(path: Path) -> str | None:
    """Return the name of a file, ``resnet8-int8`` for ``ResNet8 (int8).onnx``; of ``model.onnx``, its folder's."""
    return native_name(_stem(_find_named(path)))


def _find_named(path: Path) -> Path:
    """Return the file or folder itself; or, if its name is a usual one, the nearest folder around it with another."""
    own = path.parent if path.name == FILE else path
    place = next((place for place in (own, *own.parents) if _stem(place).lower() not in _USUAL_NAMES), own)
    return place if place == own or native_name(_stem(place)) else own


def _stem(path: Path) -> str:
    """Return the name of a file or folder without extension."""
    return path.name.removesuffix(".savedmodel") if path.is_dir() else Path(path.name.removesuffix(".gz")).stem


def require_samples(path: Path, samples: int | None) -> None:
    """Check that there are samples, or that their number is unknown.

    Raises:
        InvalidInputError: There are none, and a split cannot be empty.
    """
    if samples == 0:
        what = f"{path.name} has no samples"
        raise InvalidInputError(what, where=str(path), next_step="choose a file with samples")
