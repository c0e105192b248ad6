"""The files below a folder that wheels were installed into: any names that a wheel may have, in one order."""

import os
from collections.abc import Iterator
from pathlib import Path


def files_below(folder: Path) -> list[tuple[str, Path]]:
    """Everything that is no folder: its relative path and where it lies, sorted by the path's UTF-8 bytes."""
    return sorted(_walk(str(folder), ""), key=lambda found: found[0].encode())


def _walk(folder: str, prefix: str) -> Iterator[tuple[str, Path]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _walk(entry.path, f"{prefix}{entry.name}/")
            else:
                yield prefix + entry.name, Path(entry.path)
