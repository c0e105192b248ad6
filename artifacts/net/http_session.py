"""An HTTP session with one server: connections, timeouts, authorization, redirects and retries.

Every request follows the session's network policy. Connections are encrypted, except to this machine if the policy
permits that. Content encodings are not decoded: the bytes arrive as sent.
"""

import time
import weakref
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from threading import Lock
from typing import TYPE_CHECKING, Final
from urllib.parse import urljoin, urlsplit

import msgspec

from benchlock.artifacts.errors import BenchlockError, InvalidInputError, UnavailableError
from benchlock.artifacts.json_codec import prepare_decoder
from benchlock.artifacts.net.network_policy import PAUSES, SILENCE_SECONDS, NetworkPolicy
from benchlock.artifacts.net.urls import check_url, find_origin, redact_url, split_url

if TYPE_CHECKING:
    from ssl import SSLContext

    from httpx import URL, Client
    from httpx import Response as Response  # noqa: PLC0414 - a re-export for other modules


_CONNECT_SECONDS = 15.0
_HEADERS = {"Accept-Encoding": "identity", "User-Agent": "benchlock"}
_RETRY_ADVICE = "check the network and try again"
_CONNECTION_ADVICE = "check the host and the port, and whether the server is running"
_PERMANENT_ERRORS = {
    "WRONG_VERSION_NUMBER": "write http:// (oci+http:// for an OCI registry) if it is on this machine, without TLS",
    "CERTIFICATE_VERIFY_FAILED": "renew its certificate, or set SSL_CERT_FILE to that of its private CA",
}
"""The next step for TLS errors that another try meets again, by OpenSSL's name of the error."""


class TransientError(UnavailableError):
    """An error that another try may avoid: no connection, a timeout, a broken connection, a busy server.

    ``content`` is the body of a busy server's response, if there was one. ``reason`` is the cause without the URL.
    """

    content: bytes = b""
    reason: str = ""


def make_timeout(seconds: float) -> tuple[float, float, float, float]:
    """Return the timeouts (connect, read, write, pool): ``seconds`` to the response, at most the defaults before."""
    before = min(SILENCE_SECONDS, seconds)
    return min(_CONNECT_SECONDS, seconds), seconds, before, before


@contextmanager
def convert_network_errors(url: str) -> Iterator[None]:
    """Convert errors of the network into errors that name the URL."""
    import httpx  # noqa: PLC0415 - loaded by now

    try:
        yield
    except (httpx.InvalidURL, UnicodeError) as error:  # UnicodeError: a host name with an invalid label
        shown = redact_url(url)
        raise InvalidInputError(f"invalid URL {shown}: {error}", where=shown, next_step="correct it") from error
    except (httpx.HTTPError, OSError) as error:
        shown = redact_url(url)
        reason = str(error) or type(error).__name__
        for sign, step in _PERMANENT_ERRORS.items():
            if sign in reason:
                raise UnavailableError(f"{shown} cannot be reached: {reason}", where=shown, next_step=step) from error
        unconnected = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.ProxyError)
        is_broken = isinstance(error, httpx.TransportError) and not isinstance(error, unconnected)
        what = f"the connection to {shown} broke" if is_broken else f"{shown} cannot be reached"
        advice = _CONNECTION_ADVICE if "refused" in reason.lower() else _RETRY_ADVICE
        transient = TransientError(f"{what}: {reason}", where=shown, next_step=advice)
        transient.reason = reason
        raise transient from error


Content = bytes | Callable[[], Iterator[bytes]]
"""The body of a request: bytes, or a function that produces them for each try."""

ATTEMPTS: Final = len(PAUSES) + 1
_LARGEST: Final = 32 << 20  # bytes of a response in memory
_REDIRECTS: Final = 10
_LONGEST_FAULTS: Final = 300  # characters
OK, CREATED, ACCEPTED, NO_CONTENT, PARTIAL = 200, 201, 202, 204, 206
BAD_REQUEST, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, NOT_ALLOWED, CONFLICT = 400, 401, 403, 404, 405, 409
RANGE, SERVER_ERROR = 416, 500
_RETRIED: Final = (408, 425, 429)  # and all of the server's errors


@dataclass(frozen=True, slots=True)
class ErrorPolicy:
    """The explanation of errors of one kind of server.

    Attributes:
        log_in: The next step if access is denied.
        damaged: The next step for a blob that is damaged on the server.
        rejection: The error class of a response that rejects the request; ``UnavailableError`` for others.
        root: The path of the protocol on the server itself, which a proxy may serve below a prefix.
    """

    log_in: str
    damaged: str
    rejection: type[BenchlockError] = UnavailableError
    root: str = ""


