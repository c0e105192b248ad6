"""The server process: granian, its listening socket, trusted proxies and shutdown by signal."""

import asyncio
import errno
import logging
import math
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from ipaddress import IPv6Network, ip_network
from typing import Any, Final

import uvloop
from granian._granian import SocketHolder
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server
from granian.utils.proxies import wrap_asgi_with_proxy_headers
from litestar import Litestar
from litestar.types import ASGIApp

from benchlock.api.http.middleware import track_connection
from benchlock.api.http.service_settings import MAX_HEADER_BYTES
from benchlock.api.service_log import log
from benchlock.artifacts.errors import InvalidInputError, UnavailableError

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
        raise _listen_error(f"nothing is known of the address {host}: {error.strerror}", host) from error
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
        raise _listen_error(
            f"port {port} of {host} cannot be listened at: {os.strerror(error.errno or 0)}", host
        ) from (error)
    return found


class SocketServer(Server):
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


def _listen_error(what: str, host: str) -> UnavailableError:
    return UnavailableError(what, where=f"--host {host}", next_step="choose another --host or --port")


_MAPPED_BITS: Final = 96
"""Of an IPv6 address that stands for one of IPv4, those before it."""


def trust_proxies(app: ASGIApp, proxies: Sequence[str]) -> Any:  # noqa: ANN401 - it ships no types
    """The application as it answers behind ``proxies``, addresses or networks of them; without any, itself.

    Who asks is then the last of ``X-Forwarded-For`` that is no such proxy, where one of them sends the request.

    Raises:
        InvalidInputError: one is no address and no network.
    """
    found = [form for one in proxies for form in _network_forms(one)]
    return wrap_asgi_with_proxy_headers(app, found) if found else app


def _network_forms(text: str) -> tuple[str, ...]:
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


HEAD_MS: Final = 10_000
"""Milliseconds in which the head of a request must have come."""
CONNECTIONS: Final = 1024
"""Connections that are served at once; the others wait until one is closed, as an idle one is when no head comes."""
_DIGITS: Final = 640
"""Digits of a whole number that is read: nothing else runs while more are read, for 0.1 ms with 4,300."""
_FILES: Final = 4096
"""Files and connections that the process may have open, where the system lets it."""
_MORE_SECONDS: Final = 5
"""For what is cut when nothing may go on any longer."""


def serve(app: Litestar, host: str, port: int, listening: Callable[[], None], proxies: Sequence[str] = ()) -> None:
    """Serve ``app`` until the process is told to end; ``listening`` is called once it is reached.

    The process exits with 1 where something was still going on when its time was over.

    ``proxies`` are those in front of it, as ``behind`` takes them.

    Raises:
        UnavailableError: another process listens there, or nobody can.
        InvalidInputError: of ``proxies``.
    """
    asked = track_connection(trust_proxies(app, proxies))
    found = listen(host, port)
    _open_more()
    sys.set_int_max_str_digits(_DIGITS)
    uvloop.run(_serve(app, asked, found, listening))
    service = app.state.service
    # The interpreter would wait for its threads, hours where they read everything.
    busy = any(one.is_busy for one in service.works)
    if not busy and not service.grace.cut:
        return
    log.warning(
        "stopped before all requests were done, as if the machine had failed",
        extra={"fields": {"cut": service.grace.cut, "threads_busy": busy}},
    )
    if busy:
        logging.shutdown()
        os._exit(1)
    raise SystemExit(1)


def _open_more() -> None:
    now, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _FILES if most == resource.RLIM_INFINITY else min(_FILES, most)
    if now not in (resource.RLIM_INFINITY, wanted) and now < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, most))


async def _serve(app: Litestar, asked: ASGIApp, found: socket.socket, listening: Callable[[], None]) -> None:
    server = SocketServer(
        asked,
        interface=Interfaces.ASGI,
        http=HTTPModes.http1,
        websockets=False,
        backpressure=CONNECTIONS,
        http1_settings=HTTP1Settings(header_read_timeout=HEAD_MS, max_buffer_size=MAX_HEADER_BYTES),
        log_enabled=False,
    )
    server.listens_with(found)
    server.workers_kill_timeout = math.ceil(app.state.service.settings.last_seconds) + _MORE_SECONDS

    def end() -> None:
        app.state.service.ending.set()
        app.state.service.grace.begin()
        server.stop()  # type: ignore[no-untyped-call] # it ships no types

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    loop.call_soon(listening)
    try:
        await server.serve()
    except TimeoutError:  # something goes on beyond that: an answer that nobody takes
        # Granian tells tasks that are cancelled by then that they may end, and each would be a fault in the log.
        loop.set_exception_handler(lambda *_: None)
