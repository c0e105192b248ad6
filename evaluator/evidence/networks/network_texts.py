"""Sentences on a batch in several numbers of parts."""

from collections.abc import Sequence
from typing import Any

from benchlock.artifacts.user_output import format_bytes, format_count
from benchlock.evaluator.evidence.networks.network_evidence import NetworkPart, read_parts
from benchlock.evaluator.records.run_types import RunEnd
from benchlock.registry.lock.lockfile import Lock


def name_parts(parts: int) -> str:
    """Return how a batch was computed: ``at once``, ``in 4 parts``."""
    return "at once" if parts == 1 else f"in {parts} parts"


def describe_network(end: RunEnd, lock: Lock) -> str | None:
    """Return the finding of a run in a sentence; None for a run of another scenario, or without a result.

    Raises:
        InvalidInputError: The record is malformed.
    """
    network: Any = end.details.get("network")
    if end.outcome != "done" or network is None:
        return None
    parts = read_parts(network)
    memory = format_bytes(lock.limits.bytes)
    samples = format_count(lock.scenario["batch"], "sample")
    findings = [_describe_part(part, memory) for part in parts]
    return f"{samples}: {', '.join(findings)}; {_describe_outputs(end, parts)}"


def _describe_part(part: NetworkPart, memory: str) -> str:
    """Return what a number of parts needs, or that its memory ran out."""
    if part.peak is None:
        return f"{name_parts(part.parts)} the limit of {memory} is too small (out-of-memory)"
    if part.peak.bytes is None:
        return f"{name_parts(part.parts)} an unknown peak"
    since = "" if part.peak.since == "first call" else ", start of the process included"
    return f"{format_bytes(part.peak.bytes)} {name_parts(part.parts)}{since}"


def _describe_outputs(end: RunEnd, parts: Sequence[NetworkPart]) -> str:
    values = {metric.name: metric.value for metric in end.metrics}
    if sum(part.failure is None for part in parts) == 1:
        return "no other outputs to compare"
    if "outputs_equal" not in values:
        return "outputs not compared, because outputs_equal was not requested"
    if values["outputs_equal"] == 1:
        return "outputs bit-equal"
    difference = values.get("outputs_difference")
    return "outputs differ" if difference is None else f"outputs differ by {difference:.2g} of their largest value"
