"""A trial: the harness does something on golden tensors, in the environment of a lock, and no run is recorded."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.runner.ending import Failure, failure_of
from benchlock.evaluator.runner.results import open_output, read_result
from benchlock.evaluator.runner.stages import Finished

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


def tried(finished: Finished, seconds: float) -> Trial:
    """Read what the harness left of a trial.

    Args:
        finished: How the trial ended.
        seconds: The time that each stage had.
    """
    failure, document = _read(finished, seconds)
    if failure is not None:
        return Trial(replace(failure, message=finished.translate(failure.message)))
    report, quality = dict(document.get("golden") or {}), dict[str, Any]()
    names = dict(enumerate(finished.files))
    if names and all(number in names for number in report.get("numbers", ())):
        report["names"] = [names[number] for number in report["numbers"]]
    if finished.scored is not None:
        failure, document = _read(finished.scored, seconds)
        if failure is not None:
            return Trial(failure)
        quality = document.get("quality") or {}
    stream = open_output(finished.output, GOLDEN)
    content = None
    if stream is not None:
        with stream:
            content = stream.read(_LARGEST + 1)
    if content is not None and len(content) > _LARGEST:
        return Trial(Failure("crash", f"the harness left a {GOLDEN} of more than {_LARGEST} bytes"))
    return Trial(None, report, quality, content)


def _read(finished: Finished, seconds: float) -> tuple[Failure | None, Mapping[str, Any]]:
    """Read the result of a stage; why it failed, or its document."""
    try:
        found, fault = read_result(finished.output), None
    except InvalidInputError as error:
        found, fault = None, error.what
    result, document = found or (None, dict[str, Any]())
    return failure_of(finished.ending, result, fault, seconds), document
