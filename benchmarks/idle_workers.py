"""What a worker that waits for its first job takes of memory and of a CPU."""

import argparse
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from benchlock.api.local.local_registry import open_registry
from benchmarks.resolving.report import machine, write
from tests.support.api.commands import BENCHLOCK
from tests.support.api.serving import service

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
SIZES = {"Pss": "proportional (PSS)", "Rss": "resident (RSS)", "Anonymous": "of its own (anonymous)"}
BAR_MIB, BAR_CPU = 60, 0.5
METHOD = """\
Workers that have enrolled and wait for their first job; the bytes are those of `/proc/PID/smaps_rollup`, the CPU time
that of `/proc/PID/stat` in the last half of the wait. Medians of the workers. A worker keeps what its first job loads.
MiB.
"""


def main() -> None:
    """Start workers, wait, and measure; print the table and the bars, and write them into RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    lines = [
        f"| registry | {' | '.join(SIZES.values())} | % of a CPU |",
        f"| --- |{' ---: |' * (len(SIZES) + 1)}",
    ]
    bars = []
    with tempfile.TemporaryDirectory(prefix="benchlock-idle-") as name:
        folder = Path(name)
        open_registry(str(folder / "registry"), print)
        with service(folder / "registry") as served:
            for title, place in (("a server", served.url), ("a folder", str(folder / "registry"))):
                found = measure(folder / title.replace(" ", "-"), place, options.workers, options.seconds)
                sizes = [statistics.median(one[size] for one in found) for size in SIZES]
                cpu = statistics.median(one["cpu"] for one in found)
                lines.append(f"| {title} | {' | '.join(f'{size:.0f}' for size in sizes)} | {cpu:.1f} |")
                met = "met" if sizes[0] <= BAR_MIB and cpu <= BAR_CPU else "not met"
                bars.append(f"- {met}: {title} (at most {BAR_MIB} MiB proportional and {BAR_CPU} % of a CPU)")
    ended = f"Measured {datetime.now(UTC):%Y-%m-%d}: --workers {options.workers} --seconds {options.seconds:.0f}, "
    ended += f"{'with' if os.environ.get('DOCKER_HOST') else 'without'} a Docker engine at DOCKER_HOST, "
    ended += f"load average {os.getloadavg()[0]:.1f} at the end."
    text = "\n".join(("## Idle workers", "", *machine(), "", METHOD, *lines, "", *bars, "", ended))
    write(RESULTS, "idle-workers", text)
    print(text)


def measure(folder: Path, place: str, workers: int, seconds: float) -> list[dict[str, float]]:
    """Return MiB by kind, and percent of a CPU, of each of the workers at the registry ``place`` after ``seconds``."""
    folder.mkdir()
    with ExitStack() as stack:
        processes = []
        for number in range(workers):
            processes.append(stack.enter_context(start(folder, place, f"machine-{number}")))
            stack.callback(processes[-1].terminate)
        time.sleep(seconds / 2)
        listing = [str(BENCHLOCK), "--registry", place, "machines", "--json"]
        enrolled = subprocess.run(listing, check=True, capture_output=True, text=True).stdout
        if not all(f'"machine-{number}"' in enrolled for number in range(workers)):
            sys.exit(f"a worker is not enrolled after {seconds / 2:.0f} s")
        before = [cpu_seconds(process) for process in processes]
        time.sleep(seconds / 2)
        shares = [(cpu_seconds(one) - start) / seconds * 200 for one, start in zip(processes, before, strict=True)]
        return [sizes(one) | {"cpu": share} for one, share in zip(processes, shares, strict=True)]


def start(folder: Path, place: str, name: str) -> "subprocess.Popen[bytes]":
    """Start a worker with a host lock and a cache of its own, so that each is a machine that waits."""
    own = {"BENCHLOCK_HOST_LOCK": str(folder / f"{name}.lock"), "XDG_CACHE_HOME": str(folder / name)}
    command = [str(BENCHLOCK), "--registry", place, "worker", "--machine", name, "--processes"]
    with (folder / f"{name}.log").open("wb") as log:
        return subprocess.Popen(command, env=os.environ | own, stdout=log, stderr=log)


def sizes(process: "subprocess.Popen[bytes]") -> dict[str, float]:
    """Return MiB by kind; a worker that ended has none."""
    text = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
    return {name: int(size) / 1024 for name, size in re.findall(r"^(\w+): +(\d+) kB", text, re.MULTILINE)}


def cpu_seconds(process: "subprocess.Popen[bytes]") -> float:
    """Return the CPU time of a process."""
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
