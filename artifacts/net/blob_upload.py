"""Upload of a blob in chunks, resumable by another process; a stream of unknown size is spooled first.

Memory is bounded whatever the size. After a broken connection the upload resumes at the offset that the server reports.
If the server has dropped the upload (registries before distribution 3 do so when a chunk is cut off), the blob is sent
again. With bookmarks, the upload of a killed process resumes in the same way.
"""

import hashlib
import re
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final, cast
from urllib.parse import urlencode

from benchlock.artifacts.atomic_files import create_file
from benchlock.artifacts.blob_store import make_mismatch_error
from benchlock.artifacts.digest import CHUNK, Descriptor, Digest, describe, parse_digest, read_chunks, to_hex
from benchlock.artifacts.display import Advance
from benchlock.artifacts.errors import IntegrityError, UnavailableError
from benchlock.artifacts.net.http_session import (
    ACCEPTED,
    ATTEMPTS,
    CONFLICT,
    CREATED,
    NO_CONTENT,
    NOT_FOUND,
    OK,
    RANGE,
    SILENCE_SECONDS,
    ServerResponse,
    Session,
    TransientError,
    pause,
)

_SPOOLED: Final = 8 * CHUNK  # bytes in memory before a temporary file is used


@contextmanager
def spool_stream(stream: BinaryIO, folder: Path) -> Iterator[tuple[BinaryIO, Descriptor]]:
    """Yield the rest of ``stream`` as a seekable file, with its digest and size; ``folder`` is for large streams."""
    with tempfile.SpooledTemporaryFile(_SPOOLED, dir=str(folder)) as spool:
        state, size = hashlib.sha256(), 0
        for chunk in read_chunks(stream):  # an error of the stream is not an error of the store
            state.update(chunk)
            size += len(chunk)
            with _disk(folder):
                spool.write(chunk)
        yield cast("BinaryIO", spool), Descriptor(Digest(f"sha256:{state.hexdigest()}"), size)


