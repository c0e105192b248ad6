"""A download that resumes where the connection broke, with a limited number of attempts, time and bytes."""

import io
import re
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar, Final

from benchlock.artifacts.errors import BenchlockError, InvalidInputError, UnavailableError
from benchlock.artifacts.net.http_session import (
    OK,
    PARTIAL,
    RANGE,
    ServerResponse,
    Session,
    TransientError,
    convert_network_errors,
)
from benchlock.artifacts.net.network_policy import LARGEST_DOWNLOAD
from benchlock.artifacts.net.urls import redact_url

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from benchlock.artifacts.net.http_session import Response

RETRY_ADVICE: Final = "try again"
RESUME_ADVICE: Final = "try again: the download resumes"
"""The next step if the caller keeps the received bytes, and starts the next download after them."""
_RANGE: Final = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")
_PROGRESS: Final = 4 << 20  # bytes of one response; 1% of the file if that is less


class Download(io.RawIOBase):
    """The bytes of a file from an offset on, as the server sends them, unverified.

    After a broken connection the next request asks for the missing bytes, if the file has not changed. A server without
    support of ranges sends all bytes again, and the first ones are skipped.
    """

    compares_etags: ClassVar = True
    """Whether another ETag means that the file has changed."""

    def __init__(
        self,
        session: Session,
        url: str,
        name: str,
        reject: Callable[[ServerResponse], BenchlockError],
        *,
        start: int = 0,
        limit: int = LARGEST_DOWNLOAD,
        advice: str = RETRY_ADVICE,
    ) -> None:
        """Start the download; reading raises the same errors.

        Args:
            session: The session, whose policy limits attempts and time.
            url: The URL of the file.
            name: The name of the file in error messages.
            reject: Makes the error of a response without the file.
            start: The offset of the first byte.
            limit: The largest size of the whole file, in bytes.
            advice: The next step if there are too many broken connections, or too much time.

        Raises:
            InvalidInputError: The file has more than ``limit`` bytes, or a URL or redirect is forbidden.
            UnavailableError: No connection, too many broken connections, too much time, or the file has changed.
            BenchlockError: The error that ``reject`` makes.
        """
        self._session, self._url, self._name, self._reject, self._limit = session, url, name, reject, limit
        self._advice = advice
        self._position = start  # offset of the next byte from the server
        self._skip = 0  # bytes of this response that were received before
        self.size: int | None = None
        """The size of the whole file, if the server reports it."""
        self._etag = ""
        self._failures = 0  # in a row, without any bytes between them
        self._attempts = 0  # in a row, with little progress
        self._start = start  # offset of the first byte of the last request
        self._deadline = time.monotonic() + session.policy.longest
        self._response: Response | None = None
        self._chunks: Iterator[bytes] = iter(())
        self._rest = self._receive()

    def readable(self) -> bool:
        """Return that the stream can be read."""
        return True

    def close(self) -> None:
        """Close the connection."""
        self._close_response()
        super().close()

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Read the next bytes into ``buffer``; return their number, 0 at the end."""
        if not self._rest:
            self._rest = self._receive()
        view = memoryview(buffer).cast("B")
        size = min(len(view), len(self._rest))
        view[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def _receive(self) -> bytes:
        """Return the next new bytes, and no bytes at the end of the file; resume after a broken connection."""
        while True:
            try:
                if self._response is None:
                    self._connect()
                return self._read_chunk()
            except TransientError as error:
                self._close_response()
                self._pause(error)

    def _connect(self) -> None:
        """Send a request for the bytes from the current position on."""
        headers = {"Range": f"bytes={self._position}-"} if self._position else {}
        if self._position and self._etag and not self._etag.startswith("W/"):
            headers["If-Range"] = self._etag
        self._start = self._position
        self._response = self._session.open("GET", self._url, headers=headers)
        try:
            self._accept(self._response)
        except BaseException:
            self._close_response()
            raise

    def _accept(self, response: "Response") -> None:
        """Start to read a response, if it has the same file at the current position or before it."""
        status, etag = response.status_code, response.headers.get("ETag", "") if self.compares_etags else ""
        ranged = _RANGE.fullmatch(response.headers.get("Content-Range", ""))
        if status == PARTIAL and self._position and ranged and int(ranged[1]) == self._position:
            self._skip, size = 0, ranged[2]
        elif status == OK:
            self._skip, size = self._position, response.headers.get("Content-Length", "")
        elif status == RANGE and self._position:  # the digest shows whether the file is complete
            self._skip, size = 0, ""
        else:
            raise self._reject(self._session.answer(response))
        if self._etag and etag and etag != self._etag:
            raise self._make_error("changed while it was read", "try again")
        self._etag = self._etag or etag
        self.size = int(size) if size.isdecimal() else None
        self._check_size(self.size or 0)
        self._chunks = iter(()) if status == RANGE else response.iter_raw()  # unbuffered: a buffer would be lost

    def _read_chunk(self) -> bytes:
        while True:
            with convert_network_errors(self._url):
                chunk = next(self._chunks, b"")
            self._check_deadline()
            fresh = chunk[self._skip :]
            self._skip -= len(chunk) - len(fresh)
            if fresh or not chunk:
                break
        self._position += len(fresh)
        self._check_size(self._position)
        if not chunk and self.size is not None and self._position < self.size:
            raise TransientError(f"it ends after {self._position} of {self.size} bytes")
        self._failures = 0
        return fresh

    def _pause(self, error: TransientError) -> None:
        """Wait before the next attempt, or give up."""
        self._check_deadline()
        policy = self._session.policy
        progress = _PROGRESS if self.size is None else min(_PROGRESS, self.size // 100)
        self._attempts = 0 if self._position - self._start > progress else self._attempts + 1
        reason = error.reason if error.where == redact_url(self._url) else error.what  # which names a redirect's URL
        if self._attempts >= policy.attempts:
            what = f"fails repeatedly ({self._attempts} attempts with little progress): {reason}"
            raise self._make_error(what, f"check the server and {self._advice}") from error
        if self._failures >= len(policy.pauses):
            raise self._make_error(f"cannot be read: {reason}", error.next_step) from error
        time.sleep(policy.pauses[self._failures])
        self._failures += 1

    def _check_deadline(self) -> None:
        if time.monotonic() > self._deadline:
            took = f"{self._session.policy.longest:g} seconds"
            raise self._make_error(f"takes more than {took}", self._advice)

    def _check_size(self, size: int) -> None:
        if size > self._limit:
            raise InvalidInputError(
                f"{self._name} is larger than {self._limit} bytes",
                where=self._name,
                next_step="correct the expected size",
            )

    def _make_error(self, what: str, next_step: str | None) -> UnavailableError:
        return UnavailableError(f"{self._name} {what}", where=self._name, next_step=next_step)

    def _close_response(self) -> None:
        if self._response is not None:
            self._response.close()
            self._response = None
