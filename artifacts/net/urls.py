"""URL checks: HTTPS only, no credentials in messages, and no redirects to private addresses."""

import ipaddress
import re
import socket
from typing import Final
from urllib.parse import SplitResult, urlsplit

from benchlock.artifacts.errors import InvalidInputError

UNPROXIED_PREFIXES: Final = ("http://", "https://localhost", "https://127.0.0.1", "https://[::1]")
"""What no proxy is asked for, as httpx writes it: this machine, and so all that may be unencrypted."""

_PORTS: Final = {"https": 443, "http": 80}
_USER: Final = re.compile(r"(?<=//)[^/?#]*@")
_PASSWORD: Final = re.compile(r"(?<=//)[^/?#@]*:[^/?#]*@")
_ANY_USER: Final = re.compile(r"(?<=//).*@", re.DOTALL)  # in what is no URL, a password may hold a slash
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")  # RFC 6052: IPv4 for hosts that have IPv6 alone


def split_url(url: str) -> SplitResult:
    """The parts of a URL.

    Raises:
        InvalidInputError: it is none.
    """
    try:
        split = urlsplit(url)
        _ = split.port
    except ValueError:  # whose text may be a part of a password
        shown = redact_url(_ANY_USER.sub("", url))
        raise InvalidInputError(
            f"{shown} is no URL: its host or port is none", where=shown, next_step="correct it"
        ) from None
    return split


def check_url(url: str, *, loopback_http: bool) -> SplitResult:
    """The parts of a URL that bytes may be read from; ``loopback_http`` admits unencrypted HTTP on this machine.

    Raises:
        InvalidInputError: it is no URL, has credentials or no host, or would not be encrypted.
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
    """The URL, or what is none, without what may be secret: credentials and the query."""
    return _USER.sub("", re.split("[?#]", url, maxsplit=1)[0])


def redact_password(source: str) -> str:
    """A source of a scheme that has no users, where an @ means something else, without what looks like a password."""
    return _PASSWORD.sub("", source)


def find_origin(url: str) -> tuple[str, str, int]:
    """Who answers for a URL: scheme, host and port."""
    split = split_url(url)
    return split.scheme, split.hostname or "", split.port or _PORTS.get(split.scheme, 0)


def is_address(host: str) -> bool:
    """Whether a host is written as an IP address."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by its name or address."""
    return ipaddress.ip_address(host).is_loopback if is_address(host) else host.lower() == "localhost"


def is_public(address: str) -> bool:
    """Whether an IP address is one of the public internet.

    Not private, loopback, link-local (cloud metadata among it), shared, multicast or reserved; an address that stands
    for an IPv4 one (mapped, NAT64, 6to4, Teredo) is judged by that one too.
    """
    ip = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(ip, ipaddress.IPv4Address):
        return _is_public(ip)
    if ip.ipv4_mapped:
        return _is_public(ip.ipv4_mapped)
    if ip in _NAT64:
        return _is_public(ipaddress.IPv4Address(int(ip) & 0xFFFF_FFFF))
    inner = [ip.sixtofour] if ip.sixtofour else list(ip.teredo or ())
    return not ip.is_site_local and _is_public(ip) and all(_is_public(one) for one in inner)


def addresses(host: str, port: int) -> list[str]:
    """The IP addresses of a host, in the order in which to try them. ``OSError`` where it has none."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def refuse_private(found: list[str], host: str, start: str) -> None:
    """Nothing, where all the addresses of a host that a redirect leads to are public.

    Raises:
        InvalidInputError: one is not: a server sends somebody to where it may not be able to go itself.
    """
    for address in found:
        if not is_public(address):
            raise InvalidInputError(
                f"{start} redirects to {host}, whose address {address} is not public",
                where=start,
                next_step="admit the host, if you know it: BENCHLOCK_REDIRECT_HOSTS",
            )


def _is_public(ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return ip.is_global and not ip.is_multicast and not ip.is_reserved
