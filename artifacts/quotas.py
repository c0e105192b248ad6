"""The quota of bytes that one owner may keep in a store without naming them in a version, a lock or a run."""

import time
from _thread import LockType
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from threading import Lock
from typing import Final

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import RefusedError
from benchlock.artifacts.holds import Holds

_COUNT_SECONDS: Final = 2.0
"""Seconds for which a count is used: other processes may take in bytes of the same owner meanwhile."""
_SEARCH_SECONDS: Final = 10.0
"""Seconds between two searches for blobs that were named, of an owner who is still above the quota after the first."""

FindNamed = Callable[[Collection[Digest]], Collection[Digest]]
"""Return those of some digests that a version, a lock or a run names."""


class UnnamedBytesError(RefusedError):
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


class UnnamedQuota:
    """Bytes that one owner may have in unfinished uploads and in held blobs that nothing names.

    A blob counts until it is named or deleted: named blobs are searched for when an owner would exceed the quota.
    """

    def __init__(
        self,
        size: int,
        holds: Holds,
        count_open: Callable[[str], int],
        find_named: FindNamed,
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
            raise UnnamedBytesError(
                f"{self._size - account.left} bytes of yours are in unfinished uploads and in blobs that no version, "
                f"lock or run names, and the limit is {self._size} bytes",
                next_step="publish what names them or delete uploads; the rest counts until garbage is collected",
            )

    def _count_left(self, owner: str) -> int:
        return self._size - self._holds.count_bytes(owner) - self._count_open(owner)
