"""Manifests as authors hand them in: the text, where it lies, and what is wrong with it by itself."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from msgspec import UNSET

from benchlock.artifacts.errors import BenchlockError, InvalidInputError
from benchlock.artifacts.sources import Access, open_source
from benchlock.registry.inspection.images import Ask
from benchlock.registry.manifests import Manifest
from benchlock.registry.manifests.reading import examine, files_in


@dataclass(frozen=True, slots=True)
class Draft:
    """A manifest as authored, with the author's ``text``.

    ``path`` is the manifest's: relative sources start in its folder, trees leave it out, errors name it. There need not
    be a file. ``access`` is how remote sources are reached; ``ask`` looks finished images up. A draft with ``problems``
    of its manifest alone is looked at like any other, and refused.
    """

    manifest: Manifest
    text: str
    path: Path
    access: Access = field(default_factory=Access)
    ask: Ask | None = None
    problems: tuple[BenchlockError, ...] = ()


def read_draft(text: str, name: str, path: Path, access: Access | None = None) -> Draft:
    """The draft whose manifest is ``text``, which lies at ``path``; errors call it ``name``.

    A manifest that breaks rules, and whose keys are well, is a draft with problems: its files can be looked at.

    Raises:
        InvalidInputError: it cannot be read; with all its problems, files that are missing too.
    """
    reading, access = examine(text, name), access or Access()
    if reading.manifest is not None:
        return Draft(reading.manifest, text, path, access, problems=tuple(reading.problems.found))
    for index, file in enumerate(files_in(reading.document)):
        if file.source is not UNSET:
            with reading.problems.noted(), placed(f"files[{index}].source ({name})"):
                open_source(file.source, path.parent, access)
    reading.problems.refuse()
    raise InvalidInputError(f"{name} is no manifest", where=name)


@contextmanager
def placed(where: str) -> Iterator[None]:
    """Errors name the place in the manifest that led to them."""
    try:
        yield
    except InvalidInputError as error:
        error.where = where
        raise
