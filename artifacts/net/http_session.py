"""An HTTP session with one server: connections, timeouts, authorization, redirects and retries.

A connection is encrypted, but for one to this machine where the caller admits that. No redirect is followed here, and
no content encoding undone: what arrives is what was sent.
"""

import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import TYPE_CHECKING, Final, Protocol
from urllib.parse import urljoin, urlsplit

import msgspec

from benchlock.artifacts.errors import BenchlockError, InvalidInputError, UnavailableError
from benchlock.artifacts.json_codec import prepare_decoder
from benchlock.artifacts.net.urls import (
    UNPROXIED_PREFIXES,
    addresses,
    check_url,
    find_origin,
    redact_url,
    refuse_private,
)

if TYPE_CHECKING:
    from httpx import BaseTransport
    from httpx import Client as Client  # noqa: PLC0414 - named so, others may take it from here
    from httpx import Response as Response  # noqa: PLC0414


_CONNECT_SECONDS = 15.0
SILENCE_SECONDS = 60.0  # between two pieces of an answer
_AGAIN = "look at the network and try again"
_UNLISTENED = "check the host and the port, and whether the server runs"
_LASTING = {
    "WRONG_VERSION_NUMBER": "write http:// (oci+http:// for an OCI registry) if it is on this machine, without TLS",
    "CERTIFICATE_VERIFY_FAILED": "have its certificate renewed, or name its authority with SSL_CERT_FILE",
}
"""What to do about errors of TLS, by OpenSSL's word for them: another try meets them again."""


class TransientError(UnavailableError):
    """What another try may not meet again: no connection, no answer in time, one that breaks off, a busy server.

    ``content`` is what a busy server said, if it did.
    """

    content: bytes = b""


def open_connections(public_but: frozenset[str] | None = None) -> "Client":
    """A pool of connections for many threads, to be closed by the caller.

    Proxies are those of the environment, but none is asked for this machine: what is not encrypted stays here.
    ``public_but`` is for who asks for strangers: every connection, wherever it is sent on to, is made to an address
    that was looked at and is public, but for those to the hosts of that set.
    """
    import httpx  # noqa: PLC0415 - heavy; most commands need no network

    timeout = httpx.Timeout(SILENCE_SECONDS, connect=_CONNECT_SECONDS)
    headers = {"Accept-Encoding": "identity", "User-Agent": "benchlock"}
    transport = None if public_but is None else _to_public_addresses(public_but)
    return httpx.Client(timeout=timeout, headers=headers, mounts=dict.fromkeys(UNPROXIED_PREFIXES), transport=transport)


def _to_public_addresses(but: frozenset[str]) -> "BaseTransport":
    """Connections to addresses that were looked at, so that no name means another one a moment later."""
    import httpx  # noqa: PLC0415 - loaded by now

    class Public(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            host = request.url.host
            if host.lower() in but:
                return super().handle_request(request)
            found = addresses(host, request.url.port or 443)
            refuse_private(found, host, redact_url(str(request.url)))
            extensions = request.extensions | {"sni_hostname": host}  # the certificate is the name's, not the address's
            asked = httpx.Request(
                request.method,
                request.url.copy_with(host=found[0]),
                headers=request.headers,
                stream=request.stream,
                extensions=extensions,
            )
            return super().handle_request(asked)

    return Public()


def make_timeout(seconds: float) -> tuple[float, float, float, float]:
    """``seconds`` for the answer to begin; for all before it no more than that, and no more than otherwise."""
    before = min(SILENCE_SECONDS, seconds)
    return min(_CONNECT_SECONDS, seconds), seconds, before, before


def _is_refused(reason: str) -> bool:
    return "refused" in reason.lower()


@contextmanager
def convert_network_errors(url: str) -> Iterator[None]:
    """Turns what the network refuses into errors that name the URL."""
    import httpx  # noqa: PLC0415 - loaded by now

    try:
        yield
    except httpx.InvalidURL as error:
        shown = redact_url(url)
        raise InvalidInputError(f"{shown} is no URL: {error}", where=shown, next_step="correct it") from error
    except (httpx.HTTPError, OSError) as error:
        shown = redact_url(url)
        reason = str(error) or type(error).__name__
        for sign, step in _LASTING.items():
            if sign in reason:
                raise UnavailableError(f"{shown} cannot be reached: {reason}", where=shown, next_step=step) from error
        raise TransientError(
            f"{shown} cannot be reached: {reason}",
            where=shown,
            next_step=_UNLISTENED if _is_refused(reason) else _AGAIN,
        ) from error


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


class Endpoint(Protocol):
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
class ErrorPolicy:
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


@prepare_decoder
class _Faults(msgspec.Struct, frozen=True):
    """As registries name them, or a problem of RFC 9457 with the code of its class."""

    errors: tuple[_Fault, ...] = ()
    code: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ServerResponse:
    """What a server answered, its body read."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    url: str
    advice: ErrorPolicy

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
        reason, where = f"{self.status} {self.faults}".rstrip(), redact_url(self.url)
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
        home: Endpoint,
        advice: ErrorPolicy,
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
        self._origin = find_origin(home.url)
        self._turn = Lock()
        self._client: Client | None = None
        self._authorization = authorization

    def url(self, path: str) -> str:
        return f"{self.home.url}/{path}"

    def located(self, answer: ServerResponse, known: str) -> str:
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
    ) -> ServerResponse:
        """The answer to a request that may be made several times over.

        Raises:
            TransientError: every try failed.
            UnavailableError: the registry wants credentials that are not there.
        """
        return retry_attempts(lambda: self.once(method, url, headers=headers, content=content))

    def once(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: Content | None = None,
        seconds: float = SILENCE_SECONDS,
    ) -> ServerResponse:
        """As ``ask``, in one try; ``seconds`` is how long the server may take before it answers."""
        response = self.open(method, url, headers=headers, content=content, seconds=seconds)
        try:
            with convert_network_errors(url):
                return self.answer(response, _read(response))
        finally:
            response.close()

    def answer(self, response: "Response", content: bytes = b"") -> ServerResponse:
        return ServerResponse(response.status_code, response.headers, content, str(response.url), self.advice)

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
        raise UnavailableError(f"{self.home} redirects without end", where=redact_url(url))

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
                refuse_private(addresses(host, find_origin(url)[2]), host, str(self.home))
        with self._turn:
            client = self._pool()
        if authorization is not None and self.is_home(url):
            headers = {**headers, "Authorization": authorization}
        with convert_network_errors(url):
            body = content() if callable(content) else content
            request = client.build_request(method, url, headers=headers, content=body, timeout=make_timeout(seconds))
            return client.send(request, stream=True)

    def is_home(self, url: str) -> bool:
        """Whether ``url`` is of the server itself: nobody else is told who asks."""
        return find_origin(url) == self._origin

    def _pool(self) -> "Client":
        if self._client is None:
            self._client = open_connections(self._public_but)
            weakref.finalize(self, self._client.close)
        return self._client


def retry_attempts(attempt: Callable[[], ServerResponse]) -> ServerResponse:
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
    shown = redact_url(url)
    error = TransientError(f"{shown} answers {response.status_code}", where=shown, next_step="try again later")
    try:
        with suppress(UnavailableError), convert_network_errors(url):
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
                f"the answer of {redact_url(str(response.url))} has more than {_LARGEST} bytes",
                where=redact_url(str(response.url)),
            )
    return bytes(content)
