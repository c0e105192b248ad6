"""Connections to a registry: the one module of this package that knows httpx, loaded when the first one is made.

A connection is encrypted, but for one to this machine where the caller admits that. No redirect is followed here, and
no content encoding undone: what arrives is what was sent.
"""

import ipaddress
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

from artifacts.errors import InvalidInputError, UnavailableError

if TYPE_CHECKING:
    from httpx import Client as Client  # noqa: PLC0414 - named so, others may take it from here
    from httpx import Response as Response  # noqa: PLC0414

_CONNECT_SECONDS = 15.0
_SILENCE_SECONDS = 60.0  # between two pieces of an answer


class TransientError(UnavailableError):
    """What another try may not meet again: no connection, no answer in time, one that breaks off, a busy server."""


def connect() -> "Client":
    """A pool of connections for many threads, to be closed by the caller."""
    import httpx  # noqa: PLC0415 - heavy; most commands need no network

    timeout = httpx.Timeout(_SILENCE_SECONDS, connect=_CONNECT_SECONDS)
    return httpx.Client(timeout=timeout, headers={"Accept-Encoding": "identity", "User-Agent": "benchlock"})


@contextmanager
def network(url: str) -> Iterator[None]:
    """Turns what the network refuses into errors that name the URL."""
    import httpx  # noqa: PLC0415 - loaded by now

    try:
        yield
    except httpx.InvalidURL as error:
        shown = show(url)
        raise InvalidInputError(f"{shown} is no URL: {error}", where=shown, next_step="correct it") from error
    except (httpx.HTTPError, OSError) as error:
        shown = show(url)
        reason = str(error) or type(error).__name__
        raise TransientError(
            f"{shown} cannot be reached: {reason}", where=shown, next_step="look at the network and try again"
        ) from error


def split_url(url: str) -> SplitResult:
    """The parts of a URL.

    Raises:
        InvalidInputError: it has none.
    """
    try:
        split = urlsplit(url)
        _ = split.port
    except ValueError as error:
        raise InvalidInputError(f"{url} is no URL: {error}", where=url, next_step="correct it") from error
    return split


def check_url(url: str, *, loopback_http: bool) -> None:
    """Nothing, if a connection to ``url`` may be made; ``loopback_http`` admits unencrypted ones to this machine.

    Raises:
        InvalidInputError: it names no host, is not encrypted, or holds credentials.
    """
    split = split_url(url)
    shown = show(url)
    if split.username is not None:
        raise InvalidInputError(
            f"{shown} holds a user name or password", where=shown, next_step="write the URL without credentials"
        )
    if not split.hostname:
        raise InvalidInputError(f"{shown} names no host", where=shown, next_step="write https://host/path")
    if split.scheme != "https" and not (loopback_http and split.scheme == "http" and is_loopback(split.hostname)):
        raise InvalidInputError(f"{shown} is no https: URL", where=shown, next_step="use https:")


def is_loopback(host: str) -> bool:
    """Whether ``host``, a name or an address, is this machine for certain."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def show(url: str) -> str:
    """The URL without what may be secret: credentials and the query."""
    split = urlsplit(url)
    return split._replace(netloc=split.netloc.rpartition("@")[2], query="", fragment="").geturl()
