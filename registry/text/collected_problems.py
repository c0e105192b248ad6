"""Problems, which reject an input all at once, and findings, which an importer only reports."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Literal

from benchlock.artifacts.errors import BenchlockError, IntegrityError, InvalidInputError
from benchlock.artifacts.user_output import escape_line

MAX_PROBLEMS: Final = 1000
"""Problems that are kept of one check; further ones are dropped."""


class EchoError(InvalidInputError):
    """A problem that the rules of manifests report for the same place too, if a manifest was checked by them."""


class UnknownValueError(Exception):
    """A rule reads a value of a manifest that is missing or wrong."""


@dataclass(slots=True)
class Problems:
    """The errors of a check in the order of their discovery, without duplicates."""

    found: list[BenchlockError] = field(default_factory=list)
    _known: set[tuple[str, str | None]] = field(default_factory=set)

    @contextmanager
    def noted(self, where: str | None = None) -> Iterator[None]:
        """Collect an error that is raised in the context and continue after it; ignore unknown values.

        Args:
            where: The place of input errors; ``None`` leaves the place of the error.
        """
        try:
            yield
        except UnknownValueError:
            pass
        except BenchlockError as error:
            if where is not None and isinstance(error, InvalidInputError):
                error.where = where
            self.add(error)

    def add(self, error: BenchlockError) -> None:
        """Add an error and its ``problems``."""
        for problem in error.problems or (error,):
            if (problem.what, problem.where) not in self._known and len(self.found) < MAX_PROBLEMS:
                self.found.append(problem)
                self._known.add((problem.what, problem.where))

    def has_place(self, where: str | None) -> bool:
        """Return whether a problem has the same place, whatever its line."""
        place = _place(where)
        return bool(place) and any(_place(problem.where) == place for problem in self.found)

    def refuse(self) -> None:
        """Raise the collected problems, if there are any.

        Raises:
            BenchlockError: The first problem, integrity errors before others, with all problems as its ``problems``.
        """
        if self.found:
            raise find_leading_error(self.found)


def _place(where: str | None) -> str:
    path, bracket, _ = (where or "").partition(" (")
    return path if bracket else ""


def find_leading_error(errors: list[BenchlockError]) -> BenchlockError:
    """Return the error to raise: the first integrity error, otherwise the first error, with all problems."""
    first = min(errors, key=lambda error: not isinstance(error, IntegrityError))
    first.problems = tuple(errors) if len(errors) > 1 else ()
    return first


Code = Literal[
    "archive", "argsort", "aspect-ratio", "attribute", "base-url", "cast", "checksum", "claim", "code", "color",
    "constraint", "crop", "crossed-image", "cut-off", "decode-type", "detections", "digest", "dimensions", "dtype",
    "exif", "format", "framework", "http", "image", "image-tag", "inferred", "input-type", "label-offset", "layout",
    "license", "md5", "mean-order", "name", "no-decode", "no-digest", "no-framework",
    "no-framework-version", "no-graph", "no-inputs", "no-layer", "no-license", "no-model", "no-name", "no-outputs",
    "no-predictor", "no-url", "no-version", "normalize", "output-type", "partial-version", "path", "position",
    "rescale", "resize", "same-name", "scheme", "shape", "side", "softmax", "task", "transform", "unknown-key",
    "unknown-step", "unwieldy", "version", "wrong-type", "yaml", "yaml-1.1",
]  # fmt: skip
"""The kinds of findings of an import."""

ScaffoldCode = Literal[
    "batch-axis", "distributions", "fields", "labels", "no-files", "operator", "platforms", "provides", "recipe",
    "samples",
    "signature", "splits", "steps",
]  # fmt: skip
"""Additional kinds of findings in a manifest generated from files."""

_SHOWN = 120


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in the original that is wrong, missing, or not expressible here.

    Attributes:
        path: The path of the key in the original.
        code: The kind of finding.
        what: The finding.
        done: The action taken; with ``todo``, the action that the author must take.
        todo: Whether the generated text has a TODO line for it.
    """

    path: str
    code: Code | ScaffoldCode
    what: str
    done: str
    todo: bool = False

    def document(self) -> dict[str, str | bool]:
        """Return the finding as a JSON document."""
        return {"path": self.path, "code": self.code, "what": self.what, "done": self.done, "todo": self.todo}


@dataclass(slots=True)
class ImportNotes:
    """The findings so far, the paths already handled, and TODO lines without a place of their own."""

    findings: list[Finding] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    unplaced: list[str] = field(default_factory=list)

    def tell(self, path: str, code: Code | ScaffoldCode, what: str, done: str) -> None:
        """Add a finding that needs no action of the author."""
        self.findings.append(Finding(path, code, what, done))

    def todo(self, path: str, code: Code | ScaffoldCode, subject: str, what: str, ask: str) -> str:
        """Add a finding that the author must act on, and return its comment line for the generated text."""
        self.findings.append(Finding(path, code, what, ask, todo=True))
        return f"# TODO {subject}: {what}; {ask}"

    def todo_unplaced(self, path: str, code: Code | ScaffoldCode, what: str, ask: str) -> None:
        """Add a finding as ``todo`` does, for a line that belongs to no key of the generated text."""
        self.unplaced.append(self.todo(path, code, printable(path) or "file", what, ask))


def format_original(value: object) -> str:
    """Format a value of the original on one line; shorten a long one to its beginning and its digest."""
    text = printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    if len(text) <= _SHOWN:
        return text
    digest = sha256(text.encode()).hexdigest()
    return f"{text[:_SHOWN]}… ({len(text)} characters, sha256 {digest[:12]}…)"


printable = escape_line
"""Escape unprintable characters, so that the text fits into one comment line."""
