"""The server process: granian, its listening socket, trusted proxies and shutdown by signal."""

import asyncio
import errno
import gc
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

_NOTSENT_LOWAT: Final = getattr(socket, "TCP_NOTSENT_LOWAT", 25)  # Linux; named since Python 3.12
_BACKLOG: Final = 128
_UNSENT: Final = 256 << 10
"""Maximum unsent bytes of a response in the kernel, per connection; they count as memory of the service."""
_STALL_TIMEOUT_MS: Final = 60_000
"""Milliseconds after which a connection is closed if the client acknowledges nothing."""


def listen(host: str, port: int) -> socket.socket:
    """Open a socket that listens at an address.

    It is exclusive (no SO_REUSEPORT): of two processes with the same address, one gets it.

    Raises:
        UnavailableError: Another process listens there, or this host has no such address.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise _listen_error(f"cannot resolve the address {host}: {error.strerror}", host) from error
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # connections of an ended process do not block the port
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        listener.setsockopt(socket.IPPROTO_TCP, _NOTSENT_LOWAT, _UNSENT)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, _STALL_TIMEOUT_MS)  # inherited by connections
        listener.bind(address)
        listener.listen(_BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise UnavailableError(
                f"port {port} of {host} is in use by another process",
                where=f"--port {port}",
                next_step="choose another --port, or stop that process",
            ) from error
        raise _listen_error(f"port {port} of {host} cannot be opened: {os.strerror(error.errno or 0)}", host) from (
            error
        )
    return listener


class SocketServer(Server):
    """A granian server over an open socket; granian's own sockets would share the port (SO_REUSEPORT)."""

    def take_socket(self, listener: socket.socket) -> None:
        """Take over the socket ``listener``, which is closed with the server."""
        self._listener = listener

    def _init_shared_socket(self) -> None:
        # Granian's stubs lack these arguments and attributes.
        holder: Any = SocketHolder
        self._ssp: Any = None
        self._shd: Any = holder(self._listener.detach(), False, _BACKLOG)
        self._sfd = self._shd.get_fd()


def _listen_error(what: str, host: str) -> UnavailableError:
    return UnavailableError(what, where=f"--host {host}", next_step="choose another --host or --port")


_MAPPED_BITS: Final = 96
"""Bits before the IPv4 address in an IPv4-mapped IPv6 address."""


def trust_proxies(app: ASGIApp, proxies: Sequence[str]) -> Any:  # noqa: ANN401 - granian ships no types
    """Wrap ``app`` to trust ``X-Forwarded-For`` of ``proxies``, addresses or networks; without any, return ``app``.

    The client's address is then the last one in the header that is not a trusted proxy.

    Raises:
        InvalidInputError: One is neither an address nor a network.
    """
    networks = [form for proxy in proxies for form in _network_forms(proxy)]
    return wrap_asgi_with_proxy_headers(app, networks) if networks else app


def _network_forms(text: str) -> tuple[str, ...]:
    """Return the network in granian's syntax; an IPv4 network also as IPv4-mapped IPv6, as on a dual-stack socket."""
    try:
        network = ip_network(text)
    except ValueError as error:
        raise InvalidInputError(
            f"invalid proxy address or network {text}: {error}",
            where=f"--proxy {text}",
            next_step="write an address such as 10.0.0.7, or a network such as 10.0.0.0/24",
        ) from error
    if isinstance(network, IPv6Network):
        return (str(network),)
    return str(network), f"::ffff:{network.network_address}/{_MAPPED_BITS + network.prefixlen}"


HEAD_MS: Final = 10_000
"""Milliseconds within which the head of a request must arrive."""
CONNECTIONS: Final = 1280
"""Maximum number of connections; others wait until one is closed. Idle ones are closed after ``HEAD_MS``."""
_DIGITS: Final = 640
"""Maximum digits of a parsed integer: parsing blocks all threads, for 0.1 ms with 4,300 digits."""
_MAX_FILES: Final = 4096
"""Number of open files and connections that the process requests from the system."""
_MORE_SECONDS: Final = 5
"""Extra seconds for cut requests to end after the shutdown period."""


def serve(app: Litestar, host: str, port: int, listening: Callable[[], None], proxies: Sequence[str] = ()) -> None:
    """Serve ``app`` until the process gets a signal; exit with 1 if work was still running after the shutdown period.

    Args:
        app: The application.
        host: The address to listen at.
        port: The port to listen at.
        listening: Called once the service is reachable.
        proxies: Addresses or networks of trusted proxies.

    Raises:
        UnavailableError: Another process listens there, or this host has no such address.
        InvalidInputError: ``proxies`` is invalid.
    """
    asgi_app = track_connection(trust_proxies(app, proxies))
    listener = listen(host, port)
    _raise_file_limit()
    sys.set_int_max_str_digits(_DIGITS)
    gc.freeze()  # each full collection would otherwise visit the application: 90 ms that block all threads
    uvloop.run(_serve(app, asgi_app, listener, listening))
    service = app.state.service
    # The interpreter would wait for its threads, which may read everything for hours.
    busy = any(pool.is_busy for pool in service.pools)
    if not busy and not service.grace.cut:
        return
    log.warning(
        "stopped before all requests had finished",
        extra={"fields": {"cut": service.grace.cut, "threads_busy": busy}},
    )
    if busy:
        logging.shutdown()
        os._exit(1)
    raise SystemExit(1)


def _raise_file_limit() -> None:
    now, hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = _MAX_FILES if hard_limit == resource.RLIM_INFINITY else min(_MAX_FILES, hard_limit)
    if now not in (resource.RLIM_INFINITY, limit) and now < limit:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard_limit))


async def _serve(app: Litestar, asgi_app: ASGIApp, listener: socket.socket, listening: Callable[[], None]) -> None:
    server = SocketServer(
        asgi_app,
        interface=Interfaces.ASGI,
        http=HTTPModes.http1,
        websockets=False,
        backpressure=CONNECTIONS,
        http1_settings=HTTP1Settings(header_read_timeout=HEAD_MS, max_buffer_size=MAX_HEADER_BYTES),
        log_enabled=False,
    )
    server.take_socket(listener)
    server.workers_kill_timeout = math.ceil(app.state.service.settings.last_seconds) + _MORE_SECONDS

    def end() -> None:
        app.state.service.ending.set()
        app.state.service.grace.begin()
        server.stop()  # type: ignore[no-untyped-call] # granian ships no types

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    loop.call_soon(listening)
    try:
        await server.serve()
    except TimeoutError:  # something is still running, such as a response that the client does not read
        # Granian also notifies cancelled tasks, and each notification would be logged as an error.
        loop.set_exception_handler(lambda *_: None)
