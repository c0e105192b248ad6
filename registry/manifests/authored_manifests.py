"""Reading of manifests as their authors write them, with all problems found at once."""

import re
from dataclasses import dataclass

from benchlock.artifacts.errors import BenchlockError, InvalidInputError
from benchlock.registry.manifests.manifest_checks import check
from benchlock.registry.manifests.manifest_types import File, Manifest
from benchlock.registry.manifests.steps import TensorStep
from benchlock.registry.text.collected_problems import Problems, UnknownValueError
from benchlock.registry.text.decoder import convert, inspect_type
from benchlock.registry.text.incomplete_objects import convert_known
from benchlock.registry.text.parsed_text import Document
from benchlock.registry.text.yaml import Todo, list_todos, read_yaml


def find_certain_problems(document: Document) -> tuple[BenchlockError, ...]:
    """Find broken rules in a document that could not be read as a manifest.

    A rule reports nothing if it reads a value that is missing or invalid, or that an unknown key may stand for.
    """
    try:
        check(convert_known(document.value, inspect_type(Manifest), (TensorStep,)), document, published=False)
    except UnknownValueError:
        return ()
    except InvalidInputError as error:
        problems, error.problems = error.problems or (error,), ()  # each problem is reported on its own
        return problems
    return ()


_MISSING = re.compile(r"the key '(\w+)' is missing.*")
_OTHERS = {"evaluation": ("a request", "lock the request"), "matrix": ("a matrix", "submit the matrix")}
"""Files of other kinds: what they are, and what is done with them."""
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class ReadResult:
    """A manifest as far as it could be read: None if its keys do not fit; with everything that is wrong."""

    document: Document
    manifest: Manifest | None
    problems: Problems


def examine(text: bytes | str, name: str) -> ReadResult:
    """Parse and check the YAML 1.2 manifest in ``text``, as far as possible without its files.

    A comment line that begins with ``# TODO`` is a problem: such a manifest is unfinished.

    Args:
        text: The manifest.
        name: The name of the manifest in errors.

    Raises:
        InvalidInputError: The text is not YAML, or it is a request.
    """
    document, problems = read_yaml(text, name), Problems()
    kind = document.value.get("kind") if isinstance(document.value, dict) else None
    if isinstance(kind, str) and kind in _OTHERS:
        what, use = _OTHERS[kind]
        raise InvalidInputError(
            f"{name} is {what}, not a manifest", where=name, next_step=f"choose a manifest, or {use}"
        )
    todos = list_todos(text if isinstance(text, str) else text.decode("utf-8-sig"))
    for todo in todos:
        problems.add(_unfinished(todo, name))
    manifest: Manifest | None = None
    try:
        manifest = convert(document, Manifest)
        check(manifest, document, published=False)
    except InvalidInputError as error:
        for problem in error.problems or (error,):
            if not _is_requested_by_todo(problem.what, todos):
                problems.add(problem)
    if manifest is None:
        for problem in find_certain_problems(document):
            if not _concerns_todo(problem.where or "", todos):
                problems.add(problem)
    return ReadResult(document, manifest, problems)


def files_in(document: Document) -> tuple[File, ...]:
    """Return the files of a manifest whose other keys may be invalid; none if the files themselves cannot be read."""
    listed_files = document.value.get("files") if isinstance(document.value, dict) else None
    try:
        files: tuple[File, ...] = convert(Document(listed_files, document.name), tuple[File, ...])
    except InvalidInputError:
        return ()
    return files


def _unfinished(todo: Todo, name: str) -> InvalidInputError:
    """Return the error about a TODO line."""
    return InvalidInputError(
        f"not finished: TODO {todo.text}".rstrip(),
        where=f"{name}, line {todo.line}",
        next_step="resolve it, then delete the line",
    )


def _is_requested_by_todo(what: str, todos: tuple[Todo, ...]) -> bool:
    """Return whether the key is missing because a TODO line stands in its place."""
    missing = _MISSING.fullmatch(what)
    return missing is not None and _is_subject(missing[1], todos)


def _concerns_todo(where: str, todos: tuple[Todo, ...]) -> bool:
    """Return whether a TODO line asks for the key at the end of a path."""
    words = _WORD.findall(where.partition(" (")[0])
    return bool(words) and _is_subject(words[-1], todos)


def _is_subject(key: str, todos: tuple[Todo, ...]) -> bool:
    """Return whether a TODO line names the key before its colon."""
    return any(key in _WORD.findall(todo.text.partition(":")[0]) for todo in todos)
