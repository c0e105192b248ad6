"""Flow control for slow clients: timeouts, chunks sized by their speed, and bounded memory for responses."""

import asyncio
import time
from collections.abc import Iterable
from typing import Any, Final

from litestar.types import HTTPResponseStartEvent, HTTPScope, Message, Receive, Send

from benchlock.api.http.service_settings import Settings
from benchlock.artifacts.errors import BusyError, InvalidInputError

MIN_CHUNK: Final = 32 << 10
MAX_CHUNK: Final = 1 << 20
CHUNKS_IN_MEMORY: Final = 8
"""Chunks of one response in memory: four in granian's queue, one or two that it writes, one that waits for the queue,
one that is read ahead."""
_SLOW_SECONDS: Final = 0.25
"""A chunk that takes longer halves the window."""
_QUICK_CHUNKS: Final = 2
"""Number of chunks in a row without a wait that double the window."""


class SendMemory:
    """The memory of ``size`` bytes that all responses share."""

    def __init__(self, size: int) -> None:
        """Start with ``size`` free bytes."""
        self._size = self._left = size

    def take(self, size: int) -> bool:
        """Take ``size`` bytes if they are free, or if no response has any; return whether they were taken."""
        if size > self._left and self._left < self._size:
            return False
        self._left -= size
        return True

    @property
    def left(self) -> int:
        """Return the free bytes."""
        return self._left

    def give_back(self, size: int) -> None:
        """Free ``size`` bytes that were taken."""
        self._left += size


