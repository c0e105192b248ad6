"""Requests to one repository: authorized where asked, redirected with care, tried again where that may help."""

import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin

import msgspec

from artifacts.errors import UnavailableError
from artifacts.oci.authorization import Credentials, authorize, denied
from artifacts.oci.network import TransientError, connect, network
from artifacts.oci.reference import Repository
from artifacts.urls import addresses, check_url, origin, refuse_private, shown_url

if TYPE_CHECKING:
    from artifacts.oci.network import Client, Response

Content = bytes | Callable[[], Iterator[bytes]]
"""A request's body: as it is, or made anew for each try."""

ATTEMPTS: Final = 5
_PAUSE: Final = 0.2  # seconds before the second try, doubled before each that follows
_LARGEST: Final = 32 << 20  # bytes of an answer that is held in memory
_REDIRECTS: Final = 5
OK, CREATED, ACCEPTED, NO_CONTENT, PARTIAL = 200, 201, 202, 204, 206
UNAUTHORIZED, FORBIDDEN, NOT_FOUND, NOT_ALLOWED, RANGE, BUSY, SERVER_ERROR = 401, 403, 404, 405, 416, 429, 500


class _Fault(msgspec.Struct, frozen=True):
    code: str = ""
    message: str = ""


class _Faults(msgspec.Struct, frozen=True):
    errors: tuple[_Fault, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """What a registry answered, its body read."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    url: str

    @property
    def faults(self) -> str:
        """The errors that the body names, in short."""
        try:
            faults = msgspec.json.decode(self.content, type=_Faults).errors
        except msgspec.MsgspecError:
            return ""
        return "; ".join(f"{fault.code} {fault.message}".strip() for fault in faults)[:300]

    def refused(self, what: str) -> UnavailableError:
        """The error of an answer that nobody expected; ``what`` was asked."""
        reason = f"{self.status} {self.faults}".rstrip()
        if self.status in (UNAUTHORIZED, FORBIDDEN):
            return denied(shown_url(self.url), f"{what}: {reason}")
        return UnavailableError(f"{what}: the registry answers {reason}", where=shown_url(self.url))


class Session:
    """Connections to a repository's registry, for many threads. Nothing is connected before the first request.

    It may send elsewhere: to hosts whose addresses are all public, and to ``redirect_hosts``.
    """

    def __init__(
        self, repository: Repository, credentials: Credentials | None, redirect_hosts: frozenset[str] = frozenset()
    ) -> None:
        self.repository = repository
        self._redirect_hosts = redirect_hosts
        self._credentials = credentials
        self._origin = origin(repository.url)
        self._turn = Lock()
        self._client: Client | None = None
        self._authorization: str | None = None

    def url(self, path: str) -> str:
        return f"{self.repository.url}/{path}"

    def ask(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, content: bytes | None = None
    ) -> Answer:
        """The answer to a request that may be made several times over.

        Raises:
            TransientError: every try failed.
            UnavailableError: the registry wants credentials that are not there.
        """
        return persist(lambda: self.once(method, url, headers=headers, content=content))

    def once(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, content: Content | None = None
    ) -> Answer:
        """As ``ask``, in one try."""
        response = self.open(method, url, headers=headers, content=content)
        try:
            with network(url):
                return Answer(response.status_code, response.headers, _read(response), str(response.url))
        finally:
            response.close()

    def open(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, content: Content | None = None
    ) -> "Response":
        """The answer with its body unread, to be closed by the caller; redirects are followed, within TLS.

        Raises:
            TransientError: no answer, or one that says to try later.
            InvalidInputError: a redirect to where nothing is fetched from.
        """
        for _ in range(_REDIRECTS + 1):
            response = self._authorized(method, url, headers or {}, content)
            if response.status_code == BUSY or response.status_code >= SERVER_ERROR:
                response.close()
                raise TransientError(
                    f"{shown_url(url)} answers {response.status_code}",
                    where=shown_url(url),
                    next_step="try again later",
                )
            if method not in ("GET", "HEAD") or not response.has_redirect_location:
                return response
            response.close()
            url = urljoin(url, response.headers["Location"])
        raise UnavailableError(f"{self.repository} redirects without end", where=shown_url(url))

    def _authorized(self, method: str, url: str, headers: Mapping[str, str], content: Content | None) -> "Response":
        """The answer, after the registry's challenge was met where it made one."""
        known = self._authorization
        response = self._send(method, url, headers, content, known)
        challenge = response.headers.get("WWW-Authenticate")
        if response.status_code != UNAUTHORIZED or challenge is None or not self.is_home(url):
            return response
        response.close()
        with self._turn:
            if self._authorization == known:
                self._authorization = authorize(
                    self._pool(),
                    challenge,
                    self._credentials,
                    str(self.repository),
                    loopback_http=self.repository.plain,
                )
        return self._send(method, url, headers, content, self._authorization)

    def _send(
        self, method: str, url: str, headers: Mapping[str, str], content: Content | None, authorization: str | None
    ) -> "Response":
        host = check_url(url, loopback_http=self.repository.plain).hostname or ""
        if not self.is_home(url) and host not in self._redirect_hosts:
            with suppress(OSError):  # only a proxy knows the name, or nobody
                refuse_private(addresses(host, origin(url)[2]), host, str(self.repository))
        with self._turn:
            client = self._pool()
        if authorization is not None and self.is_home(url):
            headers = {**headers, "Authorization": authorization}
        with network(url):
            body = content() if callable(content) else content
            return client.send(client.build_request(method, url, headers=headers, content=body), stream=True)

    def is_home(self, url: str) -> bool:
        """Whether ``url`` is of the registry itself: nobody else is told who asks."""
        return origin(url) == self._origin

    def _pool(self) -> "Client":
        if self._client is None:
            self._client = connect()
            weakref.finalize(self, self._client.close)
        return self._client


def persist(attempt: Callable[[], Answer]) -> Answer:
    """The answer of the first attempt that gets one."""
    for number in range(ATTEMPTS - 1):
        try:
            return attempt()
        except TransientError:
            pause(number)
    return attempt()


def pause(failures: int) -> None:
    """Wait before the next try, the longer the more have failed."""
    time.sleep(_PAUSE * 2**failures)


def _read(response: "Response") -> bytes:
    """The body, which must be small."""
    content = bytearray()
    for chunk in response.iter_raw():
        content += chunk
        if len(content) > _LARGEST:
            raise UnavailableError(
                f"the answer of {shown_url(str(response.url))} has more than {_LARGEST} bytes",
                where=shown_url(str(response.url)),
            )
    return bytes(content)
