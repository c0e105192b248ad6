"""HTTPS sources, and the download that sources on the Hub use too."""

import io
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO, Final, cast

from benchlock.artifacts.digest import CHUNK, Digest
from benchlock.artifacts.errors import UnavailableError
from benchlock.artifacts.net.download import RESUME_ADVICE, Download
from benchlock.artifacts.net.http_session import ErrorPolicy, ServerResponse, Session
from benchlock.artifacts.net.network_policy import LARGEST_DOWNLOAD, NetworkPolicy
from benchlock.artifacts.net.urls import redact_url

_ADVICE: Final = "correct the URL, or try again later"
SOURCE_ERROR_POLICY: Final = ErrorPolicy(_ADVICE, _ADVICE)


@contextmanager
def open_download(session: Session, url: str, offset: int, limit: int) -> Iterator[BinaryIO]:
    """Open a download from ``offset`` on, and close the session at the end.

    Args:
        session: A session of this download, with the name of the source.
        url: The URL.
        offset: The offset of the first byte.
        limit: The largest size of the whole file, in bytes.

    Raises:
        InvalidInputError: The file has more than ``limit`` bytes (also while reading), or a URL or redirect is
            forbidden.
        UnavailableError: No connection, a timeout, no such file, or too many broken connections.
    """

    def reject(response: ServerResponse) -> UnavailableError:
        return UnavailableError(f"{session.name} answers {response.status}", where=session.name, next_step=_ADVICE)

    with closing(session):
        download = Download(session, url, session.name, reject, start=offset, limit=limit, advice=RESUME_ADVICE)
        with io.BufferedReader(download, CHUNK) as stream:
            yield cast("BinaryIO", stream)


@dataclass(frozen=True, slots=True)
class HttpsSource:
    """A file at an HTTPS URL."""

    url: str
    network: NetworkPolicy = field(default_factory=NetworkPolicy)

    def __str__(self) -> str:
        """Return the source as written in a manifest."""
        return self.url

    def resolve(self) -> "HttpsSource":
        """Return this source: a URL has no revision."""
        return self

    def find_digest(self) -> Digest | None:
        """Return ``None``: no digest that servers state is reliable."""
        return None

    def open(self, offset: int = 0, *, limit: int = LARGEST_DOWNLOAD) -> AbstractContextManager[BinaryIO]:
        """Open the file from ``offset`` on, streamed; redirects stay within TLS.

        Raises:
            InvalidInputError: The file has more than ``limit`` bytes (also while reading), or a URL or redirect is
                forbidden.
            UnavailableError: No connection, a timeout, no such file, or too many broken connections.
        """
        session = Session(self.url, redact_url(self.url), SOURCE_ERROR_POLICY, self.network)
        return open_download(session, self.url, offset, limit)
