"""How a run ended, in a container or as a process, and which class of failure that is."""

import signal
from dataclasses import dataclass

from evaluator.runner.results import FailureClass, Result

_LINES_OF_LOG = 5
_SIGNALLED = 128


@dataclass(frozen=True, slots=True)
class Ending:
    """``code`` is None where it was ended for its time; ``started_in`` and ``ran`` are seconds.

    ``watched`` are the seconds of CPU that this process, which waited, took meanwhile: it must leave them to the run.
    """

    code: int | None
    out_of_memory: bool
    log: bytes
    started_in: float
    ran: float
    watched: float


@dataclass(frozen=True, slots=True)
class Failure:
    kind: FailureClass
    message: str


def failure_of(ending: Ending, result: Result | None, fault: str | None, seconds: float) -> Failure | None:
    """Why the run failed, None if it is done.

    A run that was ended for its time left nothing that counts. The harness' own word comes next, but for deaths that
    it could not explain and the engine can. ``fault`` says why a result could not be read.
    """
    if ending.code is None:
        return Failure("timeout", f"it ran longer than the limit of {seconds:g} s, and was ended")
    failed = None if result is None else result.failure
    if ending.out_of_memory and (result is None or (failed is not None and failed.kind == "crash")):
        return Failure("out-of-memory", "the kernel killed a process: the limit of memory was reached")
    if failed is not None:
        return Failure(failed.kind, failed.message + (_last_words(ending.log) if failed.kind == "crash" else ""))
    if fault is not None:
        return Failure("crash", fault)
    if result is None:
        return Failure("crash", f"the harness {_death(ending.code)} and left no result{_last_words(ending.log)}")
    return None


def _death(code: int) -> str:
    """A container's code above 128, or a process's below 0, is a signal."""
    number = -code if code < 0 else code - _SIGNALLED
    if number in set(signal.Signals):
        return f"was killed by {signal.Signals(number).name}"
    return f"ended with exit code {code}"


def _last_words(log: bytes) -> str:
    lines = [line for line in log.decode(errors="replace").splitlines() if line.strip()]
    return ": " + " | ".join(lines[-_LINES_OF_LOG:]) if lines else ""
