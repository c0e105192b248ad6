"""The address that a service listens at: it is its own, and no other process answers there."""

import errno
import os
import socket
from typing import Any, Final

from granian._granian import SocketHolder
from granian.server.embed import Server

from benchlock.artifacts.errors import UnavailableError

_NOTSENT_LOWAT: Final = getattr(socket, "TCP_NOTSENT_LOWAT", 25)  # of Linux; named since Python 3.12
_BACKLOG: Final = 128
_UNSENT: Final = 256 << 10
"""Bytes of an answer that the system holds for a connection beyond those on their way: it is memory of the service."""
_STALLED_MS: Final = 60_000
"""Milliseconds after which a connection is ended whose client takes nothing of what is sent."""


def listen(host: str, port: int) -> socket.socket:
    """What listens at that address from now on.

    It is shared with nobody (no SO_REUSEPORT): of two that want it, the system lets one have it.

    Raises:
        UnavailableError: another process has it, or there is no such address here.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise _unavailable(f"nothing is known of the address {host}: {error.strerror}", host) from error
    found = socket.socket(family, kind, protocol)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of one that ended are in nobody's way
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found.setsockopt(socket.IPPROTO_TCP, _NOTSENT_LOWAT, _UNSENT)
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _STALLED_MS)  # connections inherit it
        found.bind(address)
        found.listen(_BACKLOG)
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRINUSE:
            raise UnavailableError(
                f"port {port} of {host} is in use: another process listens there",
                where=f"--port {port}",
                next_step="choose another --port, or end that process",
            ) from error
        raise _unavailable(f"port {port} of {host} cannot be listened at: {os.strerror(error.errno or 0)}", host) from (
            error
        )
    return found


class OwnServer(Server):
    """Granian's server over what listens already; what it makes itself shares its port with others (SO_REUSEPORT)."""

    def listens_with(self, found: socket.socket) -> None:
        """Take ``found`` over: it is closed with the server."""
        self._found = found

    def _init_shared_socket(self) -> None:
        # Its stubs know neither the arguments nor that there may be one.
        holder: Any = SocketHolder
        self._ssp: Any = None
        self._shd: Any = holder(self._found.detach(), False, _BACKLOG)
        self._sfd = self._shd.get_fd()


def _unavailable(what: str, host: str) -> UnavailableError:
    return UnavailableError(what, where=f"--host {host}", next_step="choose another --host or --port")
