"""Answers to the TODO lines of a generated manifest or request, written into its text; comments and order stay."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.text.collected_problems import Finding
from benchlock.registry.text.yaml import Lines, element_lines, entry_lines, read_yaml, resolve

Answers = Mapping[str, Any]
"""Values by path, such as ``inputs[0].steps``; None deletes a TODO line without writing its key."""

CONFIRMED: Final = object()
"""The answer to a TODO line that asks to check a generated value: the value is right."""

TODO_NOTE: Final = "# Unknown values are omitted, each with a TODO line: add the value, then delete the line."
"""The line of a generated text that explains its TODO lines."""
_FLOW_STARTS = "[{\"'"
_CONFIRM = "# TODO confirm:"
_INDENT = "  "
_PLACEHOLDER = "todo_placeholder"
_STEP = re.compile(r"([^.\[\]]+)|\[([0-9]+)\]")


def parse_answer(text: str, name: str) -> Any:  # noqa: ANN401 - any YAML value
    """Parse the value of an answer: a plain scalar, or YAML that begins with a bracket or a quote.

    Args:
        text: The text of the value; a constraint such as ``>=1.20 <2`` needs no quotes.
        name: The name of the value in errors.

    Raises:
        InvalidInputError: The text begins like a collection or a quoted text, and is not YAML.
    """
    stripped = text.strip()
    return read_yaml(stripped, name).value if stripped[:1] in tuple(_FLOW_STARTS) else resolve(stripped)


def is_confirmation(text: str, finding: Finding) -> bool:
    """Return whether a finding asks to check a value that is in the text already."""
    return any(_is_todo_of(line, finding) and line.lstrip().startswith(_CONFIRM) for line in text.splitlines())


def locate_todos(text: str, findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Return findings with the paths of the keys that their TODO lines stand for: ``splits.test.fields``.

    A line that asks to check a value, or that stands between the elements of a list, keeps its path.
    """
    lines, located = text.splitlines(), list[Finding]()
    indices = set[int]()
    for finding in findings:
        index = next((i for i, line in enumerate(lines) if i not in indices and _is_todo_of(line, finding)), None)
        if index is None or lines[index].lstrip().startswith(_CONFIRM):
            located.append(finding)
            continue
        indices.add(index)
        located.append(replace(finding, path=_locate(lines, index) or finding.path))
    return tuple(located)


def _locate(lines: Sequence[str], index: int) -> str | None:
    """Return the path of the key that a TODO line stands for; None if no key can be in its place."""
    line = lines[index]
    subject = line.partition("# TODO ")[2].partition(":")[0].rpartition(".")[2]
    indent = line[: len(line) - len(line.lstrip())]
    try:
        document = read_yaml("\n".join([*lines[:index], f"{indent}{_PLACEHOLDER}: 0", *lines[index + 1 :]]), "text")
    except InvalidInputError:
        return None
    path = next((path for path in document.marks if path.endswith(_PLACEHOLDER)), None)
    return None if path is None else path.removesuffix(_PLACEHOLDER) + subject


def list_open(findings: Iterable[Finding], answers: Answers) -> tuple[Finding, ...]:
    """List the TODO findings without an answer, for their own paths or for values that contain them."""
    return tuple(
        finding
        for finding in findings
        if finding.todo
        and not any(
            path == finding.path or (value is not CONFIRMED and contains_path(path, finding.path))
            for path, value in answers.items()
        )
    )


def contains_path(path: str, inner: str) -> bool:
    """Return whether a path is that of a value, or of a part of it."""
    return inner == path or inner.startswith((f"{path}.", f"{path}["))


def join_lines(lines: Sequence[str]) -> str:
    """Return the text of lines, without ``TODO_NOTE`` if no TODO line is left."""
    has_todos = any(line.lstrip().startswith("# TODO ") for line in lines)
    return "".join(f"{line}\n" for line in lines if has_todos or line != TODO_NOTE)


