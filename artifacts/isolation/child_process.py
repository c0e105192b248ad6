"""The child's side of isolated calls: framed messages with open files, and the process that forks children.

The template process is separate because ``fork`` needs a process with one thread, without the secrets, sockets and
memory of the caller. It ends, and kills its children, when the calling process is gone.
"""

import importlib
import os
import resource
import select
import signal
import socket
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn, cast

import msgspec

from benchlock.artifacts.blob_store import BlobNotFoundError
from benchlock.artifacts.digest import Descriptor, Digest
from benchlock.artifacts.errors import BenchlockError, InvalidInputError
from benchlock.artifacts.isolation.resource_limits import Limits
from benchlock.artifacts.json_codec import decode_untyped

_LENGTH: Final = struct.Struct("!Q")
_CHUNK: Final = 1 << 16


class OversizedFrameError(Exception):
    """A message is longer than the limit of its reader."""


def send_frame(channel: socket.socket, value: object, files: Sequence[int] = ()) -> None:
    """Send a message.

    Args:
        channel: A Unix socket.
        value: The message, which is encoded as JSON unless it is ``msgspec.Raw``.
        files: Descriptors of open files; the receiver gets duplicates.
    """
    content = msgspec.json.encode(value)
    header = _LENGTH.pack(len(content))
    sent = socket.send_fds(channel, [header], list(files)) if files else 0
    channel.sendall(header[sent:])
    channel.sendall(content)


def receive_frame(channel: socket.socket, largest: int | None = None, *, most_files: int = 0) -> tuple[Any, list[int]]:
    """Receive a message, and the descriptors of the files sent with it.

    Args:
        channel: A Unix socket.
        largest: The largest message in bytes; ``None`` admits any.
        most_files: The number of descriptors to receive; the kernel drops further ones.

    Raises:
        EOFError: The other side is gone.
        OversizedFrameError: The message is longer than ``largest``.
    """
    files: list[int] = []
    try:
        (length,) = _LENGTH.unpack(_receive(channel, _LENGTH.size, files, most_files))
        if largest is not None and length > largest:
            raise OversizedFrameError  # noqa: TRY301 - the files are closed below
        return decode_untyped(_receive(channel, length, files, 0)), files
    except BaseException:
        for file in files:
            os.close(file)
        raise


def _receive(channel: socket.socket, length: int, files: list[int], most_files: int) -> bytearray:
    content = bytearray()
    while len(content) < length:
        chunk, descriptors, _, _ = socket.recv_fds(channel, min(_CHUNK, length - len(content)), most_files)
        files += descriptors
        if not chunk:
            raise EOFError
        content += chunk
    return content


def pack_error(error: BenchlockError) -> dict[str, Any]:
    """Encode an error and its problems in plain values."""
    kind = type(error)
    return {
        "kind": [kind.__module__, kind.__qualname__],
        "parts": [error.what, error.where, error.next_step],
        "problems": [pack_error(problem) for problem in error.problems if problem is not error],
        "leads": any(problem is error for problem in error.problems),
    }


def unpack_error(packed: dict[str, Any]) -> BenchlockError:
    """Decode an error, as an ``InvalidInputError`` if this process has not loaded its class."""
    identity = tuple(packed["kind"])
    kinds = (kind for kind in _subclasses(BenchlockError) if (kind.__module__, kind.__qualname__) == identity)
    kind = next(kinds, InvalidInputError)
    error = kind.__new__(kind)
    what, where, next_step = packed["parts"]
    BenchlockError.__init__(error, what, where=where, next_step=next_step)
    problems = tuple(unpack_error(problem) for problem in packed["problems"])
    error.problems = ((error,) if packed["leads"] else ()) + problems
    return error


def _subclasses(kind: type[BenchlockError]) -> Iterator[type[BenchlockError]]:
    yield kind
    for subclass in kind.__subclasses__():
        yield from _subclasses(subclass)


_MAX_FAULT: Final = 500
_BATCH: Final = 1000


