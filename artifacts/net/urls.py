"""URL checks: HTTPS only, no credentials in messages, and no redirects to private addresses."""

import ipaddress
import re
import socket
from typing import Final
from urllib.parse import SplitResult, urlsplit

from benchlock.artifacts.errors import InvalidInputError

UNPROXIED_PREFIXES: Final = ("http://", "https://localhost", "https://127.0.0.1", "https://[::1]")
"""URLs without a proxy, in the notation of httpx: this machine, and so all unencrypted URLs."""

_PORTS: Final = {"https": 443, "http": 80}
_USER: Final = re.compile(r"(?<=//)[^/?#]*@")
_PASSWORD: Final = re.compile(r"(?<=//)[^/?#@]*:[^/?#]*@")
_ANY_USER: Final = re.compile(r"(?<=//).*@", re.DOTALL)  # in an invalid URL, a password may contain a slash
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052: IPv4 for hosts with IPv6 only


def split_url(url: str) -> SplitResult:
    """Split a URL into its parts.

    Raises:
        InvalidInputError: The text is not a URL.
    """
    try:
        split = urlsplit(url)
        _ = split.port
    except ValueError:  # its text may contain a part of a password
        shown = redact_url(_ANY_USER.sub("", url))
        raise InvalidInputError(
            f"{shown} is no URL: its host or port is none", where=shown, next_step="correct it"
        ) from None
    return split


def check_url(url: str, *, loopback_http: bool) -> SplitResult:
    """Split a URL that bytes may be read from; ``loopback_http`` permits unencrypted HTTP on this machine.

    Raises:
        InvalidInputError: The text is not a URL, has credentials or no host, or is not encrypted.
    """
    split = split_url(url)
    shown = redact_url(url)
    if split.username is not None:
        raise InvalidInputError(
            f"{shown} holds a user name or password", where=shown, next_step="write the URL without credentials"
        )
    if not split.hostname:
        raise InvalidInputError(f"{shown} names no host", where=shown, next_step="write https://host/path")
    if split.scheme != "https" and not (loopback_http and split.scheme == "http" and is_loopback(split.hostname)):
        raise InvalidInputError(f"{shown} is no https: URL", where=shown, next_step="use https:")
    return split


def redact_url(url: str) -> str:
    """Remove credentials and the query, which may be secret, from a URL or an invalid URL."""
    return _USER.sub("", re.split("[?#]", url, maxsplit=1)[0])


def redact_password(source: str) -> str:
    """Remove a password from a source whose scheme has no users, where an @ has another meaning."""
    return _PASSWORD.sub("", source)


def find_origin(url: str) -> tuple[str, str, int]:
    """Return the origin of a URL: scheme, host and port."""
    split = split_url(url)
    return split.scheme, split.hostname or "", split.port or _PORTS.get(split.scheme, 0)


def is_address(host: str) -> bool:
    """Return whether a host is written as an IP address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, by its name or address."""
    return ipaddress.ip_address(host).is_loopback if is_address(host) else host.lower() == "localhost"


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


def addresses(host: str, port: int) -> list[str]:
    """Resolve a host to its IP addresses, in the order to try them; raise ``OSError`` if it has none."""
    entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in entries))


def refuse_private(ip_addresses: list[str], host: str, start: str) -> None:
    """Raise unless all addresses of the host of a redirect are public.

    A server could otherwise send the client to addresses that the server itself cannot reach.

    Raises:
        InvalidInputError: An address is not public.
    """
    for address in ip_addresses:
        if not is_public(address):
            raise InvalidInputError(
                f"{start} redirects to {host}, whose address {address} is not public",
                where=start,
                next_step="admit the host, if you know it: BENCHLOCK_REDIRECT_HOSTS",
            )


def _is_public(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return ip.is_global and not ip.is_multicast and not ip.is_reserved
