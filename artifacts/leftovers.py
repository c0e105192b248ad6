"""Files that killed writers left: recognised by a file lock (flock), which the kernel frees with its holder."""

import fcntl
import os
import secrets
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from artifacts.drafts import Draft
from artifacts.fetching import is_at

PARTIAL: Final = ".part"
"""How the file of an interrupted fetch ends, which the next fetch resumes."""


@dataclass(frozen=True, slots=True)
class Swept:
    """Unfinished files that were removed, or with a dry run would be: their number, and their bytes together."""

    files: int = 0
    size: int = 0

    def __add__(self, other: "Swept") -> "Swept":
        return Swept(self.files + other.files, self.size + other.size)


NOTHING: Final = Swept()


def new_draft(folder: Path) -> Draft:
    """Return a new file in ``folder`` that is locked for as long as it is open. ``OSError`` as it comes."""
    while True:
        draft = Draft(path := folder / secrets.token_hex(16))
        try:
            fcntl.flock(draft.file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # another process takes it for a leftover, and removes it
            draft.close()
            continue
        except BaseException:
            draft.close()
            raise
        if is_at(draft.file, path):
            return draft
        draft.close()


def remove_dead_drafts(folder: Path) -> Swept:
    """Remove the drafts in ``folder`` whose writers are gone, at any time, whoever writes beside it.

    Files of interrupted fetches stay, since they are resumed.
    """
    return sum((_remove_dead(folder / name) for name in _names(folder) if not name.endswith(PARTIAL)), Swept())


def remove_all(folder: Path, names: Iterable[str], *, dry_run: bool) -> Swept:
    """Remove the files of these ``names`` while nobody writes. ``OSError`` as it comes."""
    found = Swept()
    for path in (folder / name for name in names):
        found += Swept(1, path.stat(follow_symlinks=False).st_size)
        if not dry_run:
            path.unlink()
    return found


def _names(folder: Path) -> tuple[str, ...]:
    try:
        return tuple(os.listdir(folder))  # noqa: PTH208 - names alone, without a path for each
    except FileNotFoundError:
        return ()


def _remove_dead(path: Path) -> Swept:
    """What cannot be opened, locked or removed stays for the next collection."""
    with suppress(OSError):
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            size = os.fstat(descriptor).st_size
            path.unlink()
            return Swept(1, size)
        finally:
            os.close(descriptor)
    return Swept()
