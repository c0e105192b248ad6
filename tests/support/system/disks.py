"""Disks that are small, full or read-only: file systems in memory, mounted for a test."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_PAGE = 4096


@contextmanager
def mounted(folder: Path, size: int) -> Iterator[Path]:
    """A disk of ``size`` bytes in ``folder``, which is made. The test is skipped where nothing may be mounted."""
    folder.mkdir()
    options = ["-t", "tmpfs", "-o", f"size={size},mode=755", "tmpfs", str(folder)]
    done = subprocess.run(["mount", *options], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"needs root, and the right to mount: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


@contextmanager
def filled(disk: Path, left: int = 0) -> Iterator[None]:
    """All but ``left`` bytes of the disk are taken, by a file that goes afterwards."""
    ballast = disk / "ballast"
    free = os.statvfs(disk)
    with ballast.open("wb") as file:
        if taken := max(0, free.f_bavail - left // _PAGE) * _PAGE:
            os.posix_fallocate(file.fileno(), 0, taken)
    try:
        yield
    finally:
        ballast.unlink()


@contextmanager
def read_only(disk: Path) -> Iterator[None]:
    """Nobody can write to the disk, root included."""
    subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
    try:
        yield
    finally:
        subprocess.run(["mount", "-o", "remount,rw", disk], check=True)
