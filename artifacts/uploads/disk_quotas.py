"""Bounds of disk use: the quota of unreferenced bytes per owner, and the reserve of free disk space."""

import os
import time
from _thread import LockType
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Final

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import RefusedError, UnavailableError
from benchlock.artifacts.uploads.blob_holds import Holds
from benchlock.artifacts.uploads.upload_file import convert_disk_errors

_COUNT_SECONDS: Final = 2.0
"""Seconds for which a count is used: other processes may take in bytes of the same owner meanwhile."""
_SEARCH_SECONDS: Final = 10.0
"""Seconds between two searches for blobs that were named, of an owner who is still above the quota after the first."""

FindReferenced = Callable[[Collection[Digest]], Collection[Digest]]
"""Return those of some digests that a version, a lock or a run names."""


class UnreferencedBytesError(RefusedError):
    """An owner has as many bytes in uploads and unnamed blobs as one owner may have."""

    code = "unnamed-bytes"


_NEVER: Final = float("-inf")


@dataclass(slots=True)
class _Account:
    """The bytes that one owner may still write, and the moments of the last count and of the last vain search."""

    mutex: LockType = field(default_factory=Lock)
    left: int = 0
    counted_at: float = _NEVER
    searched_at: float = _NEVER


class UnreferencedQuota:
    """Bytes that one owner may have in unfinished uploads and in held blobs that nothing names.

    A blob counts until it is named or deleted: named blobs are searched for when an owner would exceed the quota.
    """

    def __init__(
        self,
        size: int,
        holds: Holds,
        count_open: Callable[[str], int],
        find_named: FindReferenced,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Make a quota.

        Args:
            size: The bytes of one owner.
            holds: Held blobs, each with its owner and size.
            count_open: Return the bytes of an owner's unfinished uploads.
            find_named: Return those of some digests that are named.
            clock: Seconds that never go back.
        """
        self._size = size
        self._holds = holds
        self._count_open = count_open
        self._find_named = find_named
        self._clock = clock
        self._accounts: dict[str, _Account] = {}

    def charge(self, owner: str, size: int) -> None:
        """Account for ``size`` bytes that are about to be written.

        Raises:
            UnnamedBytesError: The owner would have more than the quota.
        """
        account = self._accounts.setdefault(owner, _Account())
        with account.mutex:
            self._require(account, owner, size)
            account.left -= size

    def require(self, owner: str, size: int) -> None:
        """Require room for ``size`` bytes, without accounting for them. Raise as ``charge``."""
        account = self._accounts.setdefault(owner, _Account())
        with account.mutex:
            self._require(account, owner, size)

    def _require(self, account: _Account, owner: str, size: int) -> None:
        now = self._clock()
        if account.left < size or now - account.counted_at > _COUNT_SECONDS:
            account.left, account.counted_at = self._count_left(owner), now
        if account.left < size and now - account.searched_at > _SEARCH_SECONDS:
            self._holds.release(owner, self._find_named(self._holds.owned(owner)))
            account.left = self._count_left(owner)
            account.searched_at = now if account.left < size else _NEVER
        if account.left < size:
            raise UnreferencedBytesError(
                f"{self._size - account.left} bytes of yours are in unfinished uploads and in blobs that no version, "
                f"lock or run names, and the limit is {self._size} bytes",
                next_step="publish what names them or delete uploads; the rest counts until garbage is collected",
            )

    def _count_left(self, owner: str) -> int:
        return self._size - self._holds.count_bytes(owner) - self._count_open(owner)


_SHARE, _SMALL_SHARE = 20, 10
_LEAST, _MOST = 1 << 30, 8 << 30


class LowSpaceError(UnavailableError):
    """The file system of the store has no free space beyond its reserve."""

    code = "low-space"


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """Bytes of a file system: all of them, those that are free, and those of the free ones that are reserved."""

    size: int
    free: int
    reserve: int

    @property
    def is_low(self) -> bool:
        """Whether nothing is free beyond the reserve."""
        return self.free <= self.reserve


@dataclass(frozen=True, slots=True)
class DiskReserve:
    """The reserve of the file system that has ``folder``.

    ``size`` is in bytes. By default it is 5% of the file system, but 1 GiB to 8 GiB, and never more than a tenth.
    """

    folder: Path
    size: int | None = None

    def measure(self) -> DiskSpace:
        """Return the space of the file system now.

        Raises:
            UnavailableError: The file system cannot be asked.
        """
        with convert_disk_errors(self.folder):
            found = os.statvfs(_existing(self.folder))
        size = found.f_blocks * found.f_frsize
        return DiskSpace(
            size, found.f_bavail * found.f_frsize, default_reserve(size) if self.size is None else self.size
        )

    def require(self, size: int, share: float = 1.0) -> None:
        """Require room for ``size`` more bytes beside a ``share`` of the reserve.

        Raises:
            LowSpaceError: There is not so much room.
            UnavailableError: The file system cannot be asked.
        """
        space = self.measure()
        if space.free - size < space.reserve * share:
            raise LowSpaceError(
                f"the disk of the registry is nearly full: {space.free} bytes are free, {size} are needed, "
                f"and {int(space.reserve * share)} stay reserved",
                next_step="ask an administrator to delete unreferenced blobs (`benchlock gc`) or to add disk space",
            )


def default_reserve(size: int) -> int:
    """Return the reserve of a file system of ``size`` bytes."""
    return min(max(size // _SHARE, _LEAST), _MOST, size // _SMALL_SHARE)


def _existing(folder: Path) -> Path:
    """Return the nearest folder that exists: a new registry has no folder of blobs yet."""
    return next((one for one in (folder, *folder.parents) if one.exists()), folder)


NO_RESERVE: Final = DiskReserve(Path("/"), 0)
