"""The connection of a request: granian hands no socket out, and keeps one open that an answer was cut on."""

import os
import socket
import stat
from contextlib import closing
from contextvars import ContextVar
from typing import Any, Final

from litestar.types import ASGIApp, Receive, Scope, Send

_DESCRIPTORS: Final = "/dev/fd"

Address = tuple[str, str]

ENDS: Final = ContextVar[tuple[Address, Address] | None]("ENDS", default=None)
"""The server's and the client's address of the connection that the request came over, a proxy's where one is between"""


def track_connection(app: ASGIApp) -> ASGIApp:
    """Wrap ``app`` so that ``close_connection`` works while it handles a request."""

    async def tracked(scope: Scope, receive: Receive, send: Send) -> None:
        ENDS.set((_address(scope.get("server")), _address(scope.get("client"))))
        await app(scope, receive, send)

    return tracked


def close_connection() -> bool:
    """Shut down the connection of the request, so that what was not sent on it is freed. Return whether it was found.

    The server's core notices as if the client had closed it.
    """
    ends = ENDS.get()
    if ends is None:
        return False
    for name in os.listdir(_DESCRIPTORS):  # noqa: PTH208 - numbers alone
        found = _socket(int(name))
        if found is None:
            continue
        with closing(found):
            try:
                if (_address(found.getsockname()), _address(found.getpeername())) == ends:
                    found.shutdown(socket.SHUT_RDWR)
                    return True
            except OSError:  # it listens, or is over
                continue
    return False


def _socket(descriptor: int) -> socket.socket | None:
    """Return another descriptor of the same socket; ``None`` where it is no socket, or closed meanwhile."""
    try:
        if not stat.S_ISSOCK(os.fstat(descriptor).st_mode):
            return None
        other = os.dup(descriptor)
    except OSError:
        return None
    try:
        return socket.socket(fileno=other)
    except OSError:
        os.close(other)
        return None


def _address(given: Any) -> Address:  # noqa: ANN401 - of ASGI, or of a socket of any family
    host, port = given[:2] if isinstance(given, tuple) and len(given) > 1 else ("", "")
    return str(host), str(port)
