"""Commands whose processes need not start: a server that has loaded the command line forks one for each.

All else is a process's own: words, variables, folder, output, end. That a command starts by itself is tested wherever
one is killed, races with others, has no network or is called by a shell, and by what looks at the modules it loads.
"""

import atexit
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import NoReturn

from tests.support.api.commands import BENCHLOCK, SECONDS, Commands

ROOT = Path(__file__).resolve().parents[3]
_MAX_USE = (
    "alembic.command",
    "benchlock.api.local.local_registry",
    "benchlock.evaluator.workflows.bundles",
    "benchlock.evaluator.workflows.run",
    "benchlock.registry.lock.lock_creation",
    "benchlock.registry.publishing.publication",
)
"""What commands import when they know that they need it."""
_LONGEST = 1 << 17  # bytes of a question: the words and the variables


@dataclass(frozen=True, slots=True)
class Warm(Commands):
    """Commands that are forked; what is started by ``command`` is not."""

    def finished(self, *words: str | Path) -> "subprocess.CompletedProcess[str]":
        command = self.command(*words)
        asked = {"words": command, "variables": self.environment(), "folder": str(Path.cwd())}
        with (
            tempfile.TemporaryFile("w+") as output,
            tempfile.TemporaryFile("w+") as errors,
            socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection,
        ):
            connection.settimeout(SECONDS)
            connection.connect(str(_server()))
            socket.send_fds(connection, [json.dumps(asked).encode()], [output.fileno(), errors.fileno()])
            code = int(connection.recv(_LONGEST))
            output.seek(0)
            errors.seek(0)
            return subprocess.CompletedProcess(command, code, output.read(), errors.read())


@dataclass(frozen=True, slots=True)
class Printed(Warm):
    """Commands that answer a person: not in JSON."""

    def command(self, *words: str | Path) -> list[str]:
        return [str(BENCHLOCK), *map(str, words)]


@cache
def _server() -> Path:
    """Where this process's server listens; it ends with this process."""
    folder = Path(tempfile.mkdtemp(prefix="benchlock-warm-"))
    command = [sys.executable, "-m", "tests.support.api.warm", str(folder / "socket")]
    process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    assert process.stdout

    def end() -> None:
        process.kill()
        process.communicate()
        shutil.rmtree(folder)

    atexit.register(end)
    assert process.stdout.readline(), "the server of commands did not start"
    return folder / "socket"


def serve(place: str) -> None:
    """Answer until killed; returns in the processes that are to be commands, as if they had just been started."""
    for path in sorted((ROOT / "api" / "cli").glob("*.py")):
        import_module(f"benchlock.api.cli.{path.stem}")
    for name in _MAX_USE:
        import_module(name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(place)
        listener.listen(64)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # so that none stays as a zombie
        while True:
            connection, _ = listener.accept()
            if os.fork() == 0:
                break
            connection.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    question, ends, *_ = socket.recv_fds(connection, _LONGEST, 2)
    if number := os.fork():
        _tell(connection, number)
    connection.close()
    _become(json.loads(question), ends)


def _tell(connection: socket.socket, number: int) -> NoReturn:
    code = os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
    connection.send(str(code).encode())
    os._exit(0)


def _become(asked: dict[str, object], ends: list[int]) -> None:
    words, variables = asked["words"], asked["variables"]
    assert isinstance(words, list)
    assert isinstance(variables, dict)
    for number, end in enumerate(ends, start=1):
        os.dup2(end, number)
        os.close(end)
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(str(asked["folder"]))
    sys.argv = words


if __name__ == "__main__":
    from benchlock.api.cli.main import main

    serve(sys.argv[1])
    main()
