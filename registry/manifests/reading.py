"""Manifests as authors write them."""

from artifacts.errors import InvalidInputError
from registry.conversion import convert
from registry.manifests.checks import check
from registry.manifests.others import Manifest
from registry.yaml import open_todos, read


def read_authored(text: bytes | str, name: str) -> Manifest:
    """The manifest in ``text``, YAML 1.2, checked as far as it can be without its files; ``name`` is for errors.

    Raises:
        InvalidInputError: at the first fault, with the path of the key (``inputs[0].steps[2].resize.size``) and
            the line; at the first comment line that begins ``# TODO``, since such a manifest is not finished.
    """
    document = read(text, name)
    _check_finished(text if isinstance(text, str) else text.decode("utf-8-sig"), name)
    manifest: Manifest = convert(document, Manifest)
    check(manifest, document, published=False)
    return manifest


def _check_finished(text: str, name: str) -> None:
    todos = open_todos(text)
    if todos:
        more = f"; {len(todos) - 1} more of them" if len(todos) > 1 else ""
        raise InvalidInputError(
            f"not finished: TODO {todos[0].text}".rstrip(),
            where=f"{name}, line {todos[0].line}",
            next_step=f"do what the line asks for, then delete it{more}",
        )