class SendWindow:
    """The size of the next chunk, doubled while the client keeps up and halved while it is slow.

    The memory of ``CHUNKS_IN_MEMORY`` chunks beyond the smallest size is taken from ``memory`` until the window is
    closed. A window takes at most half of the free memory, so that the next reader gets some too.
    """

    def __init__(self, memory: SendMemory) -> None:
        """Start with the smallest chunks."""
        self.size = MIN_CHUNK
        self._memory = memory
        self._reserved = MIN_CHUNK
        self._quick = 0

    def adapt(self, seconds: float) -> None:
        """Adapt the size to a chunk that the client took after ``seconds``."""
        if seconds > _SLOW_SECONDS:
            self.size, self._quick = max(MIN_CHUNK, self.size // 2), 0
            return
        self._quick += 1
        if self._quick >= _QUICK_CHUNKS and self._reserve(self.size * 2):
            self.size, self._quick = self.size * 2, 0

    def _reserve(self, size: int) -> bool:
        if size <= self._reserved:
            return True
        more = (size - self._reserved) * CHUNKS_IN_MEMORY
        if size > MAX_CHUNK or more > self._memory.left // 2 or not self._memory.take(more):
            return False
        self._reserved = size
        return True

    def close(self) -> None:
        """Free the memory."""
        self._memory.give_back((self._reserved - MIN_CHUNK) * CHUNKS_IN_MEMORY)
        self._reserved = self.size = MIN_CHUNK


METHODS_WITH_BODY: Final = frozenset(("POST", "PUT", "PATCH"))
LENGTH_HEADERS: Final = (b"content-length", b"transfer-encoding")
_MAX_BUFFERED: Final = 256 << 10
"""Maximum bytes of a response that granian buffers at once; larger ones are sent in parts with a wait for each."""


class TooSlowError(InvalidInputError):
    """A client that stalls while it sends a request or receives the response."""

    code = "too-slow"
    reason = "slow-body"


class SlowReaderError(TooSlowError):
    """A client that does not receive the response, or too slowly."""

    reason = "slow-reader"


class BrokenOffError(InvalidInputError):
    """A body that is longer or shorter than announced."""

    code = "malformed"


class IncompleteBodyError(BrokenOffError):
    """A body that ended early: the client disconnected, or sent an invalid chunk."""

    reason = "incomplete-body"


class ClientLeftError(InvalidInputError):
    """A client that disconnected during the response."""

    code = "client-left"
    reason = "client-left"


class _TimeAllowance:
    """The seconds that a client may keep the service waiting; each byte adds some, up to the longest silence.

    A client that was fast at first therefore still has to keep the minimum rate.
    """

    def __init__(self, settings: Settings) -> None:
        self.silence, self.rate = settings.body_seconds, settings.least_rate
        self.left = self.silence

    def account(self, size: int, seconds: float) -> None:
        """Account for ``size`` bytes that took ``seconds``."""
        self.left = min(self.silence, self.left - seconds + size / self.rate)

    def why(self, silent: str, slow: str) -> str:
        """Return ``silent`` or ``slow``, whichever is the case, with its limit."""
        return f"{silent} for {self.silence:g} seconds" if self.left >= self.silence else f"{slow} {self.rate:g}"


def announced_length(scope: HTTPScope) -> int | None:
    """Return the length of a body from its only length header, None if it is unknown."""
    values = [value for name, value in scope["headers"] if name in LENGTH_HEADERS]
    return int(values[0]) if len(values) == 1 and values[0].isdigit() else None


def receive_with_timeout(receive: Receive, settings: Settings, size: int | None = None) -> Receive:
    """Wrap ``receive`` to enforce the maximum silence and the minimum rate of a body.

    A body of ``size`` bytes ends with its last byte, without another call of the server's ``receive``.

    Raises:
        TooSlowError: By the returned function, when the client is too slow.
        IncompleteBodyError: By the returned function, when the body ends early.
    """
    allowance, ended, total = _TimeAllowance(settings), False, 0

    async def receive_part() -> Any:  # noqa: ANN401 - Litestar's own union of messages
        nonlocal ended, total
        if ended:
            return await receive()
        began = time.monotonic()
        try:
            async with asyncio.timeout(allowance.left):
                message = await receive()
        except TimeoutError as error:
            why = allowance.why(
                "no data received during a request", "the request was sent with fewer bytes per second than"
            )
            raise TooSlowError(why, next_step="send it again") from error
        if message["type"] != "http.request":
            ended = True
            raise IncompleteBodyError(
                "incomplete body: the client disconnected or sent an invalid chunk",
                next_step="send the request again, with a body as specified in RFC 9112",
            )
        total += len(message["body"])
        if total == size:
            message["more_body"] = False
        allowance.account(len(message["body"]), time.monotonic() - began)
        ended = not message.get("more_body", False)
        return message

    return receive_part


class TimedSend:
    """A ``send`` that enforces the minimum rate at which the client receives the response.

    A large response in one message is sent in small parts, and occupies ``memory`` until the last part is received. The
    head of a response is sent with the first message of its body.
    """

    def __init__(
        self, send: Send, settings: Settings, memory: SendMemory, headers: Iterable[tuple[bytes, bytes]] = ()
    ) -> None:
        """Wrap ``send``.

        Args:
            send: Sends a message to the client.
            settings: The limits.
            memory: The memory that large responses share.
            headers: Headers to add to the response.
        """
        self._send, self._memory, self._headers = send, memory, headers
        self._allowance = _TimeAllowance(settings)
        self._head: HTTPResponseStartEvent | None = None
        self.status: int | None = None
        """The status, once the head has been sent."""

    async def __call__(self, message: Message) -> None:
        """Send an ASGI message.

        Raises:
            SlowReaderError: The client does not receive it in time.
            BusyError: Other large responses occupy all memory; nothing has been sent.
        """
        if message["type"] == "http.response.start":
            self._head = message
        elif message["type"] != "http.response.body":
            await self._send(message)
        elif message["more_body"]:
            await self._send_head()
            await self._send_chunk(message["body"])
        elif len(message["body"]) > _MAX_BUFFERED:
            await self._send_large(message["body"])
        else:
            await self._send_head()
            await self._send(message)

    async def _send_head(self) -> None:
        if self._head is not None:
            head, self._head = self._head, None
            self.status, head["headers"] = head["status"], [*head["headers"], *self._headers]
            await self._send(head)

    async def _send_large(self, body: bytes) -> None:
        if not self._memory.take(len(body)):
            raise BusyError("too many large responses in progress", next_step="try again in a few seconds")
        try:
            await self._send_head()
            for start in range(0, len(body), MIN_CHUNK):
                await self._send_chunk(body[start : start + MIN_CHUNK])
        finally:
            self._memory.give_back(len(body))
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_chunk(self, body: bytes) -> None:
        allowance, began = self._allowance, time.monotonic()
        try:
            async with asyncio.timeout(allowance.left + len(body) / allowance.rate):
                await self._send({"type": "http.response.body", "body": body, "more_body": True})
        except TimeoutError as error:
            why = allowance.why(
                "the client read nothing of the response", "the client read fewer bytes per second than"
            )
            raise SlowReaderError(why, next_step="read the response without pauses") from error
        allowance.account(len(body), time.monotonic() - began)


def drop_body(send: Send) -> Send:
    """Wrap ``send`` for the response to HEAD: the head without the body."""
    ended = False

    async def send_head(message: Message) -> None:
        nonlocal ended
        if message["type"] != "http.response.body":
            await send(message)
        elif not ended:
            ended = True
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    return send_head
