"""Writing a bundle: the same roots and blobs give the same bytes."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from benchlock.artifacts.bundles.contents import INDEX_FILE, LAYOUT, Part, Root, encode_roots
from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes, to_hex
from benchlock.artifacts.drafts import new_file
from benchlock.artifacts.errors import UnavailableError
from benchlock.artifacts.oci.documents import LAYOUT_FILE
from benchlock.artifacts.progress import Advance, Progress
from benchlock.artifacts.store import BlobStore, hand_out
from benchlock.artifacts.tars import END, header, padding

BLOBS = "blobs/sha256/"


def write_bundle(path: Path, roots: Sequence[Root], store: BlobStore, progress: Progress) -> Descriptor:
    """Write ``roots`` with their blobs, each verified, to the file ``path``; digest and size of the file.

    It appears whole or not at all. First come the documents, then the blobs in the order of their digests.

    Raises:
        IntegrityError: a blob is missing in the store, or not what its digest says.
        UnavailableError: a blob cannot be read, or the file not written.
    """
    index, manifests = encode_roots(roots)
    documents = {digest_bytes(one): one for one in (*manifests, *(root.content for root in roots))}
    parts = {part.blob.digest: part for root in reversed(roots) for part in reversed(root.parts)}
    blobs = [parts[digest] for digest in sorted(parts.keys() - documents.keys())]
    with _draft(path) as file, progress.task(f"writing {path.name}", sum(part.blob.size for part in blobs)) as advance:
        tar = _Tar(file)
        tar.add(LAYOUT_FILE, LAYOUT)
        tar.add(INDEX_FILE, index)
        for digest, content in documents.items():
            tar.add(BLOBS + to_hex(digest), content)
        for part in blobs:
            tar.copy(part, store, advance)
        return tar.end()


class _Tar:
    """Entries one after another, and the digest of it all."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._state = hashlib.sha256()
        self._size = 0

    def add(self, name: str, content: bytes) -> None:
        self._write(header(name, len(content)))
        self._write(content)
        self._write(padding(len(content)))

    def copy(self, part: Part, store: BlobStore, advance: Advance) -> None:
        """Add a blob of the store, verified as it is read."""
        self._write(header(BLOBS + to_hex(part.blob.digest), part.blob.size))
        hand_out(store, part.blob, self._write, name=part.name, advance=advance)
        self._write(padding(part.blob.size))

    def end(self) -> Descriptor:
        self._write(END)
        return Descriptor(Digest(f"sha256:{self._state.hexdigest()}"), self._size)

    def _write(self, piece: bytes) -> None:
        self._state.update(piece)
        self._size += self._file.write(piece)


@contextmanager
def _draft(path: Path) -> Iterator[BinaryIO]:
    """A file that takes the name ``path`` at the end, durably; gone where something failed."""
    try:
        with new_file(path, durably=True) as file:
            yield file
    except OSError as error:
        raise UnavailableError(
            f"{path} cannot be written: {error.strerror or error}",
            where=str(path),
            next_step="name a file in a folder that exists and that you may write in, on a disk with space",
        ) from error
