"""Requests to one server: authorized where asked, redirected with care, tried again where that may help."""

import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urljoin, urlsplit

import msgspec

from benchlock.artifacts.errors import BenchlockError, UnavailableError
from benchlock.artifacts.readable import readable
from benchlock.artifacts.transfer.network import SILENCE_SECONDS, TransientError, connect, network, patience
from benchlock.artifacts.urls import addresses, check_url, origin, refuse_private, shown_url

if TYPE_CHECKING:
    from benchlock.artifacts.transfer.network import Client, Response

Content = bytes | Callable[[], Iterator[bytes]]
"""A request's body: as it is, or made anew for each try."""

ATTEMPTS: Final = 5
_PAUSE: Final = 0.2  # seconds before the second try, doubled before each that follows
_LARGEST: Final = 32 << 20  # bytes of an answer that is held in memory
_REDIRECTS: Final = 5
_LONGEST_FAULTS: Final = 300  # characters
OK, CREATED, ACCEPTED, NO_CONTENT, PARTIAL = 200, 201, 202, 204, 206
UNAUTHORIZED, FORBIDDEN, NOT_FOUND, NOT_ALLOWED, CONFLICT = 401, 403, 404, 405, 409
RANGE, BUSY, SERVER_ERROR = 416, 429, 500


class Home(Protocol):
    """Where a session asks: a repository of a registry, or a server of benchlock. Its text is its name for a person."""

    @property
    def url(self) -> str:
        """What the protocol's paths are below."""
        ...

    @property
    def plain(self) -> bool:
        """Whether it is without TLS, which this machine alone may be."""
        ...


@dataclass(frozen=True, slots=True)
class Advice:
    """What differs by who serves: what a person does to be let in, and about bytes that are damaged there.

    ``kinds`` is what an answer of a status is an error of, where it is not that something outside failed. ``root`` is
    what the server itself calls the path of its protocol, which it may be reached at behind some prefix.
    """

    log_in: str
    damaged: str
    kinds: Mapping[int, type[BenchlockError]] = field(default_factory=dict)
    root: str = ""


Authorize = Callable[["Client", str], str]
"""The value of ``Authorization`` that meets the challenge of a ``WWW-Authenticate``."""


class _Fault(msgspec.Struct, frozen=True):
    code: str = ""
    message: str = ""


@readable
class _Faults(msgspec.Struct, frozen=True):
    """As registries name them, or a problem of RFC 9457 with the code of its class."""

    errors: tuple[_Fault, ...] = ()
    code: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server answered, its body read."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    url: str
    advice: Advice

    @property
    def faults(self) -> str:
        """The errors that the body names, in short."""
        try:
            found = msgspec.json.decode(self.content, type=_Faults)
        except msgspec.MsgspecError:
            return ""
        faults = found.errors or (_Fault(found.code, found.detail),)
        return "; ".join(f"{fault.code} {fault.message}".strip() for fault in faults)[:_LONGEST_FAULTS]

    def refused(self, what: str) -> BenchlockError:
        """The error of an answer that nobody expected; ``what`` was asked."""
        reason, where = f"{self.status} {self.faults}".rstrip(), shown_url(self.url)
        kind = self.advice.kinds.get(self.status, UnavailableError)
        if self.status in (UNAUTHORIZED, FORBIDDEN):
            return kind(f"{where} denies access: {what}: {reason}", where=where, next_step=self.advice.log_in)
        return kind(f"{what}: the registry answers {reason}", where=where)


