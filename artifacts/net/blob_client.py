"""A client for the blobs of one server: requests, and resumable, verified downloads."""

import hashlib
import io
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from benchlock.artifacts.blob_store import BlobNotFoundError, make_mismatch_error
from benchlock.artifacts.digest import CHUNK, Descriptor, Digest, parse_digest
from benchlock.artifacts.errors import IntegrityError, UnavailableError
from benchlock.artifacts.net.blob_upload import UPLOAD_CHUNK, BlobUpload, UploadBookmarks
from benchlock.artifacts.net.http_session import (
    ATTEMPTS,
    NOT_FOUND,
    OK,
    PARTIAL,
    RANGE,
    ErrorPolicy,
    Session,
    TransientError,
    convert_network_errors,
    pause,
)
from benchlock.artifacts.net.urls import redact_url
from benchlock.artifacts.user_text import Advance, ignore_progress

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from benchlock.artifacts.net.http_session import Response


class BlobStream(io.RawIOBase):
    """A seekable stream over a remote blob; reading its end raises ``IntegrityError`` for wrong bytes.

    Seeking forward reads on and seeking back starts a new download, so all bytes are verified whatever is read. A
    broken connection is resumed at the same offset.
    """

    def __init__(
        self, session: Session, digest: Digest, size: int | None, *, verified: bool = True, start: int = 0
    ) -> None:
        """Start the download.

        Args:
            session: The session with the server.
            digest: The digest of the blob.
            size: The expected size in bytes; ``None`` if it is unknown.
            verified: Compare the digest at the end; ``False`` is for a reader that compares it itself.
            start: The offset of the first byte, in bytes; not 0 only without ``verified``.

        Raises:
            BlobNotFoundError: The server does not have the blob.
            UnavailableError: The server does not answer.
        """
        self._session, self._digest, self._size = session, digest, size
        self._verified = verified
        self._name = f"blob {digest} of {session.home}"
        self._response: Response | None = None
        assert not (verified and start)
        self._begin(start)

    def _begin(self, start: int = 0) -> None:
        self._close_response()
        self._state = hashlib.sha256()
        self._received = start
        self._failures = 0
        self._rest = b""
        self._ended = False
        self._chunks: Iterator[bytes] = iter(())
        self._retry(self._request)

    def readable(self) -> bool:
        """Return that the stream can be read."""
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Read the next bytes into ``buffer``; return their number, 0 at the end."""
        while not self._rest and not self._ended:
            self._retry(self._receive)
        view = memoryview(buffer).cast("B")
        size = min(len(view), len(self._rest))
        view[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def seekable(self) -> bool:
        """Return that the stream can be sought."""
        return True

    def tell(self) -> int:
        """Return the offset of the next byte."""
        return self._received - len(self._rest)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Move to an offset, at most to the end of the blob; return the new offset."""
        if whence == io.SEEK_END:
            self._skip(None)
        target = offset + (0 if whence == io.SEEK_SET else self.tell())
        if target < 0:
            raise ValueError(f"negative seek position {target}")
        if target < self.tell():
            self._begin()
        self._skip(target)
        return self.tell()

    def _skip(self, target: int | None) -> None:
        """Read on to the offset ``target``, or to the end if that comes first."""
        buffer = bytearray(CHUNK)
        while target is None or self.tell() < target:
            size = CHUNK if target is None else min(CHUNK, target - self.tell())
            if not self.readinto(memoryview(buffer)[:size]):
                return

    def close(self) -> None:
        """Close the connection."""
        self._close_response()
        super().close()

    def _receive(self) -> None:
        """Receive the next chunk, or the end."""
        if self._response is None:
            self._request()
        with convert_network_errors(self._url):
            chunk = next(self._chunks, None)
        if chunk is None:
            self._end()
            return
        if self._verified:
            self._state.update(chunk)
        self._received += len(chunk)
        self._failures = 0
        if self._size is not None and self._received >= self._size:
            self._check()  # before the last bytes are returned: a reader that knows the size may never read the end
        self._rest = chunk

    def _end(self) -> None:
        self._close_response()
        self._ended = True
        self._check()

    def _check(self) -> None:
        """Compare the digest and size of the received bytes, which are all of the blob."""
        if not self._verified:
            return
        actual = Descriptor(Digest(f"sha256:{self._state.hexdigest()}"), self._received)
        if actual.digest != self._digest:
            raise make_mismatch_error(self._name, self._digest, actual, next_step=self._session.advice.damaged)
        if self._size not in (None, actual.size):
            raise IntegrityError(
                f"{self._name} has {actual.size} bytes, and {self._size} are written down for its digest",
                where=self._name,
                next_step="correct the size where it is written down",
            )

    def _request(self) -> None:
        """Send a request for the bytes from the current offset on."""
        headers = {"Range": f"bytes={self._received}-"} if self._received else {}
        response = self._session.open("GET", self._url, headers=headers)
        if response.status_code == NOT_FOUND:
            response.close()
            raise BlobNotFoundError(f"{self._session.home} has no blob {self._digest}", where=redact_url(self._url))
        expected = (OK, PARTIAL) if self._received else (OK,)
        if response.status_code not in expected:
            response.close()
            if response.status_code == RANGE:  # the connection broke at the end of the blob
                self._chunks = iter(())
                return
            raise self._session.answer(response).make_error(f"{self._name} cannot be read")
        announced = response.headers.get("Content-Length", "")
        if (
            self._size is None and response.status_code == OK and announced.isdecimal()
        ):  # the length of a partial response is smaller
            self._size = int(announced)
        self._response = response
        self._chunks = self._iterate_new(response)

    def _iterate_new(self, response: "Response") -> Iterator[bytes]:
        """Yield the bytes of a response that are new: a server without support of ranges starts at 0."""
        skip = self._received - _first_byte(response) if self._received else 0
        if skip < 0:
            raise UnavailableError(f"{self._name}: the registry answers another range than asked", where=self._name)
        for chunk in response.iter_raw():
            if skip >= len(chunk):
                skip -= len(chunk)
                continue
            yield chunk[skip:] if skip else chunk
            skip = 0

    @property
    def _url(self) -> str:
        return self._session.url(f"blobs/{self._digest}")

    def _retry(self, attempt: Callable[[], None]) -> None:
        while True:
            try:
                attempt()
            except TransientError:
                self._close_response()
                self._failures += 1
                if self._failures >= ATTEMPTS:
                    raise
                pause(self._failures - 1)
            else:
                return

    def _close_response(self) -> None:
        if self._response is not None:
            self._response.close()
            self._response = None


