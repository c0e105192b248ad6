"""Blobs that are no garbage yet though nothing names them: somebody sent them, and has still to publish what does.

``FOLDER/<hex>`` holds the blob of that digest, from the file's time on; for a while, since whoever sent it may be gone.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from artifacts.digest import Digest, from_hex, to_hex
from artifacts.errors import InvalidInputError
from artifacts.pieces import disk, stated

SECONDS: Final = 24 * 3600.0
_MODE, _FOLDER_MODE = 0o600, 0o700


class Holds(Protocol):
    """What is held. It is held while ``store.writing()`` is, and asked for while ``store.collecting()`` is."""

    def hold(self, digest: Digest) -> None:
        """Hold the blob from now on; a hold that is there is renewed."""
        ...

    def held(self) -> Iterator[Digest]:
        """Return every blob that is held, there or not. Holds that are over are forgotten."""
        ...


class FolderHolds:
    """Blobs that are held, as files of a folder. Implements ``Holds``."""

    def __init__(self, folder: Path, seconds: float = SECONDS, clock: Callable[[], float] = time.time) -> None:
        self._folder = folder
        self._seconds = seconds
        self._clock = clock

    def hold(self, digest: Digest) -> None:
        """From now on; anew, if it is held already."""
        with disk(self._folder):
            self._folder.mkdir(_FOLDER_MODE, parents=True, exist_ok=True)
            (self._folder / to_hex(digest)).touch(_MODE)

    def held(self) -> Iterator[Digest]:
        """Every blob that is held, there or not. Holds that are over are forgotten."""
        now = self._clock()
        for name, found in stated(self._folder):
            if now - found.st_mtime > self._seconds:
                (self._folder / name).unlink(missing_ok=True)
                continue
            with suppress(InvalidInputError):
                yield from_hex(name)
