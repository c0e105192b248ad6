"""Progress bars of long tasks, on a terminal and in a notebook; both disappear when their task is done."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import copy_context
from dataclasses import dataclass
from html import escape
from threading import Event, Lock, Thread, Timer
from time import monotonic
from typing import TYPE_CHECKING, Any, ClassVar

from benchlock.artifacts.user_output import Advance, escape_line

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

_DELAY = 0.5
_INTERVAL = 0.2
"""The seconds between two states of a bar in a notebook."""
_MINUTE = 60


class _TerminalBar:
    """A progress bar. All visible bars share one display on the terminal, with a row each."""

    _lock: ClassVar = Lock()
    _display: ClassVar["Progress | None"] = None

    def __init__(self, label: str, total: int | None) -> None:
        """Prepare the bar without showing it."""
        self._label, self._total, self._done = label, total, 0
        self._is_closed = False
        self._row: TaskID | None = None

    def show(self) -> None:
        """Show the bar, unless it is closed already."""
        from rich import progress  # noqa: PLC0415 - used on a terminal only
        from rich.console import Console  # noqa: PLC0415 - as above

        with self._lock:
            if self._is_closed:
                return
            if _TerminalBar._display is None:
                columns = (
                    progress.TextColumn("{task.description}", markup=False),
                    progress.BarColumn(),
                    progress.TaskProgressColumn(),
                    progress.TimeElapsedColumn(),
                    progress.TextColumn("ETA"),
                    progress.TimeRemainingColumn(),
                )
                console = Console(stderr=True)
                # A redirected standard output would be printed on standard error.
                _TerminalBar._display = progress.Progress(
                    *columns, console=console, transient=True, redirect_stdout=sys.stdout.isatty()
                )
                _TerminalBar._display.start()
            self._row = _TerminalBar._display.add_task(self._label, total=self._total, completed=self._done)

    def advance(self, step: int) -> None:
        """Advance the bar."""
        with self._lock:
            self._done += step
            if self._row is not None and _TerminalBar._display is not None:
                _TerminalBar._display.advance(self._row, step)

    def close(self) -> None:
        """Remove the bar; the last one ends the display."""
        with self._lock:
            self._is_closed = True
            if self._row is None or _TerminalBar._display is None:
                return
            _TerminalBar._display.remove_task(self._row)
            if not _TerminalBar._display.tasks:
                _TerminalBar._display.stop()
                _TerminalBar._display = None


@dataclass(frozen=True, slots=True)
class TerminalBars:
    """Progress bars on standard error, each ``delay`` seconds after the start of its task."""

    delay: float = _DELAY

    @contextmanager
    def task(self, label: str, total: int | None = None) -> Iterator[Advance]:
        """Show a bar during the context."""
        bar = _TerminalBar(escape_line(label), total)
        timer = Timer(self.delay, bar.show)
        timer.daemon = True
        timer.start()
        try:
            yield bar.advance
        finally:
            timer.cancel()
            bar.close()


class _NotebookRow:
    """A progress bar among those that a cell shows."""

    def __init__(self, label: str, total: int | None, shown_at: float) -> None:
        """Prepare the bar, which is shown from ``shown_at`` on, a time of the monotonic clock."""
        self._label, self._total, self._done = escape_line(label), total, 0
        self._began, self._shown_at = monotonic(), shown_at
        self._lock = Lock()

    def advance(self, step: int) -> None:
        """Advance the bar."""
        with self._lock:
            self._done += step

    def state(self) -> tuple[str, str] | None:
        """Return the bar as text and as HTML; None if it is not shown yet."""
        now = monotonic()
        if now < self._shown_at:
            return None
        elapsed = now - self._began
        times, value = _format_seconds(elapsed), ""
        if self._total and self._done:
            share = min(self._done / self._total, 1.0)
            times = f"{share:.0%} {times} ETA {_format_seconds(elapsed / share - elapsed)}"
            value = f' value="{share:.3f}"'
        label = escape(self._label)
        html = f'<div>{label} <progress{value} aria-label="{label}"></progress> {times}</div>'
        return f"{self._label} {times}", html


def _format_seconds(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), _MINUTE)
    return f"{minutes}:{rest:02}"


class NotebookBars:
    """Progress bars in the output of a cell, each some time after the start of its task.

    All bars of a cell share one output, drawn by a thread; it is empty while no task runs.
    """

    def __init__(self, delay: float = _DELAY) -> None:
        """Prepare the display; a bar appears ``delay`` seconds after the start of its task."""
        self._delay = delay
        self._lock = Lock()
        self._rows: list[_NotebookRow] = []
        self._idle, self._thread = Event(), Thread()
        self._cell: int | None = None
        self._output: Any = None

    @contextmanager
    def task(self, label: str, total: int | None = None) -> Iterator[Advance]:
        """Show a bar during the context."""
        row = _NotebookRow(label, total, monotonic() + self._delay)
        with self._lock:
            self._rows.append(row)
            if len(self._rows) == 1:
                self._idle = Event()
                # The context has the cell that the output belongs to.
                self._thread = Thread(target=copy_context().run, args=(self._draw, self._idle), daemon=True)
                self._thread.start()
        try:
            yield row.advance
        finally:
            with self._lock:
                self._rows.remove(row)
                idle, thread = self._idle, self._thread
                if not self._rows:
                    idle.set()
            if idle.is_set():
                thread.join()

    def _draw(self, idle: Event) -> None:
        """Draw the bars until no task runs, then empty the output."""
        is_shown = False
        while not idle.wait(_INTERVAL):
            with self._lock:
                states = [state for row in self._rows if (state := row.state())]
            if states:
                self._show("\n".join(text for text, _ in states), "".join(html for _, html in states))
                is_shown = True
        if is_shown:
            self._show("", "")

    def _show(self, text: str, html: str) -> None:
        """Show the content in the output of the current cell, created at its first bar."""
        from IPython import display, get_ipython  # noqa: PLC0415 - used in a notebook only

        content = {"text/plain": text, "text/html": html}
        cell = get_ipython().execution_count
        if self._cell == cell:
            self._output.update(content, raw=True)
        else:
            self._cell, self._output = cell, display.display(content, raw=True, display_id=True)


def is_notebook() -> bool:
    """Check whether this process is the kernel of a notebook."""
    if "ipykernel" not in sys.modules:
        return False
    from IPython import get_ipython  # noqa: PLC0415 - used in a notebook only

    return getattr(get_ipython(), "kernel", None) is not None
