"""Where the bytes of a manifest come from before they are blobs: a file, a folder, or a server over TLS.

A source is not trusted: whoever reads from a remote one states the digest that the bytes must have.
"""

import io
import ipaddress
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Final, cast
from urllib.parse import SplitResult, unquote, urljoin, urlsplit

from artifacts.digest import CHUNK
from artifacts.errors import BenchlockError, InvalidInputError, UnavailableError
from artifacts.files import unreadable

if TYPE_CHECKING:
    import httpx
    from _typeshed import WriteableBuffer

LARGEST: Final = 1 << 40  # bytes; no published model comes near, an endless answer ends there
_REDIRECTS = 10
_CONNECT_SECONDS = 15.0
_SILENCE_SECONDS = 60.0  # between two pieces of an answer
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
_NOT_BUILT_YET = {"hf": "the Hugging Face Hub", "dvc": "DVC repositories"}


@dataclass(frozen=True, slots=True)
class FileSource:
    """A regular file that exists."""

    path: Path


@dataclass(frozen=True, slots=True)
class FolderSource:
    """A folder that exists."""

    path: Path


@dataclass(frozen=True, slots=True)
class HttpsSource:
    """What a server answers to GET. ``loopback_http`` admits unencrypted HTTP on this machine alone."""

    url: str
    loopback_http: bool = False

    def open(self, *, limit: int = LARGEST) -> AbstractContextManager[BinaryIO]:
        """The bytes as the server sends them, streamed: no content encoding is undone. Redirects stay within TLS.

        Raises:
            InvalidInputError: more than ``limit`` bytes (while reading, too), or a URL or redirect that is refused.
            UnavailableError: no connection, no answer in time, an answer other than 200, one that breaks off.
        """
        return _download(self, limit)


Source = FileSource | FolderSource | HttpsSource


def open_source(source: str, base: Path, *, loopback_http: bool = False) -> Source:
    """What ``source`` names: a path (a relative one starts at ``base``), a ``file:`` or an ``https:`` URL.

    Raises:
        InvalidInputError: nothing is there, or it cannot be a source.
        UnavailableError: it cannot be looked at.
    """
    scheme = _SCHEME.match(source)
    if not scheme:
        return _local(base / source, source)
    name = scheme.group(1).lower()
    if name == "file":
        return _local(_file_url_path(source), source)
    if name in {"https", "http"}:
        _check_url(source, loopback_http=loopback_http)
        return HttpsSource(source, loopback_http)
    if name in _NOT_BUILT_YET:
        raise InvalidInputError(
            f"{name}: sources are not built yet: {source} cannot be read",
            where=source,
            next_step=f"download the file from {_NOT_BUILT_YET[name]}, and name it by its path or an https: URL",
        )
    raise InvalidInputError(
        f"{source}: no source is called {name}:",
        where=source,
        next_step=f"write a path (./{source} if it is one), a file: or an https: URL",
    )


def _local(path: Path, source: str) -> FileSource | FolderSource:
    if "\0" in source or not source:
        raise InvalidInputError(f"{source!r} is no path", where=repr(source), next_step="write a path or a URL")
    try:
        if path.is_dir():
            return FolderSource(path)
        if path.is_file():
            return FileSource(path)
        exists = path.exists()
    except OSError as error:
        raise unreadable(path, error) from error
    raise InvalidInputError(
        f"{source} is neither a regular file nor a folder" if exists else f"{source} does not exist",
        where=str(path),
        next_step="name a file or folder that exists; a relative path starts at the manifest's folder",
    )


def _file_url_path(source: str) -> Path:
    """The path of a ``file:`` URL (RFC 8089): absolute, of this machine."""
    url = _split(source)
    if url.netloc not in {"", "localhost"} or not url.path.startswith("/") or url.query or url.fragment:
        raise InvalidInputError(
            f"{source} names no file of this machine", where=source, next_step="write file:///absolute/path, or a path"
        )
    return Path(unquote(url.path, errors="surrogateescape"))


def _split(url: str) -> SplitResult:
    try:
        split = urlsplit(url)
        _ = split.port
    except ValueError as error:
        raise InvalidInputError(f"{url} is no URL: {error}", where=url, next_step="correct it") from error
    return split


