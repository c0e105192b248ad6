"""Runs under faults: of jobs that the launcher's workers take, and of scripts that use Ray itself."""

import json
import os
import random
import signal
import sys
import threading
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchlock.artifacts.errors import UnavailableError
from tests.support.evaluator.ray_site import HOSTS, RaySite
from tests.support.evaluator.struck_site import Site, overlaps, recorded_events, together
from tests.support.evaluator.stub_harness import Span
from tests.support.evaluator.stub_harness import events as harness_events
from tests.support.servers.ray_nodes import HEAD, RayNodes
from tests.support.system.python_image import PythonImage
from tests.support.system.striking import Program, Victim
from tests.support.system.striking_ray import RayMember, RayPart, parts_of

HEAD_EVERY = 40
"""The head is killed once in so many faults; a cluster needs half a minute to come back."""


@dataclass
class Outcome:
    """What became of jobs or tasks.

    ``lost`` have no result, and are not ``set_aside``, which is a job that lost three machines or whose harness was
    killed twice; ``doubled`` have several; ``unkept`` are measurements to the end whose result was not kept, of jobs in
    processes; ``overlaps`` are pairs of measurements on one host at once.
    """

    jobs: int
    faults: Counter[str]
    lost: int
    doubled: int
    unkept: int
    overlaps: int
    minutes: float
    set_aside: int | None = None
    more: dict[str, object] = field(default_factory=dict)


