"""Failure classes of a run, and the failure that a phase raises."""

from contextlib import AbstractContextManager
from typing import Literal, get_args

FailureClass = Literal["out-of-memory", "crash", "load", "step", "predict", "non-finite", "golden", "loadgen-invalid"]

_LONGEST_REASON = 600
# What frameworks say when an allocation fails and no MemoryError is raised: libstdc++ through ONNX Runtime, PyTorch's
# allocator, TensorFlow's error code and its allocator.
_MEMORY_WORDS = ("bad_alloc", "not enough memory", "can't allocate memory", "RESOURCE_EXHAUSTED", "OOM when allocating")


class Failure(Exception):  # noqa: N818 - a failure is a result with a class, no error of the harness
    """A failure that becomes the run's result."""

    def __init__(self, kind: FailureClass, message: str) -> None:
        assert kind in get_args(FailureClass)
        super().__init__(message)
        self.kind = kind
        self.message = message


def describe_error(error: BaseException) -> str:
    """What ``error`` says, in one line of bounded length.

    Its notes follow in parentheses. What is left out is from the middle: frameworks put traces of their own between
    what happened and why.
    """
    text = " ".join(str(error).split())
    notes = "; ".join(" ".join(str(note).split()) for note in getattr(error, "__notes__", ()))
    line = f"{type(error).__name__}: {text or 'it gives no reason'}{f' ({notes})' if notes else ''}"
    if len(line) <= _LONGEST_REASON:
        return line
    half = _LONGEST_REASON // 2
    return f"{line[: half - 2]} … {line[-half + 1 :]}"


def make_failure(kind: FailureClass, where: str, error: BaseException) -> Failure:
    """The failure that ``error`` is: of class ``kind``, unless memory ran out."""
    message = f"{where}: {describe_error(error)}"
    exhausted = isinstance(error, MemoryError) or any(words in message for words in _MEMORY_WORDS)
    return Failure("out-of-memory" if exhausted else kind, message)


def classify_errors(kind: FailureClass, where: str) -> AbstractContextManager[None]:
    """Turn any error inside into a ``Failure`` that names ``where``."""
    return _Failing(kind, where)


class _Failing(AbstractContextManager[None]):
    """The context of ``failing``: a class, since a generator takes longer and every step has one."""

    __slots__ = ("_kind", "_where")

    def __init__(self, kind: FailureClass, where: str) -> None:
        self._kind: FailureClass = kind
        self._where = where

    def __exit__(self, _type: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, Exception) and not isinstance(error, Failure):
            raise make_failure(self._kind, self._where, error) from error
