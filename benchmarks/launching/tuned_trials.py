"""The same measurements as trials of Ray Tune, one for each value of a grid, with its own retries and its restore.

Arguments and ``tasks.json`` as for ``plain_tasks``. A script that is started again restores the sweep: it goes on with
the trials that have not ended, and repeats those that failed. The results are those of Tune's files.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import ray
from ray.tune import FailureConfig, RunConfig, Tuner, grid_search, report, with_resources

from benchmarks.launching.plain_tasks import MEASURE

NAME = "sweep"
FAILURES = 3
"""Retries of a trial; plain tasks have as many by default."""


def measure(config: dict[str, Any]) -> None:
    task, seconds, log = config["task"]
    node = os.environ.get("TEST_RAY_NODE", ":").rpartition(":")[2]
    subprocess.run([sys.executable, "-c", MEASURE, log, str(task), node, str(seconds)], check=True)
    report({"task": task, "at": time.time()})


def main() -> None:
    address, folder, results = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    seconds: list[float] = json.loads((folder / "tasks.json").read_text())
    ray.init(address=address, logging_level="ERROR", log_to_driver=False)  # type: ignore[arg-type]
    trainable = with_resources(measure, {"cpu": 2})
    if Tuner.can_restore(folder / NAME):
        tuner = Tuner.restore(str(folder / NAME), trainable, resume_unfinished=True, restart_errored=True)
    else:
        values = [(task, length, str(folder / "spans")) for task, length in enumerate(seconds)]
        run = RunConfig(
            name=NAME, storage_path=str(folder), failure_config=FailureConfig(max_failures=FAILURES), verbose=0
        )
        tuner = Tuner(trainable, param_space={"task": grid_search(values)}, run_config=run)
    grid = tuner.fit()
    entries = [
        {
            "task": result.config["task"][0] if result.config else None,
            "error": None if result.error is None else type(result.error).__name__,
            "at": (result.metrics or {}).get("at"),
        }
        for result in map(grid.__getitem__, range(len(grid)))
    ]
    written = results.with_suffix(".new")
    written.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    written.replace(results)


if __name__ == "__main__":
    main()
