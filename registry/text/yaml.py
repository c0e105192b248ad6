"""YAML 1.2: a reader without tags, aliases and duplicate keys, and a writer of commented lines.

This is the only module that imports ``ruamel.yaml``, and it uses only its events: ``resolve`` converts scalars by the
core schema, so ``no`` and ``on`` stay text. The line of every value and the spelling of every scalar are kept for error
messages. Foreign files can be read tolerantly: input that the strict reader rejects is skipped and reported.
"""

import json
import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
)

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.text.collected_problems import Problems
from benchlock.registry.text.parsed_text import Document, Mark, child_path

GREATEST = 2**53 - 1
"""The largest integer that canonical JSON holds exactly."""

NOT_FINITE = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")

_NULL = re.compile(r"null|Null|NULL|~|")
_BOOL = re.compile(r"true|True|TRUE|false|False|FALSE")
_INTEGER = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_PREFIXES = {"0o": 8, "0x": 16}


def resolve(text: str) -> str | float | bool | None:
    """Convert a plain scalar to its value; an integer with too many digits becomes ``GREATEST + 1``."""
    if _NULL.fullmatch(text):
        return None
    if _BOOL.fullmatch(text):
        return text.lower() == "true"
    if _INTEGER.fullmatch(text):
        base = _PREFIXES.get(text[:2], 10)
        digits = text[2:] if base != 10 else text  # noqa: PLR2004 - decimal
        return int(digits, base) if len(digits) <= len(str(GREATEST)) + 1 else GREATEST + 1
    if _FLOAT.fullmatch(text):
        return float(text)
    return text


DEEPEST = 64
"""Largest depth of nesting."""

LARGEST = 4 << 20
"""Largest text, in characters."""
MAX_SEPARATORS = 100_000
"""Largest number of lines and commas: the parser takes a tenth of a millisecond for each value."""

_TODO = re.compile(r"\s*#\s*TODO\b[:\s]*(.*)")
_BREAK = re.compile("\r\n|[\n\r\x85\u2028\u2029]")
_VERSION = (1, 2)


@dataclass(frozen=True, slots=True)
class Oddity:
    """Input that the strict reader rejects and the tolerant one skips; ``lost_value`` is a value that was lost."""

    path: str
    line: int
    what: str
    lost_value: Any = None


@dataclass(frozen=True, slots=True)
class Todo:
    """A TODO comment line: its line number, counted from 1, and its text after ``TODO``."""

    line: int
    text: str


def read_yaml(text: bytes | str, name: str) -> Document:
    """Parse the one document in ``text``; ``name`` is its name in error messages.

    Raises:
        InvalidInputError: The text is not YAML 1.2 or not UTF-8, has no or several documents, a tag, an alias, a
            duplicate key, a key that is not text, or a number that JSON cannot hold.
    """
    _check_size(text, name)
    with _convert_errors(name):
        return _Reader(read_events(text), name).document()


def read_yaml_tolerantly(text: bytes | str, name: str) -> tuple[Document, tuple[Oddity, ...]]:
    """Parse the first document in ``text``, and list the input that ``read_yaml`` rejects.

    The last value of a duplicate key counts, a tag is dropped, an alias is null, and a number that JSON cannot hold is
    its text.

    Raises:
        InvalidInputError: The text is not YAML or not UTF-8, has no document, a key that is a list or a mapping, or is
            nested too deeply.
    """
    _check_size(text, name)
    with _convert_errors(name):
        reader = _TolerantReader(read_events(text), name)
        return reader.document(), tuple(reader.oddities)


def list_todos(text: str) -> tuple[Todo, ...]:
    """List the comment lines of a YAML text that begin ``# TODO``, without lines of multi-line strings."""
    candidates = {
        number: match[1] for number, line in enumerate(_BREAK.split(text)) if (match := _TODO.fullmatch(line))
    }
    if not candidates:
        return ()
    for event in read_events(text):
        if isinstance(event, ScalarEvent):
            end = event.end_mark.line + (event.end_mark.column > 0)
            for number in range(event.start_mark.line + 1, end):
                candidates.pop(number, None)
    return tuple(Todo(number + 1, comment) for number, comment in candidates.items())


def _check_size(text: bytes | str, name: str) -> None:
    """Reject a text that takes too long to parse, before it is parsed."""
    lines, commas = (b"\n", b",") if isinstance(text, bytes) else ("\n", ",")
    if len(text) > LARGEST:
        what = f"the text has more than {LARGEST >> 20} MiB"
    elif text.count(lines) + text.count(commas) > MAX_SEPARATORS:  # type: ignore[arg-type] # both of one type
        what = f"the text has more than {MAX_SEPARATORS} lines and commas"
    else:
        return
    raise InvalidInputError(what, where=name, next_step="list the files of a folder as one tree, or shorten the text")


