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

from benchlock.artifacts.atomic_files import convert_disk_errors, create_file
from benchlock.artifacts.blob_store import make_mismatch_error
from benchlock.artifacts.digest import CHUNK, Descriptor, Digest, describe, parse_digest, read_chunks, to_hex
from benchlock.artifacts.errors import IntegrityError
from benchlock.artifacts.net.http_session import (
    ACCEPTED,
    ATTEMPTS,
    CONFLICT,
    CREATED,
    NO_CONTENT,
    NOT_FOUND,
    OK,
    RANGE,
    ServerResponse,
    Session,
    TransientError,
    pause,
)
from benchlock.artifacts.user_output import Advance

_SPOOLED: Final = 8 * CHUNK  # bytes in memory before a temporary file is used


@contextmanager
def spool_stream(stream: BinaryIO, folder: Path) -> Iterator[tuple[BinaryIO, Descriptor]]:
    """Yield the rest of ``stream`` as a seekable file, with its digest and size; ``folder`` is for large streams."""
    with tempfile.SpooledTemporaryFile(_SPOOLED, dir=str(folder)) as spool:
        state, size = hashlib.sha256(), 0
        for chunk in read_chunks(stream):  # an error of the stream is not an error of the store
            state.update(chunk)
            size += len(chunk)
            with convert_disk_errors("the store cannot buffer an upload", folder):
                spool.write(chunk)
        yield cast("BinaryIO", spool), Descriptor(Digest(f"sha256:{state.hexdigest()}"), size)


_LONGEST_URL = 4096  # bytes of a URL


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
                return file.read(_LONGEST_URL).decode("ascii")
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

_READ_SIZE: Final = 256 << 10  # bytes of one read from the file
_SMALLEST_BOOKMARKED: Final = 1 << 20  # bytes of the smallest blob with a bookmark
_FINISHING_SECONDS: Final = 900.0  # a server may read or forward the whole blob before it answers
_MAX_CONFLICTS: Final = 2  # conflicts with another sender before the blob gets its own upload
_REFUSED: Final = (400, 422)
_MISMATCH_CODES: Final = ("DIGEST", "integrity")
"""Error codes for bytes with another digest: the one of registries, and benchlock's own."""

_RANGE = re.compile(r"(?:bytes=)?0-(\d+)")


