"""A trial: the harness does something on golden tensors, in the environment of a lock, and no run is recorded."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from artifacts.errors import InvalidInputError
from evaluator.runner.ending import Ending, Failure, failure_of
from evaluator.runner.results import open_output, read_result

GOLDEN = "golden.npz"
"""What the harness calls the golden tensors that it makes."""

_LARGEST = 2 << 30


@dataclass(frozen=True, slots=True)
class Making:
    """Golden tensors to be made of ``numbers``, or of ``count`` samples that the harness chooses.

    ``judged``: of how many samples more the answers are compared with the labels.
    """

    count: int
    numbers: tuple[int, ...] = ()
    judged: int = 0


@dataclass(frozen=True, slots=True)
class Trial:
    """What came of it. ``golden`` are the bytes of the file that was made, None where none was asked for."""

    failure: Failure | None
    report: Mapping[str, Any] = field(default_factory=dict)
    quality: Mapping[str, Any] = field(default_factory=dict)
    golden: bytes | None = None


def tried(output: Path, ending: Ending, seconds: float) -> Trial:
    """What the harness left of a trial that had ``seconds``."""
    try:
        found, fault = read_result(output), None
    except InvalidInputError as error:
        found, fault = None, error.what
    result, document = found or (None, dict[str, Any]())
    failure = failure_of(ending, result, fault, seconds)
    if failure is not None:
        return Trial(failure)
    stream = open_output(output, GOLDEN)
    content = None
    if stream is not None:
        with stream:
            content = stream.read(_LARGEST + 1)
    if content is not None and len(content) > _LARGEST:
        return Trial(Failure("crash", f"the harness left a {GOLDEN} of more than {_LARGEST} bytes"))
    return Trial(None, document.get("golden") or {}, document.get("quality") or {}, content)
