"""The server process: granian in one process, an orderly end by SIGTERM or SIGINT."""

import asyncio
import signal
from collections.abc import Callable
from typing import Final

import uvloop
from granian.constants import HTTPModes, Interfaces
from granian.http import HTTP1Settings
from granian.server.embed import Server
from litestar import Litestar

HEAD_MS: Final = 10_000
"""Milliseconds in which the head of a request must have come."""
LARGEST_HEAD: Final = 64 << 10
"""Bytes of it."""
CONNECTIONS: Final = 512
"""Requests that are answered at once; the others wait until one is."""
LAST_SECONDS: Final = 20
"""What has begun may go on so long after the server was told to end."""


def serve(app: Litestar, host: str, port: int, listening: Callable[[], None]) -> None:
    """Serve ``app`` until the process is told to end; ``listening`` is called once it is reached."""
    uvloop.run(_serve(app, host, port, listening))


async def _serve(app: Litestar, host: str, port: int, listening: Callable[[], None]) -> None:
    server = Server(
        app,
        address=host,
        port=port,
        interface=Interfaces.ASGI,
        http=HTTPModes.http1,
        websockets=False,
        backpressure=CONNECTIONS,
        http1_settings=HTTP1Settings(header_read_timeout=HEAD_MS, max_buffer_size=LARGEST_HEAD),
        log_enabled=False,
    )
    server.workers_kill_timeout = LAST_SECONDS

    def end() -> None:
        app.state.service.ending.set()
        server.stop()  # type: ignore[no-untyped-call] # it ships no types

    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    loop.call_soon(listening)
    await server.serve()
