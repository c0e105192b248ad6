"""Jobs on a Ray cluster under faults, in SQLite and in PostgreSQL, beside plain tasks of Ray and a sweep of Ray Tune.

Counted is what is lost, doubled and measured side by side. The cluster has a head and three nodes on the loopback, and
a token. It needs Ray, an engine, and for PostgreSQL the wheel of its server.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from benchmarks.launching.fault_runs import Outcome, notice_losses, strike_jobs, strike_tasks
from benchmarks.resolving.report import machine, write
from benchmarks.timing.laboratory import engine
from tests.support.evaluator.ray_site import LEASE, RaySite, node_variables, ray_site
from tests.support.servers.postgresql import PostgresServer, serving
from tests.support.servers.ray_nodes import RayNodes, ray_nodes
from tests.support.system.python_image import PythonImage, make_image
from tests.support.system.striking import Program

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
CLUSTER = """\
Ray {ray}: a head and three nodes on the loopback with a token; leases of {lease:g} s. Two nodes are of one host, with
an engine and one lock, the third of another host without an engine. Struck at random, killed or stopped for up to
{longest:g} s: raylets, tasks of Ray, workers and whole nodes, the launcher, the head, the measuring container, the
service and its database. Half of the jobs run in containers, half as processes, for up to 6 s.
"""
TASKS = """\
Plain tasks of the same lengths run a child process each, with Ray's own retries, one a node; their script stores each
result, is started again when it has ended, and repeats the tasks without a result. It has no service and no database
that could be struck. Its nodes count as hosts.
"""
POSTGRESQL = """\
The same cluster, and jobs and faults of the same distributions, with the jobs in PostgreSQL {postgresql}. Of the
database, its first process or another one of its processes is killed, or all of them are stopped for up to
{longest:g} s; the first process is started again after up to half of that. The server does not wait for the disk
(`fsync=off`): no power was cut.
"""
TUNE = """\
The same cluster, and lengths of the same distribution. Each task is a trial of a grid, alone on a node, which runs a
child process. Tune repeats a trial up to three times (`FailureConfig`); a script that has ended is started again, and
continues with the trials that have not ended, and with those that failed (`Tuner.restore`). Its folder is on the disk
of the host, which all nodes reach, and was not struck. Its nodes count as hosts.
"""
PLAIN, TUNED = "benchmarks.launching.plain_tasks", "benchmarks.launching.tuned_trials"


@dataclass(frozen=True)
class Bench:
    """The cluster, what runs on it, and the options of the benchmark."""

    folder: Path
    url: str
    image: PythonImage
    cluster: RayNodes
    seed: int
    options: argparse.Namespace


def main() -> None:
    """Measure, print the tables, and write them into RESULTS.md in place of their older ones."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--faults", type=int, default=100)
    parser.add_argument("--trials", type=int, default=3, help="of each loss of a machine")
    parser.add_argument("--jobs", type=int, default=30, help="without a length, for the time of a job")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=("sqlite", "postgresql", "tune"), help="default: all of them")
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
                bench = Bench(folder, url, image, cluster, seed, options)
                for name, measure in (("sqlite", with_sqlite), ("postgresql", with_postgresql), ("tune", with_tune)):
                    if options.only in (None, name):
                        measure(bench)


def with_sqlite(bench: Bench) -> None:
    """Jobs in SQLite beside plain tasks."""
    plain_job = time_tasks(bench.cluster, bench.options.jobs, bench.folder / "plain-times", PLAIN)
    own_job, noticed, jobs = measure_jobs(bench, "sqlite", None)
    tasks = strike_script(bench, "plain", PLAIN)
    lines = outcome_table({"benchlock": (jobs, own_job), "plain tasks": (tasks, plain_job)})
    details = [f"Faults of the jobs: {told(jobs)}", "", f"Faults of the plain tasks: {told(tasks)}"]
    lines += ["", *noticed_table(noticed), "", *bars(jobs, noticed), "", *details]
    publish(bench, "ray", "Workers on a Ray cluster", CLUSTER + TASKS, lines, jobs.minutes + tasks.minutes)


def with_postgresql(bench: Bench) -> None:
    """Jobs in PostgreSQL, which is struck too."""
    with serving() as server:
        own_job, noticed, jobs = measure_jobs(bench, "postgresql", server)
        with server.admin.connect() as connection:
            release = connection.exec_driver_sql("SHOW server_version").scalar_one()
    lines = [*outcome_table({"benchlock": (jobs, own_job)}), "", *noticed_table(noticed), "", *bars(jobs, noticed)]
    lines += ["", f"Faults: {told(jobs)}"]
    method = POSTGRESQL.replace("{postgresql}", release)
    publish(bench, "ray-postgresql", "Workers on a Ray cluster, jobs in PostgreSQL", method, lines, jobs.minutes)


