"""The network policy of sources: allowed hosts, proxies, timeouts and retries; requests and responses."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult

from benchlock.artifacts.net.urls import is_loopback

LARGEST_DOWNLOAD: Final = 1 << 40  # bytes; ends endless responses, far above the largest models


class TransientSourceError(Exception):
    """A failure that another attempt may avoid; it never leaves this package.

    ``reached`` says whether a server was reached.
    """

    def __init__(self, what: str, *, reached: bool = True) -> None:
        """Set the message and whether a server was reached."""
        super().__init__(what)
        self.reached = reached


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """The rules of every connection that a source opens.

    Attributes:
        loopback_http: Permit unencrypted HTTP on this machine.
        redirect_hosts: Hosts that may be redirected to whatever their addresses; others need public ones.
        private_redirects: Permit redirects to private addresses of any host.
        proxies: Proxies by scheme, and exceptions under ``no``, as from ``urllib.request.getproxies``.
        silence: Seconds between two chunks of a response at most.
        pauses: Seconds before each further attempt.
        attempts: Requests of one download at most, successful ones included.
        longest: Seconds of one download at most.
    """

    loopback_http: bool = False
    redirect_hosts: frozenset[str] = frozenset()
    private_redirects: bool = False
    proxies: Mapping[str, str] = field(default_factory=dict)
    silence: float = 60.0
    pauses: tuple[float, ...] = (0.5, 1.0, 2.0, 4.0)
    attempts: int = 20
    longest: float = 24 * 3600.0

    def proxy(self, url: SplitResult) -> str | None:
        """Return the proxy for a URL, or ``None`` for a direct connection, as to this machine."""
        proxy = self.proxies.get(url.scheme) or self.proxies.get("all")
        if proxy is None or is_loopback(url.hostname or ""):
            return None
        from urllib.request import proxy_bypass  # noqa: PLC0415 - most machines have no proxy, and it loads much

        return None if proxy_bypass(url.netloc, self.proxies) else proxy

    def admits_redirect(self, host: str) -> bool:
        """Return whether a redirect to a host needs no check of its addresses."""
        return self.private_redirects or host.lower() in self.redirect_hosts


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """A URL, its name in errors, and headers for its own server, which are not sent to other hosts."""

    url: str
    shown: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class SourceResponse:
    """A response; ``chunks`` raise ``TransientSourceError`` when the connection breaks."""

    status: int
    reason: str
    headers: Mapping[str, str]
    chunks: Iterator[bytes]
