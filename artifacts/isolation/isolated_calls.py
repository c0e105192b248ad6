"""The caller's side of isolated calls: start of the template process, requests, replies and faults.

Parsers of untrusted bytes run in a child process, so that no file can harm the caller. A call is the name of a
function, ``package.module:name``, and plain values. The function gets these values and a ``BlobReader``, which reads
blobs of the caller's store, and returns plain values.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from benchlock.artifacts.blob_store import BlobNotFoundError, BlobReader
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import BenchlockError, UnavailableError
from benchlock.artifacts.isolation.child_process import (
    OversizedFrameError,
    pack_error,
    receive_frame,
    send_frame,
    unpack_error,
)
from benchlock.artifacts.isolation.resource_limits import IsolatedFaultError, LimitExceededError, Limits, child_slots

_START: Final = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]); "
    "from benchlock.artifacts.isolation.child_process import main; main()"
)
_OVERHEAD: Final = 1 << 16
"""Bytes of a message in addition to its result."""
_CHUNK: Final = 1 << 20
_LIMIT_ADVICE: Final = "publish a smaller or simpler file; docs/reference/formats.md lists the limits"
_STOP_SECONDS: Final = 10.0
_KILLED: Final = -signal.SIGKILL


def run_isolated(
    function: str, arguments: object, *, limits: Limits, subject: str, blobs: BlobReader | None = None
) -> Any:  # noqa: ANN401 - whatever the function returns
    """Wait for a slot, call ``function(arguments, blobs)`` in a child process, and return its result.

    Args:
        function: ``package.module:name`` of a function of this project.
        arguments: A value that msgspec encodes as JSON; the function gets it as decoded JSON.
        limits: The limits of the child; its memory is also limited to that of a slot.
        subject: The subject of error messages: ``the inspection of m.onnx``.
        blobs: The store whose blobs the function may read; ``None`` if it reads no blobs.

    Raises:
        LimitExceededError: The child needed more than ``limits``.
        IsolatedFaultError: The function failed with an error that is not a ``BenchlockError``.
        UnavailableError: The child cannot be started.
        BusyError: No slot was free until the request's deadline.
        BenchlockError: The function raised it, or the store did when the function opened a blob.
    """
    slots = child_slots()
    limits = msgspec.structs.replace(limits, memory=min(limits.memory, slots.memory))
    call = _Call(function, arguments, limits, subject, blobs)
    with slots.slot():
        for _ in range(2):  # the template process may have ended in the middle
            with suppress(_LostError):
                return call.run()
    raise UnavailableError(
        f"{subject} could not be started in a child process",
        next_step="raise the limit of processes or of memory of this account, then try again",
    )


class _LostError(Exception):
    """The child and the template process both ended, or the template process could not fork."""


@dataclass(slots=True)
class _Call:
    """One call of a function, with the last blob that it opened."""

    function: str
    arguments: object
    limits: Limits
    subject: str
    blobs: BlobReader | None
    last_blob: Digest | None = None

    def run(self) -> Any:  # noqa: ANN401
        """Perform the call.

        Raises:
            _LostError: The template process ended meanwhile.
        """
        module = self.function.partition(":")[0]
        with ExitStack() as stack:
            channel, child_channel = socket.socketpair()
            stack.enter_context(channel)
            ended, status = os.pipe()
            stack.callback(os.close, ended)
            try:
                _TEMPLATE.start(module, self.limits, (child_channel.fileno(), status))
            finally:
                child_channel.close()
                os.close(status)
            try:
                send_frame(channel, {"function": self.function, "arguments": self.arguments})
                return self._serve_child(channel)
            except OversizedFrameError:
                raise self._limit_error("result") from None
            except TimeoutError:
                raise self._limit_error("seconds") from None
            except (EOFError, ConnectionError):
                channel.close()
                raise self._explain_death(os.read(ended, 16)) from None

    def _serve_child(self, channel: socket.socket) -> Any:  # noqa: ANN401
        """Serve the child's requests for blobs; return the result of the call or raise its error."""
        remaining = self.limits.seconds + 5  # the child's own timer comes first
        while True:
            channel.settimeout(max(remaining, 0.001))
            start = time.monotonic()
            message, _ = receive_frame(channel, self.limits.result + _OVERHEAD)
            remaining -= time.monotonic() - start
            channel.settimeout(None)
            match message:
                case {"open": digest}:
                    self._open(channel, Digest(digest))
                case {"stat": digests}:
                    self._stat(channel, digests)
                case {"value": value}:
                    return value
                case {"limit": limit}:
                    raise self._limit_error(limit)
                case {"error": error}:
                    raise unpack_error(error)
                case _:
                    raise self._fault_error(f"failed: {message['fault']}")

    def _open(self, channel: socket.socket, digest: Digest) -> None:
        self.last_blob = digest
        try:
            assert self.blobs is not None
            with self.blobs.open(digest) as stream, _as_file(stream) as file:
                send_frame(channel, {}, [file.fileno()])
        except BenchlockError as error:
            send_frame(channel, {"error": pack_error(error)})

    def _stat(self, channel: socket.socket, digests: list[str]) -> None:
        try:
            sizes = [self._size(Digest(digest)) for digest in digests]
        except BenchlockError as error:
            send_frame(channel, {"error": pack_error(error)})
        else:
            send_frame(channel, {"sizes": sizes})

    def _size(self, digest: Digest) -> int | None:
        assert self.blobs is not None
        try:
            return self.blobs.stat(digest).size
        except BlobNotFoundError:
            return None

    def _explain_death(self, status: bytes) -> BenchlockError:
        """Make the error of a child that ended without a reply."""
        if not status:
            raise _LostError
        code = int(status)
        if code == -signal.SIGXCPU:
            return self._limit_error("cpu_seconds")
        if code == -signal.SIGALRM:
            return self._limit_error("seconds")
        if code == _KILLED:
            return self._limit_error("memory")
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return self._fault_error(f"crashed ({name})")

    def _limit_error(self, limit: str) -> LimitExceededError:
        amounts = {
            "memory": f"{self.limits.memory >> 20} MiB of memory",
            "cpu_seconds": f"{self.limits.cpu_seconds} seconds of processor time",
            "seconds": f"{self.limits.seconds:g} seconds",
            "result": f"{self.limits.result >> 10} KiB for its findings",
        }
        error = LimitExceededError(
            f"{self.subject} needs more than its limit of {amounts[limit]}", next_step=_LIMIT_ADVICE
        )
        error.blob = self.last_blob
        return error

    def _fault_error(self, reason: str) -> IsolatedFaultError:
        error = IsolatedFaultError(f"{self.subject} {reason}", next_step="check that the file is intact")
        error.blob = self.last_blob
        return error


