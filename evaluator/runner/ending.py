"""How a run ended, in a container or as a process, and which class of failure that is."""

import itertools
import signal
from dataclasses import dataclass

from benchlock.evaluator.runner.results import FailureClass, Result
from benchlock.registry.quantities import spell_bytes

_LINES_OF_LOG = 5
# What faulthandler writes; of Python's own traces the last line says why, of its the first after these says where.
_FATAL = "Fatal Python error: "
_DEEPEST_FIRST = "(most recent call first):"
_OWN_THREAD = "Current thread"
_SIGNALLED = 128


@dataclass(frozen=True, slots=True)
class Ending:
    """``code`` is None where it was ended for its time; ``started_in`` and ``ran`` are seconds.

    ``watched`` are the seconds of CPU that this process, which waited, took meanwhile: it must leave them to the run.
    ``excess`` says by what the output is beyond its quota; nothing of it is read then. ``fault`` says what is wrong
    with the files of a stage that ended well by its own account. ``cpu`` are the seconds of CPU that the control group
    of a container counted, None where nobody counted.
    """

    code: int | None
    out_of_memory: bool
    log: bytes
    started_in: float
    ran: float
    watched: float
    excess: str | None = None
    fault: str | None = None
    cpu: float | None = None


@dataclass(frozen=True, slots=True)
class Failure:
    kind: FailureClass
    message: str


def failure_of(
    ending: Ending, result: Result | None, fault: str | None, seconds: float, memory: int | None = None
) -> Failure | None:
    """Why the run failed, None if it is done.

    A run that was ended for its time left nothing that counts. The harness' own word comes next, but for deaths that
    it could not explain and the engine can. ``fault`` says why a result could not be read; ``memory`` are the bytes
    that the run could have, None where nothing held it to them.
    """
    if ending.excess is not None:
        return Failure("output", f"it wrote {ending.excess} into its output folder, and was stopped")
    if ending.code is None:
        return Failure("timeout", f"it ran longer than the limit of {seconds:g} s, and was ended")
    return _failure_of_harness(ending, ending.code, result, fault or ending.fault, memory)


def _failure_of_harness(
    ending: Ending, code: int, result: Result | None, fault: str | None, memory: int | None
) -> Failure | None:
    failed = None if result is None else result.failure
    if ending.out_of_memory and (result is None or (failed is not None and failed.kind == "crash")):
        return Failure("out-of-memory", f"the kernel killed a process: the limit of memory was reached{_limit(memory)}")
    if failed is not None:
        more = {"crash": _last_words(ending.log), "out-of-memory": _limit(memory)}.get(failed.kind, "")
        return Failure(failed.kind, failed.message + more)
    if fault is not None:
        return Failure("crash", fault)
    if result is None:
        return Failure("crash", f"the harness {_death(code)} and left no result{_last_words(ending.log)}")
    if code != 0:  # of a harness that wrote its result it is 0: something else wrote this one
        return Failure("crash", f"the harness {_death(code)} beside a result{_last_words(ending.log)}")
    return None


def _death(code: int) -> str:
    """A container's code above 128, or a process's below 0, is a signal."""
    number = -code if code < 0 else code - _SIGNALLED
    if number in set(signal.Signals):
        return f"was killed by {signal.Signals(number).name}"
    return f"ended with exit code {code}"


def _limit(memory: int | None) -> str:
    return "" if memory is None else f" (limits.memory is {spell_bytes(memory)})"


def _last_words(log: bytes) -> str:
    lines = [line.strip() for line in log.decode(errors="replace").splitlines() if line.strip()]
    words = _of_dump(lines) or lines[-_LINES_OF_LOG:]
    return ": " + " | ".join(words) if words else ""


def _of_dump(lines: list[str]) -> list[str]:
    """What died, and the deepest frames of the thread that did it; nothing where the lines end in no dump."""
    fatal = max((number for number, line in enumerate(lines) if line.startswith(_FATAL)), default=None)
    if fatal is None or any("(most recent call last):" in line for line in lines[fatal:]):
        return []
    heads = [number for number in range(fatal, len(lines)) if lines[number].endswith(_DEEPEST_FIRST)]
    own = [number for number in heads if lines[number].startswith(_OWN_THREAD)] or heads
    if not own:
        return []
    frames = itertools.takewhile(lambda line: line.startswith("File "), lines[own[0] + 1 :])
    return [lines[fatal], *itertools.islice(frames, _LINES_OF_LOG - 1)]
