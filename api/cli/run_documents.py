"""JSON documents of runs, their metrics and claims."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.records.timing_validity import (
    calls_of,
    explain_unusable_times,
    find_observed_times,
    flag_of,
    validity_of,
)
from benchlock.evaluator.statistics.metric_types import Metric
from benchlock.registry.manifests.metric_definitions import is_bracketed, is_quality

if TYPE_CHECKING:
    from benchlock.evaluator.workflows.claim_verdicts import ClaimVerdict
    from benchlock.evaluator.workflows.repeat import Repetition


def run_document(run: Run, *, full: bool = False) -> dict[str, Any]:
    """Return the JSON document of a run; ``full`` adds everything that was recorded."""
    start, end = run.start, run.end
    document: dict[str, Any] = {
        "run": run.id,
        "lock": start.lock,
        "outcome": "running" if end is None else end.outcome,
        "failure": _failure(run),
        "isolation": start.isolation,
        "platform": dict(start.platform),
        "metrics": [metric_document(metric) for metric in (() if end is None else end.metrics)],
        **validity_document(run),
        "calls": calls_document(run),
        "times_unusable": explain_unusable_times(run),
        "observed": observed_document(run),
        "image_id": start.image_id,
        "attempt": start.attempt,
        "started_at": start.started_at.isoformat(),
        "ended_at": None if end is None else end.ended_at.isoformat(),
        "imported_at": None if run.imported_at is None else run.imported_at.isoformat(),
        "timings": {} if end is None else dict(end.timings),
        "evidence": evidence_document(run),
    }
    if run.hidden is not None:
        document["hidden"] = {"reason": run.hidden.reason, "at": run.hidden.at.isoformat()}
    if full:
        document |= {
            "host": dict(start.host),
            "packages": {} if end is None else dict(end.packages),
            "blobs": {} if end is None else {role: blob.digest for role, blob in end.blobs.items()},
            "details": {} if end is None else dict(end.details),
        }
    return document


def wall_document(account: Mapping[str, float]) -> dict[str, Any]:
    """Return the JSON document of a command's wall clock: seconds per part, and their sum."""
    return {"seconds": sum(account.values()), "parts": dict(account)}


def evidence_document(run: Run) -> dict[str, Any] | None:
    """Return the JSON document of the evidence: state, differences and reported fields; None without a comparison."""
    evidence = run.evidence
    if evidence is None:
        return None
    return {"state": evidence.state, "reasons": list(evidence.reasons), "reported": list(evidence.reported)}


def _failure(run: Run) -> dict[str, str | None] | None:
    if run.end is None or run.end.outcome != "failed":
        return None
    return {"class": run.end.failure_class, "message": run.end.failure_message}


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
        "without_preemption": [metric_document(metric) for metric in calls.undisturbed],
        "cpu_time": [metric_document(metric) for metric in calls.cpu_time],
        "without_delay": [metric_document(metric) for metric in calls.undelayed],
    }


def metric_document(metric: Metric, *, over_runs: bool = False) -> dict[str, Any]:
    """Return the JSON document of a metric; one of a single run names an interval that is not a confidence interval."""
    bracketed = not over_runs and is_bracketed(metric.name)
    document = {
        "name": metric.name,
        "value": metric.value,
        "unit": metric.unit,
        "direction": metric.direction,
        "n": metric.n,
        "ci": [metric.ci.low, metric.ci.high],
        "definition": metric.version,
        "self_reported": metric.self_reported,
    }
    within = "within run" if not over_runs and not is_quality(metric.name) else None
    more = {"batch": metric.batch, "interval": "bracket" if bracketed else within}
    return document | {key: value for key, value in more.items() if value is not None}


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
        metric_document(entry.metric, over_runs=True)
        | {"width": entry.width if math.isfinite(entry.width) else None, "until": entry.wanted, "narrow": entry.narrow}
        for entry in repetition.metrics
    ]
    return {
        "runs": [run.id for run in repetition.runs],
        "narrow": repetition.narrow,
        "reason": repetition.reason,
        "metrics": figures,
    }
