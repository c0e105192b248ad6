"""External tools: their subprocesses, error messages and temporary folders."""

import fcntl
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from benchlock.artifacts.errors import UnavailableError

_PREFIX = "work-"


@contextmanager
def workspace(root: Path) -> Iterator[Path]:
    """Create an empty folder under ``root`` and remove it at the end; abandoned folders are removed first.

    Every user of ``root`` holds a shared lock while it works, and the kernel releases the lock when the process dies. A
    process with the exclusive lock therefore knows that all folders are abandoned.
    """
    root.mkdir(parents=True, exist_ok=True)
    lock = os.open(root / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        _sweep(root, lock)
        fcntl.flock(lock, fcntl.LOCK_SH)
        folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=root))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(lock)


def _sweep(root: Path, lock: int) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return  # another process is working; a later one removes the folders
    for folder in root.glob(f"{_PREFIX}*"):
        # A child of a killed build may still write here; remaining files are removed the next time.
        shutil.rmtree(folder, ignore_errors=True)


_LINES_SHOWN = 6
_SECONDS_TO_CLEAN_UP = 10


def run_tool(
    command: Sequence[str],
    *,
    what: str,
    next_step: str,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
) -> bytes:
    """Run an external tool and return its standard output.

    Args:
        command: The command line.
        what: The purpose of the tool, for the error message.
        next_step: The advice of the error message.
        stdin: The standard input.
        environment: The complete environment; None inherits this process's.

    Raises:
        UnavailableError: The tool cannot be started or fails; the message has the end of the tool's messages.
    """
    try:
        completed = run_group(command, stdin, environment)
    except OSError as error:
        raise UnavailableError(f"{what}: cannot start {command[0]}: {error}", next_step=next_step) from error
    if completed.returncode:
        raise UnavailableError(
            f"{what}: {last_lines(completed.stderr.decode(errors='replace'), completed.returncode)}",
            next_step=next_step,
        )
    return completed.stdout


def run_group(
    command: Sequence[str], stdin: bytes = b"", environment: Mapping[str, str] | None = None
) -> "subprocess.CompletedProcess[bytes]":
    """Run a tool to its end; if this process is interrupted, end the tool and its children, which can clean up.

    Args:
        command: The command line.
        stdin: The standard input.
        environment: The complete environment; None inherits this process's.

    Raises:
        OSError: The tool cannot be started.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, process_group=0) as process:
        try:
            output, errors = process.communicate(stdin)
        except BaseException:
            _end_group(process)
            raise
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


def _end_group(process: "subprocess.Popen[bytes]") -> None:
    """Terminate a process group, then kill the processes that remain."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        with suppress(subprocess.TimeoutExpired):
            process.wait(_SECONDS_TO_CLEAN_UP)
    finally:  # also after a second interruption
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)


def last_lines(messages: str, status: int) -> str:
    """Return the end of a tool's messages, or its exit status if there are none."""
    lines = [line for line in messages.splitlines() if line.strip()]
    return "\n".join(lines[-_LINES_SHOWN:]) or f"exit status {status}"


@contextmanager
def disk_errors(what: str) -> Iterator[None]:
    """Convert an error of the file system inside the context into ``UnavailableError``; ``what`` is the operation."""
    try:
        yield
    except OSError as error:
        raise UnavailableError(
            f"{what}: {error.strerror or error}",
            where=error.filename if isinstance(error.filename, str) else None,
            next_step="check free disk space and the permissions of the folder",
        ) from error
