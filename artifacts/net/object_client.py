"""A client of the blobs in a bucket of objects (S3, Google Cloud Storage or Azure), over the library obstore.

A blob is the object ``blobs/sha256/HEX`` below the prefix; the object ``benchlock-registry`` has the id of the owner.
An object becomes visible whole or not at all: an upload in parts that fails is aborted. The bytes are digested while
they are sent, so that a file that changes meanwhile never becomes an object, and S3 compares a SHA-256 of each part.
"""

import hashlib
import io
import math
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, BinaryIO, Final, TypeVar, cast

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError
from obstore.store import from_url

from benchlock.artifacts.blob_store import BlobNotFoundError, check_digest
from benchlock.artifacts.digest import CHUNK, Descriptor, Digest, from_hex, parse_digest, to_hex
from benchlock.artifacts.errors import InvalidInputError, UnavailableError
from benchlock.artifacts.net.http_session import ErrorPolicy
from benchlock.artifacts.net.network_policy import SILENCE_SECONDS
from benchlock.artifacts.net.urls import check_url, redact_url, split_url
from benchlock.artifacts.user_output import Advance, ignore_progress

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer
    from obstore.store import AzureStore, BackoffConfig, ClientConfig, GCSStore, RetryConfig, S3Store

    Objects = S3Store | GCSStore | AzureStore

Result = TypeVar("Result")
_LOCATION: Final = re.compile(r"(s3|gs|az)://([A-Za-z0-9][A-Za-z0-9._-]{1,62})((?:/[A-Za-z0-9._=-]{1,128}){0,16})/?")
_BLOBS: Final = "blobs/sha256/"
_OWNER: Final = "benchlock-registry"
_LARGEST_OWNER: Final = 1 << 10
_PARTS: Final = 9_000
"""Parts of an upload; S3 takes 10,000."""
_PART: Final = 8 << 20
_PARALLEL_PARTS: Final = 4
"""Parts in memory of one upload."""
_CONNECT: Final = timedelta(seconds=15)
_SILENCE: Final = timedelta(seconds=SILENCE_SECONDS)
_DOWNLOAD: Final = timedelta(days=1)
"""Time of a download with its retries. The library counts a whole one, so that its default cuts large blobs."""
_UPLOAD: Final = timedelta(minutes=15)
"""Time of the request of one part; the library's limit of silence would count the sending of the part, too."""
_SHORT: Final = timedelta(minutes=1)
"""Time of every other request, and of its retries."""
_LIST_SECONDS: Final = 600.0
_RETRIES: Final = 4
_LONG_RETRIES: Final = 18
"""Of a part and of a download: with the pauses they outlast an outage of 40 s, and _RETRIES one of 0.7 s (medians)."""
_PAUSES: Final["BackoffConfig"] = {
    "init_backoff": timedelta(seconds=0.2),
    "base": 3,
    "max_backoff": timedelta(seconds=5),
}
_DELETED_AT_ONCE: Final = 1000
_DAMAGED: Final = (
    "delete the object blobs/sha256/ and the digits of the digest, and publish the version again to upload it"
)
_process: list[int] = []
"""The process that connected first. The threads of the library do not exist in processes forked from it."""
_STATUS: Final = re.compile(r"(status code: \d{3}[A-Za-z -]*)")
_CODE: Final = re.compile(r"<Code>(\w{1,64})</Code>")
_URL: Final = re.compile(r"https?://\S+")
_REASON: Final = 300
_INVALID_PATH: Final = "invalid path"
_PARTS_DROPPED: Final = "InvalidBlockList"
"""The code of Azure's error when another upload of the same blob ended first, which drops the parts of all others."""
_ATTRIBUTES: Final = {"Content-Type": "application/octet-stream", "Content-Disposition": "attachment"}
"""A browser that follows a link to a blob saves it; foreign bytes are never a page."""


