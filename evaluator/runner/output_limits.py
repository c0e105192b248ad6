"""Limits of a run's console output and of its output folder."""

import json
import logging
import os
import shutil
import stat
import threading
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import Any, Self

from benchlock.artifacts.user_output import Advance, Progress
from benchlock.registry.text.quantities import spell_bytes

_HEAD = 64 << 10
_TAIL = 192 << 10
_LONGEST_LINE = 4096


class ConsoleOutput:
    """The console output of a run: its log and its progress.

    A line of standard output of the form ``{"phase", "done", "total"}`` moves a progress task. All other lines go to
    the log, of which the first 64 KiB and the last 192 KiB are kept.
    """

    def __init__(self, progress: Progress) -> None:
        """Start an empty log that reports to ``progress``."""
        self._mutex = Lock()
        self._progress = progress
        self._tasks = ExitStack()
        self._phase: str | None = None
        self._advance: Advance = lambda _step: None
        self._done = 0
        self._line = b""
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self._dropped = 0

    def feed(self, output: bytes, error: bytes) -> None:
        """Take a chunk of standard output and of standard error, from any thread."""
        with self._mutex:
            self._keep(error)
            *lines, self._line = (self._line + output).split(b"\n")
            for line in lines:
                if not self._is_progress(line):
                    self._keep(line + b"\n")
            if len(self._line) > _LONGEST_LINE:
                self._keep(self._line)
                self._line = b""

    def close(self) -> None:
        """End the current progress task, and log a last line without a line end."""
        with self._mutex:
            self._keep(self._line)
            self._line = b""
            self._tasks.close()

    @property
    def log(self) -> bytes:
        """The log, with a mark for the bytes that were left out."""
        gap = b"\n[%d bytes left out]\n" % self._dropped if self._dropped else b""
        return bytes(self._head) + gap + b"".join(self._tail)

    def _keep(self, piece: bytes) -> None:
        room = _HEAD - len(self._head)
        if room > 0:
            self._head += piece[:room]
            piece = piece[room:]
        if not piece:
            return
        self._tail.append(piece)
        self._tail_size += len(piece)
        while self._tail_size > _TAIL:
            excess = min(len(self._tail[0]), self._tail_size - _TAIL)
            first = self._tail.popleft()[excess:]
            if first:
                self._tail.appendleft(first)
            self._tail_size -= excess
            self._dropped += excess

    def _is_progress(self, line: bytes) -> bool:
        if not line.startswith(b"{") or len(line) > _LONGEST_LINE:
            return False
        try:
            document: Any = json.loads(line)
        except (ValueError, RecursionError):
            return False
        if set(document) != {"phase", "done", "total"} or not all(
            isinstance(document[key], int) for key in ("done", "total")
        ):
            return False
        self._show(str(document["phase"]), document["done"], document["total"])
        return True

    def _show(self, phase: str, done: int, total: int) -> None:
        if phase != self._phase:
            self._tasks.close()
            self._advance = self._tasks.enter_context(self._progress.task(phase, total))
            self._phase, self._done = phase, 0
        self._advance(done - self._done)
        self._done = done


MAX_ENTRIES = 1024
"""The maximum number of files and folders that a run may leave. The harness leaves about twenty."""

_FIXED_BYTES = 2 << 30
_SECONDS_BETWEEN_SCANS = 0.5
_log = logging.getLogger("benchlock")


@dataclass(frozen=True, slots=True)
class Quota:
    """The limits of a folder; ``size`` is in bytes and counts the lengths of files, not their blocks."""

    size: int
    entries: int = MAX_ENTRIES


def choose_quota(folder: Path, memory: int, data: int = 0) -> Quota:
    """Return the quota of a run with ``memory`` bytes of memory.

    Predictions and samples pass through the memory of the run before they are written, and the logs of LoadGen are
    bounded, so twice the memory plus a constant is enough. The quota never exceeds half of the free disk.

    Args:
        folder: A folder of the disk that the run writes to.
        memory: The limit of memory in bytes.
        data: Bytes that the run may write in addition, as the stage that rewrites the dataset does.
    """
    return Quota(min(2 * memory + 2 * data + _FIXED_BYTES, shutil.disk_usage(folder).free // 2))


def find_excess(folder: Path, quota: Quota) -> str | None:
    """Describe how the content of ``folder`` exceeds the quota; None if it does not.

    No link is followed. The search ends as soon as the quota is exceeded or a folder cannot be read.
    """
    size = entries = 0
    folders = [folder]
    while folders:
        current = folders.pop()
        try:
            with os.scandir(current) as entries_in_folder:
                for entry in entries_in_folder:
                    with suppress(FileNotFoundError):
                        status = entry.stat(follow_symlinks=False)
                        entries += 1
                        if stat.S_ISDIR(status.st_mode):
                            folders.append(Path(entry.path))
                        elif stat.S_ISREG(status.st_mode):
                            size += status.st_size
                    if entries > quota.entries:
                        return f"more than {quota.entries} files"
                    if size > quota.size:
                        return f"more than {spell_bytes(quota.size)}"
        except (FileNotFoundError, NotADirectoryError):  # it was removed or replaced meanwhile
            continue
        except OSError as error:
            return f"an unreadable folder ({error.strerror})"
    return None


@dataclass(slots=True)
class OutputWatch:
    """A watch that scans the output folder during a run, and stops the run when it exceeds the quota.

    A scan takes some tens of microseconds every half second.
    """

    folder: Path
    quota: Quota
    stop: Callable[[], object]
    excess: str | None = None
    cpu: None = None
    _ended: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        """Start to scan."""
        self._thread = threading.Thread(target=self._watch, daemon=True, name="output-watch")
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop, and scan a last time."""
        self._ended.set()
        assert self._thread is not None
        self._thread.join()
        self.excess = self.excess or find_excess(self.folder, self.quota)

    def _watch(self) -> None:
        while not self._ended.wait(_SECONDS_BETWEEN_SCANS):
            self.excess = self.excess or find_excess(self.folder, self.quota)
            if self.excess is not None:
                try:
                    self.stop()
                except Exception:  # noqa: BLE001 - the run has to end after any error
                    _log.exception("cannot stop a run that exceeds its quota; retrying")
                else:
                    return
