"""What measuring costs: benchlock in a process and in a container beside bare loops, LoadGen alone and `docker run`.

One interleaved run on the same model files, wheels and processor.
"""

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.resolving.report import machine, write
from benchmarks.timing.laboratory import Laboratory, engine
from benchmarks.timing.report import Taken, bars, calls_table, fastest_table, starts_table, turns_table
from benchmarks.timing.subjects import PICTURES, Subject, datasets, networks, photographs, pictures
from tests.support.api.commands import Commands, copied

RESULTS = Path(__file__).resolve().parent / "RESULTS.md"
KEPT = Path(".cache/overhead/images")
_TURN, _TURNS = 0.25, 4
"""Seconds of one turn, and turns of each way a round."""

SAMPLES = 416
"""Photographs a round: each of the 104 four times."""

METHOD = """\
The bare loop is a timer around the framework's own call, in the environment of the locked wheels; LoadGen alone is the
same call in its single stream; benchlock is `benchlock run` of a `single_stream`, by its latency_p50. All go through as
many different samples, and are bound to the same processor, with one thread. Null is what runs measured of themselves
with a predictor that does nothing.

From one process to the next, memory that is laid out elsewhere and other work on the machine change a call by more than
what is looked for. So the ways are also measured in turns in one process, the model loaded before, each turn in a fork
of it: the call alone, LoadGen alone (the median by its own clock, the fastest tenth by a timer around the call), and
the harness's meter and predictor in LoadGen. What
is above the call alone is taken within each turn: its median, and the interval of its mean (Student's t, 95 %).

The other tables are of whole processes. In every round each is measured once; a figure is the median over rounds, what
is above the bare loop is taken within each round, with the same interval. Other work only ever adds, so the fastest
tenth of the calls, in the fastest round, tells whole processes apart best.

Starts are of an accuracy phase of one sample, from the container's start to its end, beside `docker run` of the same
imports, model and call on the same image; what benchlock does before a container starts is beside it. JPEG files go
through decode, resize, crop and MobileNet, on two processors: `pipeline_throughput` of `offline`, beside a pool of
threads in front of a loop of calls, written by hand.
"""


def main() -> None:
    """Measure in rounds; print tables and bars, and write them into RESULTS.md."""
    options = parsed()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the engine goes
    with tempfile.TemporaryDirectory(prefix="benchlock-overhead-") as temporary:
        folder = Path(temporary)
        (folder / "work").mkdir()
        with engine(folder / "engine") as url:
            laboratory = Laboratory(with_images(options.registry.resolve(), url), folder / "work")
            subjects = prepare(laboratory, options)
            start = time.monotonic()
            found: dict[str, Taken] = {name: Taken() for name in subjects}
            rates: dict[str, list[float]] = {}
            for number in range(options.rounds):
                for name, subject in subjects.items():
                    call_round(laboratory, subject, found[name], options.seconds)
                    turn_round(laboratory, subject, found[name])
                    start_round(laboratory, subject, found[name])
                if options.cases:
                    picture_round(laboratory, photographs(laboratory.folder, options.cases), rates, options.cases)
                print(f"round {number + 1} of {options.rounds}", file=sys.stderr)
    took = f"{(time.monotonic() - start) / 60:.0f} minutes, {options.rounds} rounds"
    report(found, rates, f"{took}, load average {os.getloadavg()[0]:.2f} at the end", options)


def with_images(kept: Path, url: str) -> Commands:
    """Return commands on a new registry beside the kept one, with its images and nothing else.

    Images take minutes to build, so that they are kept. Subjects are not: a registry refuses other content under a
    version that it has.
    """
    images, home = Commands(kept, url), kept.with_name("measured")
    Laboratory(images, kept.parent).build()
    shutil.rmtree(home, ignore_errors=True)
    return copied(images, home, url)


