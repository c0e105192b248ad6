"""The same measurements as plain tasks of Ray, as its users write them: a script that can be started again.

Arguments: address, folder with ``tasks.json``, a file for results. A task takes a node by a resource, with Ray's own
retries, and runs the measurement as a child process. The script stores each result, and after a restart repeats the
tasks without one. ``tasks.json`` has, for each task, its seconds.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import ray

MEASURE = """
import os, sys, time
log, task, node, seconds = sys.argv[1:]
def note(what):
    with open(log, "a") as file:
        file.write("%s %s %s %d %.3f\\n" % (what, task, node, os.getpid(), time.time()))
note("start")
until = time.monotonic() + float(seconds)
while (left := until - time.monotonic()) > 0:
    time.sleep(min(left, 0.05))
    note("on")
note("end")
"""


def measure(task: int, seconds: float, log: str) -> int:
    node = os.environ.get("TEST_RAY_NODE", ":").rpartition(":")[2]
    subprocess.run([sys.executable, "-c", MEASURE, log, str(task), node, str(seconds)], check=True)
    return task


def main() -> None:
    address, folder, results = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    seconds: list[float] = json.loads((folder / "tasks.json").read_text())
    known = {json.loads(line)["task"] for line in results.read_text().splitlines()} if results.exists() else set()
    ray.init(address=address, logging_level="ERROR", log_to_driver=False)  # type: ignore[arg-type]
    work = ray.remote(measure).options(num_cpus=2)
    waiting = {
        work.remote(task, seconds[task], str(folder / "spans")): task
        for task in range(len(seconds))
        if task not in known
    }
    while waiting:
        ended, _ = ray.wait([*waiting], num_returns=1)
        for reference in ended:
            task = waiting.pop(reference)
            entry: dict[str, object] = {"task": task, "error": None, "at": time.time()}
            try:
                ray.get(reference)
            except ray.exceptions.RayError as error:
                entry["error"] = type(error).__name__
            with results.open("a") as file:
                file.write(json.dumps(entry) + "\n")


if __name__ == "__main__":
    main()
