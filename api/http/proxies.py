"""Proxies in front of the service: what they say of who asks is believed, and what anybody else says is not."""

from collections.abc import Sequence
from ipaddress import ip_network
from typing import Any

from granian.utils.proxies import wrap_asgi_with_proxy_headers
from litestar.types import ASGIApp

from artifacts.errors import InvalidInputError


def behind(app: ASGIApp, proxies: Sequence[str]) -> Any:  # noqa: ANN401 - it ships no types
    """The application as it answers behind ``proxies``, addresses or networks of them; without any, itself.

    Who asks is then the last of ``X-Forwarded-For`` that is no such proxy, where one of them sends the request.

    Raises:
        InvalidInputError: one is no address and no network.
    """
    found = [_parsed(one) for one in proxies]
    return wrap_asgi_with_proxy_headers(app, found) if found else app


def _parsed(text: str) -> str:
    """As granian reads it; a network has a mask, even that of one address."""
    try:
        return str(ip_network(text))
    except ValueError as error:
        raise InvalidInputError(
            f"{text} is no address of a proxy, and no network: {error}",
            where=f"--proxy {text}",
            next_step="write an address such as 10.0.0.7, or a network such as 10.0.0.0/24",
        ) from error
