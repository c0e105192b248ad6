"""HTTPS sources, and the resuming download that sources on the Hub use too."""

import io
import re
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from benchlock.artifacts.digest import CHUNK, Digest
from benchlock.artifacts.errors import BenchlockError, InvalidInputError, UnavailableError
from benchlock.artifacts.net.urls import check_url, redact_url
from benchlock.artifacts.sources.network_policy import (
    LARGEST_DOWNLOAD,
    NetworkPolicy,
    SourceRequest,
    SourceResponse,
    TransientSourceError,
)

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


_OK, _PARTIAL, _NOTHING_LEFT = 200, 206, 416
_RETRY_STATUSES: Final = frozenset({408, 425, 429, 500, 502, 503, 504})  # statuses that are worth another attempt
_RANGE: Final = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


@contextmanager
def download(request: SourceRequest, network: NetworkPolicy, offset: int, limit: int) -> Iterator[BinaryIO]:
    """Open a download from ``offset`` on, without decoding any content encoding.

    A broken connection is resumed, with a Range request if the server supports it, a limited number of times in a row.

    Args:
        request: The URL and headers.
        network: The network policy.
        offset: The offset of the first byte.
        limit: The largest size of the whole file, in bytes.

    Raises:
        InvalidInputError: The file has more than ``limit`` bytes (also while reading), or a URL or redirect is
            forbidden.
        UnavailableError: No connection, a timeout, no such file, or too many broken connections.
    """
    body = _Body(request, network, offset, limit)
    with io.BufferedReader(body, CHUNK) as stream:
        body.connect()
        yield cast("BinaryIO", stream)


class _Body(io.RawIOBase):
    """The responses to a request as one stream; exceeding ``limit`` bytes is an error."""

    def __init__(self, request: SourceRequest, network: NetworkPolicy, offset: int, limit: int) -> None:
        self._request, self._network, self._limit = request, network, limit
        self._position = offset  # offset of the next byte from the server
        self._skip = 0  # bytes of this response that were received before
        self._total: int | None = None  # size of the whole file, if the server reports it
        self._etag = ""
        self._reached = False
        self._failures = 0  # in a row, without any bytes between them
        self._attempts = 0
        self._deadline = time.monotonic() + network.longest
        self._rest = b""
        self._chunks: Iterator[bytes] | None = None
        self._open = ExitStack()

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._open.close()
        super().close()

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        if not self._rest:
            self._rest = self._receive()
        view = memoryview(buffer).cast("B")
        size = min(len(view), len(self._rest))
        view[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def connect(self) -> None:
        """Send requests until there is a response to read from."""
        while self._chunks is None:
            from benchlock.artifacts.sources.http_request import send_request  # noqa: PLC0415 - loads httpx, which only remote sources need

            self._attempts += 1
            try:
                self._accept(self._open.enter_context(send_request(self._request, self._network, self._headers())))
            except TransientSourceError as error:
                self._pause(error)

    def _headers(self) -> dict[str, str]:
        headers = {"Accept-Encoding": "identity", "User-Agent": "benchlock"}
        if self._position:
            headers["Range"] = f"bytes={self._position}-"
            if self._etag and not self._etag.startswith("W/"):
                headers["If-Range"] = self._etag
        return headers

    def _accept(self, response: SourceResponse) -> None:
        """Start to read a response, if it has the same file at the current position or before it."""
        status, etag = response.status, response.headers.get("ETag", "")
        ranged = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if status in _RETRY_STATUSES:
            raise TransientSourceError(f"it answers {status} {response.reason}".rstrip())
        if status == _PARTIAL and self._position and ranged and int(ranged[1]) == self._position:
            self._skip, total = 0, ranged[2]
        elif status == _OK:
            self._skip, total = self._position, response.headers.get("Content-Length", "")
        elif status == _NOTHING_LEFT and self._position:  # the digest shows whether the file is complete
            self._skip, total = 0, ""
        else:
            raise self._make_error(
                f"answers {status} {response.reason}".rstrip(), "correct the URL, or try again later"
            )
        if self._etag and etag and etag != self._etag:
            raise self._make_error("changed while it was read", "do it again")
        self._etag = self._etag or etag
        self._total = int(total) if total.isdecimal() else None
        if self._total is not None and self._total > self._limit:
            raise self._make_size_error()
        self._chunks = iter(()) if status == _NOTHING_LEFT else response.chunks

    def _receive(self) -> bytes:
        """Return the next new bytes, and no bytes at the end of the file."""
        while True:
            self.connect()
            assert self._chunks is not None
            try:
                chunk = next(self._chunks, b"") or self._end()
            except TransientSourceError as error:
                self._pause(error)
                continue
            fresh = chunk[self._skip :]
            self._skip -= len(chunk) - len(fresh)
            self._check_deadline()
            if fresh or not chunk:
                break
        self._failures, self._reached = 0, True
        self._position += len(fresh)
        if self._position > self._limit:
            raise self._make_size_error()
        return fresh

    def _end(self) -> bytes:
        if self._total is not None and self._position < self._total:
            raise TransientSourceError(f"it ends after {self._position} of {self._total} bytes")
        return b""

    def _pause(self, error: TransientSourceError) -> None:
        """Wait before the next attempt, or give up, at once if the server was never reached."""
        self._open.close()
        self._chunks = None
        self._reached = self._reached or error.reached
        self._check_deadline()
        if self._attempts >= self._network.attempts:
            what = f"breaks off again and again ({self._attempts} attempts): {error}"
            raise self._make_error(what, "look at the server and do it again: it goes on where it broke off") from error
        pauses = self._network.pauses if self._reached else ()
        if self._failures >= len(pauses):
            next_step = "look at the network and do it again: it goes on where it broke off"
            raise self._make_error(f"cannot be read: {error}", next_step) from error
        time.sleep(pauses[self._failures])
        self._failures += 1

    def _check_deadline(self) -> None:
        if time.monotonic() > self._deadline:
            took = f"{self._network.longest:g} seconds"
            raise self._make_error(f"takes more than {took}", "do it again: it goes on where it stopped")

    def _make_error(self, what: str, next_step: str) -> BenchlockError:
        shown = self._request.shown
        return UnavailableError(f"{shown} {what}", where=shown, next_step=next_step)

    def _make_size_error(self) -> BenchlockError:
        shown = self._request.shown
        return InvalidInputError(
            f"{shown} is larger than {self._limit} bytes", where=shown, next_step="correct the size that is expected"
        )


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
        check_url(self.url, loopback_http=self.network.loopback_http)
        return download(SourceRequest(self.url, redact_url(self.url)), self.network, offset, limit)
