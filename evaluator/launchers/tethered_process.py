"""Run a command that gets SIGTERM as soon as the process that started it is gone.

``python -m benchlock.evaluator.launchers.tethered_process PARENT COMMAND...`` replaces itself by the command.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Sequence
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def tether(words: Sequence[str]) -> list[str]:
    """Return the command line that runs ``words`` for as long as the calling thread lives."""
    return [sys.executable, "-m", __spec__.name, str(os.getpid()), *words]


def main() -> None:
    """Become the command in ``sys.argv``; exit if the parent is gone already."""
    parent, words = int(sys.argv[1]), sys.argv[2:]
    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() == parent:
        os.execv(words[0], words)  # noqa: S606 - the starter's own command, without a shell


if __name__ == "__main__":
    main()
