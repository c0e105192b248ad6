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
from benchlock.artifacts.uploads.gc_holds import Holds
from benchlock.artifacts.uploads.upload_file import convert_upload_errors

_COUNT_SECONDS: Final = 2.0
"""Seconds for which a count is used; other processes may receive bytes of the same owner meanwhile."""
_SEARCH_SECONDS: Final = 10.0
"""Seconds between two searches for referenced blobs of an owner who stays above the quota."""

FindReferenced = Callable[[Collection[Digest]], Collection[Digest]]
"""Return those of some digests that a version, a lock or a run refers to."""


class UnreferencedBytesError(RefusedError):
    """An owner has reached the quota of bytes in unfinished uploads and unreferenced blobs."""

    code = "unnamed-bytes"


_NEVER: Final = float("-inf")


@dataclass(slots=True)
class _Account:
    """The bytes that one owner may still write, and the times of the last count and of the last vain search."""

    mutex: LockType = field(default_factory=Lock)
    left: int = 0
    counted_at: float = _NEVER
    searched_at: float = _NEVER


class UnreferencedQuota:
    """A quota for each owner's bytes in unfinished uploads and in held blobs without a reference.

    A blob counts until a record refers to it or it is deleted. References are searched for when an owner would exceed
    the quota.
    """

    def __init__(
        self,
        size: int,
        holds: Holds,
        count_open: Callable[[str], int],
        find_referenced: FindReferenced,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Set up the quota.

        Args:
            size: The quota of one owner, in bytes.
            holds: Held blobs, each with its owner and size.
            count_open: Returns the bytes of an owner's unfinished uploads.
            find_referenced: Returns those of some digests that have a reference.
            clock: A monotonic clock, in seconds.
        """
        self._size = size
        self._holds = holds
        self._count_open = count_open
        self._find_referenced = find_referenced
        self._clock = clock
        self._accounts: dict[str, _Account] = {}

    def charge(self, owner: str, size: int) -> None:
        """Charge ``size`` bytes that are about to be written.

        Raises:
            UnreferencedBytesError: The owner would exceed the quota.
        """
        account = self._accounts.setdefault(owner, _Account())
        with account.mutex:
            self._require_room(account, owner, size)
            account.left -= size

    def require(self, owner: str, size: int) -> None:
        """Raise as ``charge`` unless there is room for ``size`` bytes; charge nothing."""
        account = self._accounts.setdefault(owner, _Account())
        with account.mutex:
            self._require_room(account, owner, size)

    def _require_room(self, account: _Account, owner: str, size: int) -> None:
        now = self._clock()
        if account.left < size or now - account.counted_at > _COUNT_SECONDS:
            account.left, account.counted_at = self._count_left(owner), now
        if account.left < size and now - account.searched_at > _SEARCH_SECONDS:
            self._holds.release(owner, self._find_referenced(self._holds.owned(owner)))
            account.left = self._count_left(owner)
            account.searched_at = now if account.left < size else _NEVER
        if account.left < size:
            raise UnreferencedBytesError(
                f"{self._size - account.left} bytes of your quota are used by unfinished uploads and blobs that no "
                f"version, lock or run references; the limit is {self._size} bytes",
                next_step="publish what references them, or delete uploads; the rest counts until garbage collection",
            )

    def _count_left(self, owner: str) -> int:
        return self._size - self._holds.count_bytes(owner) - self._count_open(owner)


_SHARE, _SMALL_SHARE = 20, 10
_MIN, _MAX = 1 << 30, 8 << 30


class LowSpaceError(UnavailableError):
    """The file system of the store has no free space beyond its reserve."""

    code = "low-space"


@dataclass(frozen=True, slots=True)
class DiskSpace:
    """The bytes of a file system: total, free, and reserved among the free ones."""

    size: int
    free: int
    reserve: int

    @property
    def is_low(self) -> bool:
        """Whether no space is free beyond the reserve."""
        return self.free <= self.reserve


@dataclass(frozen=True, slots=True)
class DiskReserve:
    """The reserve of the file system that contains ``folder``.

    ``size`` is in bytes. The default is 5% of the file system, at least 1 GiB and at most 8 GiB, and never more than a
    tenth.
    """

    folder: Path
    size: int | None = None

    def measure(self) -> DiskSpace:
        """Measure the space of the file system now.

        Raises:
            UnavailableError: The file system does not answer.
        """
        with convert_upload_errors(self.folder):
            folders = (self.folder, *self.folder.parents)  # a new registry has no folder of blobs yet
            status = os.statvfs(next((folder for folder in folders if folder.exists()), self.folder))
        size = status.f_blocks * status.f_frsize
        return DiskSpace(
            size, status.f_bavail * status.f_frsize, default_reserve(size) if self.size is None else self.size
        )

    def require(self, size: int, share: float = 1.0) -> None:
        """Raise unless there is room for ``size`` bytes in addition to a ``share`` of the reserve.

        Raises:
            LowSpaceError: There is not enough room.
            UnavailableError: The file system does not answer.
        """
        space = self.measure()
        if space.free - size < space.reserve * share:
            raise LowSpaceError(
                f"the disk of the registry is nearly full: {space.free} bytes free, {size} needed, "
                f"{int(space.reserve * share)} reserved",
                next_step="ask an administrator to delete unreferenced blobs or to add disk space",
            )


def default_reserve(size: int) -> int:
    """Return the default reserve of a file system of ``size`` bytes."""
    return min(max(size // _SHARE, _MIN), _MAX, size // _SMALL_SHARE)


NO_RESERVE: Final = DiskReserve(Path("/"), 0)
