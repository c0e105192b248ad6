"""MLPerf LoadGen: settings, guarded runs, and its runs over prepared samples.

This module works around properties of LoadGen:

* An exception that leaves a callback ends the process by a signal. Callbacks raise nothing; the first exception is
  stored and raised after the run.
* A query that is never completed blocks LoadGen forever. Every query is completed, also after an exception.
* A second run in one process silently loses settings. It is refused; each phase is a process of its own.
* A configuration file and ``audit.config`` in the working folder override settings. Neither is read.
* Seeds beyond 32 bits are truncated. The parser of the job checks them.
* A query completed twice, too few generated queries and similar faults only leave a line in the log. Each such line
  makes the run invalid.
* All queries of a run are in memory from the start, twice as many as expected. Their number is limited.
* The trace costs a kilobyte per query. It is on only in ``server``, where nothing else has the latency.
* LoadGen stores a pointer to the bytes of an answer. It receives none.
* ``offline`` does not draw samples but repeats the loaded ones; ``multi_stream`` loads some twice. Loaders accept
  repeated samples, and the issued sequence is recorded.

The calling thread issues, answers and completes all queries, so that no other thread contends for the interpreter.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import mlperf_loadgen as lg

from ..core.failures import Failure, classify_errors
from ..core.job import Seeds
from ..core.phase_reports import Progress
from ..core.scenarios import LoadGenScenario, MultiStream, Offline, Server, SingleStream
from .call_meter import Meter
from .loadgen_traces import Log, read_log
from .phase_setup import Stage

DETAIL = "mlperf_log_detail.txt"
_MILLISECOND = 1000
# Measured: LoadGen generates twice as many queries as fit into the duration, and holds about 350 bytes of each.
_GENERATED = 2
_MAX_GENERATED = 5_000_000
# For each traced query it writes another kilobyte, to a disk that may be memory.
_MAX_TRACED = 500_000

_runs = 0


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of a LoadGen run; ``min_duration`` and ``target_latency`` are in seconds.

    ``qps`` is the expected rate in queries a second (samples a second in ``Offline``), and in ``Server`` the arrival
    rate. LoadGen generates more queries in advance than fit into the duration at that rate. In ``Offline``, which has
    one query, ``min_queries`` counts samples.
    """

    scenario: Literal["SingleStream", "MultiStream", "Server", "Offline"]
    min_queries: int
    min_duration: float
    qps: float
    seeds: Seeds
    samples_per_query: int = 1
    target_latency: float | None = None
    traced: bool = False


@dataclass(frozen=True, slots=True)
class Source:
    """A set of ``total`` samples of which LoadGen chooses ``loaded``.

    ``load`` receives their indices, maybe repeated.
    """

    total: int
    loaded: int
    load: Callable[[Sequence[int]], None]


def run(issue: Callable[[list[int]], None], source: Source, settings: Settings, folder: Path) -> Log:
    """Run LoadGen once in this process; return its log.

    Args:
        issue: Answers a query, given the indices of its samples; the query is complete when the function returns.
        source: The samples.
        settings: The settings of LoadGen.
        folder: The folder for LoadGen's logs.

    Raises:
        Failure: ``loadgen-invalid``: LoadGen logged an error, a minimum was not met, or there are too many queries.
        BaseException: The first exception of ``issue`` or ``load``.
    """
    global _runs  # noqa: PLW0603 - LoadGen's state is global to the process
    _check_size(settings)
    if _runs:
        raise RuntimeError("LoadGen has already run in this process; a second run would lose settings")
    _runs += 1
    folder.mkdir(exist_ok=True)
    errors: list[BaseException] = []

    def on_load(indices: Sequence[int]) -> None:
        try:
            source.load(indices)
        except BaseException as error:  # noqa: BLE001 - nothing may pass through LoadGen
            errors.append(error)

    def on_issue(queries: Sequence[Any]) -> None:
        try:
            if not errors:
                issue([query.index for query in queries])
        except BaseException as error:  # noqa: BLE001 - nothing may pass through LoadGen
            errors.append(error)
        # An answer without bytes: LoadGen receives no pointer that must stay valid.
        lg.QuerySamplesComplete([lg.QuerySampleResponse(query.id, 0, 0) for query in queries])

    system = lg.ConstructSUT(on_issue, lambda: None)
    library = lg.ConstructQSL(source.total, source.loaded, on_load, lambda _indices: None)
    log_settings = _log_settings(folder, traced=settings.traced)
    lg.StartTestWithLogSettings(system, library, _test_settings(settings), log_settings, "")
    lg.DestroyQSL(library)
    lg.DestroySUT(system)
    if errors:
        raise errors[0]
    return read_account(folder)


def read_account(folder: Path) -> Log:
    """Read LoadGen's log of the run from ``folder``.

    Raises:
        Failure: ``loadgen-invalid``: LoadGen logged an error, a minimum was not met, or the log is incomplete.
    """
    with classify_errors("loadgen-invalid", DETAIL):
        log = read_log(folder / DETAIL)
    if log.errors:
        raise Failure("loadgen-invalid", f"LoadGen logged {len(log.errors)} errors: {log.errors[0]}")
    return log


