"""A service under hostile publications: what it answers, how its memory grows, how long other requests wait."""

import io
import statistics
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from artifacts.local import LocalStore
from tests.support.hostile import Case
from tests.support.serving import Served

_PAUSE_S = 0.01


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one publication did. Waits are those of other requests, in seconds; memory in bytes."""

    name: str
    sent: int
    status: int
    answer: dict[str, Any]
    seconds: float
    waits: tuple[float, ...]
    memory: int

    @property
    def median_wait(self) -> float:
        return statistics.median(self.waits)

    @property
    def worst_wait(self) -> float:
        return max(self.waits)


@dataclass(slots=True)
class Waits:
    """Asks for the health of a service again and again, in a thread, and keeps how long each answer took."""

    url: str
    taken: list[float] = field(default_factory=list)
    peak: int = 0
    pid: int = 0
    _over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        with httpx.Client(timeout=60) as client:
            while not self._over.is_set() or not self.taken:
                began = time.perf_counter()
                client.get(f"{self.url}/v1/health").raise_for_status()
                self.taken.append(time.perf_counter() - began)
                self.peak = max(self.peak, memory_of(self.pid))
                time.sleep(_PAUSE_S)

    def end(self) -> None:
        self._over.set()


def memory_of(pid: int) -> int:
    """Resident bytes of a process."""
    text = Path(f"/proc/{pid}/status").read_text()
    return next(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("VmRSS:"))


def watch(served: Served, act: Any) -> tuple[Any, Waits]:  # noqa: ANN401 - whatever it returns
    """Do something while another client asks for the service's health."""
    waits = Waits(served.url, pid=served.process.pid)
    thread = threading.Thread(target=waits.run)
    thread.start()
    try:
        done = act()
    finally:
        waits.end()
        thread.join()
    return done, waits


def send(registry: Path, case: Case) -> None:
    """Put the blobs of a case where the service looks for them."""
    store = LocalStore(registry / "blobs")
    for blob in case.blobs:
        store.put(io.BytesIO(blob))


def publish(served: Served, case: Case, *, dry_run: bool) -> Outcome:
    """Publish a case while another client watches."""
    send(served.registry, case)
    body = {"manifest": case.manifest, "authored": "", "dry_run": dry_run}
    began = time.perf_counter()
    answer, waits = watch(served, lambda: httpx.post(f"{served.url}/v1/artifacts", json=body, timeout=600))
    taken = time.perf_counter() - began
    return Outcome(case.name, case.bytes_sent, answer.status_code, answer.json(), taken, tuple(waits.taken), waits.peak)


def table(outcomes: Sequence[Outcome], before: int) -> str:
    """The outcomes, a line each."""
    lines = [f"{'case':24}{'sent':>12}{'status':>8}{'seconds':>9}{'median ms':>11}{'worst ms':>10}{'grown MiB':>11}"]
    lines += [
        f"{one.name:24}{one.sent:>12,}{one.status:>8}{one.seconds:>9.2f}{one.median_wait * 1e3:>11.1f}"
        f"{one.worst_wait * 1e3:>10.1f}{(one.memory - before) / (1 << 20):>11.1f}  {one.answer.get('detail', '')[:90]}"
        for one in outcomes
    ]
    return "\n".join(lines)
