"""Local files as they are taken in: regular ones, opened without waiting."""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from benchlock.artifacts.errors import InvalidInputError, UnavailableError


def open_regular(path: Path) -> BinaryIO:
    """The bytes of a regular file, or of one that a link leads to.

    Raises:
        InvalidInputError: there is none (missing, a folder, a pipe, a device).
        UnavailableError: it cannot be opened.
    """
    try:
        # Without O_NONBLOCK, opening a pipe would wait for somebody to write into it.
        stream = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError) as error:
        raise InvalidInputError(f"{path} is no file", where=str(path), next_step="name a file that exists") from error
    except OSError as error:
        raise unreadable(path, error) from error
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise InvalidInputError(f"{path} is no regular file", where=str(path), next_step="name a regular file")
    return stream


def unreadable(path: Path, error: OSError) -> UnavailableError:
    """The error of a file or folder that is there and cannot be read."""
    return UnavailableError(
        f"{path} cannot be read: {error.strerror or error}",
        where=str(path),
        next_step="look at its permissions, and at the disk",
    )
