"""Files of users as commands and the Python API read them: texts, requests and lockfiles."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchlock.artifacts.atomic_files import create_file
from benchlock.artifacts.errors import InvalidInputError, UnavailableError
from benchlock.registry.catalogue.catalogue_protocol import CatalogueProtocol
from benchlock.registry.database.ids_and_timestamps import SHORTEST_PREFIX
from benchlock.registry.lock.lockfile import Lock, load

if TYPE_CHECKING:
    from benchlock.registry.requests.evaluation_request import Request

ID_PREFIX: Final = "sha256:"
LOCK_ID_LINE: Final = re.compile(rf'^id = "{ID_PREFIX}[0-9a-f]{{64}}"$', re.MULTILINE)
"""The line of a lockfile with its id."""
_LARGEST: Final = 64 << 20
"""Maximum bytes of a text; manifests, requests and locks have smaller limits of their own."""
_LOCK_DIGITS: Final = re.compile(rf"[0-9a-f]{{{SHORTEST_PREFIX},64}}")


def read_text(path: Path, *, next_step: str, recode: str = "save it as UTF-8") -> str:
    """Read a UTF-8 text file of the user.

    Args:
        path: The file.
        next_step: The next step of the error if it cannot be read.
        recode: The next step of the error if it is not UTF-8.

    Raises:
        InvalidInputError: It cannot be read, is too large, or is not UTF-8.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
        if len(content) > _LARGEST:
            what = f"{path} has more than {_LARGEST >> 20} MiB"
            raise InvalidInputError(what, where=str(path), next_step=next_step)
        return content.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        raise InvalidInputError(
            f"{path} is not UTF-8: {error.reason} at byte {error.start}",
            where=str(path),
            next_step=recode,
        ) from error
    except OSError as error:
        raise InvalidInputError(
            f"cannot read {path}: {error.strerror or error}", where=str(path), next_step=next_step
        ) from error


def read_request(path: Path, as_of: str) -> "Request":
    """Read the request in a file, with ``as_of`` as its time if that is not empty."""
    from benchlock.registry.requests import evaluation_request  # noqa: PLC0415 - YAML; most commands read no request

    text = read_text(path, next_step="give a request file")
    if LOCK_ID_LINE.search(text):
        raise InvalidInputError(
            f"{path} is a lockfile, not a request",
            where=str(path),
            next_step=f"benchlock run {path}, or give its request",
        )
    request = evaluation_request.read_request(text, str(path))
    return evaluation_request.parse_request({**request.document, "as_of": as_of}, str(path)) if as_of else request


def default_lock_path(path: Path, request: "Request") -> Path:
    """Return the path of the lock of the request in the file ``path``: beside it, with the name of the request."""
    return path.with_name(f"{request.name.replace('/', '-')}.lock")


def complete_lock_id(text: str) -> str:
    """Add ``sha256:`` to the digits of a lock id, complete or not; return the name of a file unchanged."""
    return f"{ID_PREFIX}{text}" if _LOCK_DIGITS.fullmatch(text) and not Path(text).exists() else text


def read_lockfile(path: Path) -> Lock:
    """Load the lock in a file."""
    return load(read_text(path, next_step="give a lockfile or a lock id"), str(path))


def load_lock(catalogue: CatalogueProtocol, text: str) -> Lock:
    """Load the lock in the file ``text``, or in the catalogue by its id or the beginning of its id."""
    name = complete_lock_id(text)
    if name.startswith(ID_PREFIX):
        return load(catalogue.get_lock(catalogue.find_lock(name)), name)
    return read_lockfile(Path(name))


def write_text(path: Path, text: str) -> None:
    """Write a text file atomically."""
    try:
        with create_file(path) as file:
            file.write(text.encode())
    except OSError as error:
        raise UnavailableError(
            f"cannot write {path}: {error.strerror or error}",
            where=str(path),
            next_step="choose a file in a writable folder",
        ) from error
