"""Machines that take one job after another, each a process, all at once."""

import multiprocessing
import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes
from benchlock.evaluator.queue.job_matching import MachineFacts
from benchlock.evaluator.queue.queue_types import MachineId
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.evaluator.records.run_types import RunEnd, RunStart, new_run_id
from benchlock.registry.auth.permissions import EVERYTHING, Actor, use_actor
from benchlock.registry.requests.hardware_requirements import HostFacts
from benchmarks.queueing.filling import LOCK
from benchmarks.queueing.places import Place

_HOST: dict[str, Any] = {
    "cpu_model": "A CPU",
    "cpu_flags": ["avx2"],
    "cores": 64,
    "memory": 1 << 38,
    "kernel": "Linux",
    **dict.fromkeys(("governor", "engine", "accelerator", "driver")),
}
_FACTS = MachineFacts(
    HostFacts("linux", "amd64", 64, 1 << 38, (), "none"), None, "A CPU", "Linux", None, processes=True
)


_WORKER = Actor("token/worker", EVERYTHING)
"""Who enrols the machines: those of a token have caches, whose files each claim considers."""


@dataclass(frozen=True)
class Cycles:
    """Seconds of each claim; how many whole cycles there were in how many seconds."""

    claims: list[float]
    count: int
    seconds: float


def measure(place: Place, clients: int, seconds: float) -> Cycles:
    """What ``clients`` machines did in ``seconds``."""
    context = multiprocessing.get_context("spawn")
    ready = context.Barrier(clients)
    answers: Any = context.Queue()
    started = [
        context.Process(target=work, args=(place, f"m{number}", seconds, ready, answers)) for number in range(clients)
    ]
    for process in started:
        process.start()
    found = [answers.get() for _ in started]
    for process in started:
        process.join()
    claims = [one for claimed, _ in found for one in claimed]
    return Cycles(claims, len(claims), max(took for _, took in found))


def measure_paced(place: Place, machines: int, every: float, seconds: float) -> Cycles:
    """What ``machines`` did in ``seconds`` that take a job ``every`` so often each, at random, through one service."""
    engine = place.open()
    queue = SqlQueue(engine, lambda: datetime.now(UTC))
    names = [MachineId(f"paced{number}") for number in range(machines)]
    with use_actor(_WORKER):
        for name in names:
            queue.enrol(name, "a boot", _FACTS)

    def work_paced(name: MachineId) -> list[float]:
        order, claims = random.Random(name), []  # noqa: S311 - no secret
        end = time.perf_counter() + seconds
        while (pause := order.expovariate(1 / every)) < end - time.perf_counter():
            time.sleep(pause)
            claims.append(_cycle(queue, name))
        return claims

    with ThreadPoolExecutor(machines) as pool:
        list(pool.map(partial(_cycle, queue), names))  # connections and statements are there afterwards
        found = [claim for claims in pool.map(work_paced, names) for claim in claims]
    engine.dispose()
    return Cycles(found, len(found), seconds)


def work(place: Place, name: str, seconds: float, ready: Any, answers: Any) -> None:  # noqa: ANN401
    """One machine."""
    engine = place.open()
    queue = SqlQueue(engine, lambda: datetime.now(UTC))
    machine = MachineId(name)
    with use_actor(_WORKER):
        queue.enrol(machine, "a boot", _FACTS)
    _cycle(queue, machine)  # connections and statements are there afterwards
    ready.wait()
    claims, begin = [], time.perf_counter()
    while time.perf_counter() - begin < seconds:
        claims.append(_cycle(queue, machine))
    answers.put((claims, time.perf_counter() - begin))
    engine.dispose()


def _cycle(queue: SqlQueue, machine: MachineId) -> float:
    asked = time.perf_counter()
    lease = queue.lease(machine, "a boot")
    took = time.perf_counter() - asked
    assert lease is not None
    at = datetime.now(UTC)
    start = RunStart(
        id=new_run_id(at),
        lock=Digest(LOCK),
        attempt=1,
        isolation="process",
        platform={"os": "linux", "arch": "amd64", "device": "cpu", "python": "3.11"},
        host=_HOST,
        process={"pid": 1},
        started_at=at,
    )
    assert queue.begin(lease.fence, start) is not None
    assert queue.beat(lease.fence, "measuring") == "keep"
    end = RunEnd(
        outcome="done",
        ended_at=at,
        packages={"numpy": "2.4.0"},
        blobs={"result": Descriptor(digest_bytes(b"result"), 6)},
        timings={"run": 1.0},
    )
    queue.commit(lease.fence, start.id, end)
    return took
