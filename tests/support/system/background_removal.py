"""Removal of folders that nothing waits for."""

import subprocess
from pathlib import Path


def remove_in_background(folder: Path) -> None:
    """Delete a folder in a process that outlives this one: the unpacked layers of an engine take minutes.

    The process must not be waited for, so it has a parent that ends at once.
    """
    subprocess.run(["sh", "-c", 'rm -rf "$0" </dev/null >/dev/null 2>&1 &', folder], check=True, start_new_session=True)
