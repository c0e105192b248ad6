"""The blobs of a registry in a folder: files, and the manifests that its catalogue holds."""

import io
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from benchlock.artifacts.digest import Descriptor, Digest
from benchlock.artifacts.local import LocalStore
from benchlock.artifacts.locking import StoreLock
from benchlock.artifacts.store import BlobNotFoundError

TextOf = Callable[[Digest], str | None]
"""The text of the published manifest that has a digest, where one has."""


class CataloguedStore(LocalStore):
    """Blobs in a folder, beside a catalogue that has the bytes of every published manifest, durably and for ever.

    So a manifest needs no file, and publishing waits for the disk once, where the catalogue commits. It gets one as
    soon as somebody asks for its path; a file that is there is what is read, damaged or not. ``list`` lists the files.
    """

    def __init__(self, root: Path, text_of: TextOf, beside: StoreLock | None = None) -> None:
        super().__init__(root, beside)
        self._text_of = text_of

    def open(self, digest: Digest) -> BinaryIO:
        try:
            return super().open(digest)
        except BlobNotFoundError as absent:
            return io.BytesIO(self._written(digest, absent))

    def stat(self, digest: Digest) -> Descriptor:
        try:
            return super().stat(digest)
        except BlobNotFoundError as absent:
            return Descriptor(digest, len(self._written(digest, absent)))

    def path(self, digest: Digest) -> Path:
        try:
            super().stat(digest)
        except BlobNotFoundError as absent:
            self.put(io.BytesIO(self._written(digest, absent)), digest, name=f"the manifest {digest}")
        return super().path(digest)

    def _written(self, digest: Digest, absent: BlobNotFoundError) -> bytes:
        """The bytes of a published manifest; raises ``absent`` where there is none of that digest."""
        text = self._text_of(digest)
        if text is None:
            raise absent
        return text.encode()
