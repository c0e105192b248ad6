"""Wall-clock time and memory of whole processes, on files that are not in the page cache."""

import os
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile

from benchmarks.resolving.measuring import forget

_SHOWN = 2000  # bytes of what a command said that failed


@dataclass(frozen=True, slots=True)
class Taken:
    """What commands took, one after another: seconds; peak bytes of memory of one process; the last exit code."""

    seconds: float
    memory: int
    code: int
    output: str

    def __add__(self, other: "Taken") -> "Taken":
        memory = max(self.memory, other.memory)
        return Taken(self.seconds + other.seconds, memory, other.code, self.output + other.output)


def environment(**variables: str) -> dict[str, str]:
    """This one without settings that change what is measured, and with ``variables``."""
    dropped = ("PYTHON", "BENCHLOCK_", "MLFLOW_", "DVC_")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(dropped)}
    return kept | {"COLUMNS": "100"} | variables


def timed(command: Sequence[str | Path], environment: Mapping[str, str], folder: Path) -> Taken:
    """Run a command in ``folder`` to its end."""
    with TemporaryFile() as output:
        start = time.perf_counter()
        started = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment, cwd=folder)
        _, status, used = os.wait4(started.pid, 0)
        seconds = time.perf_counter() - start
        started.returncode = os.waitstatus_to_exitcode(status)
        output.seek(0)
        said = output.read().decode(errors="replace")
    return Taken(seconds, used.ru_maxrss * 1024, started.returncode, said)


def succeeded(taken: Taken) -> Taken:
    """``taken`` itself; the run is over if the command failed, since its time would mean nothing."""
    if taken.code:
        raise SystemExit(f"exit code {taken.code}: {taken.output[-_SHOWN:]}")
    return taken


def files_below(path: Path) -> list[Path]:
    """The file itself, or those of a folder."""
    return [path] if path.is_file() else [found for found in sorted(path.rglob("*")) if found.is_file()]


def calm(paths: Iterable[Path]) -> None:
    """Nothing waits to be written any more, and none of these files lies in the page cache."""
    os.sync()
    for path in paths:
        for file in files_below(path):
            forget(file)
