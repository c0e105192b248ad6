"""A file that processes lock (flock): several together, or one alone. The kernel frees it when its holder dies."""

import fcntl
import os
import stat
from pathlib import Path

_MODE = 0o644


def lock_file(path: Path, *, alone: bool) -> int:
    """A descriptor that holds the lock until it is closed; waits for whoever is in the way. ``OSError`` as it comes."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, _MODE)
    try:
        if stat.S_IMODE(os.fstat(descriptor).st_mode) != _MODE:  # new, under a narrow umask
            os.fchmod(descriptor, _MODE)
        fcntl.flock(descriptor, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
