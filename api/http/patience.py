"""How long the other end may take: silence is bounded, and so is a body that comes byte by byte."""

import asyncio
import time
from typing import Any, Final

from litestar.types import HTTPScope, Message, Receive, Send

from api.http.settings import Settings
from artifacts.errors import InvalidInputError

_LENGTHS: Final = (b"content-length", b"transfer-encoding")


class TooSlowError(InvalidInputError):
    """The client began a request, and did not go on with it, or takes nothing of the answer."""

    code = "too-slow"


def announced(scope: HTTPScope) -> int | None:
    """The bytes that a body has, where its head says so and nothing else."""
    said = [value for name, value in scope["headers"] if name in _LENGTHS]
    return int(said[0]) if len(said) == 1 and said[0].isdigit() else None


def patiently_received(receive: Receive, settings: Settings, size: int | None = None) -> Receive:
    """The pieces of a body: each may take so long and no longer, and all of them what the least rate gives them.

    One of ``size`` bytes is over when these have come: nobody asks the server's core once more whether it is.
    """
    silence, rate = settings.body_seconds, settings.least_rate
    left, ended, came = silence, False, 0

    async def received() -> Any:  # noqa: ANN401 - Litestar's own union of messages
        nonlocal left, ended, came
        if ended:
            return await receive()
        began = time.monotonic()
        try:
            async with asyncio.timeout(min(silence, left)):
                message = await receive()
        except TimeoutError as error:
            what = (
                f"nothing came for {silence:g} seconds in the middle of a request"
                if left >= silence
                else f"the request came with less than {rate:g} bytes a second"
            )
            raise TooSlowError(what, next_step="send it again") from error
        if message["type"] == "http.request":
            left += len(message["body"]) / rate
            came += len(message["body"])
            if came == size:
                message["more_body"] = False
        left -= time.monotonic() - began
        ended = not message.get("more_body", False)
        return message

    return received


def patiently_sent(send: Send, settings: Settings) -> Send:
    """The pieces of an answer: one that is not taken in that time, and what the least rate gives it, is the last."""

    async def sent(message: Message) -> None:
        if message["type"] != "http.response.body" or not message["more_body"]:
            await send(message)
            return
        seconds = settings.body_seconds + len(message["body"]) / settings.least_rate
        try:
            async with asyncio.timeout(seconds):
                await send(message)
        except TimeoutError as error:
            raise TooSlowError(f"the client did not take the next piece in {seconds:.0f} seconds") from error

    return sent