class BlobUpload:
    """The upload of one blob."""

    def __init__(
        self, session: Session, source: BinaryIO, blob: Descriptor, name: str, advance: Advance, chunk_size: int
    ) -> None:
        """Prepare the upload of ``source``; arguments as ``BlobClient.put_blob``, ``chunk_size`` in bytes."""
        self._session, self._source, self._blob, self._name = session, source, blob, name
        self._advance = advance
        self._reported = 0  # bytes reported to ``advance``
        self._location = ""
        self._offset = 0
        self._requested_chunk_size = self._chunk_size = chunk_size
        self._is_complete = False
        self._conflicts = 0
        self._is_continued = False
        parse_digest(blob.digest)

    def run(self, bookmarks: UploadBookmarks | None = None, *, mounts: bool = False) -> None:
        """Send the blob, or the rest of an upload that ``bookmarks`` has a bookmark of.

        ``mounts`` says that the server answers the start of an upload with the blob, if it has it.

        Raises:
            IntegrityError: The source has other bytes.
            UnavailableError: The server does not answer, or rejects the upload.
        """
        self._mounts = mounts
        self._bookmarks = bookmarks if self._blob.size >= _SMALLEST_BOOKMARKED else None
        self._resume_bookmark()
        self._send_all()
        if self._bookmarks:
            self._bookmarks.drop(self._blob.digest)

    def _resume_bookmark(self) -> None:
        """Resume at the location of the bookmark, if the server still knows it."""
        location = self._bookmarks.find(self._blob.digest) if self._bookmarks else None
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
                self._report(self._blob.size)
                return

    def _proceed(self) -> None:
        if self._is_complete:
            return
        if not self._location:
            self._start()
            if self._is_complete:
                return
        while self._blob.size - self._offset > self._chunk_size:
            self._send_chunk()
        self._finish()

    def _start(self) -> None:
        mount = f"?{urlencode({'mount': self._blob.digest})}" if self._mounts else ""
        response = self._session.ask_once("POST", self._session.url(f"blobs/uploads/{mount}"), content=b"")
        if self._mounts and response.status == CREATED:
            self._is_complete = True
            return
        if response.status != ACCEPTED or "Location" not in response.headers:
            raise response.make_error(f"{self._name} cannot be sent")
        self._follow(response)
        minimum = response.headers.get("OCI-Chunk-Min-Length", "")
        self._chunk_size = max(self._requested_chunk_size, int(minimum) if minimum.isdecimal() else 0)
        self._offset = 0
        if self._bookmarks:
            self._bookmarks.keep(self._blob.digest, self._location)

    def _send_chunk(self) -> None:
        end = self._offset + self._chunk_size
        headers = {"Content-Range": f"{self._offset}-{end - 1}"}
        response = self._send("PATCH", self._location, headers, end)
        if response.status in (NOT_FOUND, RANGE, CONFLICT):
            raise self._make_lost_error(response)
        if response.status not in (ACCEPTED, NO_CONTENT, CREATED):
            raise response.make_error(f"{self._name} cannot be sent")
        self._follow(response)
        self._offset = end

    def _finish(self) -> None:
        url = f"{self._location}{'&' if '?' in self._location else '?'}{urlencode({'digest': self._blob.digest})}"
        headers = {}
        if 0 < self._offset < self._blob.size:
            headers["Content-Range"] = f"{self._offset}-{self._blob.size - 1}"
        response = self._send("PUT", url, headers, self._blob.size, _FINISHING_SECONDS)
        if response.status in (NOT_FOUND, RANGE, CONFLICT):
            raise self._make_lost_error(response)
        if response.status in _REFUSED and any(sign in response.faults for sign in _MISMATCH_CODES):
            error = self._make_mismatch_error()
            if not self._is_continued:
                raise error
            self._restart()  # the bytes that another process sent may be wrong
            raise TransientError(error.what) from error
        if response.status not in (CREATED, NO_CONTENT):
            raise response.make_error(f"{self._name} cannot be sent")

    def _send(
        self, method: str, url: str, headers: dict[str, str], end: int, seconds: float | None = None
    ) -> ServerResponse:
        """Send the bytes between the offset and ``end``."""
        length = {"Content-Length": str(end - self._offset), "Content-Type": "application/octet-stream"}
        body = self._make_body(end)
        return self._session.ask_once(method, url, headers=headers | length, content=body, seconds=seconds)

    def _make_body(self, end: int) -> Callable[[], Iterator[bytes]]:
        def read_chunks() -> Iterator[bytes]:
            position = self._offset
            self._source.seek(position)
            while position < end:
                chunk = self._source.read(min(_READ_SIZE, end - position))
                if not chunk:
                    raise self._make_mismatch_error()
                yield chunk
                position += len(chunk)
                self._report(position)

        return read_chunks

    def _report(self, position: int) -> None:
        if position > self._reported:
            self._advance(position - self._reported)
            self._reported = position

    def _resume(self) -> None:
        """Ask for the offset of the upload; start again if the server reports none and has no such blob."""
        if not self._location:
            return
        try:
            response = self._session.ask_once("GET", self._location)
            if response.status == NOT_FOUND:
                head = self._session.ask_once("HEAD", self._session.url(f"blobs/{self._blob.digest}"))
                self._is_complete = head.status == OK and head.headers.get("Content-Length") == str(self._blob.size)
        except TransientError:
            return
        received = _RANGE.fullmatch(response.headers.get("Range", ""))
        # Registries report 0-0 for one byte, and also for none.
        if response.status == NO_CONTENT and received and 0 < int(received[1]) < self._blob.size:
            self._offset = int(received[1]) + 1
            self._follow(response)
        else:
            self._restart()

    def _follow(self, response: ServerResponse) -> None:
        """Continue at the location of the newest response, which may be relative."""
        self._location = self._session.find_location(response, self._location)

    def _restart(self) -> None:
        self._location, self._offset, self._is_continued = "", 0, False

    def _make_lost_error(self, response: ServerResponse) -> TransientError:
        self._conflicts += response.status == CONFLICT
        if self._conflicts > _MAX_CONFLICTS:  # a live process continues the same upload
            self._restart()
            self._conflicts = 0
        return TransientError(f"{self._name}: the registry lost the upload ({response.status} {response.faults})")

    def _make_mismatch_error(self) -> IntegrityError:
        """Make the error of bytes that the server rejects, after a check whether the source has changed."""
        self._source.seek(0)
        actual = describe(self._source)
        if actual != self._blob:
            return make_mismatch_error(
                self._name, self._blob.digest, actual, next_step="do not change the file during its upload"
            )
        return IntegrityError(
            f"{self._name} arrived with different bytes: expected {self._blob.digest}",
            where=self._name,
            next_step="check proxies between this machine and the registry, and try again",
        )