class Session:
    """Connections to one server, for many threads. Nothing is connected before the first request.

    It may send elsewhere: to hosts whose addresses are all public, and to ``redirect_hosts``.
    """

    def __init__(
        self,
        home: Home,
        advice: Advice,
        *,
        authorization: str | None = None,
        authorize: Authorize | None = None,
        redirect_hosts: frozenset[str] = frozenset(),
        public_only: bool = False,
    ) -> None:
        """``authorization`` is sent from the first request on; ``authorize`` gives one when the server asks.

        With ``public_only`` the server itself needs a public address too, and whoever it names for tokens.
        """
        self.home = home
        self.advice = advice
        self._redirect_hosts = redirect_hosts
        self._public_but = redirect_hosts if public_only else None
        self._authorize = authorize
        self._origin = origin(home.url)
        self._turn = Lock()
        self._client: Client | None = None
        self._authorization = authorization

    def url(self, path: str) -> str:
        return f"{self.home.url}/{path}"

    def located(self, answer: Answer, known: str) -> str:
        """Where an answer sends whoever goes on; ``known`` where it does not say.

        A server behind a proxy that puts a prefix before its paths knows nothing of the prefix: what it says from its
        own root on is meant from where it is reached.
        """
        location = answer.headers.get("Location", known)
        root, reached = f"{self.advice.root}/", f"{urlsplit(self.home.url).path}/"
        if self.advice.root and location.startswith(root) and not location.startswith(reached):
            return self.url(location.removeprefix(root))
        return urljoin(answer.url, location)

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
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: Content | None = None,
        seconds: float = SILENCE_SECONDS,
    ) -> Answer:
        """As ``ask``, in one try; ``seconds`` is how long the server may take before it answers."""
        response = self.open(method, url, headers=headers, content=content, seconds=seconds)
        try:
            with network(url):
                return self.answer(response, _read(response))
        finally:
            response.close()

    def answer(self, response: "Response", content: bytes = b"") -> Answer:
        return Answer(response.status_code, response.headers, content, str(response.url), self.advice)

    def open(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: Content | None = None,
        seconds: float = SILENCE_SECONDS,
    ) -> "Response":
        """The answer with its body unread, to be closed by the caller; redirects are followed, within TLS.

        Raises:
            TransientError: no answer, or one that says to try later.
            InvalidInputError: a redirect to where nothing is fetched from.
        """
        for _ in range(_REDIRECTS + 1):
            response = self._authorized(method, url, headers or {}, content, seconds)
            if response.status_code == BUSY or response.status_code >= SERVER_ERROR:
                raise _busy(response, url)
            if method not in ("GET", "HEAD") or not response.has_redirect_location:
                return response
            response.close()
            url = urljoin(url, response.headers["Location"])
        raise UnavailableError(f"{self.home} redirects without end", where=shown_url(url))

    def _authorized(
        self, method: str, url: str, headers: Mapping[str, str], content: Content | None, seconds: float
    ) -> "Response":
        """The answer, after the server's challenge was met where it made one."""
        known = self._authorization
        response = self._send(method, url, headers, content, known, seconds)
        challenge = response.headers.get("WWW-Authenticate")
        is_met = self._authorize is not None and challenge is not None and self.is_home(url)
        if response.status_code != UNAUTHORIZED or not is_met:
            return response
        assert self._authorize is not None
        assert challenge is not None
        with self._turn:
            try:
                if self._authorization == known:
                    self._authorization = self._authorize(self._pool(), challenge)
                current = self._authorization
            except BaseException:
                response.close()
                raise
        if current == known:  # nothing else to send: the answer stands
            return response
        response.close()
        return self._send(method, url, headers, content, current, seconds)

    def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        content: Content | None,
        authorization: str | None,
        seconds: float,
    ) -> "Response":
        host = check_url(url, loopback_http=self.home.plain).hostname or ""
        if not self.is_home(url) and host not in self._redirect_hosts:
            with suppress(OSError):  # only a proxy knows the name, or nobody
                refuse_private(addresses(host, origin(url)[2]), host, str(self.home))
        with self._turn:
            client = self._pool()
        if authorization is not None and self.is_home(url):
            headers = {**headers, "Authorization": authorization}
        with network(url):
            body = content() if callable(content) else content
            request = client.build_request(method, url, headers=headers, content=body, timeout=patience(seconds))
            return client.send(request, stream=True)

    def is_home(self, url: str) -> bool:
        """Whether ``url`` is of the server itself: nobody else is told who asks."""
        return origin(url) == self._origin

    def _pool(self) -> "Client":
        if self._client is None:
            self._client = connect(self._public_but)
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


def _busy(response: "Response", url: str) -> TransientError:
    """The error of a server that says to try later; with what it says, where that arrives."""
    shown = shown_url(url)
    error = TransientError(f"{shown} answers {response.status_code}", where=shown, next_step="try again later")
    try:
        with suppress(UnavailableError), network(url):
            error.content = _read(response)
    finally:
        response.close()
    return error


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
