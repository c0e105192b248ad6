"""A client for the blobs of one server: requests, and resumable, verified downloads."""

import hashlib
import io
from contextlib import ExitStack
from typing import TYPE_CHECKING, BinaryIO, cast

from benchlock.artifacts.blob_store import BlobNotFoundError, make_mismatch_error
from benchlock.artifacts.digest import CHUNK, Descriptor, Digest, parse_digest
from benchlock.artifacts.errors import BenchlockError, IntegrityError
from benchlock.artifacts.net.blob_upload import UPLOAD_CHUNK, BlobUpload, UploadBookmarks
from benchlock.artifacts.net.download import RESUME_ADVICE, RETRY_ADVICE, Download
from benchlock.artifacts.net.http_session import NOT_FOUND, OK, ErrorPolicy, ServerResponse, Session
from benchlock.artifacts.net.urls import redact_url
from benchlock.artifacts.user_output import Advance, ignore_progress

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class _BlobDownload(Download):
    """The bytes of a blob; its digest shows a change, and mirrors may send different ETags for it."""

    compares_etags = False


def _open_download(session: Session, digest: Digest, start: int = 0, advice: str = RETRY_ADVICE) -> Download:
    """Start the unverified download of a blob from the offset ``start`` on; the reader compares the digest."""
    name, url = f"blob {digest} of {session.name}", session.url(f"blobs/{parse_digest(digest)}")

    def reject(response: ServerResponse) -> BenchlockError:
        if response.status == NOT_FOUND:
            return BlobNotFoundError(f"{session.name} has no blob {digest}", where=redact_url(url))
        return response.make_error(f"{name} cannot be read")

    return _BlobDownload(session, url, name, reject, start=start, advice=advice)


class BlobStream(io.RawIOBase):
    """A seekable stream over a remote blob; reading its end raises ``IntegrityError`` for wrong bytes.

    Seeking forward reads on and seeking back starts a new download, so all bytes are verified whatever is read.
    """

    def __init__(self, session: Session, digest: Digest, size: int | None) -> None:
        """Start the download of a blob; ``size`` is its expected size in bytes, ``None`` if it is unknown.

        Raises:
            BlobNotFoundError: The server does not have the blob.
            UnavailableError: The server does not answer.
        """
        self._session, self._digest, self._size = session, digest, size
        self._open = ExitStack()
        self._begin()

    def _begin(self) -> None:
        self._open.close()
        self._state, self._received = hashlib.sha256(), 0
        self._download = self._open.enter_context(_open_download(self._session, self._digest))

    def readable(self) -> bool:
        """Return that the stream can be read."""
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        """Read the next bytes into ``buffer``; return their number, 0 at the end."""
        view = memoryview(buffer).cast("B")
        size = self._download.readinto(view)
        self._state.update(view[:size])
        self._received += size
        expected = self._download.size if self._size is None else self._size
        if not size or (expected is not None and self._received >= expected):
            self._check()  # before the last bytes are returned: a reader that knows the size may never read the end
        return size

    def seekable(self) -> bool:
        """Return that the stream can be sought."""
        return True

    def tell(self) -> int:
        """Return the offset of the next byte."""
        return self._received

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
        self._open.close()
        super().close()

    def _check(self) -> None:
        """Compare the digest and size of the received bytes, which are all of the blob."""
        name = f"blob {self._digest} of {self._session.name}"
        actual = Descriptor(Digest(f"sha256:{self._state.hexdigest()}"), self._received)
        if actual.digest != self._digest:
            raise make_mismatch_error(name, self._digest, actual, next_step=self._session.advice.damaged)
        if self._size not in (None, actual.size):
            raise IntegrityError(
                f"{name} has {actual.size} bytes, but {self._size} are stated for its digest",
                where=name,
                next_step="correct the stated size",
            )


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
        return self._session.name

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
        """Open an unverified stream of a blob from the offset ``start`` on; the reader keeps and verifies the bytes."""
        return _buffer(_open_download(self._session, digest, start, RESUME_ADVICE))

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
            raise response.make_error(f"blob {digest} of {self.where} cannot be looked up")
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
        return self._session.url(f"blobs/{parse_digest(digest)}")


def _buffer(raw: io.RawIOBase) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(raw, CHUNK))
