"""How long a job waits for an idle machine: one that the queue wakes, beside one that asks each second."""

import argparse
import os
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from sqlalchemy import Engine

from benchlock.api.client.embedded_queue import open_queue
from benchlock.api.local.local_registry import now, open_registry
from benchlock.artifacts.digest import Digest
from benchlock.evaluator.queue.queue_types import JobRequest, Lease, Queue, new_job_id
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.registry.catalogue.catalogue import Catalogue
from benchmarks.queueing.places import places
from benchmarks.resolving.report import machine as host
from benchmarks.resolving.report import write
from benchmarks.viewing.bars import p95
from tests.support.api.live_runs import connect_worker
from tests.support.api.serving import service
from tests.support.evaluator.queues import ANY, BOOT, facts, machine
from tests.support.resolution.variants import variant

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
ASK_SECONDS, WAIT_SECONDS = 1.0, 4.0
METHOD = """\
A machine without a job is enrolled; after a random pause of 1 to 2 s another thread submits a job that it can run. The
time is from the call that submits it until the machine has its lease. Interleaved: every round measures each way once.
Over HTTP, the machine asks a service of its own process. Milliseconds.
"""


def wake(queue: Queue) -> None:
    """Wait as an agent does."""
    queue.wait_for_job(machine(1), WAIT_SECONDS)


def ask(_: Queue) -> None:
    """Pause as agents did before."""
    time.sleep(ASK_SECONDS)


def main() -> None:
    """Measure in rounds; print the table, and write it into RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=30)
    rounds = parser.parse_args().rounds
    lines = ["| queue | woken, p50 | p95 | asking each second, p50 | p95 |", "| --- | ---: | ---: | ---: | ---: |"]
    with tempfile.TemporaryDirectory(prefix="benchlock-waking-") as folder:
        for name, lock, submits, waits in queues(Path(folder)):
            found: dict[Callable[[Queue], None], list[float]] = {wake: [], ask: []}
            for _ in range(rounds):
                for way, taken in found.items():
                    taken.append(measure(lock, submits, waits, way))
            cells = (f"{1000 * of(taken):.0f}" for taken in found.values() for of in (statistics.median, p95))
            lines.append(f"| {name} | {' | '.join(cells)} |")
            print(lines[-1], flush=True)
    measured = f"Measured {now():%Y-%m-%d}: {rounds} rounds, load average {os.getloadavg()[0]:.2f} at the end."
    write(
        RESULTS, "waking", "\n".join(("## Idle machines and a new job", "", *host(), "", METHOD, *lines, "", measured))
    )


def measure(lock: Digest, submits: SqlQueue, waits: Queue, rest: Callable[[Queue], None]) -> float:
    """Return the seconds from the submission of a job until a machine that rests in this way has its lease."""
    began: list[float] = []

    def submit() -> None:
        time.sleep(random.uniform(1, 2))  # noqa: S311 - no secret
        began.append(time.perf_counter())
        submits.submit(JobRequest(new_job_id(now()), lock, ANY))

    thread = threading.Thread(target=submit)
    thread.start()
    lease: Lease | None = None
    while lease is None:
        rest(waits)
        lease = waits.lease(machine(1), BOOT)
    took = time.perf_counter() - began[0]
    thread.join()
    submits.cancel(lease.job)
    waits.release(lease.fence, "cancelled", "measured")
    return took


def queues(folder: Path) -> Iterator[tuple[str, Digest, SqlQueue, Queue]]:
    """Yield the name of each queue with a lock that it has, the queue that submits and the one that waits."""
    lock = variant({}).lock
    for name, place in places(folder, ""):
        with opened(place.open) as engine:
            Catalogue(engine, now).put_lock(lock)
            queue = SqlQueue(engine, now)
            queue.enrol(machine(1), BOOT, facts())
            yield name, lock.id, queue, queue
    with ExitStack() as stack:
        registry = open_registry(str(folder / "served"), lambda _: None, create=True)
        stack.callback(registry.database.dispose)
        registry.catalogue.put_lock(lock)
        queue = open_queue(registry)
        queue.enrol(machine(1), BOOT, facts())
        served = stack.enter_context(service(folder / "served"))
        yield "HTTP, over SQLite", lock.id, queue, connect_worker(served.url)


@contextmanager
def opened(connect: Callable[[], Engine]) -> Iterator[Engine]:
    engine = connect()
    yield engine
    engine.dispose()


if __name__ == "__main__":
    main()
