"""Reading a bundle that somebody else may have made: checked as a whole before a byte of it is kept."""

import io
import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Final

from benchlock.artifacts.bundles.contents import (
    INDEX_FILE,
    BundleError,
    Index,
    Listed,
    decode_index,
    decode_layout,
    decode_manifest,
    malformed,
)
from benchlock.artifacts.bundles.tarfiles import Entry, cut_short, entries, pieces_of
from benchlock.artifacts.bundles.writing import BLOBS
from benchlock.artifacts.digest import Descriptor, Digest, describe, digest_bytes, from_hex, to_hex
from benchlock.artifacts.errors import IntegrityError, InvalidInputError
from benchlock.artifacts.files import open_regular, unreadable
from benchlock.artifacts.oci.documents import LARGEST_MANIFEST, LAYOUT_FILE
from benchlock.artifacts.progress import Advance, Progress
from benchlock.artifacts.store import BlobStore, mismatch

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

LARGEST_DOCUMENTS: Final = 16 << 20
"""Bytes that the documents of all roots may have together: they are held in memory."""
_LARGEST_LAYOUT = 1 << 10
_MOST_MANIFESTS = 1024
_WRITERS = 4
_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class Arrived:
    """A root as it came: what it says has not been read yet, that its blobs are there is certain."""

    media_type: str
    digest: Digest
    content: bytes
    blobs: Mapping[Digest, int]


class Bundle:
    """An open bundle whose index, manifests and entries agree: each listed file is there once, of the listed size.

    ``roots`` are in the order of the index. The bytes of blobs are not verified yet: ``store_into`` does it.
    """

    def __init__(self, path: Path, descriptor: int, most_files: int | None = None) -> None:
        self._path = path
        self._descriptor = descriptor
        self._entries = entries(descriptor, most_files)
        decode_layout(self._whole(LAYOUT_FILE, self._entry(LAYOUT_FILE), _LARGEST_LAYOUT), LAYOUT_FILE)
        index = decode_index(self._whole(INDEX_FILE, self._entry(INDEX_FILE), LARGEST_MANIFEST))
        self.warnings = index.warnings
        self.roots = self._roots(index)
        self._check_entries(index)

    def blob_sizes(self) -> dict[Digest, int]:
        """Return the bytes of the blobs of every root."""
        return {digest: size for root in self.roots for digest, size in root.blobs.items()}

    def store_into(self, store: BlobStore, progress: Progress) -> int:
        """Put the blobs of every root into ``store``, verified; how many they are.

        Raises:
            IntegrityError: one is not what its digest says.
            UnavailableError: the store cannot be written.
        """
        wanted = {digest for root in self.roots for digest in root.blobs}
        blobs = sorted(wanted, key=lambda digest: self._entry(_name(digest)).start)
        size = sum(self._entry(_name(digest)).size for digest in blobs)
        with progress.task("storing the blobs of the bundle", size) as advance, ThreadPoolExecutor(_WRITERS) as pool:
            told, turn = advance, Lock()

            def advance_in_turn(step: int) -> None:
                with turn:
                    told(step)

            rest = iter(blobs)
            try:
                while some := tuple(islice(rest, _AT_ONCE)):
                    for done in [pool.submit(self._put, store, digest, advance_in_turn) for digest in some]:
                        done.result()
            finally:
                pool.shutdown(cancel_futures=True)
        return len(blobs)

    def _put(self, store: BlobStore, digest: Digest, advance: Advance) -> None:
        name = _name(digest)
        try:
            store.put(self._stream(name), digest, name=name, advance=advance)
        except IntegrityError as error:
            found = describe(self._stream(name))
            if found.digest == digest:  # the bundle is right: what the store says is of its own
                raise
            raise mismatch(f"{name} in the bundle", digest, found, next_step=_AGAIN) from error

    def _stream(self, name: str) -> io.BufferedReader:
        return io.BufferedReader(_Slice(self._path, self._descriptor, self._entry(name)))

    def _roots(self, index: Index) -> tuple[Arrived, ...]:
        """The roots that the manifests list; several manifests of one root are joined."""
        if len(index.manifests) > _MOST_MANIFESTS:
            raise malformed(INDEX_FILE, f"it lists more than {_MOST_MANIFESTS} manifests")
        if len({blob.digest for blob in index.manifests}) < len(index.manifests):
            raise malformed(INDEX_FILE, "it lists a manifest twice")
        found: dict[Digest, Arrived] = {}
        blobs: defaultdict[Digest, dict[Digest, int]] = defaultdict(dict)
        room = LARGEST_DOCUMENTS
        for blob in index.manifests:
            listed = decode_manifest(self._document(blob, LARGEST_MANIFEST), _name(blob.digest))
            digest = listed.root.digest
            known = found.get(digest)
            if known is None:
                content = self._document(listed.root, room)
                room -= len(content)
                found[digest] = Arrived(listed.media_type, digest, content, blobs[digest])
            elif listed.media_type != known.media_type:
                raise malformed(_name(digest), "two manifests give it different media types")
            blobs[digest] |= self._sizes(listed)
        return tuple(found.values())

    def _sizes(self, listed: Listed) -> dict[Digest, int]:
        for blob in listed.blobs:
            self._check_size(blob)
        return {blob.digest: blob.size for blob in listed.blobs}

    def _check_entries(self, index: Index) -> None:
        """Nothing, where every file of the tar is one that the index lists."""
        listed = {_name(digest) for root in self.roots for digest in (root.digest, *root.blobs)}
        listed |= {_name(blob.digest) for blob in index.manifests} | {LAYOUT_FILE, INDEX_FILE}
        for name in self._entries:
            if name not in listed:
                raise BundleError(
                    f"this is no bundle: it holds {name}, and its index lists no such file",
                    where=name,
                    next_step="name a file that `benchlock bundle create` wrote",
                )

    def _document(self, blob: Descriptor, largest: int) -> bytes:
        self._check_size(blob)
        name = _name(blob.digest)
        content = self._whole(name, self._entry(name), largest)
        found = Descriptor(digest_bytes(content), len(content))
        if found != blob:
            raise mismatch(f"{name} in the bundle", blob.digest, found, next_step=_AGAIN)
        return content

    def _whole(self, name: str, entry: Entry, largest: int) -> bytes:
        if entry.size > largest:
            raise malformed(name, f"it has {entry.size} bytes, and {largest} are the most that it may have")
        return b"".join(pieces_of(self._descriptor, entry.start, entry.start + entry.size, largest))

    def _check_size(self, blob: Descriptor) -> None:
        entry = self._entry(_name(blob.digest))
        if entry.size != blob.size:
            raise IntegrityError(
                f"the bundle's index lies: it lists {blob.size} bytes of {blob.digest}, and {entry.size} are there",
                where=_name(blob.digest),
                next_step=_AGAIN,
            )

    def _entry(self, name: str) -> Entry:
        found = self._entries.get(name)
        if found is None:
            if name in (LAYOUT_FILE, INDEX_FILE):
                raise malformed(name, "it is not there")
            raise IntegrityError(
                f"the bundle's index lists {from_hex(name.removeprefix(BLOBS))}, and it is not there",
                where=name,
                next_step=_AGAIN,
            )
        return found


