"""Remote sources into a store: nothing is asked for what is there, and the SHA-256 decides about what comes."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes, to_hex
from benchlock.artifacts.errors import IntegrityError, InvalidInputError, UnavailableError
from benchlock.artifacts.fetching import fetch
from benchlock.artifacts.progress import SILENT, Progress
from benchlock.artifacts.sources.dvc import DvcSource, NoRepositoryError
from benchlock.artifacts.sources.network import LARGEST
from benchlock.artifacts.sources.opening import RemoteSource
from benchlock.artifacts.store import BlobStore, read, refuse_other
from benchlock.artifacts.trees import (
    LARGEST_LISTING,
    TreeEntry,
    check_collisions,
    encode_listing,
    parse_listing,
    verify_tree,
)


def settled(source: RemoteSource, expected: Digest, store: BlobStore) -> RemoteSource:
    """The source at the commit that its revision is now; as written, where nobody answers and the blob is there.

    Raises:
        InvalidInputError: it has no such revision.
        UnavailableError: nobody answers, and the blob is not there.
    """
    try:
        return source.resolved()
    except (UnavailableError, NoRepositoryError):
        if store.exists(expected):
            return source
        raise


def fetch_file(
    source: RemoteSource,
    expected: Digest,
    store: BlobStore,
    *,
    name: str,
    size: int | None = None,
    progress: Progress = SILENT,
) -> Descriptor:
    """Have the file in the store; a blob that is there intact needs no network. ``size`` is the most that it may have.

    Raises:
        IntegrityError: other bytes came, or the source itself states another digest.
        InvalidInputError: there is no such file, or it is larger.
        UnavailableError: the source or the store failed.
    """

    @contextmanager
    def opened(offset: int) -> Iterator[BinaryIO]:
        _refuse_stated(source, expected, name)
        with source.open(offset, limit=LARGEST if size is None else size) as stream:
            yield stream

    with progress.task(f"fetching {name}", size) as advance:
        return fetch(store, expected, opened, name=name, advance=advance)


def _refuse_stated(source: RemoteSource, expected: Digest, name: str) -> None:
    stated = source.stated()
    if stated is not None and stated != expected:
        raise IntegrityError(
            f"{name} is not what its digest says: expected {expected}, and {source} states {stated}",
            where=str(source),
            next_step="verify the file, and correct its sha256 or its source",
        )


def fetch_tree(
    source: DvcSource, expected: Digest, store: BlobStore, *, name: str, progress: Progress = SILENT
) -> tuple[Descriptor, tuple[TreeEntry, ...]]:
    """Have a folder in the store as a tree; one that is there intact needs no network.

    Raises:
        IntegrityError: its digest is another one. Names both.
        InvalidInputError: there is no such folder, or one whose files cannot lie in one folder everywhere.
        UnavailableError: the source or the store failed.
    """
    there = _tree_there(store, expected, name, progress)
    if there is not None:
        return there
    entries, left = list[TreeEntry](), LARGEST
    with source.folder() as files, store.together(), progress.task(f"fetching {name}") as advance:
        check_collisions(path for path, _ in files)
        for path, opened in files:
            with opened(left) as stream:
                blob = store.put(stream, name=name + path, advance=advance)
            left -= blob.size
            entries.append(TreeEntry(path, to_hex(blob.digest), blob.size))
        listing = encode_listing(entries)
        found = Descriptor(digest_bytes(listing), LARGEST - left)
        refuse_other(name, expected, found)
        store.put(io.BytesIO(listing), expected, name=name)
    return found, parse_listing(listing, name)


def _tree_there(
    store: BlobStore, digest: Digest, name: str, progress: Progress
) -> tuple[Descriptor, tuple[TreeEntry, ...]] | None:
    if not store.exists(digest):
        return None
    try:
        listed = parse_listing(read(store, digest, name=name, most=LARGEST_LISTING), name)
        tree = Descriptor(digest, sum(entry.size for entry in listed))
        return tree, verify_tree(store, tree, name=name, progress=progress)
    except (IntegrityError, InvalidInputError):
        return None
