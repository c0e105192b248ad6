"""What was timed, as columns, once LoadGen's account was held against our own."""

from pathlib import Path

from ..account import compare_log
from ..failures import failing
from ..loadgen_log import Log
from ..scenarios import Offline, Queried, Server
from ..trace import TRACE, read_trace
from .meter import Columns, Meter


def columns_of(meter: Meter, scenario: Queried, log: Log, folder: Path) -> tuple[Columns, list[dict[str, float]]]:
    """The raw samples, a row a unit, and LoadGen's percentiles beside those of the same samples.

    In ``server`` a latency is from the time at which the query was scheduled, out of LoadGen's trace in ``folder``,
    which is then removed; ``service_ns`` is what our own clock saw.

    Raises:
        Failure: ``loadgen-invalid``: LoadGen tells of other queries, or its clock and ours disagree.
    """
    columns = meter.columns()
    with failing("loadgen-invalid", "LoadGen's account"):
        if isinstance(scenario, Server):
            columns = _scheduled(columns, folder / TRACE)
        return columns, compare_log(log, columns, _name(scenario))


def _name(scenario: Queried) -> str:
    if isinstance(scenario, Offline):
        return "offline"
    return "server" if isinstance(scenario, Server) else "sequential"


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
