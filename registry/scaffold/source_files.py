"""The files from which a manifest is generated, and the name that is derived from them."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeVar

from benchlock.artifacts.atomic_files import open_regular
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.file_trees import check_path
from benchlock.registry.inspection.formats.model_graphs import FILE
from benchlock.registry.inspection.formats.protobuf import MalformedError
from benchlock.registry.inspection.formats.untrusted_files import OverBudgetError, describe_mismatch
from benchlock.registry.scaffold.mlmodelscope.model_metadata import native_name
from benchlock.registry.text.collected_problems import ImportNotes
from benchlock.registry.text.yaml import Lines, element_lines, entry_lines

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ScaffoldSource:
    """The absolute path of a file or folder, and of the folder for its manifest; ``notes`` receives the findings."""

    path: Path
    folder: Path
    notes: ImportNotes

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
        return element_lines([*lines, *entry_lines("source", self.beside(path))])


def heading(kind: str, name: str | None, file_name: str, notes: ImportNotes, *, version: str = "") -> Lines:
    """Return the first keys of any manifest; the version is 1.0.0 unless a file states it."""
    lines = ["schema: 1", f"kind: {kind}"]
    if name is None:
        lines.append(notes.todo("name", "no-name", "name", "no file states one", "write lower-case letters and digits"))
    else:
        notes.tell("name", "inferred", f"the name of {file_name}", f"written as {name}")
        lines += entry_lines("name", name)
    if not version:
        notes.tell("version", "inferred", "the first version", "written as 1.0.0")
    what = f"{file_name} states none in a readable form" if file_name else "nothing states one"
    ask = "write the SPDX expression, such as Apache-2.0; or various, or proprietary"
    return [*lines, f"version: {version or '1.0.0'}", notes.todo("license", "no-license", "license", what, ask)]


def name_of(path: Path) -> str | None:
    """Return the name of a file, ``resnet8-int8`` for ``ResNet8 (int8).onnx``; of ``saved_model.pb``, its folder's."""
    if path.is_file() and path.name != FILE:
        return native_name(Path(path.name.removesuffix(".gz")).stem)
    folder = path if path.is_dir() else path.parent
    return native_name(folder.name.removesuffix(".savedmodel"))


def require_samples(path: Path, samples: int | None) -> None:
    """Check that there are samples, or that their number is unknown.

    Raises:
        InvalidInputError: There are none, and a split cannot be empty.
    """
    if samples == 0:
        what = f"{path.name} has no samples"
        raise InvalidInputError(what, where=str(path), next_step="choose a file with samples")
