"""Reports of a worker's progress to the queue, sent by a thread so that they never delay the run."""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Final, Self

from benchlock.artifacts.errors import BenchlockError
from benchlock.artifacts.size_limits import TASK, truncate
from benchlock.artifacts.user_output import Advance, Progress
from benchlock.evaluator.queue.queue_types import MAX_LINES, Phase, ProgressLine

STEP_SECONDS: Final = 0.2
"""Seconds between two reports; steps in between share a line."""
MEASURING_SECONDS: Final = 2.0
"""Seconds between two reports while the clock runs.

Each one is work beside the run on the host that is measured: a request, or a write transaction if the registry is a
folder there.
"""
_AGAIN: Final = 1.0
"""Seconds after a report that failed, until the same lines are sent again under the same numbers."""


class ProgressReports:
    """A display of tasks that also reports them while the context is open.

    Args:
        display: Shows the tasks.
        send: Sends lines; it accepts repeated ones.
        phase: Returns the phase of the job.
    """

    def __init__(
        self,
        display: Progress,
        send: Callable[[Sequence[ProgressLine]], object],
        phase: Callable[[], Phase] = lambda: "preparing",
    ) -> None:
        """Prepare the reports; the context starts them."""
        self._display, self._send, self._phase = display, send, phase
        self._mutex = threading.Lock()
        self._lines: deque[ProgressLine] = deque(maxlen=MAX_LINES)
        self._number = 0
        self._new, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._report, daemon=True, name="progress-reports")

    def __enter__(self) -> Self:
        """Start to report."""
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop; lines that are not sent yet are dropped, because the run has ended."""
        self._ended.set()
        self._new.set()

    @contextmanager
    def task(self, label: str, total: int | None = None) -> Iterator[Advance]:
        """Show and report a task."""
        task, done = truncate(label, TASK), 0
        with self._display.task(label, total) as show:

            def advance(step: int) -> None:
                nonlocal done
                done += step
                show(step)
                self._put(task, done, total)

            self._put(task, 0, total)
            yield advance

    def _put(self, task: str, done: int, total: int | None) -> None:
        """Add a line, or renew the last one if it is of the same task and was not sent."""
        with self._mutex:
            if self._lines and self._lines[-1].task == task:
                self._lines.pop()
            else:
                self._number += 1
            self._lines.append(ProgressLine(self._number, task, max(done, 0), total))
        self._new.set()

    def _report(self) -> None:
        unsent: list[ProgressLine] = []
        while self._new.wait() and not self._ended.is_set():
            with self._mutex:
                self._new.clear()
                unsent = [*unsent, *self._lines][-MAX_LINES:]
                self._lines.clear()
            pause = STEP_SECONDS
            try:
                self._send(unsent)
                unsent = []
            except BenchlockError:
                pause = _AGAIN
                self._new.set()
            self._ended.wait(MEASURING_SECONDS if self._phase() == "measuring" else pause)