def prepare(laboratory: Laboratory, options: argparse.Namespace) -> dict[str, Subject]:
    """The networks by framework: published, locked, and run once, so that everything that is kept is there."""
    subjects = networks(laboratory.folder, options.cases)
    several = [*subjects.values(), *([photographs(laboratory.folder, options.cases)] if options.cases else [])]
    manifests = {subject.manifest for subject in several}
    laboratory.commands.done("publish", *datasets(laboratory.folder, options.cases), *manifests)
    stream = {"name": "single_stream", "min_queries": 64, "min_duration": f"{options.seconds}s", "warmup": 50}
    for subject in subjects.values():
        laboratory.lock(subject, stream, split="several")
        laboratory.lock(subject, {"name": "accuracy", "batch": 1, "warmup": 0})
        for isolation in ("process", "container") if laboratory.commands.engine else ("process",):
            laboratory.run(subject, "accuracy", isolation)
    if options.cases:
        offline = {"name": "offline", "min_samples": SAMPLES, "min_duration": "0s", "batch": 1, "warmup": 4}
        laboratory.lock(several[-1], offline, split="dev", cpus=2)
        laboratory.run(several[-1], "offline", "process")
    return subjects


def call_round(laboratory: Laboratory, subject: Subject, taken: Taken, seconds: float) -> None:
    for way in ("loop", "loadgen"):
        answer = laboratory.bare(subject, way, seconds=seconds, samples=PICTURES)
        taken.calls.setdefault(way, []).append(answer["p50"])
        taken.fastest.setdefault(way, []).append(answer["p10"])
    for isolation in ("process", "container") if laboratory.commands.engine else ("process",):
        run = laboratory.run(subject, "single_stream", isolation)
        taken.calls.setdefault(isolation, []).append(run["values"]["latency_p50"])
        taken.fastest.setdefault(isolation, []).append(laboratory.fastest_tenth(run["run"]))
        taken.watching.append(run["end"]["timings"]["watching_cpu"])
        if isolation == "process" and (null := laboratory.overhead(run["run"])):
            taken.null.append(null["timed_ns"] / 1e9)


def turn_round(laboratory: Laboratory, subject: Subject, taken: Taken) -> None:
    for way, several in laboratory.turns(subject, samples=PICTURES, seconds=_TURN, rounds=_TURNS).items():
        taken.turns.setdefault(way, []).extend(several)


def start_round(laboratory: Laboratory, subject: Subject, taken: Taken) -> None:
    if not laboratory.commands.engine:
        return
    timings: dict[str, Any] = laboratory.run(subject, "accuracy", "container")["end"]["timings"]
    values = {name: timings[name] for name in ("image", "verification", "job")}
    values |= {"benchlock": timings["start"] + timings["run"], "docker": laboratory.docker_run(subject)}
    for name, value in values.items():
        taken.starts.setdefault(name, []).append(value)


def picture_round(laboratory: Laboratory, subject: Subject, rates: dict[str, list[float]], cases: Path) -> None:
    run = laboratory.run(subject, "offline", "process")
    paths = [str(path) for path in pictures(cases)]
    both = sorted(os.sched_getaffinity(0))[:2]
    by_hand = laboratory.bare(subject, "pictures", cpus=both, pictures=paths, preparing=2, samples=SAMPLES)
    rates.setdefault("benchlock", []).append(run["values"]["pipeline_throughput"])
    rates.setdefault("by hand", []).append(by_hand["rate"])


def report(found: dict[str, Taken], rates: dict[str, list[float]], took: str, options: argparse.Namespace) -> None:
    network = "ResNet-8 (MLPerf Tiny)" if options.cases else "the example's network of digits"
    section = [
        "## The overhead of measuring",
        "",
        *machine(),
        f"- {network}",
        "",
        METHOD,
        turns_table(found),
        calls_table(found),
        fastest_table(found),
        starts_table(found),
        *bars(found, rates),
        "",
        f"Measured {datetime.now(UTC):%Y-%m-%d}: {took}.",
    ]
    text = "\n".join(section)
    print(text)
    write(RESULTS, "overhead", text)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=1.0, help="of calls a round and way (default: 1)")
    cases = os.environ.get("BENCHLOCK_CASES")
    parser.add_argument(
        "--cases", type=Path, default=cases, help="folder of real models and data; default: the example"
    )
    parser.add_argument("--registry", type=Path, default=KEPT, help=f"keeps the images alone (default: {KEPT})")
    return parser.parse_args()


if __name__ == "__main__":
    main()
