"""Real commands that are cut short: started, watched until a moment has come, and then killed or interrupted."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.api.commands import Commands

_LONGEST_SECONDS = 240
_LOOK_SECONDS = 0.002


@contextmanager
def started(commands: Commands, *words: str | Path) -> Iterator["subprocess.Popen[bytes]"]:
    """The command as a process in a group of its own, ended with the context."""
    # An interrupt that this process was told to ignore, as shells tell what they start in the background, would be
    # ignored by the command too.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            commands.command(*words),
            env=commands.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            process_group=0,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def cut(
    commands: Commands,
    *words: str | Path,
    when: Callable[[], bool],
    after: float = 0,
    by: signal.Signals = signal.SIGKILL,
) -> int:
    """The exit code of the command, sent the signal ``after`` seconds after the moment that ``when`` says has come.

    Minus the signal where that ended it, as ``subprocess`` says it; what the command chose where it ended by itself.
    """
    with started(commands, *words) as process:
        end = time.monotonic() + _LONGEST_SECONDS
        while not when() and process.poll() is None:
            assert time.monotonic() < end, "the moment never came"
            time.sleep(_LOOK_SECONDS)
        time.sleep(after)
        if process.poll() is None:
            os.kill(process.pid, by)
        return process.wait(_LONGEST_SECONDS)
