"""The reader of untrusted bundles: the whole file is checked before any blob is stored.

Every header is compared with the names that the layout allows, and no name is used as a path. Extensions of tar (long
names, pax headers, sparse files) change the meaning of the next header, so they are rejected.
"""

import io
import os
import re
import tarfile
from collections import defaultdict
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchlock.artifacts.atomic_files import make_unreadable_error, open_regular
from benchlock.artifacts.blob_store import BlobStore, make_mismatch_error
from benchlock.artifacts.bundles.bundle_format import (
    BLOBS_PATH,
    INDEX_FILE,
    TAR_BLOCK,
    TAR_END,
    BundleError,
    BundleIndex,
    ManifestContents,
    decode_index,
    decode_layout,
    decode_manifest,
    make_bundle_error,
)
from benchlock.artifacts.digest import Descriptor, Digest, describe, digest_bytes, from_hex, to_hex
from benchlock.artifacts.errors import IntegrityError, InvalidInputError
from benchlock.artifacts.oci.oci_documents import LARGEST_MANIFEST, LAYOUT_FILE
from benchlock.artifacts.user_output import Advance, Progress, serialize_advance

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


_FIRST_NAME = b"oci-layout"
"""The first bytes of every bundle: the name of its first file."""
_NAMES = re.compile(r"oci-layout|index\.json|blobs/sha256/[0-9a-f]{64}")
_MAX_ENTRIES = 1 << 21  # the memory for an entry stays below the size of its header
_LONGEST_END = 1 << 16  # writers of tars pad the last record, customarily of 10 KiB
_KINDS = {
    tarfile.DIRTYPE: "a folder",
    tarfile.SYMTYPE: "a symbolic link",
    tarfile.LNKTYPE: "a hard link",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
    tarfile.FIFOTYPE: "a pipe",
    tarfile.GNUTYPE_SPARSE: "a sparse file",
}


@dataclass(frozen=True, slots=True)
class TarEntry:
    """The start of a file's content in the tar, and its size, in bytes."""

    start: int
    size: int


def read_entries(descriptor: int, max_files: int | None = None) -> dict[str, TarEntry]:
    """Return every file of the open tar by its name, in order.

    Args:
        descriptor: The open tar.
        max_files: The largest number of files; ``None`` for the limit of the format.

    Raises:
        BundleError: The file is not a tar, has an entry that is not a plain file of the layout, has a name twice, or
            has more than ``max_files`` files.
        IntegrityError: The tar is truncated, or damaged after its first file.
    """
    total = os.fstat(descriptor).st_size
    entries: dict[str, TarEntry] = {}
    offset = 0
    while (block := _read_block(descriptor, offset, total)) != TAR_END[:TAR_BLOCK]:
        name, size = _parse_header(block, offset, is_first=not entries)
        if name in entries:
            raise _make_tar_error(f"it contains {name} twice", name)
        if len(entries) == _MAX_ENTRIES:
            raise _make_tar_error(f"it contains more than {_MAX_ENTRIES} files", name)
        if len(entries) == max_files:
            raise BundleError(
                f"the bundle has more than {max_files} files",
                where=name,
                next_step="import it on the machine that has the registry's folder",
            )
        start = offset + TAR_BLOCK
        offset = start + size + -size % TAR_BLOCK
        if offset > total:
            raise make_truncation_error(name)
        if any(os.pread(descriptor, offset - start - size, start + size)):
            raise _make_tar_error(f"there are bytes between the end of {name} and the next header", name)
        entries[name] = TarEntry(start, size)
    _check_end(descriptor, offset, total)
    return entries


def make_truncation_error(where: str) -> IntegrityError:
    """Make the error of a truncated bundle, at the file or byte ``where``."""
    return IntegrityError(
        "the bundle is truncated", where=where, next_step="copy or download it again, and compare its size"
    )


def read_range(descriptor: int, start: int, end: int, largest: int) -> Iterator[bytes]:
    """Yield the bytes of the file from ``start`` to ``end``, in chunks of at most ``largest`` bytes.

    Raises:
        IntegrityError: The file ends before ``end``.
    """
    while start < end:
        chunk = os.pread(descriptor, min(largest, end - start), start)
        if not chunk:
            raise make_truncation_error(f"byte {start}")
        start += len(chunk)
        yield chunk


def _read_block(descriptor: int, offset: int, total: int) -> bytes:
    if offset == 0 and total < TAR_BLOCK:
        head = os.pread(descriptor, TAR_BLOCK, 0)
        if not head.startswith(_FIRST_NAME):
            raise _make_tar_error("it is empty" if not head else "it is shorter than the header of a tar", "byte 0")
    if offset == total:  # without the end blocks, entries may be missing
        raise make_truncation_error(f"byte {offset}")
    return b"".join(read_range(descriptor, offset, offset + TAR_BLOCK, TAR_BLOCK))