Authorize = Callable[["Session", str], str]
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
        kind = self.advice.rejection if BAD_REQUEST <= self.status < SERVER_ERROR else UnavailableError
        if self.status in (UNAUTHORIZED, FORBIDDEN):
            return kind(f"{where} denies access: {action}: {reason}", where=where, next_step=self.advice.log_in)
        return kind(f"{action}: the server answers {reason}", where=where)


@dataclass(frozen=True, slots=True)
class _Request:
    method: str
    url: str
    headers: Mapping[str, str]
    content: Content | None
    seconds: float


class _Connections:
    """Pools of connections, for many threads, to the addresses that a network policy permits."""

    def __init__(self, server: str, policy: NetworkPolicy) -> None:
        """Name ``server`` in error messages."""
        self._server, self._policy = server, policy
        self._lock = Lock()
        self._context: SSLContext | None = None
        self._clients: dict[tuple[str, str | None], Client] = {}

    def send(self, request: _Request, *, is_home: bool) -> "Response":
        """Send a request to a permitted address; the certificate is checked against the host name."""
        import httpx  # noqa: PLC0415 - heavy; most commands need no network

        split = check_url(request.url, loopback_http=self._policy.loopback_http)
        proxy, url = self._policy.find_proxy(split), httpx.URL(request.url)
        host = url.raw_host.decode("ascii")
        addresses = self._policy.find_addresses(
            host, find_origin(request.url)[2], self._server, is_home=is_home, is_proxied=proxy is not None
        )
        if not addresses:
            return self._send(request, url, {}, self._open_client("", proxy))
        client = self._open_client(host, None)  # a pool of its own: another host may have the same address
        pinned = {"Host": url.netloc.decode("ascii")}
        for address in addresses[:-1]:
            with suppress(httpx.ConnectError, httpx.ConnectTimeout):
                return self._send(request, url.copy_with(host=address), pinned, client, host)
        return self._send(request, url.copy_with(host=addresses[-1]), pinned, client, host)

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            clients = list(self._clients.values())
        for client in clients:
            client.close()

    @staticmethod
    def _send(
        request: _Request, url: "URL", headers: Mapping[str, str], client: "Client", host: str | None = None
    ) -> "Response":
        content = request.content() if callable(request.content) else request.content
        message = client.build_request(
            request.method,
            url,
            headers={**request.headers, **headers},
            content=content,
            timeout=make_timeout(request.seconds),
            extensions={"sni_hostname": host} if host else None,
        )
        response = client.send(message, stream=True)
        response.request = client.build_request(request.method, request.url)  # with the host's name
        return response

    def _open_client(self, host: str, proxy: str | None) -> "Client":
        import httpx  # noqa: PLC0415 - loaded by now

        with self._lock:
            if (host, proxy) not in self._clients:
                self._context = self._context or httpx.create_ssl_context()
                transport = httpx.HTTPTransport(self._context, proxy=proxy)
                self._clients[host, proxy] = httpx.Client(transport=transport, headers=_HEADERS, trust_env=False)
            return self._clients[host, proxy]