def with_tune(bench: Bench) -> None:
    """The sweep of Ray's own library."""
    job = time_tasks(bench.cluster, bench.options.jobs, bench.folder / "tune-times", TUNED)
    trials = strike_script(bench, "tune", TUNED)
    lines = [*outcome_table({"Ray Tune": (trials, job)}), "", f"Faults: {told(trials)}"]
    publish(bench, "ray-tune", "The same tasks as a sweep of Ray Tune", TUNE, lines, trials.minutes)


def measure_jobs(
    bench: Bench, name: str, server: PostgresServer | None
) -> tuple[float, dict[str, list[float]], Outcome]:
    """Seconds a job without a length, how losses are noticed, and what became of jobs under faults."""
    places = [bench.folder / f"{name}_{part}" for part in ("overhead", "losses", "jobs")]
    with launched(places[0], bench, server) as ray:
        seconds = time_jobs(ray, bench.image, bench.options.jobs)
    print(f"seconds a job: {seconds:.2f}", flush=True)
    with launched(places[1], bench, server) as ray:
        noticed = notice_losses(ray, bench.image, bench.options.trials)
    with launched(places[2], bench, server) as ray:
        outcome = strike_jobs(ray, bench.image, bench.url, bench.options.faults)
    print(outcome, flush=True)
    return seconds, noticed, outcome


def strike_script(bench: Bench, name: str, module: str) -> Outcome:
    """What became of the tasks of a script under faults."""
    (bench.folder / name).mkdir()
    outcome = strike_tasks(bench.cluster, bench.folder / name, bench.seed, bench.options.faults, module)
    print(outcome, flush=True)
    return outcome


def publish(bench: Bench, section: str, title: str, method: str, lines: list[str], minutes: float) -> None:
    """Print a section, and write it into RESULTS.md."""
    measured = f"Measured {datetime.now(UTC):%Y-%m-%d}: --faults {bench.options.faults} --seed {bench.seed}, \
{minutes:.0f} minutes under faults, load average {os.getloadavg()[0]:.1f} at the end."
    told_method = method.format(ray=version("ray"), lease=LEASE, longest=2 * LEASE)
    text = "\n".join([f"## {title}", "", *machine(), "", told_method, *lines, "", measured])
    print(text, flush=True)
    write(RESULTS, section, text)


@contextmanager
def launched(folder: Path, bench: Bench, server: PostgresServer | None) -> Iterator[RaySite]:
    """A site of its own, whose service and launcher run."""
    folder.mkdir()
    with ray_site(folder, bench.cluster, bench.url, bench.seed, server) as found:
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


def time_tasks(cluster: RayNodes, count: int, folder: Path, module: str) -> float:
    """Seconds a task of a script without a length, from the first stored results to the last."""
    folder.mkdir()
    (folder / "tasks.json").write_text(json.dumps([0.0] * (count + 4)))
    words = [sys.executable, "-m", module, cluster.address, str(folder)]
    subprocess.run([*words, str(folder / "results")], env={**os.environ, **cluster.script_variables}, check=True)
    times = sorted(json.loads(line)["at"] for line in (folder / "results").read_text().splitlines())
    return float(times[-1] - times[3]) / count


def outcome_table(columns: dict[str, tuple[Outcome, float]]) -> list[str]:
    """What became of the jobs or tasks of each column, and its seconds a job without a length."""
    rows: dict[str, Callable[[Outcome, float], str]] = {
        "jobs, faults": lambda found, _: f"{found.jobs}, {found.faults.total()}",
        "results lost": lambda found, _: str(found.lost),
        "set aside, and said so: three machines lost, or the container killed twice": lambda found, _: (
            "-" if found.set_aside is None else str(found.set_aside)
        ),
        "results doubled": lambda found, _: str(found.doubled),
        "measurements to the end whose result was not kept, in processes": lambda found, _: str(found.unkept),
        "measurements side by side on a host": lambda found, _: str(found.overlaps),
        "seconds a job without a length": lambda _, seconds: f"{seconds:.2f}",
    }
    cells = [[name, *(show(*column) for column in columns.values())] for name, show in rows.items()]
    return [
        f"| | {' | '.join(columns)} |",
        f"|---|{'---:|' * len(columns)}",
        *(f"| {' | '.join(row)} |" for row in cells),
    ]


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
