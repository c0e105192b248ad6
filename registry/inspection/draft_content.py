"""The files of a draft by path, including files inside trees."""

import gzip
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, cast

from benchlock.artifacts.blob_store import BlobReader
from benchlock.artifacts.digest import Descriptor, Digest
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.file_trees import read_tree
from benchlock.registry.inspection.formats.untrusted_files import BUDGET, Meter, OverBudgetError
from benchlock.registry.text.collected_problems import EchoError

_GZIP = b"\x1f\x8b"


def with_trees(listed: Mapping[str, Descriptor], store: BlobReader) -> dict[str, Descriptor]:
    """Add the files inside its trees to the files and trees of a manifest.

    Raises:
        InvalidInputError: The listing of a tree is malformed, or exceeds the limits of trees.
        IntegrityError: The listing of a tree is absent or damaged, or its sizes have another sum.
    """
    files: dict[str, Descriptor] = {}
    for path, blob in listed.items():
        files[path] = blob
        if path.endswith("/"):
            entries = read_tree(store, blob, name=path)
            files |= {f"{path}{entry.path}": Descriptor(entry.digest, entry.size) for entry in entries}
    return files


class UnavailableFileError(InvalidInputError):
    """A file of the manifest could not be ingested, so it cannot be inspected; another problem reports the reason."""

    code = "untaken"


@dataclass(frozen=True, slots=True)
class DraftContent:
    """The blobs of one draft.

    ``name`` is the name of its manifest in errors. ``untaken`` has the paths that could not be ingested.
    """

    name: str
    store: BlobReader
    files: Mapping[str, Descriptor]
    untaken: frozenset[str] = frozenset()

    def where(self, path: str) -> str:
        """Return a place in the manifest, or in one of its files, as errors name it."""
        return f"{path} ({self.name})"

    def error(self, what: str, path: str, next_step: str | None = None) -> InvalidInputError:
        """Return an error about a place in the manifest."""
        return InvalidInputError(what, where=self.where(path), next_step=next_step)

    def inside(self, path: str) -> tuple[str, ...]:
        """Return the path itself, or the sorted paths of all files in a tree."""
        if not path.endswith("/"):
            return () if path in self.untaken else (path,)
        return tuple(sorted(name for name in self.files if name.startswith(path) and name != path))

    def is_untaken(self, path: str) -> bool:
        """Return whether the path, or a tree around it, could not be ingested."""
        return any(path == untaken or (untaken.endswith("/") and path.startswith(untaken)) for untaken in self.untaken)

    def refuse_untaken(self, path: str) -> None:
        """Raise ``UnavailableFileError`` if the path could not be ingested."""
        if self.is_untaken(path):
            raise UnavailableFileError(f"{path} could not be stored", where=self.where(path))

    def path_of(self, digest: Digest) -> str | None:
        """Return the path of a file with these bytes; None if there is none."""
        return next((path for path, blob in self.files.items() if blob.digest == digest), None)

    def size(self, path: str) -> int:
        """Return the size of a file in bytes."""
        return self.files[path].size

    @contextmanager
    def open(self, path: str, wanted_by: str) -> Iterator[BinaryIO]:
        """Open the file at ``path``; ``wanted_by`` is the place in the manifest that refers to it.

        Raises:
            InvalidInputError: No file of the draft has that path, or reading it exceeds the budget of a file.
        """
        if path not in self.files:
            self.refuse_untaken(path)
            what = f"{path} is not in files"
            raise EchoError(what, where=self.where(wanted_by), next_step="correct the path, or add the file")
        with self.store.open(self.files[path].digest) as stream:
            try:
                yield stream
            except OverBudgetError as error:
                step = "publish a smaller or simpler file; docs/reference/formats.md lists the limits"
                raise self.error(f"{path} {error}", wanted_by, step) from error

    @contextmanager
    def unpacked(self, path: str, wanted_by: str) -> Iterator[BinaryIO]:
        """Open a file like ``open``, decompressed if it begins like gzip."""
        with self.open(path, wanted_by) as stream:
            packed = stream.read(len(_GZIP)) == _GZIP
            stream.seek(0)
            if not packed:
                yield stream
                return
            with gzip.GzipFile(fileobj=stream) as unpacked:
                yield cast("BinaryIO", Meter(cast("BinaryIO", unpacked), most=BUDGET.unpacked))
