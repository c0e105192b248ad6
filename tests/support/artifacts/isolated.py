"""Functions that tests call in a process with limits."""

import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import Any

from benchlock.artifacts.blob_store import BlobReader
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import IntegrityError


def echo(arguments: Any, blobs: BlobReader) -> Any:  # noqa: ANN401
    del blobs
    return arguments


def read_blob(arguments: list[str], blobs: BlobReader) -> list[Any]:
    digest = Digest(arguments[0])
    with blobs.open(digest) as stream:
        return [stream.read().decode(), blobs.stat(digest).size, blobs.exists(Digest("sha256:" + "0" * 64))]


def refuse(arguments: list[str], blobs: BlobReader) -> None:
    del blobs
    raise IntegrityError(arguments[0], where="there", next_step="mend it")


def fail(arguments: object, blobs: BlobReader) -> None:
    del arguments, blobs
    raise ValueError("unforeseen")


def take_memory(arguments: int, blobs: BlobReader) -> int:
    del blobs
    return len(bytearray(arguments))


def spin(arguments: object, blobs: BlobReader) -> None:
    del arguments, blobs
    sum(range(1 << 62))  # one call of C, which looks at no signal


def wait(arguments: str, blobs: BlobReader) -> None:
    del blobs
    if arguments:
        os.write(int(arguments), b"x")
    time.sleep(600)


def crash(arguments: object, blobs: BlobReader) -> None:
    del arguments, blobs
    os.kill(os.getpid(), signal.SIGSEGV)


def write_file(arguments: str, blobs: BlobReader) -> None:
    del blobs
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    Path(arguments).write_bytes(b"x" * 10)


def say_much(arguments: int, blobs: BlobReader) -> str:
    del blobs
    return "x" * arguments


def describe_self(arguments: object, blobs: BlobReader) -> dict[str, Any]:
    """What an isolated function can see of the process that called it."""
    del arguments, blobs
    return {
        "environment": dict(os.environ),
        "descriptors": sorted(str(one.readlink()) for one in Path("/proc/self/fd").iterdir() if one.exists()),
        "core": resource.getrlimit(resource.RLIMIT_CORE),
        "pid": os.getpid(),
        "parent": os.getppid(),
        "flags": sys.flags.isolated,
    }
