"""One GET request of a source, with redirects to checked addresses; the only source module that loads httpx."""

import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Final
from urllib.parse import urljoin

import httpx

from benchlock.artifacts.errors import InvalidInputError, UnavailableError
from benchlock.artifacts.net.urls import addresses, check_url, find_origin, is_address, refuse_private, split_url
from benchlock.artifacts.sources.network_policy import (
    NetworkPolicy,
    SourceRequest,
    SourceResponse,
    TransientSourceError,
)

_REDIRECTS: Final = 10
_CONNECT_SECONDS: Final = 15.0
_NOBODY: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError)


@contextmanager
def send_request(
    request: SourceRequest, network: NetworkPolicy, headers: Mapping[str, str]
) -> Iterator[SourceResponse]:
    """Send a GET request, follow redirects, and yield the last response.

    Raises:
        InvalidInputError: A URL or a redirect is forbidden.
        UnavailableError: A certificate is not trusted, or there are too many redirects.
        TransientSourceError: An error that another attempt may avoid.
    """
    url, start = request.url, find_origin(request.url)
    context = httpx.create_ssl_context()
    for _ in range(_REDIRECTS + 1):
        own = request.headers if find_origin(url) == start else {}
        with ExitStack() as opened:
            response = _send(request, url, network, dict(headers) | dict(own), (context, opened))
            if not response.has_redirect_location:
                chunks = _chunks(response, request.shown)
                yield SourceResponse(response.status_code, response.reason_phrase, response.headers, chunks)
                return
            url = urljoin(url, split_url(response.headers["Location"]).geturl())
    raise UnavailableError(f"{request.shown} redirects more than {_REDIRECTS} times", where=request.shown)


def _send(
    request: SourceRequest,
    url: str,
    network: NetworkPolicy,
    headers: Mapping[str, str],
    means: tuple[ssl.SSLContext, ExitStack],
) -> httpx.Response:
    """Send a request to a checked address of one server; the certificate is checked against the host name."""
    split = check_url(url, loopback_http=network.loopback_http)
    proxy, (context, opened) = network.proxy(split), means
    with _failures_named(request.shown):
        asked = httpx.URL(url)
        host = asked.raw_host.decode("ascii")
        found = [host] if proxy else addresses(host, find_origin(url)[2])
    named = find_origin(url) == find_origin(request.url) or network.admits_redirect(host)
    if not named and (not proxy or is_address(host)):  # a proxy resolves names itself
        refuse_private(found, host, request.shown)
    for address in found:
        client = opened.enter_context(_client(context, proxy, network))
        question = client.build_request(
            "GET",
            asked.copy_with(host=address),
            headers=dict(headers) | {"Host": asked.netloc.decode("ascii")},
            extensions={"sni_hostname": host},
        )
        try:
            with _failures_named(request.shown):
                response = client.send(question, stream=True)
        except (TransientSourceError, UnavailableError):
            if address == found[-1]:
                raise
        else:
            opened.callback(response.close)
            return response
    raise TransientSourceError(f"{host} has no address", reached=False)


def _client(context: ssl.SSLContext, proxy: str | None, network: NetworkPolicy) -> httpx.Client:
    timeout = httpx.Timeout(network.silence, connect=_CONNECT_SECONDS)
    return httpx.Client(transport=httpx.HTTPTransport(context, proxy=proxy), timeout=timeout, trust_env=False)


def _chunks(response: httpx.Response, shown: str) -> Iterator[bytes]:
    with _failures_named(shown):
        yield from response.iter_raw()  # unbuffered: a broken connection would lose the buffer


@contextmanager
def _failures_named(shown: str) -> Iterator[None]:
    """Convert errors of the network into errors that name the source."""
    try:
        yield
    except httpx.InvalidURL as error:
        raise InvalidInputError(f"{shown} is no URL: {error}", where=shown, next_step="correct it") from error
    except (httpx.HTTPError, OSError) as error:
        reason = str(error) or type(error).__name__
        if "CERTIFICATE_VERIFY_FAILED" in reason:
            raise UnavailableError(
                f"{shown} cannot be read: {reason}",
                where=shown,
                next_step="have the server's certificate renewed, or name its authority with SSL_CERT_FILE",
            ) from error
        reached = isinstance(error, httpx.HTTPError) and not isinstance(error, _NOBODY)
        raise TransientSourceError(reason, reached=reached) from error
