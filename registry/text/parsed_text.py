"""A parsed text: its value, and the line and spelling of every part, for error messages."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from benchlock.artifacts.errors import InvalidInputError

T = TypeVar("T")
V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class Mark:
    """The position of a value: its line, counted from 1, and the spelling of a scalar."""

    line: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class Document:
    """A parsed text. Paths look like ``inputs[0].steps[2].resize.size``."""

    value: Any
    name: str
    marks: dict[str, Mark] = field(default_factory=dict)

    def where(self, path: str) -> str:
        """Return a path with the name of the document and the line, for error messages."""
        place = f"{self.name}, line {self._line(path)}" if self.marks else self.name
        return f"{path} ({place})" if path else place

    def _line(self, path: str) -> int:
        while path not in self.marks and path:
            path = path[: max(path.rfind("."), path.rfind("["), 0)]
        return self.marks[path].line if path in self.marks else 1


@dataclass(frozen=True, slots=True)
class Place:
    """A path in a document, for errors and for paths below it."""

    document: Document
    path: str = ""

    def at(self, *keys: str | int) -> "Place":
        """Return the place of a value below this one."""
        path = self.path
        for key in keys:
            path = child_path(path, key)
        return Place(self.document, path)

    def error(self, what: str, next_step: str | None = None) -> InvalidInputError:
        """Make an error for this place, with the file and the line of the nearest value in the text."""
        return InvalidInputError(what, where=self.document.where(self.path), next_step=next_step)

    def parsed(self, parse: Callable[[V], T], value: V) -> T:
        """Return ``parse(value)``; its error gets the location of this place."""
        try:
            return parse(value)
        except InvalidInputError as error:
            raise self.error(error.what, error.next_step) from error

    @property
    def spelling(self) -> str:
        """The original spelling of the scalar at this place; empty if unknown."""
        mark = self.document.marks.get(self.path)
        return mark.text if mark else ""


def child_path(path: str, key: str | int) -> str:
    """Return the path of a key or index below ``path``."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else key
