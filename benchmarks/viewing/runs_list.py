"""The list of runs beside MLflow's, in one browser."""

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx

from benchlock.api.local.local_registry import open_registry
from benchmarks.answering.servers import Answering, Benchlock, MlflowTracking
from benchmarks.viewing.bars import least_bar
from benchmarks.viewing.browsing import Opened, open_browser, open_page
from benchmarks.viewing.server_ends import explain_end
from tests.support.registry.filled import fill

RUNS, METRICS, SETTLE_MS = 60, 20, 4000
LIGHTER, FASTER = 100, 3
METHOD = f"""\
Both hold {RUNS} runs; MLflow's have {METRICS} metrics each. Each page is what its server shows first of them.
Interleaved: every round opens each page once in a new profile, in every other round in the other order, and lets it
settle for {SETTLE_MS / 1000:.0f} s. A cell is the median over the rounds; how many times another is the median of the
rounds' own ratios.
"""


class BenchlockRuns(Answering):
    """`benchlock serve` over a registry with runs."""

    title = "benchlock"

    def fill(self) -> None:
        registry = open_registry(str(self._folder / "registry"), lambda _: None, create=True)
        fill(registry.database, runs=RUNS)
        registry.database.dispose()

    server, answers_at = Benchlock.server, Benchlock.answers_at


def measure_runs_list(folder: Path, rounds: int) -> Iterator[str]:
    """Open both lists in turn; yield the table and the bars."""
    opened = _open_both(folder, rounds)
    yield "| | KiB | requests | largest contentful paint, ms |\n| --- | ---: | ---: | ---: |"
    for name, pages in opened.items():
        weight, requests, painted = (
            statistics.median(getattr(page, part) for page in pages) for part in ("weight", "requests", "painted")
        )
        yield f"| {name} | {weight / 1024:,.1f} | {requests:.0f} | {painted:,.0f} |"
    yield ""
    yield least_bar("lighter than MLflow's list of runs", _ratio(opened, lambda page: page.weight), LIGHTER)
    yield least_bar("painted faster than MLflow's list of runs", _ratio(opened, lambda page: page.painted), FASTER)


def _open_both(folder: Path, rounds: int) -> Mapping[str, Sequence[Opened]]:
    opened: defaultdict[str, list[Opened]] = defaultdict(list)
    with (
        closing(BenchlockRuns(folder / "ours", 0)) as ours,
        closing(MlflowTracking(folder / "mlflow", 0)) as theirs,
        explain_end(ours),
        explain_end(theirs),
    ):
        _log_runs(theirs.url)
        pages = [("benchlock", f"{ours.url}/runs"), ("mlflow", f"{theirs.url}/#/experiments/0")]
        with open_browser() as browser:
            for number in range(rounds):
                for name, url in pages[:: -1 if number % 2 else 1]:
                    opened[name].append(open_page(browser, url, settle_ms=SETTLE_MS))
    return opened


def _log_runs(url: str) -> None:
    """Log runs with metrics to MLflow."""
    for number in range(RUNS):
        run = _call(f"{url}/api/2.0/mlflow/runs/create", {"experiment_id": "0", "start_time": number})
        metrics = [{"key": f"metric_{one}", "value": one * number, "timestamp": 0, "step": 0} for one in range(METRICS)]
        _call(f"{url}/api/2.0/mlflow/runs/log-batch", {"run_id": run["run"]["info"]["run_id"], "metrics": metrics})


def _call(url: str, document: object) -> Any:  # noqa: ANN401 - a JSON document
    return httpx.post(url, json=document, timeout=60).raise_for_status().json()


def _ratio(opened: Mapping[str, Sequence[Opened]], part: Callable[[Opened], float]) -> float:
    """Return how many times as much MLflow's page needs, as the median over the rounds."""
    pairs = zip(opened["mlflow"], opened["benchlock"], strict=True)
    return statistics.median(part(theirs) / part(ours) for theirs, ours in pairs)
