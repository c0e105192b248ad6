"""The ``gate`` command: fail if a candidate is proven worse than its baseline, for continuous integration."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import msgspec

from benchlock.api.cli import output
from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.compare_command import warn_about_comparison
from benchlock.api.cli.output import say
from benchlock.api.cli.run_options import (
    ALLOW_CODE,
    ISOLATION,
    RUN_PREFIX,
    complete_run_target,
    parse_shares,
    read_lock,
)
from benchlock.api.client.lock_runs import LockRunner
from benchlock.api.error_codes import EXIT_REFUSED, EXIT_UNDECIDED
from benchlock.api.export.text_formats import code, escape_markdown, format_table
from benchlock.api.schemas.run_documents import comparison_document, lock_document
from benchlock.artifacts.atomic_files import create_file
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.evidence.prediction_scores import PredictionPairs
from benchlock.evaluator.records.evidence_status import SCRATCH, refuse_unverified
from benchlock.evaluator.records.run_types import Run, parse_isolation, parse_run_id
from benchlock.evaluator.statistics.metric_types import format_change, format_value
from benchlock.evaluator.workflows.compare import Arm, default_rounds, shared_margins, shared_metrics
from benchlock.evaluator.workflows.gate import Conclusion, GatedMetric, GateResult, check_gate, run_gate
from benchlock.registry.lock.lockfile import Lock

_EXIT_CODES: Mapping[Conclusion, int] = {
    "passed": 0,
    "regression": EXIT_REFUSED,
    "not comparable": EXIT_REFUSED,
    "undecided": EXIT_UNDECIDED,
}


@dataclass(frozen=True, slots=True)
class _GateOptions:
    """The options of the command by name."""

    baseline: str
    candidate: str
    margin: tuple[str, ...]
    rounds: int | None
    markdown: str
    isolation: str
    allow_code: bool


@click.command()
@click.option(
    "--baseline",
    metavar="LOCK|RUN",
    required=True,
    callback=complete_run_target,
    help="Lock to compare with; of a run, its lock runs again.",
)
@click.option(
    "--candidate", metavar="LOCK", required=True, callback=complete_run_target, help="Lock that must not be worse."
)
@click.option(
    "--margin",
    metavar="METRIC=SHARE",
    multiple=True,
    help="Regression that must not pass, such as latency_p50=5%; repeatable.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    help=f"Number of rounds; default: {default_rounds(2)}, or 1 if all margins are of quality.",
)
@click.option("--markdown", metavar="FILE", default="", help="Also write the result as Markdown.")
@ISOLATION
@ALLOW_CODE
@click.pass_obj
def gate(invocation: Invocation, /, **options: Any) -> None:  # noqa: ANN401 - the fields of _GateOptions
    """Fail if a lock is proven worse than a baseline.

    Both locks run interleaved on this machine. Exits with 0 if every metric passes, with 1 on a regression, and with
    7 if more rounds are needed to decide.

    Example: benchlock gate --baseline main.lock --candidate branch.lock --margin latency_p50=5%
    """
    settings = _GateOptions(**options)
    baseline, candidate = _read_baseline(invocation, settings.baseline), _read_candidate(invocation, settings.candidate)
    folder = Path(settings.markdown).parent
    if settings.markdown and not folder.is_dir():
        raise InvalidInputError(f"folder not found: {folder}", where=settings.markdown, next_step="create it first")
    metrics = shared_metrics((baseline, candidate))
    margins = {**shared_margins((baseline, candidate)), **parse_shares("--margin", settings.margin, metrics)}
    check_gate((baseline, candidate), margins, settings.rounds)
    isolation = parse_isolation(settings.isolation)
    runner = LockRunner(invocation.opened, invocation.progress, say, isolation, settings.allow_code)

    def once(lock: Lock, part_of: Mapping[str, Any]) -> Run:
        run = runner.run(lock, part_of=part_of)
        role = "candidate" if part_of["arm"] else "baseline, again" if part_of["control"] else "baseline"
        outcome = "running" if run.end is None else run.end.outcome
        say(f"round {part_of['round']} of {part_of['rounds']}: {role}: {run.id} {outcome}")
        return run

    pairs = PredictionPairs(invocation.opened.store, invocation.opened.home / SCRATCH)
    result = run_gate((baseline, candidate), once, settings.rounds, margins, pairs.compare_all)
    for run in (run for arm in result.comparison.arms for run in arm.runs):
        warn_about_comparison(run)
    if settings.markdown:
        with create_file(Path(settings.markdown)) as file:
            file.write(format_report(result).encode())
    if invocation.as_json:
        output.print_json(gate_document(result))
    else:
        print_gate(result)
    raise click.exceptions.Exit(_EXIT_CODES[result.verdict])


def _read_baseline(invocation: Invocation, text: str) -> Lock:
    """Load the baseline: a lock, or the lock of a run, which must be verified."""
    if not text:
        raise InvalidInputError(
            "the baseline is empty", where="--baseline", next_step="give a lockfile, a lock id or a run id"
        )
    if not text.startswith(RUN_PREFIX):
        return read_lock(invocation, text)
    run = invocation.opened.records.get(parse_run_id(text))
    refuse_unverified(run.id, run.evidence)
    say(f"the baseline is the lock of {run.id}, which runs again here; the metrics of {run.id} decide nothing")
    return read_lock(invocation, run.start.lock)


def _read_candidate(invocation: Invocation, text: str) -> Lock:
    """Load the candidate: a lock; a run is none, because it may be of another machine."""
    if not text:
        raise InvalidInputError("the candidate is empty", where="--candidate", next_step="give a lockfile or a lock id")
    if not text.startswith(RUN_PREFIX):
        return read_lock(invocation, text)
    lock = invocation.opened.records.get(parse_run_id(text)).start.lock
    raise InvalidInputError(
        f"the candidate must be a lock, not a run: {text}",
        where="--candidate",
        next_step=f"give the lock of this run, which runs again here: --candidate {lock}",
    )


def gate_document(result: GateResult) -> dict[str, Any]:
    """Return the JSON document of a gate: the verdict, its error rates, the metrics, and the comparison."""
    baseline, candidate = (lock_document(arm.lock) for arm in result.comparison.arms[:2])
    return {
        "verdict": result.verdict,
        "baseline": baseline,
        "candidate": candidate,
        "rounds": result.rounds,
        "tests": result.tests,
        "level": result.level,
        "false_positive_rate": result.false_positive_rate,
        "metrics": msgspec.to_builtins(result.metrics),
        "comparison": comparison_document(result.comparison),
    }


def print_gate(result: GateResult) -> None:
    """Print the metrics of both locks, the decisions with their error rates, and the verdict."""
    baseline, candidate = (arm.lock.subject for arm in result.comparison.arms[:2])
    output.echo(f"{candidate.name} {candidate.version} against {baseline.name} {baseline.version}")
    output.echo()
    columns, *rows = _format_rows(result)
    output.print_table(columns, rows)
    for sentence in (
        *(f"not comparable: {reason}" for reason in result.comparison.reasons),
        *result.comparison.replays,
    ):
        output.echo_wrapped(sentence)
    for metric in result.metrics:
        output.echo_wrapped(f"  {metric.metric}: {metric.answer}: {output.append_commands(metric.reason)}")
    output.echo()
    for sentence in _describe_errors(result):
        output.echo_wrapped(sentence)
    output.echo(f"verdict: {result.verdict}")


_COLUMNS = ("metric", "baseline", "candidate", "change", "interval", "margin", "power", "answer")


def _format_rows(result: GateResult) -> Iterator[tuple[str, ...]]:
    """Yield the columns and one row per metric."""
    yield _COLUMNS
    for metric in result.metrics:
        yield (
            metric.metric,
            format_value(metric.baseline, metric.unit),
            format_value(metric.candidate, metric.unit),
            "-" if metric.change is None else format_change(metric.change, 2),
            _format_interval(metric),
            f"{metric.margin:.2%}",
            _format_power(metric),
            metric.answer,
        )


def _format_interval(metric: GatedMetric) -> str:
    if metric.is_exact:
        return "exact"
    if metric.test is None:
        return "-"
    low, high = metric.test.interval.low, metric.test.interval.high
    assert low is not None
    assert high is not None
    return f"[{format_change(low - 1, 2)}, {format_change(high - 1, 2)}]"


def _format_power(metric: GatedMetric) -> str:
    if metric.is_exact:
        return "100%"
    return "-" if metric.test is None else f"{metric.test.power:.0%}"


def _describe_errors(result: GateResult) -> Iterator[str]:
    """Yield sentences on the probability of wrong decisions: false regressions, and the power at the margin."""
    exact = [metric.metric for metric in result.metrics if metric.is_exact]
    rounds = len(result.comparison.arms[0].runs)
    if result.rounds < rounds:
        yield f"{result.rounds} of {rounds} rounds have usable times"
    if result.is_single_round:
        yield (
            "each lock ran once: without a test, the values decide; if they vary between runs, false-positive rate and "
            "power are unknown (benchlock gate --rounds 3 shows whether they vary)"
        )
    if exact:
        yield f"{', '.join(exact)}: equal in all runs of a lock, so the value decides and chance has no part in it"
    if not result.tests or result.false_positive_rate is None:
        return
    divided = f"; {result.tests} metrics, each tested at {result.level:.2%}" if result.tests > 1 else ""
    together = "" if result.tests == 1 else " for all metrics together"
    rate = f"false-positive rate: at most {result.false_positive_rate:.0%}{together}"
    yield f"{rate}, if the candidate is no worse{divided}"
    powers = [f"{metric.metric} {metric.test.power:.0%}" for metric in result.metrics if metric.test is not None]
    if powers:
        yield (
            f"power: {', '.join(powers)}; the probability of a regression verdict with {result.rounds} rounds of this "
            "spread, if the candidate is worse by exactly the margin"
        )


def format_report(result: GateResult) -> str:
    """Format the result as GitHub Flavored Markdown, for a comment or a job summary."""
    baseline, candidate = result.comparison.arms[:2]
    columns, *rows = _format_rows(result)
    lines = [
        f"### benchlock gate: {result.verdict}",
        "",
        *format_table(columns, [(code(row[0]), *map(escape_markdown, row[1:-1]), f"**{row[-1]}**") for row in rows]),
        "",
    ]
    lines += [f"- {code(metric.metric)}: {escape_markdown(metric.reason)}" for metric in result.metrics]
    lines += [f"- not comparable: {escape_markdown(reason)}" for reason in result.comparison.reasons]
    lines += [f"- {escape_markdown(sentence)}" for sentence in (*result.comparison.replays, *_describe_errors(result))]
    arms = [_arm_row("baseline", baseline), _arm_row("candidate", candidate)]
    host, rounds = baseline.runs[0].start, "round" if result.is_single_round else "rounds"
    lines += [
        "",
        *format_table(("", "model", "framework", "lock"), arms),
        "",
        f"{len(baseline.runs)} {rounds} on {code(str(host.host.get('cpu_model')))}, {host.isolation}. Runs:",
        "",
        *format_table(("baseline", "candidate", "baseline, again")[: len(result.comparison.arms)], _run_rows(result)),
    ]
    return "\n".join(lines) + "\n"


def _arm_row(role: str, arm: Arm) -> tuple[str, ...]:
    model, framework = arm.lock.subject, arm.lock.framework
    return (
        role,
        code(f"{model.name} {model.version}"),
        code(f"{framework.name} {framework.version}"),
        code(arm.lock.id),
    )


def _run_rows(result: GateResult) -> list[tuple[str, ...]]:
    return [
        tuple(code(run.id) for run in runs) for runs in zip(*(arm.runs for arm in result.comparison.arms), strict=False)
    ]
