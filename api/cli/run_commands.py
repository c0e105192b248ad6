"""Commands that run a lock: run and rerun, and the run of a lock on this machine."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import click

from benchlock.api.cli import output
from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.lock_commands import read_question
from benchlock.api.cli.output import say
from benchlock.api.cli.run_history_commands import answer_document, find_warnings, judge_claims, print_answer
from benchlock.api.cli.run_options import (
    ALLOW_CODE,
    ISOLATION,
    RUN_PREFIX,
    complete_run_id,
    complete_run_target,
    parse_shares,
    read_lock,
    suggest_files,
    suggest_targets,
)
from benchlock.api.cli.run_tables import print_claims, print_outcome, print_repetition, print_wall
from benchlock.api.client.lock_runs import LockRunner
from benchlock.api.error_codes import EXIT_REFUSED
from benchlock.api.schemas.run_documents import claim_document, repetition_document, verdict_document, wall_document
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.queue.queue_types import MAX_PRIORITY
from benchlock.evaluator.records.comparison_types import Verdict
from benchlock.evaluator.records.run_types import Isolation, Run, parse_isolation, parse_run_id
from benchlock.evaluator.runner.wall_clock import WallClock, process_start
from benchlock.evaluator.workflows.repeat import check_wanted, repeat
from benchlock.evaluator.workflows.rerun import judge_recorded_run
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.requests.evaluation_request import Request


@click.command()
@click.argument("lock", metavar="LOCK", shell_complete=suggest_files, help="Lockfile or lock id.")
@ISOLATION
@ALLOW_CODE
@click.option("--repeat", metavar="N", type=click.IntRange(min=1), default=None, help="Maximum number of runs.")
@click.option(
    "--until",
    metavar="METRIC=SHARE",
    multiple=True,
    help="Stop when the confidence interval is within ±SHARE, such as latency_p50=2%.",
)
@click.option("--submit", "is_left", is_flag=True, help="Queue the lock or request for workers, and print the job.")
@click.option(
    "--priority",
    metavar="N",
    type=click.IntRange(-MAX_PRIORITY, MAX_PRIORITY),
    default=None,
    help=f"With --submit: order among your jobs, from -{MAX_PRIORITY} to {MAX_PRIORITY}, one hour a step.",
)
@click.pass_obj
def run(  # noqa: PLR0913 - the options of a command
    invocation: Invocation,
    lock: str,
    isolation: str,
    repeat: int | None,
    until: tuple[str, ...],
    priority: int | None,
    *,
    allow_code: bool,
    is_left: bool,
) -> None:
    """Run a lock and record the run.

    Every digest in the lock is verified first.

    Example: benchlock run digits.lock --repeat 20 --until latency_p50=2%
    """
    parsed_isolation, shares = parse_isolation(isolation), parse_shares("--until", until)
    if shares and repeat is None:
        raise InvalidInputError("--until needs --repeat", where="--until", next_step="add --repeat 20")
    if priority is not None and not is_left:
        raise InvalidInputError("--priority needs --submit", where="--priority", next_step="add --submit")
    if is_left:
        if repeat is not None:
            raise InvalidInputError(
                "--submit queues a single run", where="--repeat", next_step="omit --repeat, and submit several times"
            )
        submit(invocation, lock, parsed_isolation, allow_code=allow_code, priority=priority or 0)
        return

    clock = WallClock(process_start())
    clock.begin("startup")
    with clock.part("registry"):
        locked = read_lock(invocation, lock)
        runner = LockRunner(invocation.opened, invocation.progress, say, parsed_isolation, allow_code)

    def once(part_of: Mapping[str, Any] | None = None) -> Run:
        return runner.run(locked, part_of=part_of, clock=clock)

    if repeat is not None:
        _repeat(invocation, locked, once, shares, repeat)
        return
    report_run(invocation, locked, once(), clock)


def submit(
    invocation: Invocation, target: str, isolation: Isolation | None, *, allow_code: bool, priority: int
) -> None:
    """Queue a lock or a request, and print at once if no machine can take the job.

    Args:
        invocation: The call of the command.
        target: A lockfile, a lock's id or a request file.
        isolation: The requested isolation; None for the default.
        allow_code: Whether code of the model may run in a process.
        priority: The priority among the jobs of the token.
    """
    question = read_question(invocation, target)
    explanation = invocation.opened.submit_job(question, isolation, allow_code=allow_code, priority=priority)
    if invocation.as_json:
        output.print_json(explanation)
        return
    output.echo(explanation.job.id)
    if isinstance(question, Request):
        say(f"lock: {explanation.job.lock}")
    say(f"warning: {explanation.sentence}" if explanation.blocked else explanation.sentence)


def report_run(
    invocation: Invocation, lock: Lock, run: Run, clock: WallClock, details: Mapping[str, Any] | None = None
) -> None:
    """Print a run with its judged claims, and exit with code 1 if it failed.

    Args:
        invocation: The call of the command.
        lock: The lock of the run.
        run: The run.
        clock: The clock of the command.
        details: Further keys of the JSON document.
    """
    with clock.part("claims"):
        claim_verdicts, warnings = judge_claims(invocation, lock, run), find_warnings(invocation, lock, run)
    account = clock.account()
    if invocation.as_json:
        document = answer_document(run, lock, claim_verdicts, warnings) | {"wall": wall_document(account)}
        output.print_json(document | dict(details or {}))
    else:
        print_answer(run, lock, claim_verdicts, warnings)
        print_wall(account)
    if run.end is None or run.end.outcome != "done":
        raise click.exceptions.Exit(EXIT_REFUSED)


def _repeat(
    invocation: Invocation,
    lock: Lock,
    once: Callable[[Mapping[str, Any]], Run],
    widths: dict[str, float],
    limit: int,
) -> None:
    """Run a lock several times, and print how precisely each metric is known.

    Args:
        invocation: The call of the command.
        lock: The lock.
        once: Runs the lock once.
        widths: The relative width at which each named metric is precise enough.
        limit: The maximum number of runs.
    """
    check_wanted(lock, widths, limit)

    def run_once(part_of: Mapping[str, Any]) -> Run:
        run = once(part_of)
        say(f"run {part_of['number']} of at most {limit}: {run.id} {run.end.outcome if run.end else 'running'}")
        if part_of["number"] == 1:
            _warn_of_reported(run, widths, limit)
        return run

    repetition = repeat(run_once, widths, limit)
    last = repetition.runs[-1]
    claim_verdicts = judge_claims(invocation, lock, last, repetition)
    if invocation.as_json:
        details = {
            "repetition": repetition_document(repetition),
            "claims": [claim_document(claim_verdict) for claim_verdict in claim_verdicts],
        }
        output.print_json(answer_document(last, lock, (), find_warnings(invocation, lock, last)) | details)
    else:
        if not repetition.metrics or last.end is None or last.end.outcome != "done":
            print_outcome(last, lock)
        print_repetition(repetition, lock)
        print_claims(claim_verdicts)
    if not repetition.narrow:
        raise click.exceptions.Exit(EXIT_REFUSED)


def _warn_of_reported(run: Run, widths: dict[str, float], limit: int) -> None:
    """Print a warning for metrics that cannot end the repetition because they are self-reported."""
    reported = {
        metric.key for metric in (run.end.metrics if run.end else ()) if metric.self_reported and metric.name in widths
    }
    if reported:
        say(f"warning: {', '.join(sorted(reported))}: self-reported, so --until cannot stop before {limit} runs")


@click.command()
@click.argument(
    "target",
    metavar="RUN|LOCK",
    shell_complete=suggest_targets,
    callback=complete_run_target,
    help="Run id, lockfile or lock id.",
)
@click.option(
    "--against",
    metavar="RUN",
    default="",
    shell_complete=suggest_targets,
    callback=complete_run_id,
    help="Run to compare with; default: the latest.",
)
@click.option(
    "--repeat",
    metavar="N",
    type=click.IntRange(min=1),
    help="Number of new runs; default: 1, or 12 with `equivalence`.",
)
@click.option("--recorded", "is_recorded", is_flag=True, help="Judge RUN itself, and run nothing.")
@ISOLATION
@ALLOW_CODE
@click.pass_obj
def rerun(
    invocation: Invocation,
    /,
    target: str,
    against: str,
    repeat: int | None,
    *,
    is_recorded: bool,
    **options: Any,  # noqa: ANN401 - isolation and allow_code
) -> None:
    """Run a lock again and compare with an earlier run.

    Example: benchlock rerun digits.lock
    """
    if is_recorded:
        if repeat is not None or any(options.values()):
            what = "--recorded runs nothing, so --repeat, --isolation and --allow-code do not apply"
            raise InvalidInputError(what, where="--recorded", next_step="omit them")
        records, store, find_lock = invocation.opened.records, invocation.opened.store, partial(read_lock, invocation)
        earlier = parse_run_id(against) if against else None
        verdict = judge_recorded_run(records, store, find_lock, parse_run_id(target), earlier)
        again = records.get(parse_run_id(verdict.run))
        _report_verdict(invocation, find_lock(again.start.lock), verdict, again)
        return
    isolation = parse_isolation(options["isolation"])
    runner = LockRunner(invocation.opened, invocation.progress, say, isolation, options["allow_code"])
    lock_text, original = target, against
    if target.startswith(RUN_PREFIX):
        lock_text, original = invocation.opened.records.get(parse_run_id(target)).start.lock, against or target
    lock = read_lock(invocation, lock_text)
    result = runner.rerun(lock, parse_run_id(original) if original else None, repeat)
    _report_verdict(invocation, lock, result.verdict, result.run)


def _report_verdict(invocation: Invocation, lock: Lock, verdict: Verdict, again: Run) -> None:
    """Print a verdict with the run that it is about, and exit with code 1 unless the result is reproduced.

    Args:
        invocation: The call of the command.
        lock: The lock of the run.
        verdict: The verdict.
        again: The run.
    """
    claim_verdicts = judge_claims(invocation, lock, again)
    if invocation.as_json:
        output.print_json(verdict_document(verdict, again, claim_verdicts))
    else:
        print_answer(again, lock, claim_verdicts, find_warnings(invocation, lock, again))
        _print_verdict(verdict)
    if verdict.verdict != "reproduced":
        raise click.exceptions.Exit(EXIT_REFUSED)


def _print_verdict(verdict: Verdict) -> None:
    output.echo()
    output.echo(f"{verdict.verdict}, compared with {verdict.original}", verdict.verdict)
    for reason in verdict.reasons:
        output.echo_wrapped(f"  {output.append_commands(reason)}")
    for fact in verdict.reported:
        output.echo_wrapped(f"  (informational) {fact}")
