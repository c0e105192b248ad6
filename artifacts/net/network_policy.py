"""The network policy: permitted addresses, proxies, timeouts and retries of every connection."""

import ipaddress
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import SplitResult

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.net.urls import is_loopback

LARGEST_DOWNLOAD: Final = 1 << 40  # bytes; ends endless responses, far above the largest models
SILENCE_SECONDS: Final = 60.0
PAUSES: Final = (0.2, 0.4, 0.8, 1.6)
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052: IPv4 for hosts with IPv6 only


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """The rules of all connections to one server, token services and redirects included.

    The server may have any address. It may redirect to hosts whose addresses are all public.

    Attributes:
        loopback_http: Permit unencrypted HTTP on this machine.
        public_only: The server and its token service need public addresses too.
        private_redirects: Redirects may lead to private addresses of any host.
        redirect_hosts: Hosts that need no public address, in lower case.
        host_advice: The next step for a host with a private address.
        proxies: Proxies by scheme, and exceptions under ``no``; ``None`` for those of the environment.
        silence: Seconds between two chunks of a response at most.
        pauses: Seconds before each further attempt without any new bytes.
        attempts: Requests of one download in a row that make little progress, at most.
        longest: Seconds of one download at most.
    """

    loopback_http: bool = False
    public_only: bool = False
    private_redirects: bool = False
    redirect_hosts: frozenset[str] = frozenset()
    host_advice: str = "fix the server's redirect: it must lead to public addresses"
    proxies: Mapping[str, str] | None = None
    silence: float = SILENCE_SECONDS
    pauses: tuple[float, ...] = PAUSES
    attempts: int = 20
    longest: float = 24 * 3600.0

    def find_proxy(self, url: SplitResult) -> str | None:
        """Return the proxy for a URL, or ``None`` for a direct connection, as to this machine."""
        if is_loopback(url.hostname or ""):
            return None
        from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415 - they load what only connections need

        proxies = getproxies() if self.proxies is None else self.proxies
        proxy = proxies.get(url.scheme) or proxies.get("all")
        if not proxy or proxy_bypass(url.netloc, proxies):
            return None
        return proxy if "://" in proxy else f"http://{proxy}"

    def find_addresses(self, host: str, port: int, server: str, *, is_home: bool, is_proxied: bool) -> tuple[str, ...]:
        """Return the checked addresses to connect to, in the order to try them; none if the host may have any.

        A connection must use one of these addresses: a second lookup of the name could give another one.

        Args:
            host: The host of the request.
            port: Its port.
            server: The name of the server in error messages.
            is_home: Whether the host is the server itself or its token service, not that of a redirect.
            is_proxied: Whether a proxy connects to the host. A redirect to a host that is known to the proxy only is
                permitted, except with ``public_only``.

        Raises:
            InvalidInputError: An address is not public. The client could otherwise be sent to addresses that the
                server itself cannot reach.
            OSError: The host has no address here.
        """
        is_exempt = not self.public_only if is_home else self.private_redirects
        if is_exempt or host.lower() in self.redirect_hosts:
            return ()
        try:
            addresses = find_addresses(host, port)
        except OSError:
            if not is_proxied or self.public_only:
                raise
            return ()  # a name that is known to the proxy only
        for address in addresses:
            if not is_public(address):
                fault = "has the address" if is_home else f"redirects to {host}, at the address"
                raise InvalidInputError(
                    f"{server} {fault} {address}, which is not public", where=server, next_step=self.host_advice
                )
        return () if is_proxied else tuple(addresses)


def find_addresses(host: str, port: int) -> list[str]:
    """Resolve a host to its IP addresses, in the order to try them; raise ``OSError`` if it has none."""
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in entries))


def is_public(address: str) -> bool:
    """Return whether an IP address belongs to the public internet.

    Private, loopback, link-local (cloud metadata included), shared, multicast and reserved addresses do not. For an
    address that embeds an IPv4 address (mapped, NAT64, 6to4, Teredo), that address must be public too.
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv4Address):
        return _is_public(ip)
    if ip.ipv4_mapped:
        return _is_public(ip.ipv4_mapped)
    if ip in _NAT64:
        return _is_public(ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF))
    inner = [ip.sixtofour] if ip.sixtofour else list(ip.teredo or ())
    return not ip.is_site_local and _is_public(ip) and all(_is_public(embedded) for embedded in inner)


def _is_public(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return ip.is_global and not ip.is_multicast and not ip.is_reserved
