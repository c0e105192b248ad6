"""Resumable fetch of a remote blob into a store; a blob that is stored intact is not fetched."""

import fcntl
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from io import FileIO
from pathlib import Path
from typing import BinaryIO, Protocol, cast, runtime_checkable

from benchlock.artifacts.atomic_files import UnfinishedFile, is_at
from benchlock.artifacts.blob_store import BlobStore, check_digest, verify
from benchlock.artifacts.digest import Descriptor, Digest, read_chunks, relay, to_hex
from benchlock.artifacts.errors import IntegrityError, InvalidInputError
from benchlock.artifacts.user_output import Advance, ignore_progress

_MODE = 0o600

OpenAtOffset = Callable[[int], AbstractContextManager[BinaryIO]]
"""Open the bytes of one source from an offset on."""


@runtime_checkable
class ResumingStore(Protocol):
    """A store that keeps the bytes of an interrupted ``fetch`` until garbage is collected."""

    def fetch(
        self, expected: Digest, open_at: OpenAtOffset, *, name: str, advance: Advance = ignore_progress
    ) -> Descriptor:
        """Fetch a blob that is absent or damaged, as the function ``fetch`` does."""
        ...


def fetch(
    store: BlobStore, expected: Digest, open_at: OpenAtOffset, *, name: str, advance: Advance = ignore_progress
) -> Descriptor:
    """Fetch the blob ``expected`` into the store, unless it is stored intact already.

    ``open_at`` is called only if the blob is absent or damaged, with the number of bytes that an interrupted fetch left
    in the store. All bytes are verified, including these.

    Args:
        store: The store.
        expected: The digest of the blob.
        open_at: Opens the source from an offset on.
        name: The name of the blob in error messages.
        advance: Called with the number of bytes of each chunk.

    Raises:
        IntegrityError: The source has other bytes; no blob became visible. The message has both digests.
        UnavailableError: The store failed. Errors of ``open_at`` and its stream are passed on.
    """
    blob = find_intact(store, expected, name, advance)
    if blob is not None:
        return blob
    if isinstance(store, ResumingStore):
        return store.fetch(expected, open_at, name=name, advance=advance)
    with open_at(0) as stream:
        return store.put(stream, expected, name=name, advance=advance)


def find_intact(store: BlobStore, digest: Digest, name: str, advance: Advance = ignore_progress) -> Descriptor | None:
    """Return the blob if it is stored and undamaged, otherwise ``None``."""
    if not store.exists(digest):
        return None
    try:
        return verify(store, digest, name=name, advance=advance)
    except IntegrityError:
        return None


@contextmanager
def open_partial_file(folder: Path, expected: Digest) -> Iterator[tuple[UnfinishedFile, bool]]:
    """Open and lock the file of a fetch, and create it if needed; yield also whether another process held it.

    After an error the file stays for a later fetch, unless it is empty; otherwise it is removed. The kernel releases
    the lock when its holder dies.
    """
    path, has_waited = folder / f"{to_hex(expected)}.part", False
    while True:
        with FileIO(path, "r+", opener=_open_or_create) as file:
            has_waited = _lock(file) or has_waited
            if is_at(file, path):  # otherwise another process has published or removed it
                draft = UnfinishedFile(path, file)
                try:
                    yield draft, has_waited
                except BaseException:
                    if not draft.size and is_at(file, path):
                        path.unlink()
                    raise
                if is_at(file, path):  # otherwise the file is a newer one of another process
                    path.unlink()
                return


def receive(
    draft: UnfinishedFile, expected: Digest, open_at: OpenAtOffset, *, name: str, advance: Advance
) -> Descriptor:
    """Append the rest of the source to ``draft``; return the digest, which is ``expected``, and the size.

    If the digest differs, the earlier bytes may be wrong, so the fetch starts again once. Rejected bytes are removed.

    Args:
        draft: The file of the fetch.
        expected: The digest of the blob.
        open_at: Opens the source from an offset on.
        name: The name of the blob in error messages.
        advance: Called with the number of bytes of each chunk; negative when the fetch starts again.

    Raises:
        IntegrityError: The source has other bytes.
    """
    initial_size = draft.size
    try:
        actual = _receive_rest(draft, open_at, advance)
        if actual.digest != expected and initial_size:
            draft.empty()
            advance(-actual.size)
            actual = _receive_rest(draft, open_at, advance)
        check_digest(name, expected, actual)
    except IntegrityError:
        draft.empty()
        raise
    except InvalidInputError:
        if draft.size > initial_size:  # for example too many bytes; not a source that was rejected at once
            draft.empty()
        raise
    return actual


def _receive_rest(draft: UnfinishedFile, open_at: OpenAtOffset, advance: Advance) -> Descriptor:
    state = hashlib.sha256()
    draft.file.seek(0)
    for chunk in read_chunks(cast("BinaryIO", draft.file)):
        state.update(chunk)
        advance(len(chunk))
    with open_at(draft.size) as stream:
        return relay(stream, draft.write, advance, (state, draft.size))


def _open_or_create(name: str, flags: int) -> int:
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(name, flags | os.O_CREAT, _MODE)
    except PermissionError:  # read-only: a process ended, or is, between fetch and publication
        with FileIO(name, "r") as file:
            _lock(file)
            if is_at(file, Path(name)):
                os.fchmod(file.fileno(), _MODE)
        return os.open(name, flags | os.O_CREAT, _MODE)


def _lock(draft: FileIO) -> bool:
    """Lock the file; return whether another process held the lock."""
    try:
        fcntl.flock(draft, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fcntl.flock(draft, fcntl.LOCK_EX)
        return True
    return False
