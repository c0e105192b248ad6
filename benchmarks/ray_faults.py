"""Jobs on a Ray cluster under faults, beside plain tasks of Ray: what is lost, doubled and measured side by side.

A cluster of a head and three nodes on the loopback, with a token. It needs Ray and an engine.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks.launching.fault_runs import Outcome, notice_losses, strike_jobs, strike_tasks
from benchmarks.resolving.report import machine, write
from benchmarks.timing.laboratory import engine
from tests.support.evaluator.ray_site import LEASE, RaySite, node_variables, ray_site
from tests.support.servers.ray_nodes import RayNodes, ray_nodes
from tests.support.system.python_image import PythonImage, make_image
from tests.support.system.striking import Program

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
METHOD = """\
Ray {ray}: a head and three nodes on the loopback with a token; leases of {lease:g} s. Two nodes are of one host, with
an engine and one lock, the third of another host without an engine. Struck at random, killed or stopped for up to
{longest:g} s: raylets, tasks of Ray, workers and whole nodes, the launcher, the head, the measuring container, the
service and its database. Half of the jobs run in containers, half as processes, for up to 6 s. Plain tasks of the same
lengths run a child process each, with Ray's own retries, one a node; their script stores each result, is started again
when it has ended, and repeats the tasks without a result. It has no service and no database that could be struck.
"""


def main() -> None:
    """Measure, print the tables, and write them into RESULTS.md in place of their older ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--trials", type=int, default=3, help="of each loss of a machine")
    parser.add_argument("--jobs", type=int, default=30, help="without a length, for the time of a job")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    seed = options.seed or random.SystemRandom().randrange(1, 1 << 32)
    print(f"--seed {seed}", flush=True)
    with tempfile.TemporaryDirectory(prefix="benchlock-ray-") as temporary:
        folder = Path(temporary)
        with engine(folder / "engine") as url:
            if not url:
                sys.exit("needs an engine: root and dockerd, or DOCKER_HOST")
            (folder / "image").mkdir()
            image = make_image(folder / "image")
            with ray_nodes(node_variables(folder, url)) as cluster:
                plain_job = time_tasks(cluster, options.jobs, folder / "plain")
                with launched(folder / "overhead", cluster, url, seed) as ray:
                    own_job = time_jobs(ray, image, options.jobs)
                print(f"seconds a job: {own_job:.2f}, plain {plain_job:.2f}", flush=True)
                with launched(folder / "losses", cluster, url, seed) as ray:
                    noticed = notice_losses(ray, image, options.trials)
                with launched(folder / "jobs", cluster, url, seed) as ray:
                    jobs = strike_jobs(ray, image, url, options.faults)
                print(jobs, flush=True)
                (folder / "tasks").mkdir()
                tasks = strike_tasks(cluster, folder / "tasks", seed, options.faults)
                print(tasks, flush=True)
    lines = [*outcome_table(jobs, tasks, own_job, plain_job), "", *noticed_table(noticed), "", *bars(jobs, noticed)]
    method = METHOD.format(ray=version("ray"), lease=LEASE, longest=2 * LEASE)
    minutes = jobs.minutes + tasks.minutes
    measured = f"Measured {datetime.now(UTC):%Y-%m-%d}: --faults {options.faults} --seed {seed}, {minutes:.0f} minutes \
under faults, load average {os.getloadavg()[0]:.1f} at the end."
    details = [f"Faults of the jobs: {told(jobs)}", "", f"Faults of the plain tasks: {told(tasks)}"]
    section = ["## Workers on a Ray cluster", "", *machine(), "", method, *lines, "", *details, "", measured]
    text = "\n".join(section)
    print(text)
    write(RESULTS, "ray", text)


@contextmanager
def launched(folder: Path, cluster: RayNodes, url: str, seed: int) -> Iterator[RaySite]:
    """A site of its own, whose service and launcher run."""
    folder.mkdir()
    with ray_site(folder, cluster, url, seed) as found:
        for one in found.site.all:
            if isinstance(one, Program):
                one.start()
        yield found
        found.launcher.ask_to_end()


def time_jobs(ray: RaySite, image: PythonImage, count: int) -> float:
    """Seconds a job, of jobs without a length, once the workers are there."""
    site = ray.site
    with site.mending():
        site.submit(image, ["empty"] * 4)
        site.wait_until(site.is_over, 120)
        begin = time.monotonic()
        site.submit(image, ["empty"] * count)
        site.wait_until(site.is_over, 300)
    return (time.monotonic() - begin) / count


def time_tasks(cluster: RayNodes, count: int, folder: Path) -> float:
    """Seconds a plain task without a length, from the first stored result to the last."""
    folder.mkdir()
    (folder / "tasks.json").write_text(json.dumps([0.0] * (count + 4)))
    words = [sys.executable, "-m", "benchmarks.launching.plain_tasks", cluster.address, str(folder)]
    subprocess.run([*words, str(folder / "results")], env={**os.environ, **cluster.script_variables}, check=True)
    times = sorted(json.loads(line)["at"] for line in (folder / "results").read_text().splitlines())
    return float(times[-1] - times[3]) / count


def outcome_table(jobs: Outcome, tasks: Outcome, own_job: float, plain_job: float) -> list[str]:
    """What became of both."""
    rows = [
        ("jobs, faults", f"{jobs.jobs}, {jobs.faults.total()}", f"{tasks.jobs}, {tasks.faults.total()}"),
        ("results lost", str(jobs.lost), str(tasks.lost)),
        ("set aside after the loss of three machines, and said so", str(jobs.set_aside), "-"),
        ("results doubled, or measured to the end more than once", str(jobs.doubled), str(tasks.doubled)),
        ("measurements side by side on a host", str(jobs.overlaps), str(tasks.overlaps)),
        ("seconds a job without a length", f"{own_job:.2f}", f"{plain_job:.2f}"),
    ]
    return ["| | benchlock | plain tasks |", "|---|---:|---:|", *(f"| {' | '.join(row)} |" for row in rows)]


def noticed_table(noticed: dict[str, list[float]]) -> list[str]:
    """How long a loss took to be noticed."""
    rows = [f"| {kind} | {' '.join(f'{one:.1f}' for one in times)} |" for kind, times in sorted(noticed.items())]
    return ["| what was struck | seconds until the queue ended its lease |", "|---|---|", *rows]


def bars(jobs: Outcome, noticed: dict[str, list[float]]) -> list[str]:
    """Whether the bars are met."""
    slowest = max(max(times) for times in noticed.values())
    checks = [
        (jobs.lost == 0, f"results lost (0; {jobs.lost})"),
        (jobs.doubled == 0, f"results doubled (0; {jobs.doubled})"),
        (jobs.overlaps == 0, f"measurements side by side on a host (0; {jobs.overlaps})"),
        (slowest <= LEASE + 5, f"slowest notice of a loss (at most lease + 5 s = {LEASE + 5:g} s; {slowest:.1f} s)"),
    ]
    return [f"- {'met' if is_met else 'not met'}: {text}" for is_met, text in checks]


def told(outcome: Outcome) -> str:
    faults = ", ".join(f"{name} {number}" for name, number in sorted(outcome.faults.items()))
    return f"{faults}. {json.dumps(outcome.more)}"


if __name__ == "__main__":
    main()
