"""Commands for recorded runs: runs, hide, and show of a run."""

from typing import TYPE_CHECKING, Any, get_args

import click

from benchlock.api.cli import output
from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.output import say
from benchlock.api.cli.run_options import complete_run_id, read_lock, suggest_files, suggest_targets
from benchlock.api.cli.run_tables import print_claims, print_outcome, print_run, print_runs
from benchlock.api.error_codes import EXIT_INTEGRITY
from benchlock.api.schemas.run_documents import claim_document, lock_document, run_document
from benchlock.artifacts.blob_store import read
from benchlock.artifacts.errors import BenchlockError, IntegrityError
from benchlock.evaluator.harness_releases import is_released
from benchlock.evaluator.records.run_types import (
    DamagedRun,
    Outcome,
    Run,
    RunFilter,
    parse_run_id,
    parse_selectors,
    parse_since,
)
from benchlock.registry.lock.lockfile import Lock

if TYPE_CHECKING:
    from benchlock.evaluator.workflows.claim_verdicts import ClaimVerdict
    from benchlock.evaluator.workflows.repeat import Repetition


@click.command()
@click.option("--lock", metavar="LOCK", default="", shell_complete=suggest_files, help="Only runs of this lock.")
@click.option("--model", metavar="NAME[@CONSTRAINT]", default=None, help="Only runs of this model.")
@click.option("--operator", metavar="NAME[@CONSTRAINT]", default=None, help="Only runs of this operator.")
@click.option("--recipe", metavar="NAME[@CONSTRAINT]", default=None, help="Only trainings with this recipe.")
@click.option("--dataset", metavar="NAME[@CONSTRAINT]", default=None, help="Only runs on this dataset.")
@click.option("--outcome", type=click.Choice(get_args(Outcome)), default=None, help="Only runs with this outcome.")
@click.option("--flagged/--not-flagged", default=None, help="Only runs whose times are flagged, or only others.")
@click.option("--since", metavar="TIME", default="", help="Only runs since a date such as 2026-11-01, or within 7d.")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="Maximum number of runs.")
@click.pass_obj
def runs(
    invocation: Invocation,
    /,
    lock: str,
    outcome: Outcome | None,
    since: str,
    limit: int,
    *,
    flagged: bool | None,
    **selectors: str | None,
) -> None:
    """List runs, newest first.

    A run whose record is damaged is listed without metrics, and the command exits with 4. Dates are in UTC.

    Example: benchlock runs --model digits@^1.0 --since 7d
    """
    chosen = RunFilter(
        **parse_selectors(**selectors),
        outcome=outcome,
        since=parse_since(since, invocation.opened.now()) if since else None,
        lock=read_lock(invocation, lock).id if lock else None,
        flagged=flagged,
    )
    entries = invocation.opened.records.list_entries(chosen=chosen, limit=limit)
    intact_runs = [entry for entry in entries if isinstance(entry, Run)]
    damaged = [entry for entry in entries if isinstance(entry, DamagedRun)]
    locks = {id_: _known_lock(invocation, id_) for id_ in {run.start.lock for run in intact_runs}}
    if invocation.as_json:
        documents = [run_document(run) | _artifacts(locks[run.start.lock]) for run in intact_runs]
        output.print_json({"runs": documents, "damaged": damaged})
    else:
        print_runs(entries, locks)
    for entry in damaged:
        output.say_error(IntegrityError(f"{entry.id}: {entry.damage}"))
    if damaged:
        raise click.exceptions.Exit(EXIT_INTEGRITY)


@click.command()
@click.argument(
    "run", metavar="RUN", shell_complete=suggest_targets, callback=complete_run_id, help="Run id, as listed by `runs`."
)
@click.option("--reason", default="", help="Why the run is hidden; visible to administrators.")
@click.option("--undo", is_flag=True, help="Show the run again.")
@click.pass_obj
def hide(invocation: Invocation, run: str, reason: str, *, undo: bool) -> None:
    """Hide a run from lists, comparisons and verdicts.

    Its record and blobs remain.

    Example: benchlock hide run/01kam1v3mz4w0q3d5g7h9j2k4m --reason "ran on a throttled host"
    """
    id_, records = parse_run_id(run), invocation.opened.records
    changed = records.unhide(id_) if undo else records.hide(id_, reason)
    if invocation.as_json:
        output.print_json({"target": id_, "hidden": not undo, "changed": changed})
    else:
        output.echo(f"{id_} is {'shown again' if undo else 'hidden'}{'' if changed else ' already'}")


