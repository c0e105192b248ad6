"""Streams of bytes that must be known before they are sent: held in memory while they are few, then on the disk."""

import hashlib
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final, cast

from benchlock.artifacts.digest import CHUNK, Descriptor, Digest, chunks
from benchlock.artifacts.errors import UnavailableError

_SPOOLED: Final = 8 * CHUNK  # bytes that are held in memory before they go to a temporary file


@contextmanager
def spooled(stream: BinaryIO, folder: Path) -> Iterator[tuple[BinaryIO, Descriptor]]:
    """The rest of ``stream``, which can be sought, and what it is. A temporary file is in ``folder``."""
    with tempfile.SpooledTemporaryFile(_SPOOLED, dir=str(folder)) as spool:
        state, size = hashlib.sha256(), 0
        for chunk in chunks(stream):  # an error of the stream is the caller's, not the store's
            state.update(chunk)
            size += len(chunk)
            with _disk(folder):
                spool.write(chunk)
        yield cast("BinaryIO", spool), Descriptor(Digest(f"sha256:{state.hexdigest()}"), size)


@contextmanager
def _disk(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnavailableError(
            f"the store cannot hold what it is to send: {error.strerror or error}",
            where=str(folder),
            next_step="look at the disk and the folder",
        ) from error
