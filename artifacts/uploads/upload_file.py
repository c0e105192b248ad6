"""An upload in progress: a file on disk and the running SHA-256 of its content."""

import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path
from typing import BinaryIO, TypeAlias, cast

from benchlock.artifacts.atomic_files import UnfinishedFile
from benchlock.artifacts.digest import Descriptor, Digest, read_chunks
from benchlock.artifacts.errors import InvalidInputError, UnavailableError

DigestState: TypeAlias = "tuple[hashlib._Hash, int]"  # noqa: SLF001 - it has no public name
"""The state of a digest, and how many bytes it is of."""


class TooLargeError(InvalidInputError):
    """More bytes than are taken."""

    code = "too-large"


Admit: TypeAlias = Callable[[int], None]
"""Accounts for bytes that are about to be appended; raises where there is no room for them."""


def _admit_all(_: int) -> None:
    pass


class UploadFile:
    """The end of an upload, for one writer; who has it has the file's lock."""

    def __init__(
        self, path: Path, file: FileIO, before: "DigestState | None", largest: int = 0, owner: str = ""
    ) -> None:
        """``before`` is what was digested already, of this file; ``largest`` the bytes that it may have."""
        self.path = path
        self.owner = owner
        self.admit: Admit = _admit_all
        self.draft = UnfinishedFile(path, file)
        self._state, self._digested = before or (hashlib.sha256(), 0)
        self.largest = largest
        self.is_kept = True
        file.seek(0, os.SEEK_END)

    @property
    def size(self) -> int:
        """Bytes that are there."""
        return self.draft.size

    @property
    def progressed(self) -> DigestState:
        return self._state, self._digested

    def write(self, chunk: bytes) -> None:
        """Append it.

        Raises:
            TooLargeError: the upload would become too large; nothing of it is appended.
            BenchlockError: as ``admit``; nothing of it is appended.
            UnavailableError: the disk takes no more; what it took is kept.
        """
        before = self.size
        if before + len(chunk) > self.largest:
            raise TooLargeError(
                f"the upload would have more than {self.largest} bytes",
                next_step="ask whoever runs the server for larger bounds",
            )
        self.admit(len(chunk))
        with convert_disk_errors(self.path.parent):
            self.draft.write(chunk)
        if self._digested == before:  # else what a server that was killed took in is still to be read
            self._state.update(chunk)
            self._digested += len(chunk)

    def describe(self) -> Descriptor:
        """Digest and size of all that is there."""
        with convert_disk_errors(self.path.parent):
            self.draft.file.seek(self._digested)
            for chunk in read_chunks(cast("BinaryIO", self.draft.file)):
                self._state.update(chunk)
                self._digested += len(chunk)
        return Descriptor(Digest(f"sha256:{self._state.hexdigest()}"), self._digested)

    def remove(self) -> None:
        """The file goes, unless the store has made it its own."""
        with convert_disk_errors(self.path.parent):
            self.path.unlink(missing_ok=True)
        self.is_kept = False

    def close(self) -> None:
        self.draft.file.close()


@contextmanager
def convert_disk_errors(folder: Path) -> Iterator[None]:
    """Turns what the operating system refuses into ``UnavailableError``, but for what is not there."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnavailableError(
            f"uploads cannot be kept: {error.strerror or error}",
            where=str(folder),
            next_step="free disk space, or look at the disk and the folder: what came is kept",
        ) from error


def list_file_stats(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """The names in a folder that may not be there yet, and what the files are."""
    with convert_disk_errors(folder):
        try:
            names = os.listdir(folder)  # noqa: PTH208 - names alone
        except FileNotFoundError:
            return
        for name in names:
            with suppress(FileNotFoundError):
                yield name, (folder / name).stat(follow_symlinks=False)
