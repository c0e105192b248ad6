"""MLPerf LoadGen, behind guards against all that is known to go wrong with it.

* An error that leaves a callback ends the process by a signal: none does; the first is kept and raised afterwards.
* A query that is never completed hangs LoadGen for ever: every query is completed, after an error too.
* A second run in one process silently loses settings: the performance phase is a process of its own.
* A configuration file and ``audit.config`` in the working folder override settings: neither is read.
* Seeds beyond 32 bits are cut: the job's are checked when it is read.
* A query completed twice, too few generated queries and the like only leave a line in the log: each such line makes
  the run invalid.
* It keeps all queries of a run in memory from the start, twice as many as it expects: there is a most.
* Its trace costs a kilobyte a query: it is off.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlperf_loadgen as lg

from .failures import Failure, failing
from .job import Seeds

_DETAIL = "mlperf_log_detail.txt"
_MARK = ":::MLLOG "
_EFFECTIVE = "effective_"
_RESULT_KEYS = ("result_", "early_stopping_")
_MINIMA = ("result_min_duration_met", "result_min_queries_met")
_MILLISECOND = 1000
# Measured: LoadGen generates twice as many queries as fit into the duration, and keeps about 350 bytes of each.
_GENERATED = 2
_MOST_GENERATED = 5_000_000


@dataclass(frozen=True, slots=True)
class Settings:
    """``min_duration`` in seconds; LoadGen makes as many queries as ``expected_latency_ns`` fits into it, and more."""

    min_queries: int
    min_duration: float
    expected_latency_ns: int
    seeds: Seeds


@dataclass(frozen=True, slots=True)
class Source:
    """``total`` samples of which LoadGen chooses ``loaded``; ``load`` gets their indices, repeated ones too."""

    total: int
    loaded: int
    load: Callable[[Sequence[int]], None]


@dataclass(frozen=True, slots=True)
class Log:
    """LoadGen's own account. ``valid`` is its judgement, early stopping included; ``errors`` its lines of error."""

    version: str
    valid: bool
    errors: tuple[str, ...]
    settings: dict[str, Any]
    results: dict[str, Any]


def single_stream(issue: Callable[[int], None], source: Source, settings: Settings, folder: Path) -> Log:
    """Call ``issue`` with one sample's index after the other, as LoadGen draws them; its logs go to ``folder``.

    Raises:
        Failure: ``loadgen-invalid``: LoadGen logged an error, a minimum was not met, or the queries are too many.
        BaseException: what ``issue`` or ``load`` raised first.
    """
    _check_size(settings)
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
                for query in queries:
                    issue(query.index)
        except BaseException as error:  # noqa: BLE001 - nothing may pass through LoadGen
            errors.append(error)
        # An answer without bytes: LoadGen is handed no pointer that would have to be kept alive.
        lg.QuerySamplesComplete([lg.QuerySampleResponse(query.id, 0, 0) for query in queries])

    system = lg.ConstructSUT(on_issue, lambda: None)
    library = lg.ConstructQSL(source.total, source.loaded, on_load, lambda _indices: None)
    lg.StartTestWithLogSettings(system, library, _test_settings(settings), _log_settings(folder), "")
    lg.DestroyQSL(library)
    lg.DestroySUT(system)
    if errors:
        raise errors[0]
    with failing("loadgen-invalid", _DETAIL):
        log = read_log(folder / _DETAIL)
    if log.errors:
        raise Failure("loadgen-invalid", f"LoadGen logged {len(log.errors)} errors: {log.errors[0]}")
    return log


def _check_size(settings: Settings) -> None:
    generated = max(settings.min_queries, _GENERATED * settings.min_duration * 1e9 / settings.expected_latency_ns)
    if generated > _MOST_GENERATED:
        raise Failure(
            "loadgen-invalid",
            f"LoadGen would keep {generated / 1e6:.0f} million queries in memory, {_MOST_GENERATED / 1e6:.0f} million "
            f"are the most: lower min_duration ({settings.min_duration:g} s) or min_queries ({settings.min_queries})",
        )


def read_log(path: Path) -> Log:
    """The detail log of one run. ``ValueError`` if it is not complete."""
    entries = [
        json.loads(line.removeprefix(_MARK))
        for line in path.read_text(encoding="utf-8").splitlines()
        if line.startswith(_MARK)
    ]
    values = {entry["key"]: entry["value"] for entry in entries}
    if "result_validity" not in values:
        raise ValueError("LoadGen left no result_validity")
    errors = [f"{entry['key']}: {entry['value']}" for entry in entries if entry["metadata"].get("is_error")]
    errors += [f"{key}: false" for key in _MINIMA if not values.get(key)]
    return Log(
        version=str(values.get("loadgen_version")),
        valid=values["result_validity"] == "VALID",
        errors=tuple(errors),
        settings={key.removeprefix(_EFFECTIVE): value for key, value in values.items() if key.startswith(_EFFECTIVE)},
        results={key: value for key, value in values.items() if key.startswith(_RESULT_KEYS)},
    )


def _test_settings(settings: Settings) -> Any:  # noqa: ANN401 - LoadGen has no types
    made = lg.TestSettings()
    made.scenario = lg.TestScenario.SingleStream
    made.mode = lg.TestMode.PerformanceOnly
    made.single_stream_expected_latency_ns = settings.expected_latency_ns
    made.min_query_count = settings.min_queries
    made.min_duration_ms = round(settings.min_duration * _MILLISECOND)
    made.qsl_rng_seed = settings.seeds.qsl
    made.sample_index_rng_seed = settings.seeds.sample_index
    made.schedule_rng_seed = settings.seeds.schedule
    return made


def _log_settings(folder: Path) -> Any:  # noqa: ANN401 - LoadGen has no types
    made = lg.LogSettings()
    made.log_output.outdir = str(folder)
    made.log_output.copy_summary_to_stdout = False
    made.log_output.copy_detail_to_stdout = False
    made.enable_trace = False
    return made
