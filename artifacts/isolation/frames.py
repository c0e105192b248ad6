"""Messages between a process and its isolated children: JSON after its length, with open files."""

import os
import socket
import struct
from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from benchlock.artifacts.errors import BenchlockError, InvalidInputError
from benchlock.artifacts.untyped_json import decode_untyped

_LENGTH: Final = struct.Struct("!Q")
_MAX_FILES: Final = 2
_CHUNK: Final = 1 << 16


class OversizedFrameError(Exception):
    """A message is longer than its reader allows."""


def send_frame(channel: socket.socket, value: object, files: Sequence[int] = ()) -> None:
    """Send a message.

    Args:
        channel: A Unix socket.
        value: The message, which is encoded as JSON.
        files: Descriptors of open files; the receiver gets duplicates.
    """
    send_encoded(channel, msgspec.json.encode(value), files)


def send_encoded(channel: socket.socket, content: bytes, files: Sequence[int] = ()) -> None:
    """Send a message that is encoded already, as ``send_frame`` does."""
    header = _LENGTH.pack(len(content))
    sent = socket.send_fds(channel, [header], list(files)) if files else 0
    channel.sendall(header[sent:])
    channel.sendall(content)


def receive_frame(channel: socket.socket, largest: int | None = None) -> tuple[Any, list[int]]:
    """Receive a message of at most ``largest`` bytes, and the descriptors of the files that came with it.

    Raises:
        EOFError: the other side is gone.
        OversizedFrameError: the message is longer than ``largest``.
    """
    files: list[int] = []
    try:
        length = _receive_length(channel, files)
        _check_length(length, largest)
        return decode_untyped(_receive(channel, length)), files
    except BaseException:
        for file in files:
            os.close(file)
        raise


def _receive_length(channel: socket.socket, files: list[int]) -> int:
    header = b""
    while len(header) < _LENGTH.size:
        chunk, more, _, _ = socket.recv_fds(channel, _LENGTH.size - len(header), _MAX_FILES)
        files += more
        if not chunk:
            raise EOFError
        header += chunk
    length: int = _LENGTH.unpack(header)[0]
    return length


def _check_length(length: int, largest: int | None) -> None:
    if largest is not None and length > largest:
        raise OversizedFrameError


def _receive(channel: socket.socket, length: int) -> bytearray:
    content = bytearray()
    while len(content) < length:
        chunk = channel.recv(min(_CHUNK, length - len(content)))
        if not chunk:
            raise EOFError
        content += chunk
    return content


def pack_error(error: BenchlockError) -> dict[str, Any]:
    """Encode an error, with the problems that it carries, in plain values."""
    kind = type(error)
    return {
        "kind": [kind.__module__, kind.__qualname__],
        "parts": [error.what, error.where, error.next_step],
        "problems": [pack_error(one) for one in error.problems if one is not error],
        "leads": any(one is error for one in error.problems),
    }


def unpack_error(packed: dict[str, Any]) -> BenchlockError:
    """Decode an error; it is an ``InvalidInputError`` if this process has not loaded its class."""
    wanted = tuple(packed["kind"])
    kinds = (kind for kind in _subclasses(BenchlockError) if (kind.__module__, kind.__qualname__) == wanted)
    kind = next(kinds, InvalidInputError)
    error = kind.__new__(kind)
    what, where, next_step = packed["parts"]
    BenchlockError.__init__(error, what, where=where, next_step=next_step)
    problems = tuple(unpack_error(one) for one in packed["problems"])
    error.problems = ((error,) if packed["leads"] else ()) + problems
    return error


def _subclasses(kind: type[BenchlockError]) -> Iterator[type[BenchlockError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _subclasses(below)