_AGAIN = "copy or download the bundle again, or have it made again"


@contextmanager
def open_bundle(path: Path, most_files: int | None = None) -> Iterator[Bundle]:
    """Open the bundle in the file ``path`` as long as the context is held; its errors name ``path``.

    Args:
        path: The file.
        most_files: The largest number of files in it, where that is not the format's own.

    Raises:
        InvalidInputError: there is no such file, or it is no bundle.
        IntegrityError: it is damaged: cut short, or not what its index says.
        UnavailableError: it cannot be read.
    """
    with open_regular(path) as file, _said_of(path):
        try:
            bundle = Bundle(path, file.fileno(), most_files)
        except OSError as error:
            raise unreadable(path, error) from error
        except RecursionError as error:
            raise malformed(INDEX_FILE, "its documents are nested without end") from error
        yield bundle


@contextmanager
def _said_of(path: Path) -> Iterator[None]:
    try:
        yield
    except (InvalidInputError, IntegrityError) as error:
        error.where = f"{path}: {error.where}" if error.where else str(path)
        raise


class _Slice(io.RawIOBase):
    """The content of an entry; several may be read at once, since none moves the file's position."""

    def __init__(self, path: Path, descriptor: int, entry: Entry) -> None:
        self._path = path
        self._descriptor = descriptor
        self._place = entry.start
        self._end = entry.start + entry.size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer).cast("B")
        wanted = min(len(view), self._end - self._place)
        try:
            count = os.preadv(self._descriptor, [view[:wanted]], self._place)
        except OSError as error:
            raise unreadable(self._path, error) from error
        if wanted and not count:
            raise cut_short(f"byte {self._place}")
        self._place += count
        return count


def _name(digest: Digest) -> str:
    return BLOBS + to_hex(digest)
