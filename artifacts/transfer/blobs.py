"""Blobs of one server, sent and received by the OCI distribution protocol's paths: what every such client shares."""

import io
from typing import BinaryIO, Final, cast

from benchlock.artifacts.digest import CHUNK, Descriptor, Digest, parse_digest
from benchlock.artifacts.progress import Advance, unnoticed
from benchlock.artifacts.transfer.notes import Notes
from benchlock.artifacts.transfer.session import NOT_FOUND, OK, Advice, Session
from benchlock.artifacts.transfer.streams import BlobStream
from benchlock.artifacts.transfer.uploads import PIECE, Upload

_BLOBS: Final = "blobs"


class BlobClient:
    """Blobs below one URL, for many threads; nothing is connected before it is asked."""

    def __init__(
        self, session: Session, *, piece: int = PIECE, notes: Notes | None = None, mounts: bool = False
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
    def advice(self) -> Advice:
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

    def put_blob(self, source: BinaryIO, blob: Descriptor, *, name: str, advance: Advance = unnoticed) -> None:
        """Send the bytes of ``source``, which can be sought and begins at 0; the server verifies them.

        ``advance`` is told the bytes sent, each once.

        Raises:
            IntegrityError: ``source`` has other bytes; names ``name`` and both digests.
            UnavailableError: the server cannot be asked, or refuses.
        """
        upload = Upload(self._session, source, blob, name, advance, self._piece)
        upload.run(self._notes, mounts=self._mounts)

    def _blob(self, digest: Digest) -> str:
        return self._session.url(f"{_BLOBS}/{parse_digest(digest)}")


def _buffered(raw: BlobStream) -> BinaryIO:
    return cast("BinaryIO", io.BufferedReader(raw, CHUNK))
