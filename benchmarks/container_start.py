"""How long a job waits until its container runs: a real engine, and a worker that waits at a service."""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.resolving.report import machine, write
from benchmarks.timing.laboratory import engine
from benchmarks.viewing.bars import p95
from tests.support.api.commands import BENCHLOCK, Commands
from tests.support.api.serving import service
from tests.support.evaluator.struck_site import Site, recorded_events
from tests.support.system.python_image import make_image

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
BAR_SECONDS = 0.6
LENGTH = 0.5
"""The seconds of which jobs take a random part."""
END_SECONDS = 60
METHOD = """\
A worker waits at a service on the same host, with a Docker engine that has loaded the image. A job is written into the
service's database (SQLite), and the next one when it has ended. The time is from its submission, as recorded, until the
engine's event that its container has started; `docker start` alone is the engine's part of it, from the event that the
container was created. The first jobs, for which the worker imports what runs need and the engine loads the image, do
not count. Milliseconds.
"""
WARM = 3


def main() -> None:
    """Measure, print the table and the bar, and write them into RESULTS.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=30)
    count = parser.parse_args().jobs
    with tempfile.TemporaryDirectory(prefix="benchlock-start-") as name, engine(Path(name) / "engine") as url:
        if not url:
            sys.exit("needs an engine: root and dockerd, or DOCKER_HOST")
        whole, own = measure(Path(name), url, count + WARM)
    slow = p95(whole)
    lines = ["| | p50 | p95 | slowest |", "| --- | ---: | ---: | ---: |"]
    for title, found in (("submitted → container runs", whole), ("of it `docker start`", own)):
        cells = (f"{1000 * seconds:.0f}" for seconds in (statistics.median(found), p95(found), max(found)))
        lines.append(f"| {title} | {' | '.join(cells)} |")
    met = "met" if slow <= BAR_SECONDS else "not met"
    bar = f"- {met}: 95th percentile (at most {1000 * BAR_SECONDS:.0f} ms; {1000 * slow:.0f} ms)"
    ended = f"Measured {datetime.now(UTC):%Y-%m-%d}: --jobs {count}, load average {os.getloadavg()[0]:.1f} at the end."
    text = "\n".join(("## A new job and its container", "", *machine(), "", METHOD, *lines, "", bar, "", ended))
    write(RESULTS, "container-start", text)
    print(text)


def measure(folder: Path, url: str, count: int) -> tuple[list[float], list[float]]:
    """Return the seconds of each job but the first ones, and of them those between creation and start."""
    with ExitStack() as stack:
        (folder / "image").mkdir()
        image = make_image(folder / "image")
        commands = Commands(folder / "registry", url)
        commands.done("db", "create")
        site = Site(folder, commands, str(folder / "registry" / "registry.sqlite"), random.Random(1), LENGTH)  # noqa: S311 - no secret
        stack.callback(site.database.dispose)
        served = stack.enter_context(service(folder / "registry"))
        events = stack.enter_context(recorded_events(url, folder / "events"))
        words = [str(BENCHLOCK), "--registry", served.url, "worker", "--machine", "m1"]
        own = {"XDG_CACHE_HOME": str(folder / "cache"), "BENCHLOCK_HOST_LOCK": str(folder / "lock")}
        log = stack.enter_context((folder / "worker.log").open("wb"))
        worker = subprocess.Popen(words, env=commands.environment() | own, stdout=log, stderr=log)
        stack.callback(worker.wait, 60)
        stack.callback(worker.terminate)
        for _ in range(count):
            time.sleep(random.uniform(0.5, 1))  # noqa: S311 - no secret
            site.submit(image, ["container"])
            site.wait_until(site.is_over, END_SECONDS)
            if not site.is_over():
                sys.exit(f"the job did not end in {END_SECONDS} s: {(folder / 'worker.log').read_text()[-500:]}")
        submitted = [read_moment(text) for (text,) in site.rows("SELECT submitted_at FROM jobs ORDER BY seq")]
        found = [json.loads(line) for line in events.read_text().splitlines()]
    moments = {kind: [one["timeNano"] / 1e9 for one in found if one["Action"] == kind] for kind in ("create", "start")}
    if not len(moments["create"]) == len(moments["start"]) == count:
        sys.exit(f"the engine started {len(moments['start'])} containers for {count} jobs")
    whole = [start - at for start, at in zip(moments["start"], submitted, strict=True)]
    own_part = [start - made for start, made in zip(moments["start"], moments["create"], strict=True)]
    return whole[WARM:], own_part[WARM:]


def read_moment(text: str) -> float:
    """Return the seconds since 1970 of a moment as the database has it."""
    return datetime.fromisoformat(text).timestamp()


if __name__ == "__main__":
    main()