@dataclass(frozen=True, slots=True)
class _Service:
    """The environment variables of a service.

    Attributes:
        credentials: Some that have the credentials.
        endpoints: Those that have its URL.
        http: The one that accepts a server without TLS, as some on private networks are; None if there is none.
    """

    credentials: str
    endpoints: tuple[str, ...]
    http: str | None

    @property
    def allows_http(self) -> bool:
        """Whether the user accepts a server without TLS."""
        return self.http is not None and os.environ.get(self.http, "").lower() == "true"

    @property
    def advice(self) -> ErrorPolicy:
        """The error policy of the service's buckets."""
        return ErrorPolicy(f"check the credentials in the environment, such as {self.credentials}", _DAMAGED)


_SERVICES: Final = {
    "s3": _Service(
        "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
        ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"),
        "AWS_ALLOW_HTTP",
    ),
    "az": _Service(
        "AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY",
        ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
        "AZURE_ALLOW_HTTP",
    ),
    "gs": _Service("GOOGLE_APPLICATION_CREDENTIALS", ("GOOGLE_BASE_URL",), None),
}
"""By the scheme of the buckets."""


@dataclass(frozen=True, slots=True)
class ObjectLocation:
    """A bucket and a prefix in it.

    Attributes:
        url: SCHEME://BUCKET or SCHEME://BUCKET/PREFIX, without a slash at its end.
    """

    url: str

    def __str__(self) -> str:
        """Return the URL."""
        return self.url

    @property
    def service(self) -> _Service:
        """The service of the bucket."""
        return _SERVICES[self.url.partition(":")[0]]


def parse_location(text: str) -> ObjectLocation:
    """Parse SCHEME://BUCKET[/PREFIX], with the scheme s3, gs or az.

    Raises:
        InvalidInputError: The text has another form.
    """
    match = _LOCATION.fullmatch(text)
    if match is None or any(part in (".", "..") for part in match[3].split("/")):
        raise InvalidInputError(
            f"invalid bucket {redact_url(text)[:200]!r}",
            next_step="write s3://BUCKET/PREFIX, gs://BUCKET/PREFIX or az://CONTAINER/PREFIX, with letters, digits and "
            "._=- in the names",
        )
    return ObjectLocation(text.rstrip("/"))


def connect(location: ObjectLocation) -> "ObjectClient":
    """Return a client of a bucket, with the credentials and the endpoint in the environment.

    Raises:
        InvalidInputError: The environment does not suit it.
    """
    if not _process:
        _process.append(os.getpid())
    for name in location.service.endpoints:
        if endpoint := os.environ.get(name):
            _check_endpoint(location.service, name, endpoint)
    try:
        stores = (
            _open(location, {"timeout": _SHORT}, _SHORT),
            _open(location, {"timeout": _UPLOAD}, _UPLOAD),
            _open(location, {"timeout": _DOWNLOAD, "read_timeout": _SILENCE}, _DOWNLOAD),
        )
    except (BaseError, ValueError) as error:
        raise InvalidInputError(
            f"{location} cannot be opened: {_shorten(error)}",
            where=str(location),
            next_step=location.service.advice.log_in,
        ) from error
    return ObjectClient(location, *stores)


def _check_endpoint(service: _Service, name: str, endpoint: str) -> None:
    """Raise for an endpoint that the library cannot use, or whose password it would print."""
    split, where = split_url(endpoint), redact_url(endpoint)
    if split.username is not None:
        raise InvalidInputError(
            f"{name} contains a user name or password", where=where, next_step="give the credentials by variables"
        )
    if split.scheme not in ("https", "http") or not split.hostname:
        raise InvalidInputError(
            f"{name} is not a URL: {where}", where=name, next_step="write https://HOST or http://HOST"
        )
    if split.scheme == "http" and not service.allows_http:
        step = f"write https://, or set {service.http}=true on a private network" if service.http else "write https://"
        raise InvalidInputError(f"{name} is not encrypted: {where}", where=name, next_step=step)


