"""Facts of a timed phase that follow from its raw samples and LoadGen's log alone.

They need no LoadGen, no model and no predictor, so that they can be computed again from what a run leaves.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from .loadgen_log import Log
from .trace import agreement

MEDIAN = 0.5

# Our clock is inside LoadGen's; the two may drift by this.
_LESS_SHARE, _LESS_NS = 0.005, 2_000

# The harness reads its clock inside LoadGen's; LoadGen's median may exceed the harness's by this.
_MORE_SHARE, _MORE_NS = 0.1, 100_000


def describe_phase(columns: Mapping[str, NDArray[Any]], samples_per_query: int) -> dict[str, Any]:
    """Count what a phase timed; its seconds run from its first start, or first scheduled query, to its last answer."""
    return {
        "queries": len(columns["latency_ns"]),
        "samples_per_query": samples_per_query,
        "samples": len(columns["index"]),
        "duration_s": float(columns["end_ns"].max() - columns["start_ns"].min()) / 1e9,
        "preempted": int(columns["preempted"].sum()),
    }


def describe_sweep(columns: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Count what a sweep of batches timed; its seconds are those of its calls and of what precedes each."""
    return {
        "queries": len(columns["latency_ns"]),
        "samples_per_query": 1,
        "samples": len(columns["index"]),
        "duration_s": float((columns["before_ns"] + columns["latency_ns"]).sum()) / 1e9,
        "preempted": int(columns["preempted"].sum()),
    }


def describe_starts(columns: Mapping[str, NDArray[Any]]) -> dict[str, Any]:
    """Count the processes of a cold start; its seconds are the sum of theirs."""
    repeats = len(columns["latency_ns"])
    return {
        "queries": repeats,
        "samples_per_query": 1,
        "samples": repeats,
        "duration_s": float(columns["latency_ns"].sum()) / 1e9,
    }


def describe_account(
    log: Log, columns: Mapping[str, NDArray[Any]], agreed: Sequence[Mapping[str, float]]
) -> dict[str, Any]:
    """Summarise LoadGen's log, with the digest of the sequence of samples that it issued.

    Args:
        log: The detail log.
        columns: The raw samples of the phase.
        agreed: LoadGen's percentiles beside those of ``columns``, in nanoseconds.
    """
    return {
        "version": log.version,
        "valid": log.valid,
        "errors": list(log.errors),
        "settings": log.settings,
        "results": log.results,
        "sequence_sha256": hashlib.sha256(columns["index"].astype("<i8").tobytes()).hexdigest(),
        "percentiles": list(agreed),
        "clocks_agree": clocks_agree(agreed),
    }


def compare_log(log: Log, columns: Mapping[str, NDArray[Any]], scenario: str) -> list[dict[str, float]]:
    """Return LoadGen's percentiles beside those of the samples of the same queries, after a comparison.

    Args:
        log: The detail log.
        columns: The raw samples of the phase.
        scenario: ``offline``, whose one query has no percentiles, ``server``, whose latencies are LoadGen's own, or
            another one, whose latencies were measured inside LoadGen's.

    Raises:
        ValueError: The log tells of other queries, or its clock and the harness's disagree.
        KeyError: The log or the columns lack something.
    """
    if scenario == "offline":
        _check_count(log.settings["samples_per_query"], len(columns["index"]))
        return []
    _check_count(log.results["result_query_count"], len(columns["latency_ns"]))
    if scenario == "server":
        agreed = agreement(log, columns["latency_ns"])
        _check_equal(agreed)
        return agreed
    agreed = agreement(log, columns["before_ns"] + columns["latency_ns"])
    _check_inside(agreed)
    return agreed


def _check_count(told: int, own: int) -> None:
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


def clocks_agree(agreed: Sequence[Mapping[str, float]]) -> bool:
    """Return whether LoadGen's median is ours plus some microseconds of Python.

    It is not where other processes had the CPU between the two clocks.
    """
    return all(
        one["loadgen_ns"] <= one["own_ns"] * (1 + _MORE_SHARE) + _MORE_NS for one in agreed if one["share"] == MEDIAN
    )


def describe_probe(rate: float, log: Log) -> dict[str, Any]:
    """Summarise a probe of the rate of arrival ``rate``, in queries a second."""
    results = log.results
    return {
        "qps": rate,
        "valid": log.valid,
        "queries": results["result_query_count"],
        "completed_qps": results["result_completed_samples_per_sec"],
        "latency_p99_ns": results["result_99.00_percentile_latency_ns"],
    }


def find_peak(probes: Sequence[Mapping[str, Any]]) -> tuple[float | None, float | None]:
    """Return the greatest rate with a valid probe, and the least rate without one; None where there is no such rate."""
    rates: dict[float, bool] = {}
    for probe in probes:
        rates[probe["qps"]] = rates.get(probe["qps"], False) or bool(probe["valid"])
    answered = [rate for rate, is_valid in rates.items() if is_valid]
    failed = [rate for rate, is_valid in rates.items() if not is_valid]
    return max(answered, default=None), min(failed, default=None)
