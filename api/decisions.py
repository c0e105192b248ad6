"""What is decided once when a registry is made, and written down in its home."""

import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from benchlock.artifacts.drafts import new_file
from benchlock.artifacts.errors import UnavailableError
from benchlock.artifacts.locking import lock_file

_DECIDING = "store.json.lock"
_ID_BYTES = 16


def new_owner() -> str:
    """An id by which a registry claims what others could claim too."""
    return secrets.token_hex(_ID_BYTES)


def write_down(path: Path, decision: Mapping[str, str]) -> None:
    """Make the file ``path`` say it, durably."""
    import json  # noqa: PLC0415 - decisions are rare

    with _disk(path), new_file(path, durably=True) as file:
        file.write((json.dumps(decision) + "\n").encode())


@contextmanager
def alone(home: Path) -> Iterator[None]:
    """While held, no other process decides for the registry."""
    with _disk(home / _DECIDING):
        descriptor = lock_file(home / _DECIDING, alone=True)
    try:
        yield
    finally:
        os.close(descriptor)


@contextmanager
def _disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnavailableError(
            f"{path} cannot be written: {error.strerror or error}", where=str(path), next_step="look at the disk"
        ) from error