def _first_byte(response: "Response") -> int:
    """Return the offset of the first byte of a response (RFC 9110, Content-Range)."""
    if response.status_code != PARTIAL:
        return 0
    first = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
    return int(first) if first.isdecimal() else 0


_BLOBS: Final = "blobs"


class BlobClient:
    """The blobs of one server, for many threads; the first request opens a connection."""

    def __init__(
        self,
        session: Session,
        *,
        piece: int = UPLOAD_CHUNK,
        bookmarks: UploadBookmarks | None = None,
        mounts: bool = False,
    ) -> None:
        """Set up uploads.

        Args:
            session: The session with the server.
            piece: Bytes of a blob that one request sends, unless the server demands more.
            bookmarks: Bookmarks by which an upload resumes where a killed process left it.
            mounts: Whether the server answers the start of an upload with the blob, if it has it.
        """
        self._session = session
        self._piece = piece
        self._bookmarks = bookmarks
        self._mounts = mounts

    @property
    def where(self) -> str:
        """The name of the server or repository, for users."""
        return str(self._session.home)

    @property
    def advice(self) -> ErrorPolicy:
        """The error policy of the server."""
        return self._session.advice

    def open_blob(self, blob: Descriptor) -> BinaryIO:
        """Open a stream of a blob, to be closed by the caller; broken connections are resumed.

        Raises:
            BlobNotFoundError: The server does not have the blob.
            UnavailableError: The server does not answer, now or while the stream is read.
            IntegrityError: At the end of the stream: the bytes do not match ``blob``. The message has both digests.
        """
        return _buffer(BlobStream(self._session, parse_digest(blob.digest), blob.size))

    def open_digest(self, digest: Digest) -> BinaryIO:
        """Open a stream of a blob of unknown size, as ``open_blob`` does."""
        return _buffer(BlobStream(self._session, parse_digest(digest), None))

    def receive(self, digest: Digest, start: int = 0) -> BinaryIO:
        """Open an unverified stream of a blob from the offset ``start`` on; the reader verifies the bytes."""
        return _buffer(BlobStream(self._session, parse_digest(digest), None, verified=False, start=start))

    def stat_blob(self, digest: Digest) -> Descriptor | None:
        """Return the digest and size that the server reports, ``None`` if it does not have the blob.

        Raises:
            UnavailableError: The server does not answer.
        """
        response = self._session.ask("HEAD", self._blob(digest))
        if response.status == NOT_FOUND:
            return None
        size = response.headers.get("Content-Length", "")
        if response.status != OK or not size.isdecimal():
            raise response.make_error(f"blob {digest} of {self.where} cannot be looked at")
        return Descriptor(digest, int(size))

    def put_blob(self, source: BinaryIO, blob: Descriptor, *, name: str, advance: Advance = ignore_progress) -> None:
        """Upload ``source``, a seekable stream at offset 0; the server verifies the bytes.

        Args:
            source: The bytes.
            blob: Their digest and size.
            name: The name of the blob in error messages.
            advance: Called with the number of bytes sent, each byte once.

        Raises:
            IntegrityError: ``source`` has other bytes. The message has ``name`` and both digests.
            UnavailableError: The server does not answer, or rejects the upload.
        """
        upload = BlobUpload(self._session, source, blob, name, advance, self._piece)
        upload.run(self._bookmarks, mounts=self._mounts)

    def _blob(self, digest: Digest) -> str:
        return self._session.url(f"{_BLOBS}/{parse_digest(digest)}")


def _buffer(raw: BlobStream) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(raw, CHUNK))
