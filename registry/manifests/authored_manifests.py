"""Reading of manifests as their authors write them, with all problems found at once."""

import re
from dataclasses import dataclass

from msgspec import inspect

from benchlock.artifacts.errors import BenchlockError, InvalidInputError
from benchlock.registry.manifests.manifest_checks import check
from benchlock.registry.manifests.manifest_types import File, Manifest
from benchlock.registry.manifests.steps import TensorStep
from benchlock.registry.text.decoder import convert
from benchlock.registry.text.partial_objects import convert_known
from benchlock.registry.text.problems import Problems, UnknownValueError
from benchlock.registry.text.yaml import Document, Todo, list_todos, read_yaml


def find_certain_problems(document: Document) -> tuple[BenchlockError, ...]:
    """Find the rules that are broken by values that are valid themselves.

    A rule that reads a value that is missing or wrong, or that an unknown key may have been meant for, says nothing.
    """
    try:
        check(convert_known(document.value, inspect.type_info(Manifest), (TensorStep,)), document, published=False)
    except UnknownValueError:
        return ()
    except InvalidInputError as error:
        problems, error.problems = error.problems or (error,), ()  # each stands for itself
        return problems
    return ()


_MISSING = re.compile(r"the key '(\w+)' is missing.*")
_REQUEST = "evaluation"
"""The kind of a request."""
_WORD = re.compile(r"\w+")


@dataclass(frozen=True, slots=True)
class ReadResult:
    """A manifest as far as it could be read: None where its keys do not fit; and everything that is wrong with it."""

    document: Document
    manifest: Manifest | None
    problems: Problems


def read_authored(text: bytes | str, name: str) -> Manifest:
    """The manifest in ``text``, YAML 1.2, checked as far as it can be without its files; ``name`` is for errors.

    Raises:
        InvalidInputError: the first fault, with the path of the key (``inputs[0].steps[2].resize.size``) and the line;
            with all the others that can be told. A comment line that begins ``# TODO`` is one, since such a manifest
            is not finished.
    """
    reading = examine(text, name)
    reading.problems.refuse()
    assert reading.manifest is not None  # what a TODO line asks for is passed over, and that line is a problem itself
    return reading.manifest


def examine(text: bytes | str, name: str) -> ReadResult:
    """As ``read_authored``, of a manifest that may break rules.

    Raises:
        InvalidInputError: the text is no YAML, or it is a request.
    """
    document, problems = read_yaml(text, name), Problems()
    if isinstance(document.value, dict) and document.value.get("kind") == _REQUEST:
        raise InvalidInputError(
            f"{name} is a request, no manifest", where=name, next_step=f"benchlock lock {name} answers it"
        )
    todos = list_todos(text if isinstance(text, str) else text.decode("utf-8-sig"))
    for todo in todos:
        problems.add(_unfinished(todo, name))
    manifest: Manifest | None = None
    try:
        manifest = convert(document, Manifest)
        check(manifest, document, published=False)
    except InvalidInputError as error:
        for one in error.problems or (error,):
            if not _is_asked_for(one.what, todos):
                problems.add(one)
    if manifest is None:
        for one in find_certain_problems(document):
            if not _is_of_a_todo(one.where or "", todos):
                problems.add(one)
    return ReadResult(document, manifest, problems)


def files_in(document: Document) -> tuple[File, ...]:
    """The files of a manifest whose other keys may be wrong; none where they cannot be read themselves."""
    listed = document.value.get("files") if isinstance(document.value, dict) else None
    try:
        files: tuple[File, ...] = convert(Document(listed, document.name), tuple[File, ...])
    except InvalidInputError:
        return ()
    return files


def _unfinished(todo: Todo, name: str) -> InvalidInputError:
    return InvalidInputError(
        f"not finished: TODO {todo.text}".rstrip(),
        where=f"{name}, line {todo.line}",
        next_step="do what the line asks for, then delete it",
    )


def _is_asked_for(what: str, todos: tuple[Todo, ...]) -> bool:
    """Whether a key is missing because a TODO line stands in its place, and asks for it."""
    missing = _MISSING.fullmatch(what)
    return missing is not None and _is_subject(missing[1], todos)


def _is_of_a_todo(where: str, todos: tuple[Todo, ...]) -> bool:
    """Whether a TODO line asks for the key that a place ends in."""
    words = _WORD.findall(where.partition(" (")[0])
    return bool(words) and _is_subject(words[-1], todos)


def _is_subject(key: str, todos: tuple[Todo, ...]) -> bool:
    return any(key in _WORD.findall(todo.text.partition(":")[0]) for todo in todos)