def strike_jobs(ray: RaySite, image: PythonImage, engine: str, faults: int) -> Outcome:
    """Jobs of the queue, on the cluster of the site."""
    site, begin = ray.site, time.monotonic()
    with recorded_events(engine, site.folder / "events") as events:
        asked = site.submit(image, ["container", "process"] * (faults * 3 // 8))
        head = next(one for one, _ in site.others if isinstance(one, RayMember) and one.name == HEAD)
        with site.mending():
            struck = 0
            while struck < faults:
                site.wait_until(site.is_at_work, 20)
                time.sleep(site.numbers.uniform(0.1, 2.0))
                is_head = struck % HEAD_EVERY == HEAD_EVERY // 2
                struck += site.strike(head if is_head else None) != "missed"
                with suppress(UnavailableError):
                    print(struck, site.rows("SELECT state, count(*) FROM jobs GROUP BY state"), flush=True)
            site.mend(float("inf"))
            site.wait_until(site.is_over, 600)
    states = Counter(state for (state,) in site.rows("SELECT state FROM jobs"))
    results = Counter(job for (job,) in site.rows("SELECT job FROM job_results"))
    done = Counter(
        job
        for (job,) in site.rows(
            "SELECT leases.job FROM run_ends JOIN leases ON leases.run = run_ends.run WHERE run_ends.outcome = 'done'"
        )
    )
    faulty = {job for job in asked if not results[job]}
    set_aside = {job for (job,) in site.rows("SELECT id FROM jobs WHERE state = 'quarantined' OR failure = 'crash'")}
    ended = Counter(what for what, *_ in harness_events(site.log))["end"]
    return Outcome(
        len(asked),
        Counter({name: number for name, number in site.done.items() if not name.endswith("missed")}),
        len(faulty - set_aside),
        sum(number > 1 for number in (*results.values(), *done.values())),
        ended - sum(asked[job] == "process" for job in results),
        len(overlaps(site, events, sorted(set(HOSTS.values())))),
        (time.monotonic() - begin) / 60,
        len(set_aside),
        {
            "states": dict(states),
            "leases": dict(Counter(ended for (ended,) in site.rows("SELECT ended FROM leases"))),
            "runs": dict(Counter(outcome for (outcome,) in site.rows("SELECT outcome FROM run_ends"))),
        },
    )


def strike_tasks(cluster: RayNodes, folder: Path, seed: int, faults: int, module: str) -> Outcome:
    """Tasks of the same lengths by a script, on the same cluster; what Ray does not know is not there to be struck."""
    numbers, begin = random.Random(seed), time.monotonic()  # noqa: S311 - faults, no secrets
    count = faults * 3 // 4
    seconds = [round(numbers.uniform(0.1, 6.0 if task % 2 else 1.5), 2) for task in range(count)]
    (folder / "tasks.json").write_text(json.dumps(seconds))
    results = folder / "results"
    words = [sys.executable, "-m", module, cluster.address, str(folder), str(results)]
    driver = Program("script", words, {**os.environ, **cluster.script_variables}, folder / "script.log")
    parts: list[tuple[Victim, int]] = [(driver, 2)]
    for name in HOSTS:
        parts += [(part, 2) for part in parts_of(cluster, name) if part.name != "agent"]
        parts.append((RayPart("measurement", name, partial(cluster.processes, name, "note(")), 2))
    members = [RayMember(name, cluster) for name in (HEAD, *HOSTS)]
    done: Counter[str] = Counter()
    driver.start()
    turn, over = threading.Lock(), threading.Event()

    def mend() -> None:
        while not over.wait(0.05):
            with turn:
                for one in (*(part for part, _ in parts if part is not driver), *members):
                    one.mend(time.monotonic())
                if not is_complete(results, count):
                    driver.mend(time.monotonic())

    thread = threading.Thread(target=mend, daemon=True)
    thread.start()
    struck = 0
    while struck < faults and not is_complete(results, count):
        time.sleep(numbers.uniform(0.5, 3.5))
        is_head = struck % HEAD_EVERY == HEAD_EVERY // 2
        victim = members[0] if is_head else numbers.choices([p for p, _ in parts], [w for _, w in parts])[0]
        with turn:
            kind = victim.strike(numbers, time.monotonic(), 6.0)
        if kind != "missed":
            struck += 1
            done[f"{victim.name} {kind}"] += 1
    deadline = time.monotonic() + 300
    while not is_complete(results, count) and time.monotonic() < deadline:
        time.sleep(0.5)
    over.set()
    thread.join()
    for one in (*(part for part, _ in parts), *members):
        one.end()
    entries = [json.loads(line) for line in results.read_text().splitlines()] if results.exists() else []
    well = Counter(entry["task"] for entry in entries if entry["error"] is None)
    spans, ends = read_spans(folder / "spans")
    pairs = sum(len(together(of_node)) for of_node in spans.values())
    more: dict[str, object] = {
        "tasks with an error": len({entry["task"] for entry in entries if entry["error"]} - well.keys()),
        "tasks without an answer": count - len({entry["task"] for entry in entries}),
        "measured to the end more than once": sum(number > 1 for number in ends.values()),
    }
    lost, doubled = count - len(well), sum(number > 1 for number in well.values())
    unkept, minutes = ends.total() - len(well), (time.monotonic() - begin) / 60
    return Outcome(count, done, lost, doubled, unkept, pairs, minutes, more=more)


def is_complete(results: Path, count: int) -> bool:
    """Whether the script has an answer for every task."""
    lines = results.read_text().splitlines() if results.exists() else []
    return len({json.loads(line)["task"] for line in lines}) == count


def read_spans(log: Path) -> tuple[dict[str, list[Span]], Counter[str]]:
    """When something measured, by node, and how often each task was measured to its end."""
    times: dict[tuple[str, str], list[float]] = defaultdict(list)
    ends: Counter[str] = Counter()
    for what, task, node, pid, at in (line.split() for line in log.read_text().splitlines()):
        times[node, pid].append(float(at))
        ends[task] += what == "end"
    spans: dict[str, list[Span]] = defaultdict(list)
    for (node, pid), found in times.items():
        spans[node].append(Span(min(found), max(found), pid))
    return spans, ends


def notice_losses(ray: RaySite, image: PythonImage, trials: int) -> dict[str, list[float]]:
    """Seconds from a fault until the queue has ended the lease of the machine that it struck."""
    site = ray.site
    site.submit(image, ["long"] * (trials * 4 + 3))
    found: dict[str, list[float]] = defaultdict(list)
    kinds = ("agent killed", "agent stopped", "machine killed", "machine stopped")
    with site.mending():
        for number in range(trials * len(kinds)):
            kind = kinds[number % len(kinds)]
            name, how = kind.split()
            site.wait_until(lambda: bool(leased(site)), 120)
            machine, fence = leased(site)[0]
            part = next(p for p in parts_of(ray.cluster, machine) if p.name == name)
            pids = part.find()
            at = time.monotonic()
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL if how == "killed" else signal.SIGSTOP)
            while not has_ended(site, fence) and time.monotonic() < at + 60:
                time.sleep(0.05)
            found[kind].append(time.monotonic() - at)
            print(f"{kind}: {found[kind][-1]:.1f} s", flush=True)
            if how == "stopped":
                for pid in pids:
                    with suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGCONT)
            time.sleep(2)
    for (job,) in site.rows("SELECT id FROM jobs WHERE state NOT IN ('done', 'failed', 'cancelled', 'quarantined')"):
        site.commands.done("cancel", job)
    with site.mending():
        site.wait_until(site.is_over, 120)
    return found


def leased(site: Site) -> list[tuple[str, int]]:
    """The machines that measure, and their fences."""
    query = "SELECT machine, fence FROM leases WHERE ended IS NULL AND run IS NOT NULL ORDER BY fence DESC"
    return [(machine, fence) for machine, fence in site.rows(query)]


def has_ended(site: Site, fence: int) -> bool:
    with suppress(UnavailableError):
        return (fence,) not in site.rows("SELECT fence FROM leases WHERE ended IS NULL")
    return False
