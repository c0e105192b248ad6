"""What an isolated call may use, and the errors of calls that use more."""

from typing import Final

from msgspec import Struct

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import InvalidInputError

_MIB: Final = 1 << 20


class Limits(Struct, frozen=True, kw_only=True):
    """The resources of one isolated call.

    Attributes:
        memory: Bytes of address space, the interpreter's own included.
        cpu_seconds: Seconds of processor time.
        seconds: Seconds that the call may last; waiting for the calling process does not count.
        files: Descriptors that may be open at once.
        result: Bytes of the result as JSON.
    """

    memory: int = 1024 * _MIB
    cpu_seconds: int = 60
    seconds: float = 300.0
    files: int = 64
    result: int = 8 * _MIB


class LimitExceededError(InvalidInputError):
    """An isolated call needed more than its limits. ``blob`` is the one that it opened last, None if it opened none."""

    code = "limit-exceeded"
    blob: Digest | None = None


class IsolatedFaultError(InvalidInputError):
    """An isolated call failed with an unexpected error. ``blob`` is the one that it opened last."""

    code = "isolated-fault"
    blob: Digest | None = None
