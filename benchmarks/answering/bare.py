"""The limit: a route of Litestar that answers with bytes that are there, in one process of granian.

``python bare.py PORT``
"""

import asyncio
import signal
import sys

import uvloop
from granian.constants import Interfaces
from granian.server.embed import Server
from litestar import Litestar, Response, get

_ANSWER = b'{"kind":"model","name":"steady-0","version":"1.0.0"}'


@get("/v1/artifacts/{target:path}")
async def answer(target: str) -> Response[bytes]:  # noqa: ARG001 - every one has the same answer
    return Response(_ANSWER, media_type="application/json")


async def main() -> None:
    app = Litestar([answer], openapi_config=None, logging_config=None)
    server = Server(app, address="127.0.0.1", port=int(sys.argv[1]), interface=Interfaces.ASGI, log_enabled=False)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, server.stop)
    await server.serve()


if __name__ == "__main__":
    uvloop.run(main())
