"""Free space of the file system of a store: a reserve that uploads and imports leave to everything else."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchlock.artifacts.errors import UnavailableError
from benchlock.artifacts.pieces import disk

_SHARE, _SMALL_SHARE = 20, 10
_LEAST, _MOST = 1 << 30, 8 << 30


class LowSpaceError(UnavailableError):
    """The file system of the store has no free space beyond its reserve."""

    code = "low-space"


@dataclass(frozen=True, slots=True)
class Space:
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

    def measure(self) -> Space:
        """Return the space of the file system now.

        Raises:
            UnavailableError: The file system cannot be asked.
        """
        with disk(self.folder):
            found = os.statvfs(_existing(self.folder))
        size = found.f_blocks * found.f_frsize
        return Space(size, found.f_bavail * found.f_frsize, default_reserve(size) if self.size is None else self.size)

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
