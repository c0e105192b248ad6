"""The service log: JSON lines on standard error, each with the id of its request.

Headers are never logged, and tokens are masked everywhere.
"""

import io
import logging
import sys
import threading
import time
import traceback
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final, TextIO

import msgspec

from benchlock.artifacts.user_output import escape_json
from benchlock.registry.auth.token_format import mask_tokens

LOGGER_NAME: Final = "benchlock"
REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""The id of the current request."""
FAILURE_REASON: ContextVar[str] = ContextVar("failure_reason", default="")
"""Why the current request failed; empty if it did not."""

log = logging.getLogger(LOGGER_NAME)


def _fields(level: str, message: str, seconds: float) -> dict[str, Any]:
    when = datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")
    return {"time": when, "level": level, "message": message}


def _log_uncaught(kind: type[BaseException], error: BaseException | None, _: object = None) -> None:
    """Log an exception that nobody caught, as Python would print it."""
    log.critical("uncaught %s", kind.__name__, exc_info=error)


class JsonLines(logging.Formatter):
    """A formatter that writes each record as a line of JSON, with ``extra={"fields": …}`` beside the message."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a record as one line of JSON, with its request id and exception."""
        line = _fields(record.levelname.lower(), record.getMessage(), record.created)
        if (request := REQUEST_ID.get()) is not None:
            line["request_id"] = request
        line |= getattr(record, "fields", {})
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = "".join(traceback.format_exception(record.exc_info[1]))
        return escape_json(mask_tokens(msgspec.json.encode(line).decode()))


class JsonStream(io.TextIOBase):
    """A stand-in for standard error: each line that is written to it becomes a line of JSON on ``stream``."""

    def __init__(self, stream: TextIO) -> None:
        """Write to ``stream``."""
        self._stream = stream
        self._partial_line = ""
        self._lock = threading.Lock()

    def write(self, text: str) -> int:
        """Write each complete line of ``text`` as JSON; keep the rest until its line is complete."""
        with self._lock:
            *lines, self._partial_line = (self._partial_line + text).split("\n")
            for line in filter(str.strip, lines):
                entry = msgspec.json.encode(_fields("error", line, time.time())).decode()
                self._stream.write(mask_tokens(entry) + "\n")
            self._stream.flush()
        return len(text)

    def flush(self) -> None:
        """Flush the underlying stream."""
        self._stream.flush()

    def fileno(self) -> int:
        """Return the file descriptor of the underlying stream."""
        return self._stream.fileno()


def log_to_stderr() -> None:
    """Write everything on standard error as lines of JSON: logs, warnings, tracebacks and printed text.

    Output of C libraries that bypasses ``sys.stderr`` is not converted.
    """
    # Without source positions and thread names, which take half of the time of a line.
    logging._srcfile = None  # noqa: SLF001 - documented, for exactly this
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    stderr = sys.stderr
    sys.stderr = JsonStream(stderr)
    sys.excepthook = _log_uncaught
    threading.excepthook = lambda arguments: _log_uncaught(
        arguments.exc_type, arguments.exc_value, arguments.exc_traceback
    )
    logging.captureWarnings(capture=True)
    lines = logging.StreamHandler(stderr)
    lines.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [lines]
    root.setLevel(logging.WARNING)
    log.setLevel(logging.INFO)
