"""Problems, which reject an input all at once, and findings, which an importer only reports."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final, Literal

from benchlock.artifacts.display import escape_line
from benchlock.artifacts.errors import BenchlockError, IntegrityError, InvalidInputError

MOST_PROBLEMS: Final = 1000
"""Problems that are kept of one look; what is wrong so often is told often enough."""


class EchoError(InvalidInputError):
    """What the rules of manifests say of the same place too, where a manifest was held to them."""


class UnknownValueError(Exception):
    """A rule reads a value of a manifest that is missing or wrong."""


class Problems:
    """Errors that were met and kept, in the order in which they were found; the same one again is kept once."""

    def __init__(self) -> None:
        self.found: list[BenchlockError] = []
        self._known: set[tuple[str, str | None]] = set()

    @contextmanager
    def noted(self) -> Iterator[None]:
        """What is refused inside is kept, and the caller goes on behind it; so it does where a value is unknown."""
        try:
            yield
        except UnknownValueError:
            pass
        except BenchlockError as error:
            self.add(error)

    def add(self, error: BenchlockError) -> None:
        """Keep an error, and those that were found with it."""
        for one in error.problems or (error,):
            if (one.what, one.where) not in self._known and len(self.found) < MOST_PROBLEMS:
                self.found.append(one)
                self._known.add((one.what, one.where))

    def tell_of(self, where: str | None) -> bool:
        """Whether one of them is of the same place, whatever line it is told with."""
        place = _place(where)
        return bool(place) and any(_place(one.where) == place for one in self.found)

    def refuse(self) -> None:
        """Nothing, where nothing was found.

        Raises:
            BenchlockError: the first that was found, of integrity before others; all of them are its ``problems``.
        """
        if self.found:
            raise find_leading_error(self.found)


def _place(where: str | None) -> str:
    path, bracket, _ = (where or "").partition(" (")
    return path if bracket else ""


def find_leading_error(found: list[BenchlockError]) -> BenchlockError:
    """The error to answer with: wrong bytes before everything else, else the first; it carries all of them."""
    first = min(found, key=lambda error: not isinstance(error, IntegrityError))
    first.problems = tuple(found) if len(found) > 1 else ()
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
"""What kinds of findings an import has."""

OutlineCode = Literal[
    "batch-axis", "distributions", "fields", "labels", "no-files", "platforms", "provides", "samples", "signature",
    "splits", "steps",
]  # fmt: skip
"""What kinds a manifest outlined from files has beside those."""

_SHOWN = 120


@dataclass(frozen=True, slots=True)
class Finding:
    """Something in the original that is wrong, unsaid, or without a form here.

    ``path`` is the key's in the original, ``code`` its kind, ``done`` what became of it;
    ``todo`` says that a line of the native text waits for the author: then ``done`` is what they are asked for.
    """

    path: str
    code: Code | OutlineCode
    what: str
    done: str
    todo: bool = False

    def document(self) -> dict[str, str | bool]:
        """The finding as a JSON document."""
        return {"path": self.path, "code": self.code, "what": self.what, "done": self.done, "todo": self.todo}


@dataclass(slots=True)
class ImportNotes:
    """The findings so far, the paths that are accounted for, and TODO lines that have no place of their own."""

    findings: list[Finding] = field(default_factory=list)
    used: set[str] = field(default_factory=set)
    unplaced: list[str] = field(default_factory=list)

    def tell(self, path: str, code: Code | OutlineCode, what: str, done: str) -> None:
        """List what the author should know, and need not act on."""
        self.findings.append(Finding(path, code, what, done))

    def todo(self, path: str, code: Code | OutlineCode, subject: str, what: str, ask: str) -> str:
        """List what the author must finish; the comment line that says so, for the native text."""
        self.findings.append(Finding(path, code, what, ask, todo=True))
        return f"# TODO {subject}: {what}; {ask}"

    def todo_unplaced(self, path: str, code: Code | OutlineCode, what: str, ask: str) -> None:
        """As ``todo``, for what belongs to no key of the native form."""
        self.unplaced.append(self.todo(path, code, printable(path) or "file", what, ask))


def format_original(value: object) -> str:
    """A value of the original on one line; a long one by its beginning and its digest, so that none is lost."""
    text = printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    if len(text) <= _SHOWN:
        return text
    digest = sha256(text.encode()).hexdigest()
    return f"{text[:_SHOWN]}… ({len(text)} characters, sha256 {digest[:12]}…)"


printable = escape_line
"""The text on one line, with escapes for what cannot be seen, so that it may stand in a comment."""
