"""The host's own lock: one measurement at a time, whoever asks for it, and as long as anything of it lives."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from benchlock.artifacts.errors import UnavailableError
from benchlock.evaluator.dispatch.queue import Fence, Queue
from benchlock.evaluator.runner.engine import LABEL, Engine

CONTAINER: Final = "benchlock-measure-0"
"""The name of the container that measures: an engine gives it once."""
QUEUE_LABEL: Final = "benchlock.queue"
FENCE_LABEL: Final = "benchlock.fence"
_MODE = 0o644


@contextmanager
def host_lock(path: Path) -> Iterator[int | None]:
    """A descriptor that holds the host's lock, None where something else does.

    Whatever inherits it holds the lock too: a harness goes on holding it when its agent is dead.

    Raises:
        UnavailableError: the file cannot be made or opened.
    """
    try:
        descriptor = _opened(path)
    except OSError as error:
        raise UnavailableError(
            f"the host's lock cannot be opened: {error.strerror or error}",
            where=str(path),
            next_step="name another file with BENCHLOCK_HOST_LOCK, the same one for every agent of this host",
        ) from error
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield None
        else:
            yield descriptor
    finally:
        os.close(descriptor)


def _opened(path: Path) -> int:
    """It is made only where it is not there: Linux lets nobody say O_CREAT of another's file in a folder like /tmp."""
    flags = os.O_RDONLY | os.O_CLOEXEC
    with suppress(FileNotFoundError):
        return os.open(path, flags)
    with suppress(FileExistsError):
        return os.open(path, flags | os.O_CREAT | os.O_EXCL, _MODE)
    return os.open(path, flags)


def labels(queue: str, fence: int) -> dict[str, str]:
    """What a container that measures says of the lease that it is under."""
    return {QUEUE_LABEL: queue, FENCE_LABEL: str(fence)}


def free(engine: Engine, queue: Queue) -> str | None:
    """Remove the container that has the name where it is nobody's any more; why it stays where it does.

    One of this queue is asked for there. Of another's nothing is known: it stays as long as it runs.

    Raises:
        UnavailableError: the engine failed, or the queue cannot be asked.
    """
    found = engine.named(CONTAINER)
    if found is None:
        return None
    fence = found.labels.get(FENCE_LABEL, "")
    whose = found.labels.get(LABEL, "somebody's")
    if found.lives:
        if found.labels.get(QUEUE_LABEL) != queue.name() or not fence.isdecimal():
            return f"this host is measuring {whose}, which is none of this queue's"
        if queue.holds(Fence(int(fence))):
            return f"this host is measuring {whose}, whose lease holds"
    engine.end(found.id)
    return None
