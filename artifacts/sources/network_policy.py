"""The network policy of sources: allowed hosts, proxies, timeouts and retries; requests and responses."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final
from urllib.parse import SplitResult

from benchlock.artifacts.net.urls import is_loopback

LARGEST_DOWNLOAD: Final = 1 << 40  # bytes; no published model comes near, an endless answer ends there


class TransientSourceError(Exception):
    """A failure that another attempt may get rid of; its text says which. Never leaves this package.

    ``reached`` says whether there was a server that failed, or none at all.
    """

    def __init__(self, what: str, *, reached: bool = True) -> None:
        super().__init__(what)
        self.reached = reached


@dataclass(frozen=True, slots=True)
class NetworkPolicy:
    """The rules of every connection that a source makes.

    ``redirect_hosts`` may be redirected to whatever their addresses; other hosts need public ones. ``proxies`` are by
    scheme, with ``no`` for the hosts that need none, as ``urllib.request.getproxies`` has them. ``silence`` is in
    seconds, between two pieces of an answer; ``pauses``, in seconds, come before each further attempt. One download
    makes ``attempts`` requests at most, also where each brings some bytes, and takes ``longest`` seconds at most.
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
        """The proxy that a URL is asked through; none where it is asked itself, as this machine always is."""
        proxy = self.proxies.get(url.scheme) or self.proxies.get("all")
        if proxy is None or is_loopback(url.hostname or ""):
            return None
        from urllib.request import proxy_bypass  # noqa: PLC0415 - most machines have no proxy, and it loads much

        return None if proxy_bypass(url.netloc, self.proxies) else proxy

    def admits_redirect(self, host: str) -> bool:
        """Whether a redirect may lead to a host without a look at its addresses."""
        return self.private_redirects or host.lower() in self.redirect_hosts


@dataclass(frozen=True, slots=True)
class SourceRequest:
    """What is asked: a URL, what errors call it, and headers for its own server, which no redirect elsewhere gets."""

    url: str
    shown: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class SourceResponse:
    """What a server answers; ``chunks`` raise ``TransientSourceError`` where the body breaks off."""

    status: int
    reason: str
    headers: Mapping[str, str]
    chunks: Iterator[bytes]