def read_events(text: bytes | str) -> Iterator[Event]:
    """Yield the parser events of a YAML text."""
    characters = text if isinstance(text, str) else text.decode("utf-8-sig")
    events: Iterator[Event] = YAML(typ="safe", pure=True).parse(characters)
    return events


@contextmanager
def _convert_errors(name: str) -> Iterator[None]:
    """Convert errors of the parser into errors with a location."""
    try:
        yield
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise InvalidInputError(
            "the text is not UTF-8", where=f"{name}, line {line}", next_step="save it as UTF-8"
        ) from error
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        what = f"not YAML: {error.problem or error.context}"
        raise InvalidInputError(what, where=f"{name}, line {line}", next_step="fix the syntax") from error
    except YAMLError as error:
        what = f"not YAML: {str(error).splitlines()[0]}"
        raise InvalidInputError(what, where=name, next_step="fix the syntax") from error


@dataclass
class _Reader:
    """A builder of the value from the events, with a mark for each path."""

    _events: Iterator[Event]
    _name: str
    _marks: dict[str, Mark] = field(default_factory=dict)
    _problems: Problems = field(default_factory=Problems)

    def document(self) -> Document:
        next(self._events)
        start = next(self._events)
        if isinstance(start, StreamEndEvent):
            raise self._make_error("", start, "no YAML document found", "write one, or choose another file")
        if isinstance(start, DocumentStartEvent) and start.version not in (None, _VERSION):
            self._add_problem("", start, "unsupported YAML version", "write it as YAML 1.2")
        value = self._value(next(self._events), "", 0)
        next(self._events)
        after = next(self._events)
        if not isinstance(after, StreamEndEvent):
            self._add_problem("", after, "several YAML documents in one file", "write one per file")
        self._problems.refuse()
        return Document(value, self._name, self._marks)

    def _value(self, event: Event, path: str, depth: int, line: int | None = None) -> Any:  # noqa: ANN401 - any YAML value
        """Read the value that starts with ``event``; its mark is on ``line``, that of its key, if given."""
        mark = Mark(line or event.start_mark.line + 1, event.value if isinstance(event, ScalarEvent) else "")
        self._marks[path] = mark
        if isinstance(event, AliasEvent):
            self._add_problem(path, event, "aliases are not supported", "repeat the value", f"*{event.anchor}")
            return None
        assert isinstance(event, MappingStartEvent | SequenceStartEvent | ScalarEvent)
        if event.tag is not None:
            self._add_problem(path, event, f"the tag {event.tag} is not supported", "remove the tag")
        if depth > DEEPEST:
            raise self._make_error(path, event, f"nested deeper than {DEEPEST} levels")
        if isinstance(event, MappingStartEvent):
            return self._mapping(path, depth)
        if isinstance(event, ScalarEvent):
            return self._scalar(event, path)
        sequence: list[Any] = []
        while not isinstance(element := next(self._events), SequenceEndEvent):
            sequence.append(self._value(element, child_path(path, len(sequence)), depth + 1))
        return sequence

    def _mapping(self, path: str, depth: int) -> dict[str, Any]:
        mapping: dict[str, Any] = {}
        while not isinstance(event := next(self._events), MappingEndEvent):
            if not isinstance(event, ScalarEvent):
                raise self._make_error(path, event, "a key must be text, not an alias, a list or a mapping")
            if event.tag is not None:
                self._add_problem(path, event, f"the tag {event.tag} is not supported", "remove the tag")
            if not event.style and not isinstance(resolve(event.value), str):
                self._add_problem(path, event, f"the key {event.value} must be text", f'quote it: "{event.value}"')
            key = self._characters(event, path)
            below = child_path(path, key)
            if key in mapping:
                self._add_problem(below, event, f"duplicate key {key!r}", "remove one of them", mapping[key])
            mapping[key] = self._value(next(self._events), below, depth + 1, event.start_mark.line + 1)
        return mapping

    def _characters(self, event: ScalarEvent, path: str) -> str:
        """Return the text of the scalar, with surrogate pairs of JSON escapes joined to one character."""
        text: str = event.value
        if not any("\ud800" <= character <= "\udfff" for character in text):
            return text
        try:
            return text.encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            self._add_problem(path, event, "not valid Unicode: lone surrogate")
            return text.encode("utf-8", "replace").decode("utf-8")

    def _scalar(self, event: ScalarEvent, path: str) -> str | float | bool | None:
        text = self._characters(event, path)
        if event.style:
            return text
        if NOT_FINITE.fullmatch(text):
            self._add_problem(path, event, f"{text} is not a finite number", f'quote it if it is text: "{text}"')
        value = resolve(text)
        exact = not isinstance(value, int) or abs(value) <= GREATEST
        if isinstance(value, int | float) and not (exact and isfinite(value)):
            self._add_problem(path, event, f"the number {text[:40]} is too large", "quote it if it is text")
            return text
        return value

    def _add_problem(
        self, path: str, event: Event, what: str, next_step: str | None = None, lost_value: object = None
    ) -> None:
        """Add a problem, so that the document is rejected at its end; ``lost_value`` is a value that was lost."""
        del lost_value
        self._problems.add(self._make_error(path, event, what, next_step))

    def _make_error(self, path: str, event: Event, what: str, next_step: str | None = None) -> InvalidInputError:
        place = f"{self._name}, line {event.start_mark.line + 1}"
        return InvalidInputError(what, where=f"{path} ({place})" if path else place, next_step=next_step)


