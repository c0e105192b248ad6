"""A service under hostile publications: what it answers, how its memory grows, how long other requests wait."""

import io
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from benchlock.artifacts.stores.local_store import LocalStore
from tests.support.api.probing import watch
from tests.support.api.serving import Served
from tests.support.registry.hostile import Case


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
    answer, waits = watch(
        served.url, served.process.pid, lambda: httpx.post(f"{served.url}/v1/artifacts", json=body, timeout=600)
    )
    taken = time.perf_counter() - began
    return Outcome(case.name, case.bytes_sent, answer.status_code, answer.json(), taken, waits.taken, waits.peak)


def ask(served: Served, path: str, body: dict[str, Any], name: str) -> Outcome:
    """Send a request below ``/v1`` while another client watches."""
    began = time.perf_counter()
    answer, waits = watch(
        served.url, served.process.pid, lambda: httpx.post(f"{served.url}/v1/{path}", json=body, timeout=600)
    )
    taken = time.perf_counter() - began
    sent = int(answer.request.headers["content-length"])
    return Outcome(name, sent, answer.status_code, answer.json(), taken, waits.taken, waits.peak)


def table(outcomes: Sequence[Outcome], before: int) -> str:
    """The outcomes, a line each."""
    lines = [f"{'case':24}{'sent':>12}{'status':>8}{'seconds':>9}{'median ms':>11}{'worst ms':>10}{'grown MiB':>11}"]
    lines += [
        f"{one.name:24}{one.sent:>12,}{one.status:>8}{one.seconds:>9.2f}{one.median_wait * 1e3:>11.1f}"
        f"{one.worst_wait * 1e3:>10.1f}{(one.memory - before) / (1 << 20):>11.1f}  {one.answer.get('detail', '')[:90]}"
        for one in outcomes
    ]
    return "\n".join(lines)
