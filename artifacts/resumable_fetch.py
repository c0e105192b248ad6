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
from benchlock.artifacts.display import Advance, ignore_progress
from benchlock.artifacts.errors import IntegrityError, InvalidInputError

_MODE = 0o600

OpenAtOffset = Callable[[int], AbstractContextManager[BinaryIO]]
"""Gives the bytes of one source from an offset on."""


@runtime_checkable
class ResumingStore(Protocol):
    """A store that keeps what an interrupted ``fetch`` received, until garbage is collected."""

    def fetch(
        self, expected: Digest, opened: OpenAtOffset, *, name: str, advance: Advance = ignore_progress
    ) -> Descriptor:
        """As the function of this name, for a blob that is not there, or damaged."""
        ...


def fetch(
    store: BlobStore, expected: Digest, opened: OpenAtOffset, *, name: str, advance: Advance = ignore_progress
) -> Descriptor:
    """Have the blob ``expected`` in the store: one that is there intact, else what ``opened`` gives.

    ``opened`` is not called for a blob that is there. It is called with the number of bytes that an interrupted fetch
    left, where the store keeps them. All bytes are verified, those that were kept too.

    Raises:
        IntegrityError: other bytes came; nothing became visible. Names both digests.
        UnavailableError: the store failed; and whatever ``opened`` and its stream raise.
    """
    found = find_intact(store, expected, name, advance)
    if found is not None:
        return found
    if isinstance(store, ResumingStore):
        return store.fetch(expected, opened, name=name, advance=advance)
    with opened(0) as stream:
        return store.put(stream, expected, name=name, advance=advance)


def find_intact(store: BlobStore, digest: Digest, name: str, advance: Advance = ignore_progress) -> Descriptor | None:
    """The blob, if it is there and undamaged."""
    if not store.exists(digest):
        return None
    try:
        return verify(store, digest, name=name, advance=advance)
    except IntegrityError:
        return None


@contextmanager
def open_partial_file(folder: Path, expected: Digest) -> Iterator[tuple[UnfinishedFile, bool]]:
    """The draft of a fetch, begun where it is missing, for this process alone; and whether another one had it.

    It stays for whoever goes on with it if there is an error, unless it is empty, and goes otherwise. The kernel frees
    it when its holder dies.
    """
    path, waited = folder / f"{to_hex(expected)}.part", False
    while True:
        with FileIO(path, "r+", opener=_make) as file:
            waited = _lock(file) or waited
            if is_at(file, path):  # and not what another process published or removed meanwhile
                draft = UnfinishedFile(path, file)
                try:
                    yield draft, waited
                except BaseException:
                    if not draft.size and is_at(file, path):
                        path.unlink()
                    raise
                if is_at(file, path):  # and not what another process began since it was published
                    path.unlink()
                return


def receive(
    draft: UnfinishedFile, expected: Digest, opened: OpenAtOffset, *, name: str, advance: Advance
) -> Descriptor:
    """Go on with a draft to the end of what ``opened`` gives; its digest, which is ``expected``, and its size.

    Where the whole is another one, what was kept may be of other bytes than what came: it begins again, once. What is
    refused is not kept.

    Raises:
        IntegrityError: other bytes came.
    """
    kept = draft.size
    try:
        found = _receive_rest(draft, opened, advance)
        if found.digest != expected and kept:
            draft.empty()
            advance(-found.size)
            found = _receive_rest(draft, opened, advance)
        check_digest(name, expected, found)
    except IntegrityError:
        draft.empty()
        raise
    except InvalidInputError:
        if draft.size > kept:  # too many bytes, say; not a source that was refused at once
            draft.empty()
        raise
    return found


def _receive_rest(draft: UnfinishedFile, opened: OpenAtOffset, advance: Advance) -> Descriptor:
    state = hashlib.sha256()
    draft.file.seek(0)
    for chunk in read_chunks(cast("BinaryIO", draft.file)):
        state.update(chunk)
        advance(len(chunk))
    with opened(draft.size) as stream:
        return relay(stream, draft.write, advance, (state, draft.size))


def _make(name: str, flags: int) -> int:
    flags |= os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        return os.open(name, flags | os.O_CREAT, _MODE)
    except PermissionError:  # read-only: a process was killed, or is, between the end of its fetch and the publication
        with FileIO(name, "r") as file:
            _lock(file)
            if is_at(file, Path(name)):
                os.fchmod(file.fileno(), _MODE)
        return os.open(name, flags | os.O_CREAT, _MODE)


def _lock(draft: FileIO) -> bool:
    """Lock the file; whether that took waiting for another process."""
    try:
        fcntl.flock(draft, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        fcntl.flock(draft, fcntl.LOCK_EX)
        return True
    return False
