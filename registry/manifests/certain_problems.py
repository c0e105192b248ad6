"""Rules that a manifest breaks although some of its keys are missing or wrong."""

import re
from typing import Final

import msgspec
from msgspec import inspect

from artifacts.errors import BenchlockError, InvalidInputError
from registry.completion import complete
from registry.manifests.checks import check
from registry.manifests.others import Manifest
from registry.yaml import Document, parent

LONGEST: Final = 1 << 15
"""Characters of a text of which certain problems are looked for: each completion checks the whole manifest."""

_REFERENCES: Final[dict[str, set[str]]] = {
    r"inputs|inputs\[\d+\]\.(shape|batch_axis).*": {"inputs"},
    r"inputs\[\d+\]\.(from|shape|dtype).*": {"outputs"},
    r"outputs\[\d+\]\.(reduce|shape).*": {"inputs", "outputs"},
    r"(outputs|predictions)(\.\w+)?": {"outputs", "task"},
    r"(framework|signature|code|files).*": {"format", "files"},
    r".*\.(labels|vocabulary|file|index|images|annotations|wheels|path)|labels": {"files"},
}
"""Places whose rules refer to other sections of a manifest: nothing about them is certain where one has a gap."""


def find_certain_problems(document: Document) -> tuple[BenchlockError, ...]:
    """Find rules that are broken whatever the keys should hold that are missing or do not fit.

    Every completion of the manifest is checked; only a problem that all of them have is certain, and only where it is
    not about a place that was completed.
    """
    certain: dict[tuple[str, str | None], BenchlockError] | None = None
    made_up: set[str] = set()
    for value, holes in complete(document.value, inspect.type_info(Manifest)):
        made_up |= holes
        problems = _check(Document(value, document.name, document.marks))
        if problems is not None:
            keyed = {(one.what, one.where): one for one in problems}
            certain = keyed if certain is None else {key: one for key, one in certain.items() if key in keyed}
        if certain is not None and not certain:
            return ()
    return tuple(one for one in (certain or {}).values() if _is_certain((one.where or "").partition(" (")[0], made_up))


def _check(document: Document) -> tuple[BenchlockError, ...] | None:
    """Return the rules that a completed manifest breaks; None if its keys do not fit all the same."""
    try:
        check(msgspec.convert(document.value, Manifest), document, published=False)
    except msgspec.ValidationError:
        return None
    except InvalidInputError as error:
        problems, error.problems = error.problems or (error,), ()  # each stands for itself
        return problems
    return ()


def _is_certain(path: str, made_up: set[str]) -> bool:
    """Whether the rules of a place say nothing of a place that was made up."""
    sections = {re.split(r"[.\[]", one)[0] for one in made_up}
    if any(re.fullmatch(pattern, path) and sections & needed for pattern, needed in _REFERENCES.items()):
        return False
    while path:
        if path in made_up:
            return False
        path = parent(path)
    return True
