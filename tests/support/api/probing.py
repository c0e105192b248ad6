"""Asks a service for its health again and again, in a process of its own: no other thread delays its clock.

``python -m tests.support.api.probing HOST PORT PID`` probes until its standard input ends, then writes the result.
"""

import http.client
import json
import select
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

T = TypeVar("T")
_PAUSE_S = 0.01


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds that each answer took, and the largest resident memory of the service's process, in bytes."""

    taken: tuple[float, ...]
    peak: int


def memory_of(pid: int) -> int:
    """Resident bytes of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("VmRSS:"))


def watch(url: str, pid: int, act: Callable[[], T]) -> tuple[T, Waits]:
    """Do something while another process asks for the service's health.

    Args:
        url: The service.
        pid: Its process.
        act: What is done meanwhile.
    """
    place = urlsplit(url)
    command = [sys.executable, "-m", "tests.support.api.probing", str(place.hostname), str(place.port), str(pid)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as prober:
        assert prober.stdin is not None
        assert prober.stdout is not None
        prober.stdout.readline()  # it has begun
        try:
            done = act()
        finally:
            prober.stdin.close()
            result = json.loads(prober.stdout.readline() or "null")
    return done, Waits(tuple(result["taken"]), result["peak"])


def probe(host: str, port: int, pid: int) -> Waits:
    """Ask until standard input ends, and at least once after the first answer."""
    connection = http.client.HTTPConnection(host, port, timeout=60)
    taken, peak, has_begun = list[float](), 0, False
    while not taken or not _has_ended():
        began = time.perf_counter()
        connection.request("GET", "/v1/health")
        answer = connection.getresponse()
        answer.read()
        assert answer.status == http.client.OK
        taken.append(time.perf_counter() - began)
        peak = max(peak, memory_of(pid))
        if not has_begun:
            has_begun = True
            taken.clear()  # the first one connects
            sys.stdout.write("begun\n")
            sys.stdout.flush()
        time.sleep(_PAUSE_S)
    return Waits(tuple(taken), peak)


def _has_ended() -> bool:
    return bool(select.select([sys.stdin], [], [], 0)[0])


if __name__ == "__main__":
    found = probe(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
    sys.stdout.write(json.dumps({"taken": found.taken, "peak": found.peak}) + "\n")
