"""How a registry on a server is written: ``https://HOST[:PORT][/PREFIX]``; ``http://`` on this machine alone."""

from dataclasses import dataclass

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.urls import check_url, shown_url

VERSION = "v1"


@dataclass(frozen=True, slots=True)
class Server:
    """A server; ``base`` is what a person writes. ``plain`` is without TLS, on this machine."""

    base: str
    plain: bool = False

    def __str__(self) -> str:
        return self.base

    @property
    def url(self) -> str:
        """Where the paths of the protocol's version that is spoken here begin."""
        return f"{self.base}/{VERSION}"


def parse_server(text: str) -> Server:
    """The server that ``text`` spells.

    Raises:
        InvalidInputError: it is no URL, has credentials, or an unencrypted host that is not this machine.
    """
    split = check_url(text, loopback_http=True)
    if split.query or split.fragment:
        shown = shown_url(text)
        raise InvalidInputError(f"{shown} is followed by what names no server", where=shown, next_step=f"write {shown}")
    return Server(text.rstrip("/"), plain=split.scheme == "http")
