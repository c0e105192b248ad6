"""JSON documents of locks, runs with their metrics and claims, comparisons and verdicts."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from benchlock.evaluator.records.comparison_types import Verdict
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.records.timing_validity import (
    calls_of,
    explain_unusable_times,
    find_observed_times,
    flag_of,
    list_early_stopping,
    validity_of,
)
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests.metric_definitions import is_bracketed, is_quality

if TYPE_CHECKING:
    from benchlock.evaluator.workflows.claim_verdicts import ClaimVerdict
    from benchlock.evaluator.workflows.compare import Comparison
    from benchlock.evaluator.workflows.repeat import Repetition


def run_document(run: Run) -> dict[str, Any]:
    """Return the JSON document of a run: the run as over HTTP, and what follows from its record."""
    document: dict[str, Any] = {
        "run": run.id,
        **msgspec.to_builtins(run),
        **validity_document(run),
        "early_stopping": msgspec.to_builtins(list_early_stopping(run)),
        "calls": calls_document(run),
        "times_unusable": explain_unusable_times(run),
        "observed": observed_document(run),
    }
    metrics = () if run.end is None else run.end.metrics
    intervals = {
        metric.key: "bracket" if is_bracketed(metric.name) else "within run"
        for metric in metrics
        if is_bracketed(metric.name) or not is_quality(metric.name)
    }
    return document | {"intervals": intervals}


def wall_document(account: Mapping[str, float]) -> dict[str, Any]:
    """Return the JSON document of a command's wall clock: seconds per part, and their sum."""
    return {"seconds": sum(account.values()), "parts": dict(account)}


def validity_document(run: Run) -> dict[str, Any]:
    """Return LoadGen's verdict, and its reason if it is INVALID; null without LoadGen."""
    validity = validity_of(run)
    return {
        "valid": None if validity is None else validity.valid,
        "invalid_reason": None if validity is None else validity.reason,
        "valid_self_reported": None if validity is None else validity.self_reported,
    }


def observed_document(run: Run) -> dict[str, Any] | None:
    """Return the runner's own measurements of a run with self-reported times; None for other runs."""
    observed = find_observed_times(run)
    if observed is None:
        return None
    return {
        "seconds": observed.seconds,
        "cpu_seconds": observed.cpu_seconds,
        "queries": observed.queries,
        "seconds_a_query": observed.seconds_a_query,
    }


def calls_document(run: Run) -> dict[str, Any] | None:
    """Return how the calls were disturbed; ``flagged`` if too much, or if the host issued queries too late."""
    calls = calls_of(run)
    if run.end is None or calls is None:
        return None
    return {
        "n": calls.n,
        "preempted": calls.preempted,
        "flagged": flag_of(run) is not None,
        "without_cpu": calls.without_cpu,
        "scope": calls.scope,
        "self_reported": run.end.times_self_reported,
        "without_preemption": msgspec.to_builtins(calls.undisturbed),
        "cpu_time": msgspec.to_builtins(calls.cpu_time),
        "without_delay": msgspec.to_builtins(calls.undelayed),
    }


def claim_document(claim_verdict: "ClaimVerdict") -> dict[str, Any]:
    """Return the JSON document of a claim: the answer of a run to it, and the measured value with its interval."""
    claim, measured = claim_verdict.claim, claim_verdict.measured
    return {
        "metric": claim.metric,
        "value": claim.value,
        "tolerance": claim.tolerance,
        "dataset": {"name": claim.dataset.name, "version": claim.dataset.version, "split": claim.dataset.split},
        "answer": claim_verdict.answer,
        "reason": claim_verdict.reason,
        "measured": None if measured is None else measured.value,
        "ci": None if measured is None else [measured.ci.low, measured.ci.high],
        "self_reported": measured is not None and measured.self_reported,
    }


def repetition_document(repetition: "Repetition") -> dict[str, Any]:
    """Return the JSON document of a repetition: its runs, and the metrics over them with their precision."""
    figures = [
        msgspec.to_builtins(entry.metric)
        | {"width": entry.width if math.isfinite(entry.width) else None, "until": entry.wanted, "narrow": entry.narrow}
        for entry in repetition.metrics
    ]
    return {
        "runs": [run.id for run in repetition.runs],
        "narrow": repetition.narrow,
        "reason": repetition.reason,
        "metrics": figures,
    }


def lock_document(lock: Lock) -> dict[str, Any]:
    """Return the JSON document of a lock: its id and the chosen versions."""
    chosen = {str(kind): {"name": entry.name, "version": entry.version} for kind, entry in lock.artifacts().items()}
    platforms = [{"os": entry.os, "arch": entry.arch, "device": entry.device} for entry in lock.image.platforms]
    return {"lock": lock.id, **chosen, "platforms": platforms}


def comparison_document(comparison: "Comparison") -> dict[str, Any]:
    """Return the JSON document of a comparison: the report as over HTTP, and the runs."""
    runs = [
        run_document(run) | {"model": {"name": arm.lock.subject.name, "version": arm.lock.subject.version}}
        for arm in comparison.arms
        for run in arm.runs
    ]
    return {**msgspec.to_builtins(comparison.report()), "runs": runs}


def verdict_document(verdict: Verdict, again: Run, claim_verdicts: "tuple[ClaimVerdict, ...]") -> dict[str, Any]:
    """Return the JSON document of a verdict: as over HTTP, with the outcome and the judged claims of the run."""
    return {
        **msgspec.to_builtins(verdict),
        "outcome": None if again.end is None else again.end.outcome,
        **validity_document(again),
        "claims": [claim_document(claim_verdict) for claim_verdict in claim_verdicts],
    }
