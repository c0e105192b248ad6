"""An HTTP session with one server: connections, timeouts, authorization, redirects and retries.

Connections are encrypted, except to this machine if the caller permits that. Redirects are checked before they are
followed, and content encodings are not decoded: the bytes arrive as sent.
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
    from httpx import Client as Client  # noqa: PLC0414 - a re-export for other modules
    from httpx import Response as Response  # noqa: PLC0414


_CONNECT_SECONDS = 15.0
SILENCE_SECONDS = 60.0  # between two chunks of a response
_RETRY_ADVICE = "look at the network and try again"
_CONNECTION_ADVICE = "check the host and the port, and whether the server runs"
_PERMANENT_ERRORS = {
    "WRONG_VERSION_NUMBER": "write http:// (oci+http:// for an OCI registry) if it is on this machine, without TLS",
    "CERTIFICATE_VERIFY_FAILED": "have its certificate renewed, or name its authority with SSL_CERT_FILE",
}
"""The next step for TLS errors that another try meets again, by OpenSSL's name of the error."""


class TransientError(UnavailableError):
    """An error that another try may avoid: no connection, a timeout, a broken connection, a busy server.

    ``content`` is the body of a busy server's response, if there was one.
    """

    content: bytes = b""


def open_connections(exempt_hosts: frozenset[str] | None = None) -> "Client":
    """Open a pool of connections for many threads, to be closed by the caller.

    Proxies are those of the environment; connections to this machine use none, so that unencrypted bytes stay here. If
    ``exempt_hosts`` is given, every connection, redirects included, is made to a checked public address, except to the
    hosts in that set.
    """
    import httpx  # noqa: PLC0415 - heavy; most commands need no network

    timeout = httpx.Timeout(SILENCE_SECONDS, connect=_CONNECT_SECONDS)
    headers = {"Accept-Encoding": "identity", "User-Agent": "benchlock"}
    transport = None if exempt_hosts is None else _make_public_transport(exempt_hosts)
    return httpx.Client(timeout=timeout, headers=headers, mounts=dict.fromkeys(UNPROXIED_PREFIXES), transport=transport)


