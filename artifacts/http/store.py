"""A blob store over a registry on a server, as a client sees it: what is there can be read and added to, no more."""

import builtins
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import BinaryIO

from benchlock.artifacts.digest import Descriptor, Digest, describe, parse_digest
from benchlock.artifacts.errors import RefusedError
from benchlock.artifacts.files import open_regular
from benchlock.artifacts.leftovers import RemovedFiles
from benchlock.artifacts.progress import Advance, unnoticed
from benchlock.artifacts.store import AT_ONCE, BlobNotFoundError, put_each, refuse_other
from benchlock.artifacts.transfer.blobs import BlobClient
from benchlock.artifacts.transfer.spools import spooled


class HttpStore:
    """Blobs on a server. Implements ``BlobStore``, but for ``list``, ``delete``, ``collecting`` and ``sweep``.

    Those are for whoever runs the server, and refused here. What was put is held by the server for a day, so that
    ``writing`` and ``together`` need nothing. A damaged blob is repaired on the server, not by ``put``.
    """

    def __init__(self, client: BlobClient, scratch: Path | None = None) -> None:
        """``scratch`` is a folder for what must be known before it is sent; else the system's for such files."""
        self._client = client
        self._scratch = scratch or Path(tempfile.gettempdir())

    @property
    def where(self) -> str:
        return self._client.where

    @property
    def damaged(self) -> str:
        return self._client.advice.damaged

    def put(
        self,
        stream: BinaryIO,
        expected: Digest | None = None,
        *,
        name: str = "the content",
        advance: Advance = unnoticed,
    ) -> Descriptor:
        with spooled(stream, self._scratch) as (spool, found):
            refuse_other(name, expected, found)
            self.send(spool, found, name=name, advance=advance)
        return found

    def put_file(
        self,
        path: Path,
        expected: Digest | None = None,
        *,
        name: str | None = None,
        advance: Advance = unnoticed,
    ) -> Descriptor:
        with open_regular(path) as source:
            found = describe(source)
            refuse_other(name or str(path), expected, found)
            self.send(source, found, name=name or str(path), advance=advance)
        return found

    def send(self, source: BinaryIO, blob: Descriptor, *, name: str, advance: Advance = unnoticed) -> None:
        """Keep the bytes of ``source``, which can be sought and is known to hold ``blob``; not sent if it is there."""
        self._client.put_blob(source, blob, name=name, advance=advance)

    def put_files(self, paths: Iterable[Path], *, advance: Advance = unnoticed) -> builtins.list[Descriptor]:
        return put_each(self, paths, advance)

    def open(self, digest: Digest) -> BinaryIO:
        """The bytes, verified at their end."""
        return self._client.open_digest(digest)

    def receive(self, digest: Digest, start: int = 0) -> BinaryIO:
        return self._client.receive(digest, start)

    def stat(self, digest: Digest) -> Descriptor:
        found = self._client.stat_blob(parse_digest(digest))
        if found is None:
            raise BlobNotFoundError(f"{self.where} has no blob {digest}", where=self.where)
        return found

    def exists(self, digest: Digest) -> bool:
        return self._client.stat_blob(parse_digest(digest)) is not None

    def among(self, digests: Iterable[Digest]) -> set[Digest]:
        asked = tuple(digests)
        with ThreadPoolExecutor(AT_ONCE) as pool:
            return {digest for digest, there in zip(asked, pool.map(self.exists, asked), strict=True) if there}

    def writing(self) -> AbstractContextManager[None]:
        return nullcontext()

    def together(self) -> AbstractContextManager[None]:
        return nullcontext()

    def list(self) -> Iterator[Digest]:
        raise self._refused("lists its blobs")

    def delete(self, digest: Digest) -> None:
        raise self._refused(f"deletes {parse_digest(digest)}")

    def collecting(self) -> AbstractContextManager[None]:
        raise self._refused("collects garbage")

    def sweep(self, *, dry_run: bool = False) -> RemovedFiles:  # noqa: ARG002 - as the protocol says
        raise self._refused("collects garbage")

    def _refused(self, what: str) -> RefusedError:
        return RefusedError(
            f"{self.where} {what} for nobody but whoever runs it",
            where=self.where,
            next_step="run `benchlock gc` on the server, in the folder that it serves",
        )