def _parse_header(block: bytes, offset: int, *, is_first: bool) -> tuple[str, int]:
    try:
        entry = tarfile.TarInfo.frombuf(block, "utf-8", "strict")
    except (tarfile.HeaderError, ValueError) as error:
        reason = f"no tar header at byte {offset} ({error})"
        if is_first:
            raise _make_tar_error(reason, f"byte {offset}") from error
        raise IntegrityError(  # the file began as a bundle
            f"the bundle is damaged: {reason}",
            where=f"byte {offset}",
            next_step="copy or download it again, and compare its SHA-256",
        ) from error
    name = ascii(entry.name)
    if entry.type not in (tarfile.REGTYPE, tarfile.AREGTYPE):
        raise _make_tar_error(f"it contains {_KINDS.get(entry.type, 'an unknown entry')}: {name}", name)
    if not _NAMES.fullmatch(entry.name):
        raise _make_tar_error(f"it contains a file that does not belong to an image layout: {name}", name)
    if entry.size < 0:
        raise _make_tar_error(f"the size of {name} is negative", name)
    return entry.name, entry.size


def _check_end(descriptor: int, offset: int, total: int) -> None:
    if total - offset > _LONGEST_END:
        raise _make_tar_error(f"{total - offset} bytes follow its end", f"byte {offset}")
    if any(any(chunk) for chunk in read_range(descriptor, offset, total, _LONGEST_END)):
        raise _make_tar_error("data follows its end", f"byte {offset}")
    if total - offset < len(TAR_END) or total % TAR_BLOCK:
        raise make_truncation_error(f"byte {total}")


def _make_tar_error(reason: str, where: str) -> BundleError:
    return BundleError(
        f"not a bundle: {reason}", where=where, next_step="choose a complete bundle that benchlock created"
    )


LARGEST_TOTAL_DOCUMENTS: Final = 16 << 20
"""Limit of the documents of all roots together, in bytes: they are held in memory."""
_LARGEST_LAYOUT = 1 << 10
_MAX_MANIFESTS = 1024
_WRITERS = 4
_AT_ONCE = 1024


@dataclass(frozen=True, slots=True)
class ReceivedRoot:
    """A root as received: its document is not parsed yet; all of its blobs are present in the bundle."""

    media_type: str
    digest: Digest
    content: bytes
    blobs: Mapping[Digest, int]


