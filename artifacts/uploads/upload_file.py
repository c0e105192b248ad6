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
"""The state of a hash, and the number of bytes that it has processed."""


class TooLargeError(InvalidInputError):
    """The upload has more bytes than allowed."""

    code = "too-large"


Admit: TypeAlias = Callable[[int], None]
"""Charge the bytes that are about to be appended; raise if there is no room for them."""


def _admit_all(_: int) -> None:
    pass


class UploadFile:
    """An open upload, positioned at its end, for the one writer that holds the file's lock."""

    def __init__(
        self, path: Path, file: FileIO, before: "DigestState | None", largest: int = 0, owner: str = ""
    ) -> None:
        """Continue the upload in ``file``.

        Args:
            path: The path of the file.
            file: The open and locked file.
            before: The state of the hash after the first bytes of the file, if it is known.
            largest: The largest size in bytes.
            owner: The owner of the upload.
        """
        self.path = path
        self.owner = owner
        self.admit: Admit = _admit_all
        self.draft = UnfinishedFile(path, file)
        self._state, self._digested_size = before or (hashlib.sha256(), 0)
        self.largest = largest
        self.is_kept = True
        file.seek(0, os.SEEK_END)

    @property
    def size(self) -> int:
        """The number of bytes received."""
        return self.draft.size

    @property
    def digest_state(self) -> DigestState:
        """The state of the hash, and the number of bytes that it has processed."""
        return self._state, self._digested_size

    def write(self, chunk: bytes) -> None:
        """Append a chunk.

        Raises:
            TooLargeError: The upload would become too large; nothing is appended.
            BenchlockError: As ``admit``; nothing is appended.
            UnavailableError: The disk is full or failed; the bytes written so far stay.
        """
        before = self.size
        if before + len(chunk) > self.largest:
            raise TooLargeError(
                f"the upload would have more than {self.largest} bytes",
                next_step="ask the operator of the server for a higher limit",
            )
        self.admit(len(chunk))
        with convert_upload_errors(self.path.parent):
            self.draft.write(chunk)
        if self._digested_size == before:  # otherwise bytes from before a restart are not hashed yet
            self._state.update(chunk)
            self._digested_size += len(chunk)

    def describe(self) -> Descriptor:
        """Compute the digest and size of all bytes received."""
        with convert_upload_errors(self.path.parent):
            self.draft.file.seek(self._digested_size)
            for chunk in read_chunks(cast("BinaryIO", self.draft.file)):
                self._state.update(chunk)
                self._digested_size += len(chunk)
        return Descriptor(Digest(f"sha256:{self._state.hexdigest()}"), self._digested_size)

    def remove(self) -> None:
        """Remove the file, unless the store has adopted it."""
        with convert_upload_errors(self.path.parent):
            self.path.unlink(missing_ok=True)
        self.is_kept = False

    def close(self) -> None:
        """Close the file, which releases its lock."""
        self.draft.file.close()


@contextmanager
def convert_upload_errors(folder: Path) -> Iterator[None]:
    """Convert errors of the operating system into ``UnavailableError``, except ``FileNotFoundError``."""
    try:
        yield
    except FileNotFoundError:
        raise
    except OSError as error:
        raise UnavailableError(
            f"cannot store uploads: {error.strerror or error}",
            where=str(folder),
            next_step="free disk space, or check the disk and the folder: received bytes are preserved",
        ) from error


def list_file_stats(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield the name and status of each file in a folder, which may not exist yet."""
    with convert_upload_errors(folder):
        try:
            names = os.listdir(folder)  # noqa: PTH208 - names only
        except FileNotFoundError:
            return
        for name in names:
            with suppress(FileNotFoundError):
                yield name, (folder / name).stat(follow_symlinks=False)
