"""Logs as lines of JSON on standard error: what happened, when, in answer to which request.

No header is logged, and what looks like a token is masked wherever it stands.
"""

import logging
import traceback
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from registry.access.secret import masked

NAME: Final = "benchlock"
REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""Of the request that is being answered."""
TOLD: ContextVar[str] = ContextVar("told", default="")
"""Why that request is not done, where it is not."""

log = logging.getLogger(NAME)


class JsonLines(logging.Formatter):
    """One line a record; what ``extra={"fields": …}`` brings stands beside the message."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
        }
        if (request := REQUEST_ID.get()) is not None:
            line["request_id"] = request
        line |= getattr(record, "fields", {})
        if record.exc_info and record.exc_info[1] is not None:
            line["error"] = "".join(traceback.format_exception(record.exc_info[1]))
        return masked(msgspec.json.encode(line).decode())


def log_to_stderr() -> None:
    """Have everything that is logged, by libraries too, written as lines of JSON."""
    # No line says where in the program or on which thread it was written: looking for that takes half of its time.
    logging._srcfile = None  # noqa: SLF001 - documented, for exactly this
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    lines = logging.StreamHandler()
    lines.setFormatter(JsonLines())
    root = logging.getLogger()
    root.handlers[:] = [lines]
    root.setLevel(logging.WARNING)
    log.setLevel(logging.INFO)
