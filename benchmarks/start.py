"""How long a command takes to start: `benchlock` beside bare Python and, if it is there, `dvc --version`.

Whole processes, interleaved round by round in one run; medians, and the ratio to bare Python round by round.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 15
BENCHLOCK = Path(sys.executable).parent / "benchlock"


def commands(registry: str) -> dict[str, list[str]]:
    """What is timed, by name; the first is what the others are compared with."""
    found = {
        "python -c pass": [sys.executable, "-c", "pass"],
        "benchlock --version": [str(BENCHLOCK), "--version"],
        "benchlock --help": [str(BENCHLOCK), "--help"],
        "benchlock list": [str(BENCHLOCK), "--registry", registry, "list"],
    }
    dvc = shutil.which("dvc")
    if dvc is None:
        print("dvc is not on the path, so it is not beside them")
        return found
    return found | {"dvc --version": [dvc, "--version"]}


def seconds(command: list[str]) -> float:
    """Wall-clock time of one process, started with compiled byte code as installed programs are."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    return time.perf_counter() - start


def main() -> None:
    """Print one line a command."""
    with tempfile.TemporaryDirectory() as registry:
        timed = commands(registry)
        seconds([str(BENCHLOCK), "--registry", registry, "db", "create"])
        for command in timed.values():
            seconds(command)  # caches warm
        rounds = [{name: seconds(command) for name, command in timed.items()} for _ in range(ROUNDS)]
    bare = next(iter(timed))
    print(f"{'command':22}{'median':>10}{'min':>10}{'max':>10}{'ratio to bare Python':>24}")
    for name in timed:
        taken = [one[name] for one in rounds]
        ratio = statistics.median(one[name] / one[bare] for one in rounds)
        print(f"{name:22}{statistics.median(taken):>9.3f}s{min(taken):>9.3f}s{max(taken):>9.3f}s{ratio:>24.1f}")


if __name__ == "__main__":
    main()