@dataclass
class _TolerantReader(_Reader):
    """A reader that records the problems and continues."""

    oddities: list[Oddity] = field(default_factory=list)

    def _add_problem(
        self, path: str, event: Event, what: str, next_step: str | None = None, lost_value: object = None
    ) -> None:
        del next_step
        self.oddities.append(Oddity(path, event.start_mark.line + 1, what, lost_value))


Lines = list[str]

WIDTH = 112
"""Characters of a folded line, without its indent."""

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./+-]*([ :][A-Za-z0-9_./+-]+)*")
_BARE_LINE = re.compile(r"(\S(.*\S)?)?")


def entry_lines(key: str, value: Any) -> Lines:  # noqa: ANN401 - any JSON value
    """Format a key with its value: collections as blocks, a long text folded."""
    if isinstance(value, dict) and value:
        return block_lines(key, [line for inner, item in value.items() for line in entry_lines(inner, item)])
    if isinstance(value, list) and any(isinstance(element, dict | list | str) for element in value):
        return block_lines(key, [line for element in value for line in _element(element)])
    if isinstance(value, str) and len(value) > WIDTH and value.isprintable() and value == " ".join(value.split()):
        words = textwrap.wrap(value, WIDTH, break_on_hyphens=False, break_long_words=False)
        return [f"{format_flow(key)}: >-", *indent_lines(words)]
    if isinstance(value, str) and "\n" in value and _is_literal(value):
        return [f"{format_flow(key)}: |-", *(line.rstrip() for line in indent_lines(value.split("\n")))]
    return [f"{format_flow(key)}: {format_flow(value)}"]


def block_lines(key: str, lines: Iterable[str]) -> Lines:
    """Format a key whose value is on the lines below it."""
    return [f"{format_flow(key)}:", *indent_lines(lines)]


def element_lines(lines: Sequence[str]) -> Lines:
    """Format an element of a list; comments before its first key stand above its dash."""
    first = next((index for index, line in enumerate(lines) if not line.startswith("#")), None)
    if first is None:
        return [*lines, "-"]
    return [*lines[:first], f"- {lines[first]}", *indent_lines(lines[first + 1 :])]


def indent_lines(lines: Iterable[str]) -> Lines:
    """Indent lines by one level."""
    return [f"  {line}" for line in lines]


def format_flow(value: Any) -> str:  # noqa: ANN401
    """Format a value on one line: JSON, with quotes only for a text that needs them."""
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) and isinstance(resolve(value), str)
        return value if plain else json.dumps(value, ensure_ascii=not value.isprintable())
    if isinstance(value, dict):
        return "{" + ", ".join(f"{format_flow(key)}: {format_flow(inner)}" for key, inner in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(format_flow(inner) for inner in value) + "]"
    return json.dumps(value, allow_nan=False)


def _element(value: Any) -> Lines:  # noqa: ANN401
    if isinstance(value, dict) and value:
        return element_lines([line for key, inner in value.items() for line in entry_lines(key, inner)])
    return [f"- {format_flow(value)}"]


def _is_literal(text: str) -> bool:
    """Return whether a literal block can hold exactly this text: printable lines without surrounding space."""
    lines = text.split("\n")
    return bool(lines[0] and lines[-1]) and all(line.isprintable() and _BARE_LINE.fullmatch(line) for line in lines)
