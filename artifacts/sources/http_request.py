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
_UNREACHABLE: Final = (httpx.ConnectError, httpx.ConnectTimeout, httpx.ProxyError)


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
        own_headers = request.headers if find_origin(url) == start else {}
        with ExitStack() as stack:
            response = _send(request, url, network, dict(headers) | dict(own_headers), (context, stack))
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
    resources: tuple[ssl.SSLContext, ExitStack],
) -> httpx.Response:
    """Send a request to a checked address of one server; the certificate is checked against the host name."""
    split = check_url(url, loopback_http=network.loopback_http)
    proxy, (context, stack) = network.proxy(split), resources
    with _convert_failures(request.shown):
        parsed_url = httpx.URL(url)
        host = parsed_url.raw_host.decode("ascii")
        ip_addresses = [host] if proxy else addresses(host, find_origin(url)[2])
    is_exempt = find_origin(url) == find_origin(request.url) or network.admits_redirect(host)
    if not is_exempt and (not proxy or is_address(host)):  # a proxy resolves names itself
        refuse_private(ip_addresses, host, request.shown)
    for address in ip_addresses:
        client = stack.enter_context(_client(context, proxy, network))
        pinned_request = client.build_request(
            "GET",
            parsed_url.copy_with(host=address),
            headers=dict(headers) | {"Host": parsed_url.netloc.decode("ascii")},
            extensions={"sni_hostname": host},
        )
        try:
            with _convert_failures(request.shown):
                response = client.send(pinned_request, stream=True)
        except (TransientSourceError, UnavailableError):
            if address == ip_addresses[-1]:
                raise
        else:
            stack.callback(response.close)
            return response
    raise TransientSourceError(f"{host} has no address", reached=False)


def _client(context: ssl.SSLContext, proxy: str | None, network: NetworkPolicy) -> httpx.Client:
    timeout = httpx.Timeout(network.silence, connect=_CONNECT_SECONDS)
    return httpx.Client(transport=httpx.HTTPTransport(context, proxy=proxy), timeout=timeout, trust_env=False)


def _chunks(response: httpx.Response, shown: str) -> Iterator[bytes]:
    with _convert_failures(shown):
        yield from response.iter_raw()  # unbuffered: a broken connection would lose the buffer


@contextmanager
def _convert_failures(shown: str) -> Iterator[None]:
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
        reached = isinstance(error, httpx.HTTPError) and not isinstance(error, _UNREACHABLE)
        raise TransientSourceError(reason, reached=reached) from error
