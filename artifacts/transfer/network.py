"""Connections to a registry: the one module of this package that knows httpx, loaded when the first one is made.

A connection is encrypted, but for one to this machine where the caller admits that. No redirect is followed here, and
no content encoding undone: what arrives is what was sent.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from benchlock.artifacts.errors import InvalidInputError, UnavailableError
from benchlock.artifacts.urls import DIRECT, addresses, refuse_private, shown_url

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


def connect(public_but: frozenset[str] | None = None) -> "Client":
    """A pool of connections for many threads, to be closed by the caller.

    Proxies are those of the environment, but none is asked for this machine: what is not encrypted stays here.
    ``public_but`` is for who asks for strangers: every connection, wherever it is sent on to, is made to an address
    that was looked at and is public, but for those to the hosts of that set.
    """
    import httpx  # noqa: PLC0415 - heavy; most commands need no network

    timeout = httpx.Timeout(SILENCE_SECONDS, connect=_CONNECT_SECONDS)
    headers = {"Accept-Encoding": "identity", "User-Agent": "benchlock"}
    transport = None if public_but is None else _to_public_addresses(public_but)
    return httpx.Client(timeout=timeout, headers=headers, mounts=dict.fromkeys(DIRECT), transport=transport)


def _to_public_addresses(but: frozenset[str]) -> "BaseTransport":
    """Connections to addresses that were looked at, so that no name means another one a moment later."""
    import httpx  # noqa: PLC0415 - loaded by now

    class Public(httpx.HTTPTransport):
        def handle_request(self, request: httpx.Request) -> httpx.Response:
            host = request.url.host
            if host.lower() in but:
                return super().handle_request(request)
            found = addresses(host, request.url.port or 443)
            refuse_private(found, host, shown_url(str(request.url)))
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


def patience(seconds: float) -> tuple[float, float, float, float]:
    """``seconds`` for the answer to begin; for all before it no more than that, and no more than otherwise."""
    before = min(SILENCE_SECONDS, seconds)
    return min(_CONNECT_SECONDS, seconds), seconds, before, before


def _is_refused(reason: str) -> bool:
    return "refused" in reason.lower()


@contextmanager
def network(url: str) -> Iterator[None]:
    """Turns what the network refuses into errors that name the URL."""
    import httpx  # noqa: PLC0415 - loaded by now

    try:
        yield
    except httpx.InvalidURL as error:
        shown = shown_url(url)
        raise InvalidInputError(f"{shown} is no URL: {error}", where=shown, next_step="correct it") from error
    except (httpx.HTTPError, OSError) as error:
        shown = shown_url(url)
        reason = str(error) or type(error).__name__
        for sign, step in _LASTING.items():
            if sign in reason:
                raise UnavailableError(f"{shown} cannot be reached: {reason}", where=shown, next_step=step) from error
        raise TransientError(
            f"{shown} cannot be reached: {reason}",
            where=shown,
            next_step=_UNLISTENED if _is_refused(reason) else _AGAIN,
        ) from error
