"""The one way in: what is given, of which kind it is to be, and the manifest as a commented text."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.importing.findings import Finding, Notes, printable
from benchlock.registry.importing.outline import Lines
from benchlock.registry.names import Kind
from benchlock.registry.outlining.datasets import dataset_lines
from benchlock.registry.outlining.given import Given
from benchlock.registry.outlining.models import model_lines
from benchlock.registry.outlining.others import framework_lines, image_lines

_KINDS: dict[Kind, Callable[[Given | None, Notes], Lines]] = {
    "model": model_lines,
    "dataset": dataset_lines,
    "framework": framework_lines,
    "image": image_lines,
}


@dataclass(frozen=True, slots=True)
class Outlined:
    """A manifest as it was written, and what its author should know; the TODO lines are what they must finish."""

    text: str
    findings: tuple[Finding, ...]

    @property
    def todos(self) -> int:
        return sum(finding.todo for finding in self.findings)


def outlined(kind: Kind, path: Path | None, folder: Path) -> Outlined:
    """The manifest of ``kind`` of a file or folder, to be written into ``folder``; both are absolute.

    Raises:
        InvalidInputError: nothing is there, it is not what its name says, or nothing is known of its like.
    """
    if path is not None and not path.exists():
        raise InvalidInputError(f"{path} does not exist", where=str(path), next_step="name a file or folder")
    notes = Notes()
    lines = _KINDS[kind](None if path is None else Given(path, folder, notes), notes)
    source = f" from {printable(path.name)}" if path else ""
    head = [
        f"# The manifest of {'an' if kind == 'image' else 'a'} {kind}, outlined by benchlock init{source}.",
        "# What is not known is left out under a TODO line: do what each asks for, and delete it.",
    ]
    return Outlined("".join(f"{line}\n" for line in [*head, *lines]), tuple(notes.findings))
