"""What was timed, as columns, once LoadGen's account was held against our own."""

from pathlib import Path

from ..account import MEDIAN
from ..failures import failing
from ..loadgen_log import Log
from ..scenarios import Offline, Queried, Server
from ..trace import TRACE, agreement, read_trace
from .meter import Columns, Meter

# Our clock is inside LoadGen's; the two may drift by this.
_LESS_SHARE, _LESS_NS = 0.005, 2_000


def columns_of(meter: Meter, scenario: Queried, log: Log, folder: Path) -> tuple[Columns, list[dict[str, float]]]:
    """The raw samples, a row a unit, and LoadGen's percentiles beside those of the same samples.

    In ``server`` a latency is from the time at which the query was scheduled, out of LoadGen's trace in ``folder``,
    which is then removed; ``service_ns`` is what our own clock saw.

    Raises:
        Failure: ``loadgen-invalid``: LoadGen tells of other queries, or its clock and ours disagree.
    """
    columns = meter.columns()
    with failing("loadgen-invalid", "LoadGen's account"):
        _check_count(columns, scenario, log)
        if isinstance(scenario, Offline):
            return columns, []
        if isinstance(scenario, Server):
            columns = _scheduled(columns, folder / TRACE)
            agreed = agreement(log, columns["latency_ns"])
            _check_equal(agreed)
        else:
            agreed = agreement(log, columns["before_ns"] + columns["latency_ns"])
            _check_inside(agreed)
    return columns, agreed


def _scheduled(columns: Columns, trace: Path) -> Columns:
    found = read_trace(trace, columns["index"])
    trace.unlink()
    return columns | {
        "latency_ns": found.latency,
        "service_ns": columns["latency_ns"],
        "start_ns": found.at,
        "end_ns": found.at + found.latency,
        "issue_delay_ns": found.issued,
    }


def _check_count(columns: Columns, scenario: Queried, log: Log) -> None:
    key = "samples_per_query" if isinstance(scenario, Offline) else "query_count"
    told = log.settings[key] if isinstance(scenario, Offline) else log.results[f"result_{key}"]
    own = len(columns["index"] if isinstance(scenario, Offline) else columns["latency_ns"])
    if told != own:
        raise ValueError(f"it counts {told}, and {own} were answered")


def _check_equal(agreed: list[dict[str, float]]) -> None:
    for one in agreed:
        if one["own_ns"] != one["loadgen_ns"]:
            raise ValueError(
                f"its {one['share']:.1%} percentile is {one['loadgen_ns']} ns, that of its trace {one['own_ns']} ns"
            )


def _check_inside(agreed: list[dict[str, float]]) -> None:
    for one in agreed:
        own, theirs = one["own_ns"], one["loadgen_ns"]
        if one["share"] == MEDIAN and theirs < own * (1 - _LESS_SHARE) - _LESS_NS:
            raise ValueError(f"its median of a query is {theirs} ns, less than that of our clock inside, {own} ns")
