"""A file that processes lock (flock): several together, or one alone. The kernel frees it when its holder dies."""

import errno
import fcntl
import os
import stat
import time
from contextlib import AbstractContextManager
from contextvars import ContextVar
from pathlib import Path
from typing import Final, Protocol

PATIENCE: Final = ContextVar[float | None]("PATIENCE", default=None)
"""For how many seconds whoever runs this waits for a lock; without end where that is None."""


class StoreLock(Protocol):
    """A lock beside the file lock of a store, for processes that do not share a kernel."""

    def held(self, *, alone: bool) -> AbstractContextManager[None]:
        """Hold the lock, together with other writers or ``alone``."""
        ...

    def check(self) -> None:
        """Require that a collection of garbage still holds the lock alone."""
        ...


_MODE = 0o644
_PAUSE: Final = 0.02


def lock_file(path: Path, *, alone: bool) -> int:
    """A descriptor that holds the lock until it is closed; waits for whoever is in the way. ``OSError`` as it comes."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
    try:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != _MODE:  # new, under a narrow umask
            os.fchmod(descriptor, _MODE)
        _lock(descriptor, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _lock(descriptor: int, how: int) -> None:
    patience = PATIENCE.get()
    if patience is None:
        fcntl.flock(descriptor, how)
        return None
    until = time.monotonic() + patience
    while True:
        try:
            return fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise TimeoutError(errno.ETIMEDOUT, f"something else holds it for {patience:g} seconds") from None
            time.sleep(_PAUSE)
