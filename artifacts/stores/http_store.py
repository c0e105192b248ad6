"""The blob store of a benchlock server: its address, its authorized session, and the store itself."""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

from benchlock.artifacts.atomic_files import RemovedFiles
from benchlock.artifacts.blob_store import PARALLEL_TRANSFERS
from benchlock.artifacts.digest import Descriptor, Digest, parse_digest
from benchlock.artifacts.errors import InvalidInputError, RefusedError
from benchlock.artifacts.net.blob_client import BlobClient
from benchlock.artifacts.net.blob_upload import UPLOAD_CHUNK, UploadBookmarks
from benchlock.artifacts.net.http_session import ErrorPolicy, Session
from benchlock.artifacts.net.network_policy import NetworkPolicy
from benchlock.artifacts.net.urls import check_url, redact_url
from benchlock.artifacts.stores.remote_store import RemoteStore
from benchlock.artifacts.user_output import Advance, ignore_progress

PROTOCOL_VERSION = "v1"


@dataclass(frozen=True, slots=True)
class Server:
    """A benchlock server; ``base`` is its URL as users write it. ``plain`` means without TLS, on this machine."""

    base: str
    plain: bool = False

    def __str__(self) -> str:
        """Return the URL as users write it."""
        return self.base

    @property
    def url(self) -> str:
        """The URL below which the server serves the supported version of the protocol."""
        return f"{self.base}/{PROTOCOL_VERSION}"


def parse_server(text: str) -> Server:
    """Parse the URL of a server.

    Raises:
        InvalidInputError: The text is not a URL, has credentials, or has an unencrypted host that is not this machine.
    """
    split = check_url(text, loopback_http=True)
    if split.query or split.fragment:
        shown = redact_url(text)
        raise InvalidInputError(
            f"unexpected text after {shown} in the URL of a server", where=shown, next_step=f"write {shown}"
        )
    return Server(text.rstrip("/"), plain=split.scheme == "http")


SERVER_ERROR_POLICY: Final = ErrorPolicy(
    "use a token with the needed scope; the server's administrator creates one",
    "have the server's administrator publish the file again in the folder that it serves, which repairs it: publishing "
    "over HTTP sends nothing that the server has already, damaged or not",
    rejection=InvalidInputError,
    root=f"/{PROTOCOL_VERSION}",
)


def open_session(
    server: Server,
    token: str | None = None,
    renew: Callable[[], str] | None = None,
    policy: NetworkPolicy | None = None,
) -> Session:
    """Open a session that sends a token to the server, and to no other host.

    Args:
        server: The server.
        token: The token to send, if any.
        renew: Reads the token again when the server rejects the current one.
        policy: The rules of the network, above all for redirects; the server decides on encryption.
    """

    def authorize(_session: Session, _challenge: str) -> str:
        assert renew is not None
        return f"Bearer {renew()}"

    authorization = f"Bearer {token}" if token else None
    return Session(
        server.url,
        str(server),
        SERVER_ERROR_POLICY,
        replace(policy or NetworkPolicy(), loopback_http=server.plain),
        authorization=authorization,
        authorize=authorize if renew else None,
    )


def make_blob_client(session: Session, notes: Path | None = None, *, piece: int = UPLOAD_CHUNK) -> BlobClient:
    """Make a client for the blobs of a server; the folder ``notes`` has the bookmarks of unfinished uploads."""
    return BlobClient(session, piece=piece, bookmarks=UploadBookmarks(notes) if notes else None, mounts=True)


class HttpStore(RemoteStore):
    """The blobs of a server.

    Only the server's administrator may use ``list``, ``delete``, ``collecting`` and ``sweep``; they raise
    ``RefusedError`` here. The server holds new blobs for a day, so that ``writing`` and ``together`` do nothing. A
    damaged blob is repaired on the server, not by ``put``.
    """

    _client: BlobClient

    def __init__(self, client: BlobClient, scratch: Path | None = None) -> None:
        """Open the store; streams are spooled in ``scratch``, by default the system's temporary folder."""
        super().__init__(client, scratch or Path(tempfile.gettempdir()))

    def send(self, source: BinaryIO, blob: Descriptor, *, name: str, advance: Advance = ignore_progress) -> None:
        """Upload ``source``, a seekable stream of ``blob``, unless the server has that blob."""
        self._client.put_blob(source, blob, name=name, advance=advance)

    def select_stored(self, digests: Iterable[Digest]) -> set[Digest]:
        """Return those of ``digests`` that the server has, by parallel requests."""
        candidates = tuple(digests)
        with ThreadPoolExecutor(PARALLEL_TRANSFERS) as pool:
            return {
                digest
                for digest, is_stored in zip(candidates, pool.map(self.exists, candidates), strict=True)
                if is_stored
            }

    def writing(self) -> AbstractContextManager[None]:
        """Do nothing: the server holds new blobs."""
        return nullcontext()

    def together(self) -> AbstractContextManager[None]:
        """Do nothing: the server holds new blobs."""
        return nullcontext()

    def list(self) -> Iterator[Digest]:
        """Raise ``RefusedError``: only the administrator may list blobs."""
        raise self._make_refusal("lists its blobs")

    def delete(self, digest: Digest) -> None:
        """Raise ``RefusedError``: only the administrator may delete blobs."""
        raise self._make_refusal(f"deletes {parse_digest(digest)}")

    def collecting(self) -> AbstractContextManager[None]:
        """Raise ``RefusedError``: only the administrator may collect garbage."""
        raise self._make_refusal("collects garbage")

    def sweep(self, *, dry_run: bool = False) -> RemovedFiles:  # noqa: ARG002 - part of the protocol
        """Raise ``RefusedError``: only the administrator may collect garbage."""
        raise self._make_refusal("collects garbage")

    def _make_refusal(self, action: str) -> RefusedError:
        return RefusedError(
            f"{self.where} {action} only for its administrator",
            where=self.where,
            next_step="delete unreferenced blobs on the server, in the folder that it serves",
        )
