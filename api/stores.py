"""Which store a registry has: its own folder, or an OCI repository behind it. Decided when the registry is made.

The decision is written down in the registry's home, so that nobody loses sight of blobs by forgetting a variable.
"""

import os
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from artifacts.errors import InvalidInputError, UnavailableError
from artifacts.local import LocalStore
from artifacts.progress import Progress

if TYPE_CHECKING:
    from artifacts.oci.reference import Repository
    from artifacts.oci.store import OciStore
    from artifacts.store import FileStore

VARIABLE = "BENCHLOCK_STORE"
_BLOBS, _DECISION, _LOCK = "blobs", "store.json", "store.lock"
_ID_BYTES = 16


@dataclass(frozen=True, slots=True)
class Decision:
    """That blobs are kept in a repository, which the registry claims by its ``owner`` id."""

    repository: "Repository"
    owner: str


def open_store(home: Path, progress: Progress, *, is_new: bool) -> "FileStore":
    """The store of the registry in ``home``; of a new one, the one that BENCHLOCK_STORE names, if it is set.

    Raises:
        InvalidInputError: BENCHLOCK_STORE names no repository, or another than the registry has.
        RefusedError: the repository belongs to another registry.
        UnavailableError: the repository cannot be asked, or the decision not be written down.
    """
    wanted, decision = os.environ.get(VARIABLE), decided(home)
    if decision is None and not wanted:
        return LocalStore(home / _BLOBS)
    if decision is None and not is_new:
        raise _other(home, str(wanted), "its own folder")
    if decision is None:
        remote = _remote(home, _decide(home, str(wanted)))
        try:
            remote.claim()
        except BaseException:
            (home / _DECISION).unlink()  # so far nothing is kept there
            raise
    else:
        if wanted and _repository(wanted) != decision.repository:
            raise _other(home, wanted, str(decision.repository))
        remote = _remote(home, decision)
    from artifacts.mirrored import MirroredStore  # noqa: PLC0415 - a registry in a folder needs none of it

    return MirroredStore(LocalStore(home / _BLOBS), remote, progress)


def decided(home: Path) -> Decision | None:
    """What was written down in a registry's home; ``None`` where its blobs are in the home itself.

    Raises:
        InvalidInputError: the file was changed by hand, and not well.
    """
    path = home / _DECISION
    if not path.exists():
        return None
    import msgspec  # noqa: PLC0415 - see above

    try:
        found = msgspec.json.decode(path.read_bytes(), type=dict[Literal["store", "owner"], str])
        return Decision(_repository(found["store"]), found["owner"])
    except (msgspec.MsgspecError, KeyError, InvalidInputError) as error:
        raise InvalidInputError(
            f"{path} does not say where the blobs are: {error}", where=str(path), next_step="restore it from a backup"
        ) from error


def _decide(home: Path, wanted: str) -> Decision:
    """Write the decision down; where another process was faster, its decision holds."""
    import json  # noqa: PLC0415 - see above

    repository, path = _repository(wanted), home / _DECISION
    draft = home / f".{_DECISION}.{secrets.token_hex(_ID_BYTES)}"
    text = json.dumps({"store": str(repository), "owner": secrets.token_hex(_ID_BYTES)}) + "\n"
    try:
        with draft.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        try:
            path.hardlink_to(draft)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
    except OSError as error:
        raise UnavailableError(
            f"{path} cannot be written: {error.strerror or error}", where=str(path), next_step="look at the disk"
        ) from error
    decision = decided(home)
    if decision is None or decision.repository != repository:
        raise _other(home, wanted, "another store, by now")
    return decision


def _remote(home: Path, decision: Decision) -> "OciStore":
    from api.credentials import credentials_for  # noqa: PLC0415 - see above
    from artifacts.oci.client import RegistryClient  # noqa: PLC0415
    from artifacts.oci.store import OciStore  # noqa: PLC0415

    client = RegistryClient(decision.repository, credentials_for(decision.repository))
    return OciStore(client, home / _LOCK, decision.owner)


def _repository(text: str) -> "Repository":
    from artifacts.oci.reference import parse_repository  # noqa: PLC0415 - see above

    return parse_repository(text)


def _other(home: Path, wanted: str, has: str) -> InvalidInputError:
    return InvalidInputError(
        f"{VARIABLE} is {wanted}, and the registry in {home} keeps its blobs in {has}",
        where=VARIABLE,
        next_step=f"unset {VARIABLE}, or make another registry with --registry",
    )
