"""Holds: protect uploaded blobs from garbage collection until a publication refers to them.

The file ``FOLDER/<hex>-<owner>-<size>`` holds the blob of that digest, from the modification time on, for a limited
time, because its uploader may never return. The blob counts as its owner's until a record refers to it or it is
deleted. Older versions wrote ``FOLDER/<hex>``.
"""

import hashlib
import re
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from threading import Lock
from typing import Final, NamedTuple, Protocol

from benchlock.artifacts.digest import Digest, from_hex, to_hex
from benchlock.artifacts.uploads.upload_file import convert_upload_errors, list_file_stats

HOLD_SECONDS: Final = 24 * 3600.0
BLOCK_BYTES: Final = 4096
"""Smallest size for which a blob counts, in bytes: every file takes a block and an inode of the disk."""
_MODE, _FOLDER_MODE = 0o600, 0o700
_OWNER_DIGITS: Final = 16
_NAME: Final = re.compile(rf"([0-9a-f]{{64}})(?:-([0-9a-f]{{{_OWNER_DIGITS}}})-([0-9]{{1,18}}))?")


class Holds(Protocol):
    """Holds of blobs. Blobs are held within ``store.writing()``, and holds are read within ``store.collecting()``."""

    def hold(self, digest: Digest, owner: str = "", size: int = 0) -> None:
        """Hold the blob of ``size`` bytes for ``owner`` from now on; renew an existing hold."""
        ...

    def held(self) -> Iterator[Digest]:
        """Return the digest of every held blob, stored or not."""
        ...

    def forget_expired(self) -> None:
        """Remove expired holds, after a collection has deleted their blobs and before it ends."""
        ...

    def count_bytes(self, owner: str) -> int:
        """Return the bytes of an owner's holds that are not released, expired ones included, by blocks at least."""
        ...

    def owned(self, owner: str) -> Collection[Digest]:
        """Return the digests of an owner's holds that are not released, expired ones included."""
        ...

    def release(self, owner: str, digests: Collection[Digest]) -> None:
        """End an owner's holds of blobs that records refer to."""
        ...


class _Hold(NamedTuple):
    digest: Digest
    owner: str
    size: int


def make_owner_tag(owner: str) -> str:
    """Return the short hash that stands for an owner in file names."""
    return hashlib.sha256(owner.encode()).hexdigest()[:_OWNER_DIGITS]


class FolderHolds:
    """Holds as files of a folder. Implements ``Holds``.

    The file names are cached, since one service writes them; the command ``gc`` may remove some meanwhile.
    """

    def __init__(self, folder: Path, seconds: float = HOLD_SECONDS, clock: Callable[[], float] = time.time) -> None:
        """Keep the holds in ``folder``; they expire after ``seconds`` on ``clock``."""
        self._folder = folder
        self._seconds = seconds
        self._clock = clock
        self._mutex = Lock()
        self._names: set[str] | None = None
        self._bytes: Counter[str] = Counter()

    def hold(self, digest: Digest, owner: str = "", size: int = 0) -> None:
        """Hold a blob from now on, or renew its hold."""
        name = f"{to_hex(digest)}-{make_owner_tag(owner)}-{size}"
        with convert_upload_errors(self._folder):
            self._folder.mkdir(_FOLDER_MODE, parents=True, exist_ok=True)
            (self._folder / name).touch(_MODE)
        with self._mutex:
            if self._names is not None and name not in self._names:
                self._add(name)

    def held(self) -> Iterator[Digest]:
        """Yield the digest of every held blob, stored or not."""
        now = self._clock()
        for name, status in list_file_stats(self._folder):
            if (hold := _parse(name)) is not None and now - status.st_mtime <= self._seconds:
                yield hold.digest

    def forget_expired(self) -> None:
        """Remove the files of expired holds."""
        now = self._clock()
        for name, status in list_file_stats(self._folder):
            if now - status.st_mtime > self._seconds:
                (self._folder / name).unlink(missing_ok=True)
        with self._mutex:
            self._names = None

    def count_bytes(self, owner: str) -> int:
        """Return the bytes of an owner's holds, from the cache."""
        with self._mutex:
            if self._names is None:
                self._load()
            return self._bytes[make_owner_tag(owner)]

    def owned(self, owner: str) -> Collection[Digest]:
        """Return the digests of an owner's holds, from the folder."""
        with self._mutex:
            names = self._load()
        holds = (_parse(name) for name in names)
        return [hold.digest for hold in holds if hold is not None and hold.owner == make_owner_tag(owner)]

    def release(self, owner: str, digests: Collection[Digest]) -> None:
        """Remove the files of an owner's holds of ``digests``."""
        released = frozenset(digests)
        with self._mutex:
            for name in self._load():
                hold = _parse(name)
                if hold is not None and hold.owner == make_owner_tag(owner) and hold.digest in released:
                    (self._folder / name).unlink(missing_ok=True)
            self._load()

    def _load(self) -> frozenset[str]:
        self._names, self._bytes = set(), Counter()
        for name, _ in list_file_stats(self._folder):
            self._add(name)
        return frozenset(self._names)

    def _add(self, name: str) -> None:
        assert self._names is not None
        if (hold := _parse(name)) is not None:
            self._names.add(name)
            self._bytes[hold.owner] += max(hold.size, BLOCK_BYTES)


def _parse(name: str) -> _Hold | None:
    """Parse the file name of a hold; return ``None`` for other files."""
    match = _NAME.fullmatch(name)
    return None if match is None else _Hold(from_hex(match[1]), match[2] or "", int(match[3] or 0))
