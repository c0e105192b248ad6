"""Folders where blobs lie as files while they are read: links to the store's files where that is possible."""

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from benchlock.artifacts.digest import Descriptor
from benchlock.artifacts.store import BlobStore, copy_out

_STALE: Final = 24 * 3600.0
"""Seconds after which a folder can only be what a killed process left."""


@contextmanager
def open_workspace(parent: Path | None) -> Iterator[Path]:
    """Make an empty folder in ``parent``, else where temporary files go, for as long as the context lasts."""
    if parent is not None:
        parent.mkdir(parents=True, exist_ok=True)
        _remove_stale(parent)
    with tempfile.TemporaryDirectory(dir=parent) as folder:
        yield Path(folder)


def lay_out(store: BlobStore, blob: Descriptor, target: Path) -> None:
    """Make the file ``target`` of a blob.

    Raises:
        IntegrityError: The blob is missing.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    find = getattr(store, "path", None)
    if find is not None and store.exists(blob.digest):
        with suppress(OSError):  # another file system, too many links, another owner
            os.link(find(blob.digest), target)
            return
    copy_out(store, blob, target, name=target.name)


def _remove_stale(parent: Path) -> None:
    oldest = time.time() - _STALE
    for folder in parent.iterdir():
        with suppress(OSError):
            if folder.stat().st_mtime < oldest:
                shutil.rmtree(folder, ignore_errors=True)
