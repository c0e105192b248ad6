"""A client for the blobs of one server: requests, and resumable, verified downloads."""

import hashlib
import io
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, BinaryIO, Final, cast

from benchlock.artifacts.blob_store import BlobNotFoundError, make_mismatch_error
from benchlock.artifacts.digest import CHUNK, Descriptor, Digest, parse_digest
from benchlock.artifacts.display import Advance, ignore_progress
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

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

    from benchlock.artifacts.net.http_session import Response


class BlobStream(io.RawIOBase):
    """The bytes of a blob. Reading its end raises ``IntegrityError`` where they were others than its digest says.

    It can be sought: forward by reading on, back by asking anew, so that all is verified whatever is read.
    """

    def __init__(
        self, session: Session, digest: Digest, size: int | None, *, verified: bool = True, start: int = 0
    ) -> None:
        """Ask for it; ``size`` is compared where it is known. Not ``verified`` is for a reader who compares himself.

        He alone may have what is before ``start`` already: it is not asked for.

        Raises:
            BlobNotFoundError: the server has no such blob.
            UnavailableError: the registry cannot be asked.
        """
        self._session, self._digest, self._size = session, digest, size
        self._verified = verified
        self._name = f"blob {digest} of {session.home}"
        self._response: Response | None = None
        assert not (verified and start)
        self._begin(start)

    def _begin(self, start: int = 0) -> None:
        self._drop()
        self._state = hashlib.sha256()
        self._received = start
        self._failures = 0
        self._rest = b""
        self._ended = False
        self._chunks: Iterator[bytes] = iter(())
        self._retrying(self._ask)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        while not self._rest and not self._ended:
            self._retrying(self._receive)
        view = memoryview(buffer).cast("B")
        size = min(len(view), len(self._rest))
        view[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._received - len(self._rest)

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
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
        """Read on to ``target``, or to the end where that comes first."""
        buffer = bytearray(CHUNK)
        while target is None or self.tell() < target:
            left = CHUNK if target is None else min(CHUNK, target - self.tell())
            if not self.readinto(memoryview(buffer)[:left]):
                return

    def close(self) -> None:
        self._drop()
        super().close()

    def _receive(self) -> None:
        """Take the next piece, or the end."""
        if self._response is None:
            self._ask()
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
            self._check()  # before the last byte is handed on: who knows the size may never read the end
        self._rest = chunk

    def _end(self) -> None:
        self._drop()
        self._ended = True
        self._check()

    def _check(self) -> None:
        """Compare what was received, which is all that there should be."""
        if not self._verified:
            return
        found = Descriptor(Digest(f"sha256:{self._state.hexdigest()}"), self._received)
        if found.digest != self._digest:
            raise make_mismatch_error(self._name, self._digest, found, next_step=self._session.advice.damaged)
        if self._size not in (None, found.size):
            raise IntegrityError(
                f"{self._name} has {found.size} bytes, and {self._size} are written down for its digest",
                where=self._name,
                next_step="correct the size where it is written down",
            )

    def _ask(self) -> None:
        """Begin to receive, from where the last answer broke off."""
        headers = {"Range": f"bytes={self._received}-"} if self._received else {}
        response = self._session.open("GET", self._url, headers=headers)
        if response.status_code == NOT_FOUND:
            response.close()
            raise BlobNotFoundError(f"{self._session.home} has no blob {self._digest}", where=redact_url(self._url))
        expected = (OK, PARTIAL) if self._received else (OK,)
        if response.status_code not in expected:
            response.close()
            if response.status_code == RANGE:  # it ends where the connection did
                self._chunks = iter(())
                return
            raise self._session.answer(response).refused(f"{self._name} cannot be read")
        announced = response.headers.get("Content-Length", "")
        if self._size is None and response.status_code == OK and announced.isdecimal():  # of the rest, it is less
            self._size = int(announced)
        self._response = response
        self._chunks = self._skipped(response)

    def _skipped(self, response: "Response") -> Iterator[bytes]:
        """What the answer holds beyond what was received before: a server need not know of ranges."""
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

    def _retrying(self, attempt: Callable[[], None]) -> None:
        while True:
            try:
                attempt()
            except TransientError:
                self._drop()
                self._failures += 1
                if self._failures >= ATTEMPTS:
                    raise
                pause(self._failures - 1)
            else:
                return

    def _drop(self) -> None:
        if self._response is not None:
            self._response.close()
            self._response = None


def _first_byte(response: "Response") -> int:
    """Where in the blob the answer begins (RFC 9110, Content-Range)."""
    if response.status_code != PARTIAL:
        return 0
    first = response.headers.get("Content-Range", "").removeprefix("bytes ").partition("-")[0]
    return int(first) if first.isdecimal() else 0


_BLOBS: Final = "blobs"


class BlobClient:
    """Blobs below one URL, for many threads; nothing is connected before it is asked."""

    def __init__(
        self, session: Session, *, piece: int = UPLOAD_CHUNK, notes: UploadBookmarks | None = None, mounts: bool = False
    ) -> None:
        """``piece`` is how many bytes of a blob one request sends, where the server does not demand more.

        With ``notes``, an upload goes on where a killed process left it. ``mounts`` says that the server answers the
        start of an upload with the blob, if it has it.
        """
        self._session = session
        self._piece = piece
        self._notes = notes
        self._mounts = mounts

    @property
    def where(self) -> str:
        """The server, or the repository, for a person."""
        return str(self._session.home)

    @property
    def advice(self) -> ErrorPolicy:
        return self._session.advice

    def open_blob(self, blob: Descriptor) -> BinaryIO:
        """The bytes of a blob, streamed and to be closed; a broken connection is resumed where it broke.

        Raises:
            BlobNotFoundError: there is none.
            UnavailableError: the server cannot be asked; while reading too.
            IntegrityError: on reading the end, of bytes that are not what ``blob`` says. Names it and both digests.
        """
        return _buffered(BlobStream(self._session, parse_digest(blob.digest), blob.size))

    def open_digest(self, digest: Digest) -> BinaryIO:
        """As ``open_blob``, where the size is not known."""
        return _buffered(BlobStream(self._session, parse_digest(digest), None))

    def receive(self, digest: Digest, start: int = 0) -> BinaryIO:
        """As ``open_digest``, from ``start`` on, for a reader who digests the bytes himself."""
        return _buffered(BlobStream(self._session, parse_digest(digest), None, verified=False, start=start))

    def stat_blob(self, digest: Digest) -> Descriptor | None:
        """Digest and size as the server says, ``None`` where it has no such blob.

        Raises:
            UnavailableError: the server cannot be asked.
        """
        answer = self._session.ask("HEAD", self._blob(digest))
        if answer.status == NOT_FOUND:
            return None
        size = answer.headers.get("Content-Length", "")
        if answer.status != OK or not size.isdecimal():
            raise answer.refused(f"blob {digest} of {self.where} cannot be looked at")
        return Descriptor(digest, int(size))

    def put_blob(self, source: BinaryIO, blob: Descriptor, *, name: str, advance: Advance = ignore_progress) -> None:
        """Send the bytes of ``source``, which can be sought and begins at 0; the server verifies them.

        ``advance`` is told the bytes sent, each once.

        Raises:
            IntegrityError: ``source`` has other bytes; names ``name`` and both digests.
            UnavailableError: the server cannot be asked, or refuses.
        """
        upload = BlobUpload(self._session, source, blob, name, advance, self._piece)
        upload.run(self._notes, mounts=self._mounts)

    def _blob(self, digest: Digest) -> str:
        return self._session.url(f"{_BLOBS}/{parse_digest(digest)}")


def _buffered(raw: BlobStream) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(raw, CHUNK))