def _known_lock(invocation: Invocation, id_: str) -> Lock | None:
    """Load a lock; print a warning and return None if it cannot be read, so that its runs are listed anyway."""
    try:
        return read_lock(invocation, id_)
    except BenchlockError as error:
        say(f"warning: {error.what}")
        return None


def _artifacts(lock: Lock | None) -> dict[str, Any]:
    """Return the locked versions and the harness, without the platforms."""
    if lock is None:
        return {}
    harness = {"version": lock.harness.version, "digest": lock.harness.digest, "released": is_released(lock.harness)}
    return {key: part for key, part in lock_document(lock).items() if key != "platforms"} | {"harness": harness}


def show_run(invocation: Invocation, target: str) -> None:
    """Show a run with everything that was recorded; exit with 4 if its metrics are not verified."""
    run = invocation.opened.records.get(parse_run_id(target))
    lock = read_lock(invocation, run.start.lock)
    verified = run.evidence is None or run.evidence.state == "verified"
    claim_verdicts = judge_claims(invocation, lock, run) if verified else ()
    warnings = find_warnings(invocation, lock, run) if verified else ()
    if invocation.as_json:
        output.print_json(answer_document(run, lock, claim_verdicts, warnings))
    else:
        print_answer(run, lock, claim_verdicts, warnings)
        print_run(run, lock, _log(invocation, run))
    if not verified:
        raise click.exceptions.Exit(EXIT_INTEGRITY)


def answer_document(
    run: Run, lock: Lock, claim_verdicts: "tuple[ClaimVerdict, ...]", warnings: tuple[str, ...]
) -> dict[str, Any]:
    """Return the JSON document of a run with its locked versions, judged claims and warnings."""
    more = {"claims": [claim_document(claim_verdict) for claim_verdict in claim_verdicts], "warnings": list(warnings)}
    return run_document(run) | _artifacts(lock) | more


def print_answer(run: Run, lock: Lock, claim_verdicts: "tuple[ClaimVerdict, ...]", warnings: tuple[str, ...]) -> None:
    """Print a run with its judged claims and warnings."""
    print_outcome(run, lock)
    for warning in warnings:
        output.echo_wrapped(f"warning: {output.append_commands(warning)}")
    print_claims(claim_verdicts)


def judge_claims(
    invocation: Invocation, lock: Lock, run: Run, repetition: "Repetition | None" = None
) -> "tuple[ClaimVerdict, ...]":
    """Judge the claims of a run's model; print a warning and return nothing if a manifest cannot be read.

    Args:
        invocation: The call of the command.
        lock: The lock of the run.
        run: The run.
        repetition: Judge the metrics over all of its runs; ``run`` is the last one.
    """
    from benchlock.evaluator.workflows.claim_verdicts import claims_of  # noqa: PLC0415 - numpy and SciPy, 350 ms; `runs` needs neither

    metrics = None if repetition is None else tuple(entry.metric for entry in repetition.metrics)
    among = () if repetition is None else repetition.runs
    try:
        with invocation.progress.task("judging the claims"):
            return claims_of(lock, run, invocation.opened.store, metrics, among)
    except BenchlockError as error:
        say(f"warning: cannot judge the model's claims: {error.what}")
        return ()


def find_warnings(invocation: Invocation, lock: Lock, run: Run) -> tuple[str, ...]:
    """Return warnings about the predictions of a run; none if its blobs cannot be read."""
    from benchlock.evaluator.workflows.chance_level import find_guessing  # noqa: PLC0415 - as above

    try:
        reason = find_guessing(lock, run, invocation.opened.store)
    except BenchlockError as error:
        say(f"warning: cannot read the predictions: {error.what}")
        return ()
    return () if reason is None else (reason,)


def _log(invocation: Invocation, run: Run) -> str | None:
    """Return the output of a failed run, None if there is none or it cannot be read."""
    if run.end is None or run.end.outcome != "failed" or "log" not in run.end.blobs:
        return None
    try:
        content = read(invocation.opened.store, run.end.blobs["log"].digest, name=f"{run.id} log")
    except BenchlockError as error:
        say(f"warning: {error.what}")
        return None
    return content.decode(errors="replace")