def _check_url(url: str, *, loopback_http: bool) -> None:
    split = _split(url)
    shown = _shown(url)
    if split.username is not None:
        raise InvalidInputError(
            f"{shown} holds a user name or password", where=shown, next_step="write the URL without credentials"
        )
    if not split.hostname:
        raise InvalidInputError(f"{shown} names no host", where=shown, next_step="write https://host/path")
    if split.scheme != "https" and not (loopback_http and split.scheme == "http" and _is_loopback(split.hostname)):
        raise InvalidInputError(f"{shown} is no https: URL", where=shown, next_step="use https:")


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _shown(url: str) -> str:
    """The URL without what may be secret: credentials and the query."""
    split = urlsplit(url)
    return split._replace(netloc=split.netloc.rpartition("@")[2], query="", fragment="").geturl()


@contextmanager
def _download(source: HttpsSource, limit: int) -> Iterator[BinaryIO]:
    import httpx  # noqa: PLC0415 - heavy; only remote sources need it

    _check_url(source.url, loopback_http=source.loopback_http)
    timeout = httpx.Timeout(_SILENCE_SECONDS, connect=_CONNECT_SECONDS)
    with httpx.Client(timeout=timeout, headers={"Accept-Encoding": "identity", "User-Agent": "benchlock"}) as client:
        with _network(source.url):
            response = _follow(client, source)
        try:
            announced = response.headers.get("Content-Length", "")
            if announced.isdecimal() and int(announced) > limit:
                raise _too_large(source.url, limit)
            with io.BufferedReader(_Body(response, source.url, limit), CHUNK) as stream:
                yield cast("BinaryIO", stream)
        finally:
            response.close()


def _follow(client: "httpx.Client", source: HttpsSource) -> "httpx.Response":
    """The answer at the end of the redirects, its body unread."""
    url = source.url
    for _ in range(_REDIRECTS + 1):
        response = client.send(client.build_request("GET", url), stream=True)
        if not response.has_redirect_location:
            break
        response.close()
        url = urljoin(url, _split(response.headers["Location"]).geturl())
        _check_url(url, loopback_http=source.loopback_http)
    else:
        raise UnavailableError(f"{_shown(source.url)} redirects more than {_REDIRECTS} times", where=_shown(source.url))
    if response.status_code != 200:  # noqa: PLR2004 - OK
        response.close()
        raise UnavailableError(
            f"{_shown(url)} answers {response.status_code} {response.reason_phrase}".rstrip(),
            where=_shown(source.url),
            next_step="correct the URL, or try again later",
        )
    return response


@contextmanager
def _network(url: str) -> Iterator[None]:
    """Turns what the network refuses into errors that name the URL."""
    import httpx  # noqa: PLC0415 - loaded by now

    shown = _shown(url)
    try:
        yield
    except httpx.InvalidURL as error:
        raise InvalidInputError(f"{shown} is no URL: {error}", where=shown, next_step="correct it") from error
    except (httpx.HTTPError, OSError) as error:
        reason = str(error) or type(error).__name__
        raise UnavailableError(
            f"{shown} cannot be read: {reason}", where=shown, next_step="look at the network and try again"
        ) from error


class _Body(io.RawIOBase):
    """The body of an answer as a stream of bytes that ends in an error beyond ``limit``."""

    def __init__(self, response: "httpx.Response", url: str, limit: int) -> None:
        self._chunks = response.iter_raw(CHUNK)
        self._url = url
        self._rest = b""
        self._left = limit
        self._limit = limit

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "WriteableBuffer", /) -> int:
        if not self._rest:
            with _network(self._url):
                self._rest = next(self._chunks, b"")
            self._left -= len(self._rest)
            if self._left < 0:
                raise _too_large(self._url, self._limit)
        view = memoryview(buffer).cast("B")
        size = min(len(view), len(self._rest))
        view[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size


def _too_large(url: str, limit: int) -> BenchlockError:
    return InvalidInputError(
        f"{_shown(url)} is larger than {limit} bytes", where=_shown(url), next_step="correct the size that is expected"
    )
