"""The exit code, HTTP status and problem type of each class of error, and the JSON document of an error.

The tables are keyed by the errors' codes, so this module imports no module that raises them. A class without an
entry of its own has the entry of its nearest ancestor.
"""

from dataclasses import dataclass
from typing import Any, Final

from benchlock.artifacts.errors import BenchlockError

EXIT_REFUSED, EXIT_INVALID, EXIT_CONFLICT, EXIT_INTEGRITY, EXIT_UNAVAILABLE, EXIT_INTERRUPTED = 1, 2, 3, 4, 5, 130
EXIT_TOKEN_REFUSED = 6
"""The exit code of a worker whose token is refused. A restart with the same token is of no use."""
EXIT_UNDECIDED = 7
"""The exit code of a gate that needs more rounds to decide."""


@dataclass(frozen=True, slots=True)
class Fault:
    """The problem type, exit code and HTTP status of a kind of error."""

    reason: str
    exit_code: int
    status: int
    title: str


INTERNAL: Final = Fault("internal", EXIT_UNAVAILABLE, 500, "Internal server error")

_ALL: Final = (
    Fault("malformed", EXIT_INVALID, 400, "Malformed request"),
    Fault("error", EXIT_INVALID, 400, "Operation failed"),
    Fault("unauthorized", EXIT_INVALID, 401, "Authentication required"),
    Fault("token-refused", EXIT_TOKEN_REFUSED, 401, "Token expired or revoked"),
    Fault("forbidden", EXIT_INVALID, 403, "Insufficient scope"),
    Fault("unknown-name", EXIT_INVALID, 404, "Unknown name"),
    Fault("method-not-allowed", EXIT_INVALID, 405, "Method not allowed"),
    Fault("too-slow", EXIT_UNAVAILABLE, 408, "Request timeout"),
    Fault("refused", EXIT_REFUSED, 409, "Operation refused"),
    Fault("version-taken", EXIT_INVALID, 409, "Version exists with different content"),
    Fault("missing-blobs", EXIT_INVALID, 409, "Missing blobs"),
    Fault("conflict", EXIT_CONFLICT, 409, "Version conflict"),
    Fault("too-large", EXIT_INVALID, 413, "Request too large"),
    Fault("unnamed-bytes", EXIT_REFUSED, 413, "Too many unreferenced bytes"),
    Fault("unsupported-media", EXIT_INVALID, 415, "Unsupported media type"),
    Fault("range-not-satisfiable", EXIT_INVALID, 416, "Range not satisfiable"),
    Fault("invalid-input", EXIT_INVALID, 422, "Invalid input"),
    Fault("integrity", EXIT_INTEGRITY, 422, "Digest mismatch"),
    Fault("too-many-requests", EXIT_UNAVAILABLE, 429, "Too many requests"),
    Fault("head-too-large", EXIT_INVALID, 431, "Request headers too large"),
    INTERNAL,
    Fault("damaged-database", EXIT_INTEGRITY, 500, "Damaged database"),
    Fault("unavailable", EXIT_UNAVAILABLE, 503, "External service or resource unavailable"),
    Fault("low-space", EXIT_UNAVAILABLE, 507, "Insufficient disk space"),
)

FAULTS: Final = {fault.reason: fault for fault in _ALL}


def fault_of(error: BaseException) -> Fault:
    """Return the fault of an error's class; ``INTERNAL`` if neither the class nor an ancestor has one."""
    ancestors = (kind for kind in type(error).__mro__ if issubclass(kind, BenchlockError) and "code" in vars(kind))
    return next((FAULTS[kind.code] for kind in ancestors if kind.code in FAULTS), INTERNAL)


def fault_of_status(status: int) -> Fault:
    """Return the first fault with the HTTP status ``status``, else the default of its hundred."""
    usual = INTERNAL if status >= INTERNAL.status else FAULTS["error"]
    return next((fault for fault in _ALL if fault.status == status), usual)


def error_document(error: BenchlockError) -> dict[str, Any]:
    """Return the JSON document of an error; ``problems`` lists all errors that were found together, in order."""
    document = _summarize(error)
    conflict = getattr(error, "conflict", None)
    if conflict is not None:
        document["conflict"] = conflict
    if error.problems:
        document["problems"] = [_summarize(problem) for problem in error.problems]
    return document


def _summarize(error: BenchlockError) -> dict[str, Any]:
    return {"code": error.code, "message": error.what, "where": error.where, "next": error.next_step}