def _make_public_transport(exempt_hosts: frozenset[str]) -> "BaseTransport":
    """Make a transport that connects to the checked address, so that a second DNS answer cannot differ."""
    import httpx  # noqa: PLC0415 - loaded by now

    class PublicTransport(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            host = request.url.host
            if host.lower() in exempt_hosts:
                return super().handle_request(request)
            ip_addresses = addresses(host, request.url.port or 443)
            refuse_private(ip_addresses, host, redact_url(str(request.url)))
            extensions = request.extensions | {
                "sni_hostname": host
            }  # the certificate is issued for the name, not for the address
            pinned_request = httpx.Request(
                request.method,
                request.url.copy_with(host=ip_addresses[0]),
                headers=request.headers,
                stream=request.stream,
                extensions=extensions,
            )
            return super().handle_request(pinned_request)

    return PublicTransport()


def make_timeout(seconds: float) -> tuple[float, float, float, float]:
    """Return the timeouts (connect, read, write, pool): ``seconds`` to the response, at most the defaults before."""
    before = min(SILENCE_SECONDS, seconds)
    return min(_CONNECT_SECONDS, seconds), seconds, before, before


def _is_refused(reason: str) -> bool:
    return "refused" in reason.lower()


@contextmanager
def convert_network_errors(url: str) -> Iterator[None]:
    """Convert errors of the network into errors that name the URL."""
    import httpx  # noqa: PLC0415 - loaded by now

    try:
        yield
    except httpx.InvalidURL as error:
        shown = redact_url(url)
        raise InvalidInputError(f"{shown} is no URL: {error}", where=shown, next_step="correct it") from error
    except (httpx.HTTPError, OSError) as error:
        shown = redact_url(url)
        reason = str(error) or type(error).__name__
        for sign, step in _PERMANENT_ERRORS.items():
            if sign in reason:
                raise UnavailableError(f"{shown} cannot be reached: {reason}", where=shown, next_step=step) from error
        raise TransientError(
            f"{shown} cannot be reached: {reason}",
            where=shown,
            next_step=_CONNECTION_ADVICE if _is_refused(reason) else _RETRY_ADVICE,
        ) from error


Content = bytes | Callable[[], Iterator[bytes]]
"""The body of a request: bytes, or a function that produces them for each try."""

ATTEMPTS: Final = 5
_PAUSE: Final = 0.2  # seconds before the second try, doubled before each that follows
_LARGEST: Final = 32 << 20  # bytes of a response in memory
_REDIRECTS: Final = 5
_LONGEST_FAULTS: Final = 300  # characters
OK, CREATED, ACCEPTED, NO_CONTENT, PARTIAL = 200, 201, 202, 204, 206
UNAUTHORIZED, FORBIDDEN, NOT_FOUND, NOT_ALLOWED, CONFLICT = 401, 403, 404, 405, 409
RANGE, BUSY, SERVER_ERROR = 416, 429, 500


class Endpoint(Protocol):
    """The address of a session: a repository of a registry, or a benchlock server. Its text is its name for users."""

    @property
    def url(self) -> str:
        """The URL that the paths of the protocol are relative to."""
        ...

    @property
    def plain(self) -> bool:
        """Whether the connection is without TLS, which is allowed on this machine only."""
        ...


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """The explanation of errors of one kind of server.

    Attributes:
        log_in: The next step if access is denied.
        damaged: The next step for a blob that is damaged on the server.
        kinds: The error class of a response by its status; ``UnavailableError`` for others.
        root: The path of the protocol on the server itself, which a proxy may serve below a prefix.
    """

    log_in: str
    damaged: str
    kinds: Mapping[int, type[BenchlockError]] = field(default_factory=dict)
    root: str = ""


Authorize = Callable[["Client", str], str]
"""Return the value of ``Authorization`` that answers a challenge in ``WWW-Authenticate``."""


class _Fault(msgspec.Struct, frozen=True):
    code: str = ""
    message: str = ""


@prepare_decoder
class _Faults(msgspec.Struct, frozen=True):
    """Errors of a registry, or a problem (RFC 9457) with the code of its class."""

    errors: tuple[_Fault, ...] = ()
    code: str = ""
    detail: str = ""


@dataclass(frozen=True, slots=True)
class ServerResponse:
    """A response of a server with its body read."""

    status: int
    headers: Mapping[str, str]
    content: bytes
    url: str
    advice: ErrorPolicy

    @property
    def faults(self) -> str:
        """The errors in the body, in short."""
        try:
            document = msgspec.json.decode(self.content, type=_Faults)
        except msgspec.MsgspecError:
            return ""
        faults = document.errors or (_Fault(document.code, document.detail),)
        return "; ".join(f"{fault.code} {fault.message}".strip() for fault in faults)[:_LONGEST_FAULTS]

    def make_error(self, action: str) -> BenchlockError:
        """Make the error of an unexpected response; ``action`` is the failed action."""
        reason, where = f"{self.status} {self.faults}".rstrip(), redact_url(self.url)
        kind = self.advice.kinds.get(self.status, UnavailableError)
        if self.status in (UNAUTHORIZED, FORBIDDEN):
            return kind(f"{where} denies access: {action}: {reason}", where=where, next_step=self.advice.log_in)
        return kind(f"{action}: the registry answers {reason}", where=where)


class Session:
    """Connections to one server, for many threads. The first request opens a connection.

    The server may redirect to hosts whose addresses are all public, and to ``redirect_hosts``.
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
        """Prepare the session.

        Args:
            home: The address of the server.
            advice: The error policy of the server.
            authorization: The ``Authorization`` header, sent from the first request on.
            authorize: Returns the header when the server sends a challenge.
            redirect_hosts: Hosts that the server may redirect to whatever their addresses.
            public_only: The server and its token service need public addresses too.
        """
        self.home = home
        self.advice = advice
        self._redirect_hosts = redirect_hosts
        self._exempt_hosts = redirect_hosts if public_only else None
        self._authorize = authorize
        self._origin = find_origin(home.url)
        self._lock = Lock()
        self._client: Client | None = None
        self._authorization = authorization

    def url(self, path: str) -> str:
        """Return the URL of a path of the protocol."""
        return f"{self.home.url}/{path}"

    def find_location(self, response: ServerResponse, default: str) -> str:
        """Return the location in a response, or ``default`` if there is none.

        A server behind a proxy that adds a prefix to its paths does not know the prefix. So a path that begins with the
        server's own root is resolved against the URL at which the server is reached.
        """
        location = response.headers.get("Location", default)
        root, reached = f"{self.advice.root}/", f"{urlsplit(self.home.url).path}/"
        if self.advice.root and location.startswith(root) and not location.startswith(reached):
            return self.url(location.removeprefix(root))
        return urljoin(response.url, location)

    def ask(
        self, method: str, url: str, *, headers: Mapping[str, str] | None = None, content: bytes | None = None
    ) -> ServerResponse:
        """Send a request that is safe to repeat; return the response of the first successful try.

        Raises:
            TransientError: Every try failed.
            UnavailableError: The server demands credentials that are missing.
        """
        return retry_attempts(lambda: self.ask_once(method, url, headers=headers, content=content))

    def ask_once(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: Content | None = None,
        seconds: float = SILENCE_SECONDS,
    ) -> ServerResponse:
        """Send a request once, as ``ask`` does; ``seconds`` is the timeout until the response begins."""
        response = self.open(method, url, headers=headers, content=content, seconds=seconds)
        try:
            with convert_network_errors(url):
                return self.answer(response, _read(response))
        finally:
            response.close()

    def answer(self, response: "Response", content: bytes = b"") -> ServerResponse:
        """Convert a response of httpx and its body."""
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
        """Send a request and return the response with its body unread; the caller closes it.

        Redirects of GET and HEAD are followed, over TLS only.

        Raises:
            TransientError: No response, or one that asks to try later.
            InvalidInputError: A redirect to a forbidden URL.
        """
        for _ in range(_REDIRECTS + 1):
            response = self._send_authorized(method, url, headers or {}, content, seconds)
            if response.status_code == BUSY or response.status_code >= SERVER_ERROR:
                raise _make_busy_error(response, url)
            if method not in ("GET", "HEAD") or not response.has_redirect_location:
                return response
            response.close()
            url = urljoin(url, response.headers["Location"])
        raise UnavailableError(f"{self.home} redirects without end", where=redact_url(url))

    def _send_authorized(
        self, method: str, url: str, headers: Mapping[str, str], content: Content | None, seconds: float
    ) -> "Response":
        """Send a request; answer the server's challenge, if it sends one, and repeat the request."""
        previous = self._authorization
        response = self._send(method, url, headers, content, previous, seconds)
        challenge = response.headers.get("WWW-Authenticate")
        is_met = self._authorize is not None and challenge is not None and self.is_home(url)
        if response.status_code != UNAUTHORIZED or not is_met:
            return response
        assert self._authorize is not None
        assert challenge is not None
        with self._lock:
            try:
                if self._authorization == previous:
                    self._authorization = self._authorize(self._pool(), challenge)
                current = self._authorization
            except BaseException:
                response.close()
                raise
        if current == previous:  # the credentials are the same: the response is final
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
            with suppress(OSError):  # the name is unknown, or known to a proxy only
                refuse_private(addresses(host, find_origin(url)[2]), host, str(self.home))
        with self._lock:
            client = self._pool()
        if authorization is not None and self.is_home(url):
            headers = {**headers, "Authorization": authorization}
        with convert_network_errors(url):
            body = content() if callable(content) else content
            request = client.build_request(method, url, headers=headers, content=body, timeout=make_timeout(seconds))
            return client.send(request, stream=True)

    def is_home(self, url: str) -> bool:
        """Return whether ``url`` is on the server itself; credentials are sent to no other."""
        return find_origin(url) == self._origin

    def _pool(self) -> "Client":
        if self._client is None:
            self._client = open_connections(self._exempt_hosts)
            weakref.finalize(self, self._client.close)
        return self._client


def retry_attempts(attempt: Callable[[], ServerResponse]) -> ServerResponse:
    """Return the result of the first attempt without a transient error."""
    for number in range(ATTEMPTS - 1):
        try:
            return attempt()
        except TransientError:
            pause(number)
    return attempt()


def pause(failures: int) -> None:
    """Wait before the next try, twice as long after each failure."""
    time.sleep(_PAUSE * 2**failures)


def _make_busy_error(response: "Response", url: str) -> TransientError:
    """Make the error of a server that asks to try later, with its body if that arrives."""
    shown = redact_url(url)
    error = TransientError(f"{shown} answers {response.status_code}", where=shown, next_step="try again later")
    try:
        with suppress(UnavailableError), convert_network_errors(url):
            error.content = _read(response)
    finally:
        response.close()
    return error


def _read(response: "Response") -> bytes:
    """Read the body, which must be small."""
    content = bytearray()
    for chunk in response.iter_raw():
        content += chunk
        if len(content) > _LARGEST:
            raise UnavailableError(
                f"the answer of {redact_url(str(response.url))} has more than {_LARGEST} bytes",
                where=redact_url(str(response.url)),
            )
    return bytes(content)
