"""The server process: granian in one process, an orderly end by SIGTERM or SIGINT."""

import asyncio
import logging
import math
import os
import resource
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Final

import uvloop
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from litestar import Litestar
from litestar.types import ASGIApp

from benchlock.api.http.connections import track_connection
from benchlock.api.http.listening import OwnServer, listen
from benchlock.api.http.logs import log
from benchlock.api.http.proxies import behind
from benchlock.api.http.settings import MAX_HEADER_BYTES

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
    asked = track_connection(behind(app, proxies))
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
    server = OwnServer(
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
