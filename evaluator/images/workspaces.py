"""Temporary folders for work that a kill may cut short: what a dead process left is removed by the next one."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "work-"


@contextmanager
def workspace(root: Path) -> Iterator[Path]:
    """A new empty folder under ``root``, removed at the end; folders that nobody works in any more are removed first.

    Every user of ``root`` holds a shared lock for as long as it works, which the kernel drops when the process dies. So
    whoever gets the exclusive lock knows that all folders there are left-overs.
    """
    root.mkdir(parents=True, exist_ok=True)
    lock = os.open(root / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _sweep(root, lock)
        fcntl.flock(lock, fcntl.LOCK_SH)
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _sweep(root: Path, lock: int) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # somebody works; the next one sweeps
    for folder in root.glob(f"{_PREFIX}*"):
        # A child of a killed build may write here for another moment: what stays is removed the next time.
        shutil.rmtree(folder, ignore_errors=True)
