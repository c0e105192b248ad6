"""Which store a registry has: its own folder, or an OCI repository behind it. Decided when the registry is made.

The decision is written down in the registry's home, so that nobody loses sight of blobs by forgetting a variable.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from benchlock.api.decisions import alone, new_owner, write_down
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.local import LocalStore
from benchlock.artifacts.locking import StoreLock
from benchlock.artifacts.progress import Progress
from benchlock.registry.catalogued import CataloguedStore, TextOf

if TYPE_CHECKING:
    from benchlock.artifacts.oci.reference import Repository
    from benchlock.artifacts.oci.store import OciStore
    from benchlock.artifacts.store import FileStore

VARIABLE = "BENCHLOCK_STORE"
_BLOBS, _DECISION, _LOCK = "blobs", "store.json", "store.lock"


@dataclass(frozen=True, slots=True)
class Decision:
    """That blobs are kept in a repository, which the registry claims by its ``owner`` id."""

    repository: "Repository"
    owner: str


def open_store(
    home: Path, progress: Progress, text_of: TextOf, *, is_new: bool, beside: StoreLock | None = None
) -> "FileStore":
    """The store of the registry in ``home``; of a new one, the one that BENCHLOCK_STORE names, if it is set.

    ``text_of`` asks the registry's catalogue, which may be opened later: it is not called here. ``beside`` is held with
    the file locks of the store.

    Raises:
        InvalidInputError: BENCHLOCK_STORE names no repository, or another than the registry has.
        RefusedError: the repository belongs to another registry.
        UnavailableError: the repository cannot be asked, or the decision not be written down.
    """
    wanted = os.environ.get(VARIABLE)
    remote = _of_new(home, wanted) if is_new else _of_old(home, wanted)
    if remote is None:
        return CataloguedStore(home / _BLOBS, text_of, beside)
    from benchlock.artifacts.oci.mirrored import MirroredRepository  # noqa: PLC0415 - a registry in a folder needs none of it

    return MirroredRepository(LocalStore(home / _BLOBS, beside), remote, progress)


def uploads_folder(home: Path) -> Path:
    """Where blobs are that come over HTTP, in pieces: on the disk of the registry's blobs, whose names they get."""
    return home / _BLOBS / "uploads"


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


def take_over(home: Path, store: str, owner: str) -> None:
    """Decide that a new registry in ``home`` has the repository ``store`` of the registry with the id ``owner``.

    It does so where BENCHLOCK_STORE names that repository; else nothing is decided.
    """
    wanted = os.environ.get(VARIABLE)
    if wanted and decided(home) is None and _repository(wanted) == _repository(store):
        write_down(home / _DECISION, {"store": store, "owner": owner})


def _of_new(home: Path, wanted: str | None) -> "OciStore | None":
    """The repository of a registry that keeps nothing yet, decided and claimed by one process at a time.

    A decision may be there, and its repository not be claimed: whoever wrote it was killed in between.
    """
    if not wanted and decided(home) is None:
        return None
    with alone(home):
        before = decided(home)
        if before is None and not wanted:
            return None
        decision = before or _decide(home, str(wanted))
        _refuse_other(home, wanted, decision)
        remote = _remote(home, decision)
        try:
            remote.claim()
        except BaseException:
            if before is None:
                (home / _DECISION).unlink()  # nobody else saw it as long as this process was alone
            raise
        return remote


def _of_old(home: Path, wanted: str | None) -> "OciStore | None":
    decision = decided(home)
    if decision is None:
        if wanted:
            raise _other(home, wanted, "its own folder")
        return None
    _refuse_other(home, wanted, decision)
    return _remote(home, decision)


def _decide(home: Path, wanted: str) -> Decision:
    """Write the decision down."""
    decision = Decision(_repository(wanted), new_owner())
    write_down(home / _DECISION, {"store": str(decision.repository), "owner": decision.owner})
    return decision


def _remote(home: Path, decision: Decision) -> "OciStore":
    from benchlock.api.image_lookup import connect  # noqa: PLC0415 - see above
    from benchlock.artifacts.oci.store import OciStore  # noqa: PLC0415

    return OciStore(connect(decision.repository), home / _LOCK, decision.owner)


def _repository(text: str) -> "Repository":
    from benchlock.artifacts.oci.reference import parse_repository  # noqa: PLC0415 - see above

    return parse_repository(text)


def _refuse_other(home: Path, wanted: str | None, decision: Decision) -> None:
    if wanted and _repository(wanted) != decision.repository:
        raise _other(home, wanted, str(decision.repository))


def _other(home: Path, wanted: str, has: str) -> InvalidInputError:
    return InvalidInputError(
        f"{VARIABLE} is {wanted}, and the registry in {home} keeps its blobs in {has}",
        where=VARIABLE,
        next_step=f"unset {VARIABLE}, or make another registry with --registry",
    )