class Session:
    """Connections to one server, for many threads. The first request opens a connection."""

    def __init__(
        self,
        url: str,
        name: str,
        advice: ErrorPolicy,
        policy: NetworkPolicy,
        *,
        authorization: str | None = None,
        authorize: Authorize | None = None,
    ) -> None:
        """Prepare the session.

        Args:
            url: The URL that the paths of the protocol are relative to.
            name: The name of the server for users.
            advice: The error policy of the server.
            policy: The network policy.
            authorization: The ``Authorization`` header, sent from the first request on, to this server only.
            authorize: Returns the header when the server sends a challenge.
        """
        self.name = name
        self.advice = advice
        self.policy = policy
        self._url = url
        self._authorize = authorize
        self._origin = find_origin(url)
        self._lock = Lock()
        self._authorization = authorization
        self._connections = _Connections(name, policy)
        weakref.finalize(self, self._connections.close)

    def close(self) -> None:
        """Close all connections."""
        self._connections.close()

    def url(self, path: str) -> str:
        """Return the URL of a path of the protocol."""
        return f"{self._url}/{path}"

    def find_location(self, response: ServerResponse, default: str) -> str:
        """Return the location in a response, or ``default`` if there is none.

        A server behind a proxy that adds a prefix to its paths does not know the prefix. So a path that begins with the
        server's own root is resolved against the URL at which the server is reached.
        """
        location = response.headers.get("Location", default)
        root, reached = f"{self.advice.root}/", f"{urlsplit(self._url).path}/"
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
        seconds: float | None = None,
    ) -> ServerResponse:
        """Send a request once, as ``ask`` does; ``seconds`` is the timeout until the response begins."""
        response = self.open(method, url, headers=headers, content=content, seconds=seconds)
        return self._read(response)

    def ask_token_service(self, url: str, headers: Mapping[str, str]) -> ServerResponse:
        """Send one GET request to the token service of the server; redirects are not followed."""
        request = _Request("GET", url, headers, None, self.policy.silence)
        return self._read(self._send(request, None, is_home=True))

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
        seconds: float | None = None,
    ) -> "Response":
        """Send a request and return the response with its body unread; the caller closes it.

        Redirects of GET and HEAD are followed.

        Raises:
            TransientError: No response, or one that asks to try later.
            InvalidInputError: The URL or a redirect is forbidden.
        """
        request = _Request(method, url, headers or {}, content, seconds or self.policy.silence)
        for _ in range(_REDIRECTS + 1):
            response = self._send_authorized(request)
            if response.status_code in _RETRIED or response.status_code >= SERVER_ERROR:
                raise _make_busy_error(response, request.url)
            if method not in ("GET", "HEAD") or not response.has_redirect_location:
                return response
            response.close()
            request = replace(request, url=urljoin(request.url, split_url(response.headers["Location"]).geturl()))
        raise UnavailableError(f"{self.name} redirects more than {_REDIRECTS} times", where=redact_url(url))

    def _send_authorized(self, request: _Request) -> "Response":
        """Send a request; answer the server's challenge, if it sends one, and repeat the request."""
        if not self.is_home(request.url):
            return self._send(request, None, is_home=False)
        previous = self._authorization
        response = self._send(request, previous, is_home=True)
        challenge = response.headers.get("WWW-Authenticate")
        if response.status_code != UNAUTHORIZED or self._authorize is None or challenge is None:
            return response
        with self._lock:
            try:
                if self._authorization == previous:
                    self._authorization = self._authorize(self, challenge)
                current = self._authorization
            except BaseException:
                response.close()
                raise
        if current == previous:  # the credentials are the same: the response is final
            return response
        response.close()
        return self._send(request, current, is_home=True)

    def _send(self, request: _Request, authorization: str | None, *, is_home: bool) -> "Response":
        if authorization is not None:
            request = replace(request, headers={**request.headers, "Authorization": authorization})
        with convert_network_errors(request.url):
            return self._connections.send(request, is_home=is_home)

    def is_home(self, url: str) -> bool:
        """Return whether ``url`` is on the server itself; credentials are sent to no other."""
        return find_origin(url) == self._origin

    def _read(self, response: "Response") -> ServerResponse:
        try:
            with convert_network_errors(str(response.url)):
                return self.answer(response, _read_body(response))
        finally:
            response.close()


def retry_attempts(attempt: Callable[[], ServerResponse]) -> ServerResponse:
    """Return the result of the first attempt without a transient error."""
    for number in range(ATTEMPTS - 1):
        try:
            return attempt()
        except TransientError:
            pause(number)
    return attempt()


def pause(failures: int) -> None:
    """Wait before the next try, longer after each failure."""
    time.sleep(PAUSES[failures])


def _make_busy_error(response: "Response", url: str) -> TransientError:
    """Make the error of a server that asks to try later, with its body if that arrives."""
    shown = redact_url(url)
    error = TransientError(f"{shown} answers {response.status_code}", where=shown, next_step="try again later")
    error.reason = f"it answers {response.status_code}"
    try:
        with suppress(UnavailableError), convert_network_errors(url):
            error.content = _read_body(response)
    finally:
        response.close()
    return error


def _read_body(response: "Response") -> bytes:
    """Read the body, which must be small."""
    content = bytearray()
    for chunk in response.iter_raw():
        content += chunk
        if len(content) > _LARGEST:
            raise UnavailableError(
                f"the response of {redact_url(str(response.url))} has more than {_LARGEST} bytes",
                where=redact_url(str(response.url)),
            )
    return bytes(content)
