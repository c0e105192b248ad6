"""Proxies in front of the service: what they say of who asks is believed, and what anybody else says is not."""

from collections.abc import Sequence
from ipaddress import IPv6Network, ip_network
from typing import Any, Final

from granian.utils.proxies import wrap_asgi_with_proxy_headers
from litestar.types import ASGIApp

from benchlock.artifacts.errors import InvalidInputError

_MAPPED_BITS: Final = 96
"""Of an IPv6 address that stands for one of IPv4, those before it."""


def behind(app: ASGIApp, proxies: Sequence[str]) -> Any:  # noqa: ANN401 - it ships no types
    """The application as it answers behind ``proxies``, addresses or networks of them; without any, itself.

    Who asks is then the last of ``X-Forwarded-For`` that is no such proxy, where one of them sends the request.

    Raises:
        InvalidInputError: one is no address and no network.
    """
    found = [form for one in proxies for form in _forms(one)]
    return wrap_asgi_with_proxy_headers(app, found) if found else app


def _forms(text: str) -> tuple[str, ...]:
    """The network as granian reads it; one of IPv4 also as a socket for both kinds of addresses names it."""
    try:
        network = ip_network(text)
    except ValueError as error:
        raise InvalidInputError(
            f"{text} is no address of a proxy, and no network: {error}",
            where=f"--proxy {text}",
            next_step="write an address such as 10.0.0.7, or a network such as 10.0.0.0/24",
        ) from error
    if isinstance(network, IPv6Network):
        return (str(network),)
    return str(network), f"::ffff:{network.network_address}/{_MAPPED_BITS + network.prefixlen}"