def _open(location: ObjectLocation, options: "ClientConfig", seconds: timedelta) -> "Objects":
    """Return the library's store of a bucket; a request with its retries takes at most twice ``seconds``."""
    options["connect_timeout"] = _CONNECT
    options["allow_http"] = location.service.allows_http
    retries: RetryConfig = {"max_retries": _RETRIES, "retry_timeout": seconds}
    if seconds != _SHORT:
        retries |= {"max_retries": _LONG_RETRIES, "backoff": _PAUSES}
    if location.url.startswith("s3:"):
        return cast(
            "Objects",
            from_url(location.url, client_options=options, retry_config=retries, checksum_algorithm="SHA256"),
        )
    return cast("Objects", from_url(location.url, client_options=options, retry_config=retries))


class ObjectClient:
    """The objects of one bucket below a prefix, for many threads."""

    def __init__(self, location: ObjectLocation, objects: "Objects", uploads: "Objects", downloads: "Objects") -> None:
        """Use the library's stores of the bucket at ``location``: for short requests, uploads and downloads."""
        self.location = location
        self._objects, self._uploads, self._downloads = objects, uploads, downloads

    @property
    def where(self) -> str:
        """The URL of the bucket and the prefix."""
        return str(self.location)

    @property
    def advice(self) -> ErrorPolicy:
        """The error policy of buckets."""
        return self.location.service.advice

    def open_digest(self, digest: Digest) -> BinaryIO:
        """Open a seekable, unverified stream of a blob.

        Raises:
            BlobNotFoundError: The bucket does not have the blob.
            UnavailableError: The service does not answer, now or while the stream is read.
        """
        return self.receive(digest)

    def receive(self, digest: Digest, start: int = 0) -> BinaryIO:
        """Open an unverified stream of a blob from the offset ``start`` on, as ``open_digest`` does."""
        blob = self.stat_blob(parse_digest(digest))
        if blob is None:
            raise BlobNotFoundError(f"{self.where} has no blob {digest}", where=self.where)
        stream = _ObjectStream(lambda offset: self._read(digest, offset), blob.size)
        stream.seek(start)
        return cast("BinaryIO", io.BufferedReader(stream, CHUNK))

    def stat_blob(self, digest: Digest) -> Descriptor | None:
        """Return the digest and the size of the object; None without that object."""
        with self._convert_errors(f"blob {digest} cannot be looked up"):
            size = self._find_size(_key(digest))
        return None if size is None else Descriptor(digest, size)

    def put_blob(self, source: BinaryIO, blob: Descriptor, *, name: str, advance: Advance = ignore_progress) -> None:
        """Upload the whole of ``source``, a seekable stream of ``blob``, in place of an object with that digest.

        Raises:
            IntegrityError: ``source`` has other bytes; no object became visible.
            UnavailableError: The service does not answer, or rejects the upload.
        """
        checked = _CheckedSource(source, blob, name, advance)
        part = max(_PART, math.ceil(blob.size / _PARTS))
        try:
            with self._convert_errors(f"{name} cannot be uploaded"):
                _run(
                    lambda: obstore.put(
                        self._uploads,
                        _key(blob.digest),
                        cast("BinaryIO", checked),
                        attributes=_ATTRIBUTES,
                        use_multipart=blob.size > part,
                        chunk_size=part,
                        max_concurrency=_PARALLEL_PARTS,
                    )
                )
        except KeyboardInterrupt:
            checked.is_stopped = True  # so that the library aborts the upload in parts
            raise
        except UnavailableError as error:
            if checked.error is not None:  # the library has turned it into an error of its own
                raise checked.error from None
            if _PARTS_DROPPED not in error.what or self.stat_blob(blob.digest) != blob:
                raise

    def list_blobs(self) -> Iterator[Digest]:
        """Yield the digest of every blob.

        Objects whose name is no digest are left out. A name that the library cannot read is an error.
        """
        end = time.monotonic() + _LIST_SECONDS
        with self._convert_errors("the blobs cannot be listed"):
            for page in obstore.list(self._objects, prefix=_BLOBS):
                if time.monotonic() > end:
                    raise TimeoutError(f"the listing did not end within {_LIST_SECONDS:.0f} s")
                for entry in page:
                    with suppress(InvalidInputError):
                        yield from_hex(entry["path"].removeprefix(_BLOBS))

    def delete_blobs(self, digests: Iterable[Digest]) -> None:
        """Delete blobs, of which some may be absent."""
        keys = [_key(digest) for digest in digests]
        with self._convert_errors("blobs cannot be deleted"):
            for at in range(0, len(keys), _DELETED_AT_ONCE):
                batch = keys[at : at + _DELETED_AT_ONCE]
                try:
                    obstore.delete(self._objects, batch)
                except FileNotFoundError:  # some services end the batch where an object is absent
                    for key in batch:
                        with suppress(FileNotFoundError):
                            obstore.delete(self._objects, key)

    def read_owner(self) -> str | None:
        """Return the text of the owner's object, shortened; None without that object."""
        with self._convert_errors("the owner cannot be read"):
            size = self._find_size(_OWNER)
            if not size:
                return None if size is None else "unknown"
            length = min(size, _LARGEST_OWNER)
            return bytes(obstore.get_range(self._objects, _OWNER, start=0, length=length)).decode(errors="replace")

    def create_owner(self, owner: str) -> None:
        """Write the owner's object; if there is one already, leave it.

        Raises:
            UnavailableError: The service replaces existing objects in spite of ``If-None-Match``, so that two
                registries could both believe that they claimed the bucket.
        """
        if self._create(owner) and self._create(owner):
            raise UnavailableError(
                f"{self.where} cannot be claimed: the service ignores conditions of writes (If-None-Match)",
                where=self.where,
                next_step="use a service that supports conditional writes, or an OCI repository",
            )

    def _create(self, owner: str) -> bool:
        """Return whether the owner's object was written; False if there is one."""
        with self._convert_errors("the bucket cannot be claimed"):
            try:
                obstore.put(self._objects, _OWNER, owner.encode(), mode="create")
            except AlreadyExistsError:
                return False
            return True

    def sign_url(self, digest: Digest, seconds: int) -> str:
        """Return a URL by which anyone can download a blob for a time, without other credentials.

        Raises:
            UnavailableError: The credentials do not permit that, or clients would refuse the URL as unencrypted.
        """
        with self._convert_errors("a download cannot be signed"):
            url = str(obstore.sign(self._objects, "GET", _key(digest), timedelta(seconds=seconds)))
            check_url(url, loopback_http=True)
            return url

    def _read(self, digest: Digest, offset: int) -> Iterator[bytes]:
        """Yield the bytes of a blob from an offset on; the library resumes a broken connection."""
        with self._convert_errors(f"blob {digest} cannot be read"):
            found = _run(lambda: obstore.get(self._downloads, _key(digest), options={"range": {"offset": offset}}))
            for chunk in found.stream(min_chunk_size=CHUNK):
                yield bytes(chunk)

    def _find_size(self, key: str) -> int | None:
        """Return the number of bytes of an object; None if it is absent, or the bucket is."""
        try:
            return int(_run(lambda: obstore.head(self._objects, key))["size"])
        except FileNotFoundError:
            return None

    @contextmanager
    def _convert_errors(self, what: str) -> Iterator[None]:
        """Convert errors of the library into ``UnavailableError``; refuse a forked process, where it would hang."""
        if os.getpid() not in _process:
            raise UnavailableError(
                f"{what}: this process was forked from one that uses the bucket",
                where=self.where,
                next_step="start processes anew instead of forking them, as the method spawn of multiprocessing does",
            )
        try:
            yield
        except (BaseError, OSError, ValueError, InvalidInputError) as error:
            raise self._make_error(what, error) from error
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # an error of the library that it did not foresee
                raise
            raise self._make_error(what, error) from error

    def _make_error(self, what: str, error: BaseException) -> UnavailableError:
        reason = _shorten(error)
        step = f"{self.advice.log_in}, and the endpoint, such as {self.location.service.endpoints[0]}"
        if _INVALID_PATH in reason:
            step = f"delete or rename that object: no other program may write below {self.where}/{_BLOBS}"
        return UnavailableError(f"{what}: {reason}", where=self.where, next_step=step)


