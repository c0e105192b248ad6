"""A source that a server answers to GET."""

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import BinaryIO

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.sources.network import LARGEST, Network, Request
from benchlock.artifacts.sources.web import download
from benchlock.artifacts.urls import check_url, shown_url


@dataclass(frozen=True, slots=True)
class HttpsSource:
    """What a server answers to GET."""

    url: str
    network: Network = field(default_factory=Network)

    def __str__(self) -> str:
        """As it is written in a manifest."""
        return self.url

    def resolved(self) -> "HttpsSource":
        """Itself: a URL has no revision."""
        return self

    def stated(self) -> Digest | None:
        """None: servers state no digest that means the same everywhere."""
        return None

    def open(self, offset: int = 0, *, limit: int = LARGEST) -> AbstractContextManager[BinaryIO]:
        """The bytes from ``offset`` on, streamed. Redirects stay within TLS.

        Raises:
            InvalidInputError: more than ``limit`` bytes (while reading, too), or a URL or redirect that is refused.
            UnavailableError: no connection, no answer in time, no file, an answer that breaks off again and again.
        """
        check_url(self.url, loopback_http=self.network.loopback_http)
        return download(Request(self.url, shown_url(self.url)), self.network, offset, limit)
