"""What the times of a run include, and the load generator's own figures for the same queries beside them."""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Annotated, Any, Final

import msgspec

from benchlock.artifacts.json_codec import prepare_decoder
from benchlock.evaluator.records.run_types import RunEnd
from benchlock.evaluator.records.timing_validity import MEDIAN, ComparedClocks
from benchlock.evaluator.statistics.metric_types import Metric, format_duration

_CLOSED_LOOPS: Final = ("single_stream", "multi_stream")
"""The scenarios whose next query follows the last answer, so that time between calls is a cost."""
_DEPENDENT: Final = 2
"""The version of the definition from which on intervals allow for calls that depend on each other."""
_Nanoseconds = Annotated[float, msgspec.Meta(ge=0, le=1e18)]


class _Overhead(msgspec.Struct):
    around_ns: _Nanoseconds


class _Performance(msgspec.Struct):
    queries: Annotated[int, msgspec.Meta(gt=0, le=10**12)]
    duration_s: Annotated[float, msgspec.Meta(gt=0, le=1e9)]
    overhead: _Overhead | None = None


@prepare_decoder
class _Times(msgspec.Struct):
    performance: _Performance
    loadgen: ComparedClocks | None = None


def list_time_notes(end: RunEnd, scenario: str) -> Iterator[str]:
    """Yield what latency and throughput of a run include, each in a note, with LoadGen's own figures.

    Args:
        end: The end of the run, with its metrics and details.
        scenario: The name of the locked scenario.
    """
    metrics = {metric.name: metric for metric in end.metrics}
    times = _read_times(end.details)
    if "latency_p50" in metrics:
        yield _describe_latency(metrics["latency_p50"], scenario)
        if times is not None and scenario in _CLOSED_LOOPS and (figures := _list_figures(times)):
            yield (
                f"LoadGen's own results for the same queries are {figures}. They are higher because LoadGen's clock is "
                "outside of benchlock's: they also include the way from LoadGen into Python and back."
            )
    if "throughput" in metrics and scenario in _CLOSED_LOOPS:
        yield _describe_throughput(metrics, times)


def _describe_latency(metric: Metric, scenario: str) -> str:
    intervals = "; its intervals allow for calls that depend on each other" if metric.version >= _DEPENDENT else ""
    start = "its scheduled arrival" if scenario == "server" else "just before the call of predict"
    return (
        f"latency (definition {metric.version}{intervals}): the time of a query on prepared tensors, from {start} to "
        "its answer, by benchlock's clock. Reading and preparing the sample, output steps and LoadGen's own work are "
        "not included."
    )


def _describe_throughput(metrics: Mapping[str, Metric], times: _Times | None) -> str:
    """Return what the throughput of a closed loop includes, with the size of its parts where the record has them."""
    text = (
        f"throughput (definition {metrics['throughput'].version}): samples divided by the time from the first query to "
        "the last answer, with the time between calls, in which LoadGen and benchlock's harness work."
    )
    if times is None or "latency_p50" not in metrics:
        return text
    period = times.performance.duration_s / times.performance.queries
    parts = f"{format_duration(metrics['latency_p50'].value)} are the median latency"
    if (overhead := times.performance.overhead) is not None:
        parts += f", and {format_duration(overhead.around_ns / 1e9)} the harness's counters and stored row (median)"
    return f"{text} From one query to the next are {format_duration(period)} on average: {parts}."


def _list_figures(times: _Times) -> str:
    """Return LoadGen's median and 90th and 99th percentile, as far as the record has them."""
    found = {each.share: each.loadgen_ns for each in (times.loadgen.percentiles if times.loadgen else ())}
    shown = ((name, found.get(share)) for name, share in (("p50", MEDIAN), ("p90", 0.9), ("p99", 0.99)))
    return ", ".join(f"{name} {format_duration(value / 1e9)}" for name, value in shown if value is not None)


def _read_times(details: Mapping[str, Any]) -> _Times | None:
    """Read the parts of the details; None of a record without them or in an older form."""
    with suppress(msgspec.ValidationError):
        return msgspec.convert(details, _Times)
    return None