@contextmanager
def _disk(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnavailableError(
            f"the store cannot hold what it is to send: {error.strerror or error}",
            where=str(folder),
            next_step="look at the disk and the folder",
        ) from error


_LONGEST = 4096  # bytes of a URL


class UploadBookmarks:
    """A small file for each unfinished upload, named by the digest of its blob.

    A bookmark that cannot be written or read is skipped, and the upload starts again. The folder belongs to one server
    and one user.
    """

    def __init__(self, folder: Path) -> None:
        """Keep the bookmarks in ``folder``."""
        self._folder = folder

    def find(self, digest: Digest) -> str | None:
        """Return the URL at which the upload of a blob resumes, as its server reported."""
        try:
            with self._path(digest).open("rb") as file:
                return file.read(_LONGEST).decode("ascii")
        except (OSError, UnicodeDecodeError):
            return None

    def keep(self, digest: Digest, location: str) -> None:
        """Write the bookmark of an upload."""
        with suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            with create_file(self._path(digest)) as file:
                file.write(location.encode("ascii"))

    def drop(self, digest: Digest) -> None:
        """Delete the bookmark of an upload."""
        with suppress(OSError):
            self._path(digest).unlink()

    def _path(self, digest: Digest) -> Path:
        return self._folder / to_hex(parse_digest(digest))


UPLOAD_CHUNK: Final = 64 << 20
"""Bytes of one request: the most that is lost if an upload can resume only between requests."""

_WRITE: Final = 256 << 10  # bytes of one read from the file
_NOTED: Final = 1 << 20  # bytes of the smallest blob with a bookmark
_FINISHING_SECONDS: Final = 900.0  # a server may read or forward the whole blob before it answers
_PATIENCE: Final = 2  # conflicts with another sender before the blob gets its own upload
_REFUSED: Final = (400, 422)
_OTHER_BYTES: Final = ("DIGEST", "integrity")
"""Error codes for bytes with another digest: the one of registries, and benchlock's own."""

_RANGE = re.compile(r"(?:bytes=)?0-(\d+)")


class BlobUpload:
    """The upload of one blob."""

    def __init__(
        self, session: Session, source: BinaryIO, blob: Descriptor, name: str, advance: Advance, piece: int
    ) -> None:
        """Prepare the upload of ``source``; arguments as ``BlobClient.put_blob``, ``piece`` in bytes."""
        self._session, self._source, self._blob, self._name = session, source, blob, name
        self._advance = advance
        self._told = 0  # bytes reported to ``advance``
        self._location = ""
        self._offset = 0
        self._wanted_piece = self._piece = piece
        self._arrived = False
        self._in_the_way = 0
        self._is_continued = False
        parse_digest(blob.digest)

    def run(self, notes: UploadBookmarks | None = None, *, mounts: bool = False) -> None:
        """Send the blob, or the rest of an upload that ``notes`` has a bookmark of.

        ``mounts`` says that the server answers the start of an upload with the blob, if it has it.

        Raises:
            IntegrityError: The source has other bytes.
            UnavailableError: The server does not answer, or rejects the upload.
        """
        self._mounts = mounts
        self._notes = notes if self._blob.size >= _NOTED else None
        self._go_on()
        self._send_all()
        if self._notes:
            self._notes.drop(self._blob.digest)

    def _go_on(self) -> None:
        """Resume at the location of the bookmark, if the server still knows it."""
        location = self._notes.find(self._blob.digest) if self._notes else None
        if location and self._session.is_home(location):
            self._location = location
            self._resume()
            self._is_continued = bool(self._location)

    def _send_all(self) -> None:
        failures, reached = 0, 0
        while True:
            try:
                self._proceed()
            except TransientError:
                failures, reached = (failures + 1, reached) if self._offset <= reached else (1, self._offset)
                if failures >= ATTEMPTS:
                    raise
                pause(failures - 1)
                self._resume()
            else:
                self._tell(self._blob.size)
                return

    def _proceed(self) -> None:
        if self._arrived:
            return
        if not self._location:
            self._start()
            if self._arrived:
                return
        while self._blob.size - self._offset > self._piece:
            self._send_piece()
        self._finish()

    def _start(self) -> None:
        mount = f"?{urlencode({'mount': self._blob.digest})}" if self._mounts else ""
        answer = self._session.once("POST", self._session.url(f"blobs/uploads/{mount}"), content=b"")
        if self._mounts and answer.status == CREATED:
            self._arrived = True
            return
        if answer.status != ACCEPTED or "Location" not in answer.headers:
            raise answer.refused(f"{self._name} cannot be sent")
        self._follow(answer)
        least = answer.headers.get("OCI-Chunk-Min-Length", "")
        self._piece = max(self._wanted_piece, int(least) if least.isdecimal() else 0)
        self._offset = 0
        if self._notes:
            self._notes.keep(self._blob.digest, self._location)

    def _send_piece(self) -> None:
        end = self._offset + self._piece
        headers = {"Content-Range": f"{self._offset}-{end - 1}"}
        answer = self._send("PATCH", self._location, headers, end)
        if answer.status in (NOT_FOUND, RANGE, CONFLICT):
            raise self._lost(answer)
        if answer.status not in (ACCEPTED, NO_CONTENT, CREATED):
            raise answer.refused(f"{self._name} cannot be sent")
        self._follow(answer)
        self._offset = end

    def _finish(self) -> None:
        url = f"{self._location}{'&' if '?' in self._location else '?'}{urlencode({'digest': self._blob.digest})}"
        headers = {}
        if 0 < self._offset < self._blob.size:
            headers["Content-Range"] = f"{self._offset}-{self._blob.size - 1}"
        answer = self._send("PUT", url, headers, self._blob.size, _FINISHING_SECONDS)
        if answer.status in (NOT_FOUND, RANGE, CONFLICT):
            raise self._lost(answer)
        if answer.status in _REFUSED and any(sign in answer.faults for sign in _OTHER_BYTES):
            error = self._other_bytes()
            if not self._is_continued:
                raise error
            self._begin_anew()  # the bytes that another process sent may be wrong
            raise TransientError(error.what) from error
        if answer.status not in (CREATED, NO_CONTENT):
            raise answer.refused(f"{self._name} cannot be sent")

    def _send(
        self, method: str, url: str, headers: dict[str, str], end: int, seconds: float = SILENCE_SECONDS
    ) -> ServerResponse:
        """Send the bytes between the offset and ``end``."""
        length = {"Content-Length": str(end - self._offset), "Content-Type": "application/octet-stream"}
        pieces = self._pieces(end)
        return self._session.once(method, url, headers=headers | length, content=pieces, seconds=seconds)

    def _pieces(self, end: int) -> Callable[[], Iterator[bytes]]:
        def pieces() -> Iterator[bytes]:
            position = self._offset
            self._source.seek(position)
            while position < end:
                piece = self._source.read(min(_WRITE, end - position))
                if not piece:
                    raise self._other_bytes()
                yield piece
                position += len(piece)
                self._tell(position)

        return pieces

    def _tell(self, position: int) -> None:
        if position > self._told:
            self._advance(position - self._told)
            self._told = position

    def _resume(self) -> None:
        """Ask for the offset of the upload; start again if the server reports none and has no such blob."""
        if not self._location:
            return
        try:
            answer = self._session.once("GET", self._location)
            if answer.status == NOT_FOUND:
                there = self._session.once("HEAD", self._session.url(f"blobs/{self._blob.digest}"))
                self._arrived = there.status == OK and there.headers.get("Content-Length") == str(self._blob.size)
        except TransientError:
            return
        held = _RANGE.fullmatch(answer.headers.get("Range", ""))
        # Registries report 0-0 for one byte, and also for none.
        if answer.status == NO_CONTENT and held and 0 < int(held[1]) < self._blob.size:
            self._offset = int(held[1]) + 1
            self._follow(answer)
        else:
            self._begin_anew()

    def _follow(self, answer: ServerResponse) -> None:
        """Continue at the location of the newest response, which may be relative."""
        self._location = self._session.located(answer, self._location)

    def _begin_anew(self) -> None:
        self._location, self._offset, self._is_continued = "", 0, False

    def _lost(self, answer: ServerResponse) -> TransientError:
        self._in_the_way += answer.status == CONFLICT
        if self._in_the_way > _PATIENCE:  # a live process continues the same upload
            self._begin_anew()
            self._in_the_way = 0
        return TransientError(f"{self._name}: the registry lost the upload ({answer.status} {answer.faults})")

    def _other_bytes(self) -> IntegrityError:
        """Make the error of bytes that the server rejects, after a check whether the source has changed."""
        self._source.seek(0)
        found = describe(self._source)
        if found != self._blob:
            return make_mismatch_error(
                self._name, self._blob.digest, found, next_step="let the file be while it is sent"
            )
        return IntegrityError(
            f"{self._name} arrived as other bytes than were sent: expected {self._blob.digest}",
            where=self._name,
            next_step="look at what lies between here and the registry, and try again",
        )