class Bundle:
    """An open bundle whose index, manifests and entries agree: each listed file exists once, with the listed size.

    ``roots`` are in the order of the index. The bytes of blobs are not verified yet: ``store_into`` verifies them.
    """

    def __init__(self, path: Path, descriptor: int, most_files: int | None = None) -> None:
        """Read and check the bundle that is open as ``descriptor``; arguments and errors as ``open_bundle``."""
        self._path = path
        self._descriptor = descriptor
        self._entries = read_entries(descriptor, most_files)
        decode_layout(self._read_entry(LAYOUT_FILE, self._find_entry(LAYOUT_FILE), _LARGEST_LAYOUT), LAYOUT_FILE)
        index = decode_index(self._read_entry(INDEX_FILE, self._find_entry(INDEX_FILE), LARGEST_MANIFEST))
        self.warnings = index.warnings
        self.roots = self._read_roots(index)
        self._check_entries(index)

    def blob_sizes(self) -> dict[Digest, int]:
        """Return the size in bytes of each blob of every root."""
        return {digest: size for root in self.roots for digest, size in root.blobs.items()}

    def store_into(self, store: BlobStore, progress: Progress) -> int:
        """Put the blobs of every root into ``store``, verified; return their number.

        Raises:
            IntegrityError: A blob does not have its digest.
            UnavailableError: The store cannot be written.
        """
        digests = {digest for root in self.roots for digest in root.blobs}
        blobs = sorted(digests, key=lambda digest: self._find_entry(_blob_path(digest)).start)
        size = sum(self._find_entry(_blob_path(digest)).size for digest in blobs)
        with progress.task("storing the blobs of the bundle", size) as advance, ThreadPoolExecutor(_WRITERS) as pool:
            put = partial(self._put, store, advance=serialize_advance(advance))
            remaining = iter(blobs)
            try:
                while batch := tuple(islice(remaining, _AT_ONCE)):
                    for future in [pool.submit(put, digest) for digest in batch]:
                        future.result()
            finally:
                pool.shutdown(cancel_futures=True)
        return len(blobs)

    def _put(self, store: BlobStore, digest: Digest, *, advance: Advance) -> None:
        name = _blob_path(digest)
        try:
            store.put(self._open_entry(name), digest, name=name, advance=advance)
        except IntegrityError as error:
            actual = describe(self._open_entry(name))
            if actual.digest == digest:  # the bundle is intact: the error is the store's
                raise
            raise make_mismatch_error(f"{name} in the bundle", digest, actual, next_step=_RETRY_ADVICE) from error

    def _open_entry(self, name: str) -> io.BufferedReader:
        return io.BufferedReader(_Slice(self._path, self._descriptor, self._find_entry(name)))

    def _read_roots(self, index: BundleIndex) -> tuple[ReceivedRoot, ...]:
        """Return the roots that the manifests list, with several manifests of one root joined."""
        if len(index.manifests) > _MAX_MANIFESTS:
            raise make_bundle_error(INDEX_FILE, f"it lists more than {_MAX_MANIFESTS} manifests")
        if len({blob.digest for blob in index.manifests}) < len(index.manifests):
            raise make_bundle_error(INDEX_FILE, "it lists a manifest twice")
        roots: dict[Digest, ReceivedRoot] = {}
        blobs: defaultdict[Digest, dict[Digest, int]] = defaultdict(dict)
        remaining = LARGEST_TOTAL_DOCUMENTS
        for blob in index.manifests:
            manifest = decode_manifest(self._read_document(blob, LARGEST_MANIFEST), _blob_path(blob.digest))
            digest = manifest.root.digest
            root = roots.get(digest)
            if root is None:
                content = self._read_document(manifest.root, remaining)
                remaining -= len(content)
                roots[digest] = ReceivedRoot(manifest.media_type, digest, content, blobs[digest])
            elif manifest.media_type != root.media_type:
                raise make_bundle_error(_blob_path(digest), "two manifests give it different media types")
            blobs[digest] |= self._list_sizes(manifest)
        return tuple(roots.values())

    def _list_sizes(self, manifest: ManifestContents) -> dict[Digest, int]:
        for blob in manifest.blobs:
            self._check_size(blob)
        return {blob.digest: blob.size for blob in manifest.blobs}

    def _check_entries(self, index: BundleIndex) -> None:
        """Raise unless the index lists every file of the tar."""
        names = {_blob_path(digest) for root in self.roots for digest in (root.digest, *root.blobs)}
        names |= {_blob_path(blob.digest) for blob in index.manifests} | {LAYOUT_FILE, INDEX_FILE}
        for name in self._entries:
            if name not in names:
                raise BundleError(
                    f"not a bundle: it contains {name}, which its index does not list",
                    where=name,
                    next_step="choose a complete bundle that benchlock created",
                )

    def _read_document(self, blob: Descriptor, largest: int) -> bytes:
        self._check_size(blob)
        name = _blob_path(blob.digest)
        content = self._read_entry(name, self._find_entry(name), largest)
        actual = Descriptor(digest_bytes(content), len(content))
        if actual != blob:
            raise make_mismatch_error(f"{name} in the bundle", blob.digest, actual, next_step=_RETRY_ADVICE)
        return content

    def _read_entry(self, name: str, entry: TarEntry, largest: int) -> bytes:
        if entry.size > largest:
            raise make_bundle_error(name, f"it has {entry.size} bytes; the limit is {largest}")
        return b"".join(read_range(self._descriptor, entry.start, entry.start + entry.size, largest))

    def _check_size(self, blob: Descriptor) -> None:
        entry = self._find_entry(_blob_path(blob.digest))
        if entry.size != blob.size:
            raise IntegrityError(
                f"the bundle's index is wrong: it lists {blob.size} bytes of {blob.digest}, but {entry.size} are there",
                where=_blob_path(blob.digest),
                next_step=_RETRY_ADVICE,
            )

    def _find_entry(self, name: str) -> TarEntry:
        entry = self._entries.get(name)
        if entry is None:
            if name in (LAYOUT_FILE, INDEX_FILE):
                raise make_bundle_error(name, "missing file")
            raise IntegrityError(
                f"the bundle does not contain {from_hex(name.removeprefix(BLOBS_PATH))}, which its index lists",
                where=name,
                next_step=_RETRY_ADVICE,
            )
        return entry


_RETRY_ADVICE = "copy or download the bundle again, or create it again"


@contextmanager
def open_bundle(path: Path, most_files: int | None = None) -> Iterator[Bundle]:
    """Open the bundle in the file ``path`` for the duration of the context; errors name ``path``.

    Args:
        path: The path of the bundle.
        most_files: The largest number of files in the bundle; ``None`` for the limit of the format.

    Raises:
        InvalidInputError: The file does not exist, or is not a bundle.
        IntegrityError: The bundle is truncated, or differs from its index.
        UnavailableError: The file cannot be read.
    """
    with open_regular(path) as file, _add_path_to_errors(path):
        try:
            bundle = Bundle(path, file.fileno(), most_files)
        except OSError as error:
            raise make_unreadable_error(path, error) from error
        except RecursionError as error:
            raise make_bundle_error(INDEX_FILE, "its documents are nested too deep") from error
        yield bundle


@contextmanager
def _add_path_to_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except (InvalidInputError, IntegrityError) as error:
        error.where = f"{path}: {error.where}" if error.where else str(path)
        raise


class _Slice(io.RawIOBase):
    """A stream over the content of an entry; ``pread`` lets several be read at once."""

    def __init__(self, path: Path, descriptor: int, entry: TarEntry) -> None:
        self._path = path
        self._descriptor = descriptor
        self._place = entry.start
        self._end = entry.start + entry.size

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer") -> int:
        view = memoryview(buffer).cast("B")
        size = min(len(view), self._end - self._place)
        try:
            count = os.preadv(self._descriptor, [view[:size]], self._place)
        except OSError as error:
            raise make_unreadable_error(self._path, error) from error
        if size and not count:
            raise make_truncation_error(f"byte {self._place}")
        self._place += count
        return count


def _blob_path(digest: Digest) -> str:
    return BLOBS_PATH + to_hex(digest)