class CallerBlobs:
    """The blobs of the calling process's store, for an isolated function. Implements ``BlobReader``."""

    def __init__(self, channel: socket.socket) -> None:
        """Read blobs over ``channel``, the socket to the calling process."""
        self._channel = channel

    def open(self, digest: Digest) -> BinaryIO:
        """Open a blob; raise the errors of the store."""
        _, files = self._send_request({"open": digest})
        return cast("BinaryIO", os.fdopen(files[0], "rb"))

    def stat(self, digest: Digest) -> Descriptor:
        """Return digest and size; ``BlobNotFoundError`` if absent."""
        size = self.sizes([digest])[0]
        if size is None:
            raise BlobNotFoundError(f"unknown blob {digest}", where=digest)
        return Descriptor(digest, size)

    def exists(self, digest: Digest) -> bool:
        """Return whether the store has the blob."""
        return self.sizes([digest])[0] is not None

    def sizes(self, digests: Sequence[Digest]) -> list[int | None]:
        """Return the sizes of many blobs in bytes, ``None`` for each absent blob."""
        sizes: list[int | None] = []
        for start in range(0, len(digests), _BATCH):
            sizes += self._send_request({"stat": digests[start : start + _BATCH]})[0]["sizes"]
        return sizes

    def _send_request(self, request: dict[str, Any]) -> tuple[dict[str, Any], list[int]]:
        """Send a request and wait for the reply; the timer of the call is stopped meanwhile."""
        remaining, _ = signal.setitimer(signal.ITIMER_REAL, 0)
        send_frame(self._channel, request)
        reply, files = receive_frame(self._channel, most_files=1)
        signal.setitimer(signal.ITIMER_REAL, max(remaining, 0.001))
        if "error" in reply:
            raise unpack_error(reply["error"])
        return reply, files


class _Server:
    """The template process: forks children and reports the exit status of each."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._statuses: dict[int, int] = {}
        self._ended, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(self._ended, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)

    def run(self) -> None:
        """Serve until the calling process is gone."""
        while True:
            ready, _, _ = select.select([self._control.fileno(), self._ended], [], [])
            if self._ended in ready:
                os.read(self._ended, 4096)
                self._reap()
            if self._control.fileno() in ready:
                try:
                    call, files = receive_frame(self._control, most_files=2)
                except (EOFError, OSError):
                    break
                self._start(call["module"], msgspec.convert(call["limits"], Limits), *files)
        for child in self._statuses:
            os.kill(child, signal.SIGKILL)

    def _start(self, module: str, limits: Limits, channel: int, status: int) -> None:
        with suppress(Exception):  # the child reports the error
            importlib.import_module(module)
        try:
            child = os.fork()
        except OSError:  # the caller sees the end of the socket
            os.close(channel)
            os.close(status)
            return
        if not child:
            self._close_inherited(status)
            _serve_call(socket.socket(fileno=channel), limits)
        os.close(channel)
        self._statuses[child] = status

    def _close_inherited(self, status: int) -> None:
        """Close every descriptor of the template process, in a child."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._control.close()
        for descriptor in (self._ended, self._wake, status, *self._statuses.values()):
            os.close(descriptor)

    def _reap(self) -> None:
        while True:
            try:
                child, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not child:
                return
            descriptor = self._statuses.pop(child)
            with suppress(OSError):  # the caller did not wait
                os.write(descriptor, str(os.waitstatus_to_exitcode(status)).encode())
            os.close(descriptor)


def _serve_call(channel: socket.socket, limits: Limits) -> NoReturn:
    """Perform the one call of a child, and exit."""
    code = 1
    try:
        _restrict(limits)
        send_frame(channel, _perform(channel, limits))
        code = 0
    finally:
        os._exit(code)


def _perform(channel: socket.socket, limits: Limits) -> msgspec.Raw | dict[str, Any]:
    """Call the function and return the reply."""
    try:
        call, _ = receive_frame(channel)
        module, _, name = call["function"].partition(":")
        function: Callable[..., Any] = getattr(importlib.import_module(module), name)
        content = msgspec.json.encode({"value": function(call["arguments"], CallerBlobs(channel))})
        if len(content) <= limits.result:
            return msgspec.Raw(content)
    except MemoryError:
        return {"limit": "memory"}
    except BenchlockError as error:
        return {"error": pack_error(error)}
    except Exception as error:  # noqa: BLE001 - every error goes to the caller
        return {"fault": f"{type(error).__name__}: {error}"[:_MAX_FAULT]}
    return {"limit": "result"}


def _restrict(limits: Limits) -> None:
    """Set the limits of this process; default signal handlers end it when its time is up."""
    with suppress(OSError):  # Linux only: the OOM killer chooses this process first
        Path("/proc/self/oom_score_adj").write_text("1000")
    for number in (signal.SIGALRM, signal.SIGXCPU):
        signal.signal(number, signal.SIG_DFL)
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_NOFILE, limits.files),
        (resource.RLIMIT_CPU, limits.cpu_seconds),
        (resource.RLIMIT_AS, limits.memory),
    ):
        _, maximum = resource.getrlimit(kind)
        hard = value + (kind == resource.RLIMIT_CPU)  # at the hard limit of time the signal is SIGKILL, as for memory
        soft, hard = (value, hard) if maximum == resource.RLIM_INFINITY else (min(value, maximum), min(hard, maximum))
        resource.setrlimit(kind, (soft, hard))
    signal.setitimer(signal.ITIMER_REAL, limits.seconds)


def main() -> None:
    """Serve over the socket whose descriptor is the first argument."""
    _Server(socket.socket(fileno=int(sys.argv[1]))).run()