def write_answers(text: str, findings: Sequence[Finding], answers: Answers, start: str = "") -> str:
    """Write values into a generated text.

    The value of a TODO line replaces the line; any other value replaces that of its key, or adds the key.

    Args:
        text: The generated text.
        findings: Its findings.
        answers: The values by path; None for a key that does not exist changes nothing.
        start: The beginning of each path in errors, such as ``model.``.

    Raises:
        InvalidInputError: A path is inside of a value on one line, or below a key that does not exist.
    """
    lines: Lines = []
    remaining, todos = dict(answers), [finding for finding in findings if finding.todo]
    for line in text.splitlines():
        finding = next((todo for todo in todos if _is_todo_of(line, todo)), None)
        if finding is not None:
            todos.remove(finding)
        if finding is None or finding.path not in answers:
            lines.append(line)
            continue
        value = answers[finding.path]
        if value is CONFIRMED or value is None:
            remaining.pop(finding.path)
        elif not line.lstrip().startswith(_CONFIRM):
            remaining.pop(finding.path)
            lines += _indented(entry_lines(_last_key(finding.path), value), len(line) - len(line.lstrip()))
    for path, value in remaining.items():
        if value is not CONFIRMED:
            lines = _set_value(lines, path, value, start)
    return join_lines(lines)


def find_value(document: Any, path: str) -> Any:  # noqa: ANN401 - any YAML value
    """Return the value at a path of a document; None if there is none."""
    value = document
    for key, index in _STEP.findall(path):
        if index:
            value = value[int(index)] if isinstance(value, list) and int(index) < len(value) else None
        else:
            value = value.get(key) if isinstance(value, dict) else None
    return value


def add_file(text: str, file: Mapping[str, str]) -> str:
    """Add an entry to ``files``, the last key of a generated manifest; an entry with the same path stays alone."""
    lines = text.splitlines()
    document = read_yaml(text, "the generated manifest").value
    if any(entry.get("path") == file["path"] for entry in document.get("files", ())):
        return text
    entry = element_lines([line for key, value in file.items() for line in entry_lines(key, value)])
    start = lines.index("files:") if "files:" in lines else len(lines)
    lines[start : start + 1] = ["files:", *_indented(entry, len(_INDENT))]
    return "".join(f"{line}\n" for line in lines)


def _is_todo_of(line: str, finding: Finding) -> bool:
    """Return whether a line is the TODO line of a finding."""
    return line.lstrip().startswith("# TODO ") and line.endswith(f": {finding.what}; {finding.done}")


def _set_value(lines: Lines, path: str, value: object, start: str) -> Lines:
    """Return lines with a value at a path, in place of the present value or as a new key."""
    document = read_yaml("\n".join(lines), "the generated text")
    parent, _, key = path.rpartition(".")
    mark = document.marks.get(path)
    if mark is not None:
        index = mark.line - 1
        prefix = re.match(rf"(\s*(?:- )*)['\"]?{re.escape(key)}['\"]?:", lines[index])
        if prefix is None or path.endswith("]"):
            raise _path_error(path, parent, start)
        column = len(prefix[1])
        entry = _indented(entry_lines(key, value), column)
        entry[0] = prefix[1] + entry[0][column:]
        return [*lines[:index], *entry, *lines[_end_of_block(lines, index, column) :]]
    if value is None:
        return lines
    if not parent:
        return [*lines, *entry_lines(key, value)]
    parent_mark = document.marks.get(parent)
    if parent_mark is None:
        raise _path_error(path, parent, start)
    line = lines[parent_mark.line - 1]
    dashes = re.match(r"(\s*(?:- )+)", line)
    if parent.endswith("]") and dashes is not None:
        column = len(dashes[1])
    elif line.endswith(":"):
        column = len(line) - len(line.lstrip(" -")) + len(_INDENT)
    else:
        raise _path_error(path, parent, start)
    end = _end_of_block(lines, parent_mark.line - 1, column - 1)
    return [*lines[:end], *_indented(entry_lines(key, value), column), *lines[end:]]


def _path_error(path: str, parent: str, start: str) -> InvalidInputError:
    step = f"give the whole value of {start}{parent}" if parent else "give the value of a key"
    what = f"cannot set {start}{path}: it is not a key on a line of its own"
    return InvalidInputError(what, where=start + path, next_step=step)


def _end_of_block(lines: Sequence[str], index: int, column: int) -> int:
    """Return the index of the first line after ``index`` that is not indented by more than ``column``."""
    end = index + 1
    while end < len(lines) and len(lines[end]) - len(lines[end].lstrip()) > column:
        end += 1
    return end


def _indented(lines: Iterable[str], column: int) -> Lines:
    return [" " * column + line for line in lines]


def _last_key(path: str) -> str:
    return path.rpartition(".")[2]
