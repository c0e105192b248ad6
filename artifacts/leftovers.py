"""Files that killed writers left: recognised by a file lock (flock), which the kernel frees with its holder."""

import fcntl
import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchlock.artifacts.drafts import Draft, is_at

PARTIAL: Final = ".part"
"""The suffix of the file of an interrupted fetch, which the next fetch resumes."""


@dataclass(frozen=True, slots=True)
class RemovedFiles:
    """Number and total bytes of the unfinished files that were removed, or would be without a dry run."""

    files: int = 0
    size: int = 0

    def __add__(self, other: "RemovedFiles") -> "RemovedFiles":
        return RemovedFiles(self.files + other.files, self.size + other.size)


def new_draft(folder: Path) -> Draft:
    """Create a file in ``folder`` that is locked as long as it is open.

    Raises:
        OSError: The file cannot be created.
    """
    while True:
        draft = Draft(path := folder / secrets.token_hex(16))
        try:
            fcntl.flock(draft.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another process removes it as a leftover
            draft.close()
            continue
        except BaseException:
            draft.close()
            raise
        if is_at(draft.file, path):
            return draft
        draft.close()


def remove_dead_drafts(folder: Path) -> RemovedFiles:
    """Remove the drafts in ``folder`` whose writers are gone; others may write at the same time.

    Files of interrupted fetches stay, since they are resumed.
    """
    return sum(
        (_remove_dead(folder / name) for name in _list_names(folder) if not name.endswith(PARTIAL)), RemovedFiles()
    )


def remove_all(folder: Path, names: Iterable[str], *, dry_run: bool) -> RemovedFiles:
    """Remove files while nobody writes.

    Args:
        folder: The folder of the files.
        names: Their names.
        dry_run: Count the files only.

    Raises:
        OSError: A file cannot be read or removed.
    """
    removed = RemovedFiles()
    for path in (folder / name for name in names):
        removed += RemovedFiles(1, path.stat(follow_symlinks=False).st_size)
        if not dry_run:
            path.unlink()
    return removed


def _list_names(folder: Path) -> tuple[str, ...]:
    try:
        return tuple(os.listdir(folder))  # noqa: PTH208 - names alone, without a path for each
    except FileNotFoundError:
        return ()


def _remove_dead(path: Path) -> RemovedFiles:
    """Remove a draft unless it is in use; what cannot be removed stays for the next collection."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            size = os.fstat(descriptor).st_size
            path.unlink()
            return RemovedFiles(1, size)
        finally:
            os.close(descriptor)
    return RemovedFiles()
