"""LoadGen's run over the samples of a stage."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from .. import loadgen
from ..failures import failing
from ..loadgen_log import Log
from ..reports import Progress
from ..scenarios import MultiStream, Offline, Queried, Server, SingleStream
from .meter import Meter
from .stage import Stage

# LoadGen must never run out of the queries that it makes before it starts, and its one query of all samples must last.
_FASTER = 1.5


class Work(Protocol):
    """What is done with samples: ``gather`` before the clock of a unit starts, ``ask`` while it runs."""

    @property
    def most(self) -> int:
        """Samples that LoadGen may choose."""
        ...

    def load(self, indices: Sequence[int]) -> None:
        """Take the samples that LoadGen chose, some of them twice; no clock runs."""
        ...

    def expect(self, units: Sequence[Sequence[int]]) -> None:
        """What will be gathered next, in this order, where it is known beforehand."""
        ...

    def gather(self, indices: Sequence[int]) -> Any:  # noqa: ANN401 - what ``ask`` takes
        ...

    @property
    def ask(self) -> Callable[[Any], Any]: ...


def per_unit(stage: Stage, scenario: Queried) -> int:
    """Samples that are timed in one go."""
    if isinstance(scenario, MultiStream):
        return scenario.samples_per_query
    return stage.pipeline.batch_size(scenario.batch) if isinstance(scenario, Offline) else 1


def drive(stage: Stage, meter: Meter, work: Work, seconds: float, folder: Path) -> Log:
    """LoadGen's account of its run; a unit takes ``seconds`` at its fastest.

    Raises:
        Failure: of class ``predict``, ``step``, ``load``, ``loadgen-invalid`` or ``out-of-memory``.
    """
    scenario = stage.job.scenario
    assert isinstance(scenario, Queried)
    told = settings(stage, scenario, seconds)
    size = per_unit(stage, scenario)
    queries = told.min_queries // (size if isinstance(scenario, Offline) else 1)
    progress = Progress(stage.phase, max(1, queries, round(scenario.min_duration / seconds)))
    read = meter.reader(work.gather, work.ask, progress.at)

    def all_at_once(indices: Sequence[int]) -> None:
        units = [indices[start : start + size] for start in range(0, len(indices), size)]
        work.expect(units)
        for unit in units:
            read(unit)

    issue = all_at_once if isinstance(scenario, Offline) else read
    start = time.perf_counter()
    source = loadgen.Source(len(stage.samples), work.most, work.load)
    with failing("predict", "a query"):
        log = loadgen.run(issue, source, told, folder)
    progress.finish()
    stage.timings.seconds["queries"] = time.perf_counter() - start - stage.timings.seconds.get("prepare", 0.0)
    return log


def settings(stage: Stage, scenario: Queried, seconds: float) -> loadgen.Settings:
    """What LoadGen is told where a unit takes ``seconds`` at its fastest."""
    seeds, fastest = stage.job.seeds, _FASTER / seconds
    if isinstance(scenario, Offline):
        rate = fastest * per_unit(stage, scenario)
        return loadgen.Settings("Offline", scenario.min_samples, scenario.min_duration, rate, seeds)
    least = (scenario.min_queries, scenario.min_duration)
    if isinstance(scenario, Server):
        rate, bound = scenario.target_qps, scenario.target_latency
        return loadgen.Settings("Server", *least, rate, seeds, target_latency=bound, traced=stage.phase != "probe")
    if isinstance(scenario, SingleStream):
        return loadgen.Settings("SingleStream", *least, fastest, seeds)
    return loadgen.Settings("MultiStream", *least, fastest, seeds, scenario.samples_per_query)
