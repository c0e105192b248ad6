"""The files of a draft by path, including files inside trees."""

import gzip
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import BinaryIO, cast

from benchlock.artifacts.blob_store import BlobReader
from benchlock.artifacts.digest import Descriptor, Digest
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.trees import read_tree
from benchlock.registry.inspection.formats.foreign_files import BUDGET, Meter, OverBudgetError
from benchlock.registry.text.problems import EchoError

_GZIP = b"\x1f\x8b"


def with_trees(listed: Mapping[str, Descriptor], store: BlobReader) -> dict[str, Descriptor]:
    """Add to the files and trees of a manifest the files inside its trees.

    Raises:
        InvalidInputError: a tree's listing is malformed, or exceeds the limits of trees.
        IntegrityError: a tree's listing is absent, has other bytes or another sum of sizes.
    """
    files: dict[str, Descriptor] = {}
    for path, blob in listed.items():
        files[path] = blob
        if path.endswith("/"):
            entries = read_tree(store, blob, name=path)
            files |= {f"{path}{entry.path}": Descriptor(entry.digest, entry.size) for entry in entries}
    return files


class UnavailableFileError(InvalidInputError):
    """A file of the manifest could not be taken in, which is a problem of its own: nothing can be said of it."""

    code = "untaken"


@dataclass(frozen=True, slots=True)
class DraftContent:
    """The blobs of one draft. ``name`` is what errors call its manifest; ``untaken`` are paths that have no bytes."""

    name: str
    store: BlobReader
    files: Mapping[str, Descriptor]
    untaken: frozenset[str] = frozenset()

    def where(self, path: str) -> str:
        """How an error names a place in the manifest or in one of its files."""
        return f"{path} ({self.name})"

    def error(self, what: str, path: str, next_step: str | None = None) -> InvalidInputError:
        return InvalidInputError(what, where=self.where(path), next_step=next_step)

    def inside(self, path: str) -> tuple[str, ...]:
        """The path itself, or those of all files in a tree, in their order."""
        if not path.endswith("/"):
            return () if path in self.untaken else (path,)
        return tuple(sorted(name for name in self.files if name.startswith(path) and name != path))

    def is_untaken(self, path: str) -> bool:
        """Whether the path could not be taken in, or lies in such a tree."""
        return any(path == one or (one.endswith("/") and path.startswith(one)) for one in self.untaken)

    def refuse_untaken(self, path: str) -> None:
        """Nothing, unless the path could not be taken in, which is told already."""
        if self.is_untaken(path):
            raise UnavailableFileError(f"{path} was not taken in", where=self.where(path))

    def path_of(self, digest: Digest) -> str | None:
        """The path of a file with these bytes; None if there is none."""
        return next((path for path, found in self.files.items() if found.digest == digest), None)

    def size(self, path: str) -> int:
        return self.files[path].size

    @contextmanager
    def open(self, path: str, wanted_by: str) -> Iterator[BinaryIO]:
        """The bytes of ``path``.

        Raises:
            InvalidInputError: no file of the draft has that path; ``wanted_by`` is where the manifest names it. Or what
                is done with the bytes exceeds the budget of a file.
        """
        if path not in self.files:
            self.refuse_untaken(path)
            what = f"{path} is none of the files"
            raise EchoError(what, where=self.where(wanted_by), next_step="correct the path, or add the file")
        with self.store.open(self.files[path].digest) as stream:
            try:
                yield stream
            except OverBudgetError as error:
                step = "publish a smaller or simpler file; docs/formats.md lists the limits"
                raise self.error(f"{path} {error}", wanted_by, step) from error

    @contextmanager
    def unpacked(self, path: str, wanted_by: str) -> Iterator[BinaryIO]:
        """As ``open``, with gzip undone where the bytes begin like it."""
        with self.open(path, wanted_by) as stream:
            packed = stream.read(len(_GZIP)) == _GZIP
            stream.seek(0)
            if not packed:
                yield stream
                return
            with gzip.GzipFile(fileobj=stream) as unpacked:
                yield cast("BinaryIO", Meter(cast("BinaryIO", unpacked), most=BUDGET.unpacked))
