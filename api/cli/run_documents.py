"""Runs as JSON and as text."""

from collections.abc import Iterator, Sequence
from typing import Any

from api.cli import output
from evaluator.records.runs import Run
from evaluator.statistics.figures import Metric


def run_document(run: Run, *, full: bool = False) -> dict[str, Any]:
    """A run as the command line's contract shows it; ``full`` adds all that was recorded."""
    start, end = run.start, run.end
    document: dict[str, Any] = {
        "run": run.id,
        "lock": start.lock,
        "outcome": "running" if end is None else end.outcome,
        "failure": _failure(run),
        "isolation": start.isolation,
        "platform": dict(start.platform),
        "metrics": [metric_document(metric) for metric in (() if end is None else end.metrics)],
        "image_id": start.image_id,
        "attempt": start.attempt,
        "started_at": start.started_at.isoformat(),
        "ended_at": None if end is None else end.ended_at.isoformat(),
        "imported_at": None if run.imported_at is None else run.imported_at.isoformat(),
        "timings": {} if end is None else dict(end.timings),
    }
    if full:
        document |= {
            "host": dict(start.host),
            "packages": {} if end is None else dict(end.packages),
            "blobs": {} if end is None else {role: blob.digest for role, blob in end.blobs.items()},
            "details": {} if end is None else dict(end.details),
        }
    return document


def _failure(run: Run) -> dict[str, str | None] | None:
    if run.end is None or run.end.outcome != "failed":
        return None
    return {"class": run.end.failure_class, "message": run.end.failure_message}


def metric_document(metric: Metric) -> dict[str, Any]:
    return {
        "name": metric.name,
        "value": metric.value,
        "unit": metric.unit,
        "direction": metric.direction,
        "n": metric.n,
        "ci": [metric.ci.low, metric.ci.high],
        "definition": metric.version,
    } | ({} if metric.batch is None else {"batch": metric.batch})


def print_run(run: Run) -> None:
    """Everything about a run, for a person."""
    document = run_document(run, full=True)
    print_outcome(run)
    output.echo()
    imported = () if run.imported_at is None else ("imported_at",)
    fields = ("lock", "image_id", "started_at", "ended_at", "attempt", *imported)
    output.print_fields({key: document[key] for key in fields})
    for title in ("platform", "host", "timings", "blobs", "packages"):
        output.echo(f"\n{title}")
        output.print_fields({f"  {key}": _short(value) for key, value in document[title].items()})


def _short(value: object) -> str:
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return text if len(text) <= 100 else f"{text[:99]}…"  # noqa: PLR2004 - a line


def print_outcome(run: Run) -> None:
    """The outcome, and each metric with its interval, n and unit."""
    end = run.end
    output.echo(
        f"{run.id}  {'running' if end is None else end.outcome}  {run.start.isolation} on {run.start.platform_name}"
    )
    if end is None:
        return
    if end.outcome == "failed":
        output.echo(f"  {end.failure_class}: {end.failure_message}")
    if {"verification", "run"} <= end.timings.keys():
        spent = {name: output.duration(end.timings[name]) for name in ("verification", "run")}
        output.echo(f"  {spent['verification']} to verify what the lock names, apart from {spent['run']} to run it")
    if end.metrics:
        rows = [(metric.key, figure(metric), interval(metric), str(metric.n)) for metric in end.metrics]
        output.print_table(("metric", "value", "95 % interval", "n"), rows)


def figure(metric: Metric) -> str:
    return _in_unit(metric.value, metric.unit)


def interval(metric: Metric) -> str:
    return f"[{_in_unit(metric.ci.low, metric.unit)}, {_in_unit(metric.ci.high, metric.unit)}]"


def _in_unit(value: float | None, unit: str) -> str:
    if value is None:
        return "-"
    if unit == "s":
        return output.duration(value)
    if unit == "fraction":
        return f"{value:.4f}"
    return f"{value:.4g} {unit}"


def print_runs(runs: Sequence[Run]) -> None:
    """One line a run."""
    rows = [
        (
            run.id,
            run.start.started_at.strftime("%Y-%m-%d %H:%M:%S"),
            "running" if run.end is None else run.end.outcome,
            run.start.isolation,
            run.start.lock,
            "; ".join(_remarks(run)),
        )
        for run in runs
    ]
    output.print_table(("run", "started", "outcome", "isolation", "lock", ""), rows)


def _remarks(run: Run) -> Iterator[str]:
    if run.end is not None and run.end.failure_class:
        yield run.end.failure_class
    if run.imported_at is not None:
        yield "imported"
