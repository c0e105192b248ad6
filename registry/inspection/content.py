"""The files of a draft by the paths that its manifest uses, those inside its trees too."""

import gzip
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, cast

from artifacts.digest import Descriptor
from artifacts.errors import InvalidInputError
from artifacts.store import BlobStore

_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Content:
    """The blobs of one draft. ``name`` is what errors call its manifest."""

    name: str
    store: BlobStore
    files: Mapping[str, Descriptor]

    def where(self, path: str) -> str:
        """How an error names a place in the manifest or in one of its files."""
        return f"{path} ({self.name})"

    def error(self, what: str, path: str, next_step: str | None = None) -> InvalidInputError:
        return InvalidInputError(what, where=self.where(path), next_step=next_step)

    def size(self, path: str) -> int:
        return self.files[path].size

    def open(self, path: str, wanted_by: str) -> BinaryIO:
        """The bytes of ``path``.

        Raises:
            InvalidInputError: no file of the draft has that path; ``wanted_by`` is where the manifest names it.
        """
        if path not in self.files:
            raise self.error(f"{path} is none of the files", wanted_by, "correct the path, or add the file")
        return self.store.open(self.files[path].digest)

    @contextmanager
    def unpacked(self, path: str, wanted_by: str) -> Iterator[BinaryIO]:
        """As ``open``, with gzip undone where the bytes begin like it."""
        with self.open(path, wanted_by) as stream:
            packed = stream.read(len(_GZIP)) == _GZIP
            stream.seek(0)
            yield cast("BinaryIO", gzip.GzipFile(fileobj=stream)) if packed else stream
