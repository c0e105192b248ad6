"""Commands on a pseudo-terminal, for tests of what a user sees there."""

import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios

SECONDS = 120
"""After so long a command is taken to hang."""


def clean_environment(**variables: str) -> dict[str, str]:
    """The environment without settings of benchlock and of colors, and with ``variables``."""
    colors = ("NO_COLOR", "FORCE_COLOR", "TERM", "COLUMNS", "LINES")
    inherited = {
        name: value for name, value in os.environ.items() if not name.startswith("BENCHLOCK_") and name not in colors
    }
    return inherited | {"TERM": "xterm-256color"} | variables


def show_on_terminal(script: str, columns: int = 80, **variables: str) -> str:
    """Run a Python script whose standard output and error are a terminal; everything that it prints there."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen(
        [sys.executable, "-c", script],
        stdin=subprocess.DEVNULL,
        stdout=follower,
        stderr=follower,
        env=clean_environment(**variables),
    ) as process:
        os.close(follower)
        chunks = []
        while chunk := _read(leader):
            chunks.append(chunk)
        process.wait(SECONDS)
    os.close(leader)
    assert process.returncode == 0
    return b"".join(chunks).decode().replace("\r\n", "\n")


def _read(leader: int) -> bytes:
    """The next bytes of the terminal; none once the last program has closed it."""
    try:
        return os.read(leader, 1 << 16)
    except OSError:
        return b""