class _ObjectStream(io.RawIOBase):
    """A seekable stream of an object; seeking drops the request, and reading begins another one."""

    def __init__(self, read: Callable[[int], Iterator[bytes]], size: int) -> None:
        self._read, self._size = read, size
        self._chunks: Iterator[bytes] | None = None
        self._rest = memoryview(b"")
        self._offset = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        view = memoryview(buffer).cast("B")
        if not self._rest and self._offset < self._size:
            if self._chunks is None:
                self._chunks = self._read(self._offset)
            self._rest = memoryview(next(self._chunks, b""))
        size = min(len(view), len(self._rest))
        view[:size], self._rest = self._rest[:size], self._rest[size:]
        self._offset += size
        return size

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._offset

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        target = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._offset, io.SEEK_END: self._size}[whence]
        if target < 0:
            raise ValueError(f"negative seek position {target}")
        if target != self._offset:
            self._chunks, self._rest, self._offset = None, memoryview(b""), min(target, self._size)
        return self._offset


class _CheckedSource:
    """The file that the library reads: its bytes are digested, and its end is an error if they are others.

    The library reads a file once from its beginning, but asks for its length first, by seeking.
    """

    def __init__(self, source: BinaryIO, blob: Descriptor, name: str, advance: Advance) -> None:
        self._source, self._blob, self._name, self._advance = source, blob, name, advance
        self._state, self._received, self._reported = hashlib.sha256(), 0, 0
        source.seek(0)
        self.error: BaseException | None = None
        self.is_stopped = False

    def read(self, size: int = -1, /) -> bytes:
        if self.is_stopped:
            raise InterruptedError("the upload was interrupted")
        try:
            content = self._source.read(size)
            self._state.update(content)
            self._received += len(content)
            if not content or self._received >= self._blob.size:
                actual = Descriptor(Digest(f"sha256:{self._state.hexdigest()}"), self._received)
                check_digest(self._name, self._blob.digest, actual)
            if self._received > self._reported:
                self._advance(self._received - self._reported)
                self._reported = self._received
        except BaseException as error:
            self.error = error
            raise
        return content

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._source.tell()

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        target = self._source.seek(offset, whence)
        if target == 0:
            self._state, self._received = hashlib.sha256(), 0
        return target


def _key(digest: Digest) -> str:
    return _BLOBS + to_hex(parse_digest(digest))


def _run(call: Callable[[], Result]) -> Result:
    """Run a call of the library, which does not notice signals, so that Ctrl-C ends the wait for it."""
    if threading.current_thread() is not threading.main_thread():
        return call()
    done: Future[Result] = Future()

    def run() -> None:
        try:
            done.set_result(call())
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done.result()


def _shorten(error: BaseException) -> str:
    """Return the first line of an error of the library, without secrets of URLs and without the body of the answer.

    The further lines describe inner values. Only the code in the body of an error is kept. The middle of a long line
    is left out, since the status is at its end.
    """
    text = str(error)
    line = _URL.sub(lambda url: redact_url(url[0]), text.partition("\n")[0])
    status, code = _STATUS.search(line), _CODE.search(text[: 1 << 16])
    if status is not None:
        line = line[: status.end()]
    if code is not None:
        line = f"{line.rstrip()} ({code[1]})"
    if len(line) > _REASON:
        line = f"{line[: _REASON // 2]} … {line[-_REASON // 2 :]}"
    return line or type(error).__name__
