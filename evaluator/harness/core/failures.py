"""Failure classes of a run, and the failure that a phase raises."""

from contextlib import AbstractContextManager
from typing import Literal, get_args

FailureClass = Literal[
    "out-of-memory", "crash", "load", "step", "predict", "non-finite", "golden", "loadgen-invalid", "desync"
]

_LONGEST_REASON = 600
# Messages of failed allocations for which frameworks raise no MemoryError: libstdc++ through ONNX Runtime, its arena,
# PyTorch's allocator, TensorFlow's error code and its allocator.
_MEMORY_WORDS = (
    "bad_alloc",
    "Failed to allocate memory",
    "not enough memory",
    "can't allocate memory",
    "RESOURCE_EXHAUSTED",
    "OOM when allocating",
)


class Failure(Exception):  # noqa: N818 - a failure is a result with a class, not an error of the harness
    """A failure that becomes the result of the run."""

    def __init__(self, kind: FailureClass, message: str) -> None:
        """Create a failure of class ``kind``."""
        assert kind in get_args(FailureClass)
        super().__init__(message)
        self.kind = kind
        self.message = message


def describe_error(error: BaseException) -> str:
    """Describe ``error`` in one line of bounded length, with its notes in parentheses.

    A longer line loses its middle, because frameworks put their own traces between the event and its cause.
    """
    text = " ".join(str(error).split())
    notes = "; ".join(" ".join(str(note).split()) for note in getattr(error, "__notes__", ()))
    line = f"{type(error).__name__}: {text or 'no message'}{f' ({notes})' if notes else ''}"
    if len(line) <= _LONGEST_REASON:
        return line
    half = _LONGEST_REASON // 2
    return f"{line[: half - 2]} … {line[-half + 1 :]}"


def make_failure(kind: FailureClass, where: str, error: BaseException) -> Failure:
    """Convert ``error`` into a failure of class ``kind``, or ``out-of-memory`` where an allocation failed."""
    message = f"{where}: {describe_error(error)}"
    exhausted = isinstance(error, MemoryError) or any(words in message for words in _MEMORY_WORDS)
    return Failure("out-of-memory" if exhausted else kind, message)


def classify_errors(kind: FailureClass, where: str) -> AbstractContextManager[None]:
    """Turn any error inside the context into a ``Failure`` whose message begins with ``where``."""
    return _Failing(kind, where)


class _Failing(AbstractContextManager[None]):
    """The context of ``classify_errors``; a class, because a generator is slower and every step enters one."""

    __slots__ = ("_kind", "_where")

    def __init__(self, kind: FailureClass, where: str) -> None:
        self._kind: FailureClass = kind
        self._where = where

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, Failure):
            raise make_failure(self._kind, self._where, error) from error