def _check_size(settings: Settings) -> None:
    generated = max(settings.min_queries, _GENERATED * settings.min_duration * settings.qps)
    most = _MAX_TRACED if settings.traced else _MAX_GENERATED
    if generated > most:
        raise Failure(
            "loadgen-invalid",
            f"LoadGen would store {generated / 1e6:.3g} million queries; the limit is {most / 1e6:.3g} million: lower "
            f"min_duration ({settings.min_duration:g} s) or min_queries ({settings.min_queries})",
        )


def _test_settings(settings: Settings) -> Any:  # noqa: ANN401 - LoadGen has no types
    test_settings = lg.TestSettings()
    test_settings.scenario = getattr(lg.TestScenario, settings.scenario)
    test_settings.mode = lg.TestMode.PerformanceOnly
    test_settings.min_query_count = settings.min_queries
    test_settings.min_duration_ms = round(settings.min_duration * _MILLISECOND)
    test_settings.qsl_rng_seed = settings.seeds.qsl
    test_settings.sample_index_rng_seed = settings.seeds.sample_index
    test_settings.schedule_rng_seed = settings.seeds.schedule
    expected_ns = max(1, round(1e9 / settings.qps))
    test_settings.single_stream_expected_latency_ns = expected_ns
    test_settings.multi_stream_expected_latency_ns = expected_ns
    test_settings.multi_stream_samples_per_query = settings.samples_per_query
    test_settings.offline_expected_qps = settings.qps
    test_settings.server_target_qps = settings.qps
    if settings.target_latency is not None:
        test_settings.server_target_latency_ns = round(settings.target_latency * 1e9)
    return test_settings


def _log_settings(folder: Path, *, traced: bool) -> Any:  # noqa: ANN401 - LoadGen has no types
    log_settings = lg.LogSettings()
    log_settings.log_output.outdir = str(folder)
    log_settings.log_output.copy_summary_to_stdout = False
    log_settings.log_output.copy_detail_to_stdout = False
    log_settings.enable_trace = traced
    return log_settings


# LoadGen must not run out of the queries that it generates in advance, and its one offline query must last long enough.
_FASTER = 1.5


class Work(Protocol):
    """The work on samples: ``gather`` runs before the clock of a unit starts, ``ask`` while it runs."""

    @property
    def most(self) -> int:
        """The number of samples that LoadGen may choose."""
        ...

    def load(self, indices: Sequence[int]) -> None:
        """Load the samples that LoadGen chose, some of them maybe twice; not timed."""
        ...

    def expect(self, units: Sequence[Sequence[int]]) -> None:
        """Announce the units that ``gather`` will receive, in order, where they are known in advance."""
        ...

    def gather(self, indices: Sequence[int]) -> Any:  # noqa: ANN401 - the argument of ``ask``
        """Return the argument of ``ask`` for a unit of samples."""

    @property
    def ask(self) -> Callable[[Any], Any]:
        """The function that is timed."""


def per_unit(stage: Stage, scenario: LoadGenScenario) -> int:
    """Return the number of samples that are timed together."""
    if isinstance(scenario, MultiStream):
        return scenario.samples_per_query
    return stage.pipeline.batch_size(scenario.batch) if isinstance(scenario, Offline) else 1


def drive(stage: Stage, meter: Meter, work: Work, seconds: float, folder: Path) -> Log:
    """Run LoadGen over ``work``; return LoadGen's log.

    Args:
        stage: The set-up of the phase.
        meter: Measures each unit.
        work: The work to measure.
        seconds: The shortest time of a unit.
        folder: The folder for LoadGen's logs.

    Raises:
        Failure: Of class ``predict``, ``step``, ``load``, ``loadgen-invalid`` or ``out-of-memory``.
    """
    scenario = stage.job.scenario
    assert isinstance(scenario, LoadGenScenario)
    run_settings = settings(stage, scenario, seconds)
    size = per_unit(stage, scenario)
    queries = run_settings.min_queries // (size if isinstance(scenario, Offline) else 1)
    progress = Progress(stage.phase, max(1, queries, round(scenario.min_duration / seconds)))
    read = meter.reader(work.gather, work.ask, progress.at)

    def all_at_once(indices: Sequence[int]) -> None:
        units = [indices[start : start + size] for start in range(0, len(indices), size)]
        work.expect(units)
        for unit in units:
            read(unit)

    issue = all_at_once if isinstance(scenario, Offline) else read
    start = time.perf_counter()
    source = Source(len(stage.samples), work.most, work.load)
    with classify_errors("predict", "a query"):
        log = run(issue, source, run_settings, folder)
    progress.finish()
    stage.timings.seconds["queries"] = time.perf_counter() - start - stage.timings.seconds.get("prepare", 0.0)
    return log


def settings(stage: Stage, scenario: LoadGenScenario, seconds: float) -> Settings:
    """Return LoadGen's settings; ``seconds`` is the shortest time of a unit."""
    seeds, fastest = stage.job.seeds, _FASTER / seconds
    if isinstance(scenario, Offline):
        rate = fastest * per_unit(stage, scenario)
        return Settings("Offline", scenario.min_samples, scenario.min_duration, rate, seeds)
    least = (scenario.min_queries, scenario.min_duration)
    if isinstance(scenario, Server):
        rate, bound = scenario.target_qps, scenario.target_latency
        return Settings("Server", *least, rate, seeds, target_latency=bound, traced=stage.phase != "probe")
    if isinstance(scenario, SingleStream):
        return Settings("SingleStream", *least, fastest, seeds)
    return Settings("MultiStream", *least, fastest, seeds, scenario.samples_per_query)
