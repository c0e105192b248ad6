"""The blob store of a benchlock server: its address, its authorized session, and the store itself."""

import builtins
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

from benchlock.artifacts.atomic_files import RemovedFiles, open_regular
from benchlock.artifacts.blob_store import PARALLEL_TRANSFERS, BlobNotFoundError, check_digest, put_each
from benchlock.artifacts.digest import Descriptor, Digest, describe, parse_digest
from benchlock.artifacts.display import Advance, ignore_progress
from benchlock.artifacts.errors import InvalidInputError, RefusedError
from benchlock.artifacts.net.blob_client import BlobClient
from benchlock.artifacts.net.blob_upload import UPLOAD_CHUNK, UploadBookmarks, spool_stream
from benchlock.artifacts.net.http_session import ErrorPolicy, Session
from benchlock.artifacts.net.urls import check_url, redact_url

PROTOCOL_VERSION = "v1"


@dataclass(frozen=True, slots=True)
class Server:
    """A server; ``base`` is what a person writes. ``plain`` is without TLS, on this machine."""

    base: str
    plain: bool = False

    def __str__(self) -> str:
        return self.base

    @property
    def url(self) -> str:
        """Where the paths of the protocol's version that is spoken here begin."""
        return f"{self.base}/{PROTOCOL_VERSION}"


def parse_server(text: str) -> Server:
    """The server that ``text`` spells.

    Raises:
        InvalidInputError: it is no URL, has credentials, or an unencrypted host that is not this machine.
    """
    split = check_url(text, loopback_http=True)
    if split.query or split.fragment:
        shown = redact_url(text)
        raise InvalidInputError(f"{shown} is followed by what names no server", where=shown, next_step=f"write {shown}")
    return Server(text.rstrip("/"), plain=split.scheme == "http")


SERVER_ERROR_POLICY: Final = ErrorPolicy(
    "hand in a token that may do this: whoever runs the server makes one with `benchlock token create`",
    "have who runs the server publish the file again with `--registry DIR`, in the folder that it serves, which "
    "repairs it: publishing over HTTP sends nothing that the server has already, damaged or not",
    {
        **dict.fromkeys((401, 403, 413, 422), InvalidInputError),  # as `api/error_codes.py` answers them
        409: RefusedError,
    },
    root=f"/{PROTOCOL_VERSION}",
)


def open_session(server: Server, token: str | None = None, renew: Callable[[], str] | None = None) -> Session:
    """Open a session that sends a token to the server, and to no other.

    Args:
        server: The server.
        token: The token to send, if any.
        renew: Reads the token again when the server refuses the one that was sent.
    """

    def authorize(_client: object, _challenge: str) -> str:
        assert renew is not None
        return f"Bearer {renew()}"

    authorization = f"Bearer {token}" if token else None
    return Session(server, SERVER_ERROR_POLICY, authorization=authorization, authorize=authorize if renew else None)


def make_blob_client(session: Session, notes: Path | None = None, *, piece: int = UPLOAD_CHUNK) -> BlobClient:
    """The blobs of a session's server. In the folder ``notes`` it is kept what a killed process began to upload."""
    return BlobClient(session, piece=piece, notes=UploadBookmarks(notes) if notes else None, mounts=True)


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
        advance: Advance = ignore_progress,
    ) -> Descriptor:
        with spool_stream(stream, self._scratch) as (spool, found):
            check_digest(name, expected, found)
            self.send(spool, found, name=name, advance=advance)
        return found

    def put_file(
        self,
        path: Path,
        expected: Digest | None = None,
        *,
        name: str | None = None,
        advance: Advance = ignore_progress,
    ) -> Descriptor:
        with open_regular(path) as source:
            found = describe(source)
            check_digest(name or str(path), expected, found)
            self.send(source, found, name=name or str(path), advance=advance)
        return found

    def send(self, source: BinaryIO, blob: Descriptor, *, name: str, advance: Advance = ignore_progress) -> None:
        """Keep the bytes of ``source``, which can be sought and is known to hold ``blob``; not sent if it is there."""
        self._client.put_blob(source, blob, name=name, advance=advance)

    def put_files(self, paths: Iterable[Path], *, advance: Advance = ignore_progress) -> builtins.list[Descriptor]:
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
        with ThreadPoolExecutor(PARALLEL_TRANSFERS) as pool:
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