def _as_file(stream: BinaryIO) -> BinaryIO:
    """Return the stream if it has a descriptor, otherwise a temporary file with its bytes."""
    with suppress(OSError, AttributeError):
        stream.fileno()
        return stream
    file = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    while chunk := stream.read(_CHUNK):
        file.write(chunk)
    file.seek(0)
    return file


class _Template:
    """The template process, which starts with the first call and ends with this process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def start(self, module: str, limits: Limits, files: tuple[int, int]) -> None:
        """Fork a child from the template process.

        Args:
            module: The module that the template process imports before it forks.
            limits: The limits of the child.
            files: Descriptors: a socket for the child's messages, and a pipe for its exit status.
        """
        frame = {"module": module, "limits": msgspec.to_builtins(limits)}
        with self._lock:
            if self._process is not None and self._process.poll() is not None:
                self.stop()
            try:
                send_frame(self._connect(), frame, files)
            except OSError as error:
                self.stop()
                raise _LostError from error

    def stop(self) -> None:
        """End the process, and its children with it."""
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            try:
                self._process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
        self._control = self._process = None

    def forget(self) -> None:
        """Drop the template process in a fork of this process: it belongs to the parent."""
        if self._control is not None:
            self._control.close()
        if self._process is not None:
            self._process.returncode = 0  # not a child of this process
        self.__init__()  # type: ignore[misc] # the lock may be held by a thread of the parent

    def _connect(self) -> socket.socket:
        if self._control is not None:
            return self._control
        channel, child_channel = socket.socketpair()
        paths = [str(Path(path).absolute()) for path in sys.path]
        try:
            with child_channel:
                self._process = subprocess.Popen(
                    [sys.executable, "-I", "-c", _START, str(child_channel.fileno()), json.dumps(paths)],
                    env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
                    pass_fds=[child_channel.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    cwd="/",
                    start_new_session=True,
                )
        except OSError as error:
            channel.close()
            raise UnavailableError(
                f"cannot start a child process to read foreign files: {error.strerror or error}",
                next_step="raise the limit of processes or of memory of this account, then try again",
            ) from error
        self._control = channel
        return channel


_TEMPLATE: Final = _Template()
atexit.register(_TEMPLATE.stop)
os.register_at_fork(after_in_child=_TEMPLATE.forget)
