"""run, rerun, compare: from a lockfile to figures, and to a verdict on them."""

from typing import TYPE_CHECKING, Any

import click

from api.cli import output
from api.cli.artifacts_commands import RUN_PREFIX
from api.cli.invocation import Invocation
from api.cli.lock_commands import lock_document, read_lock
from api.cli.output import EXIT_REFUSED, say
from api.cli.run_documents import figure, print_outcome, run_document
from artifacts.errors import InvalidInputError, RefusedError

if TYPE_CHECKING:
    from evaluator.records.runs import Isolation, Run
    from evaluator.records.verdicts import Verdict
    from registry.lockfile import Lock

ISOLATION = click.option(
    "--isolation", metavar="container|process", default="", help="Default: a container where one can be had."
)
ALLOW_CODE = click.option("--allow-code", is_flag=True, help="Let a model's own code run in a process.")


@click.command()
@click.argument("lock", metavar="LOCK", help="A lockfile, or a lock's id.")
@ISOLATION
@ALLOW_CODE
@click.pass_obj
def run(invocation: Invocation, lock: str, isolation: str, *, allow_code: bool) -> None:
    """Verify every digest that the lock names, run it, record the run."""
    locked = read_lock(invocation, lock)
    done = execute(invocation, locked, parse_isolation(isolation), allow_code=allow_code)
    if invocation.as_json:
        output.print_json(
            run_document(done) | {key: part for key, part in lock_document(locked).items() if key != "platforms"}
        )
    else:
        print_outcome(done)
    if done.end is None or done.end.outcome != "done":
        raise click.exceptions.Exit(EXIT_REFUSED)


def parse_isolation(text: str) -> "Isolation | None":
    """The isolation that a user asks for, None where the choice is left."""
    if not text:
        return None
    if text == "container":
        return "container"
    if text == "process":
        return "process"
    raise InvalidInputError(f"{text!r} is no isolation", next_step="write container or process")


def execute(
    invocation: Invocation,
    lock: "Lock",
    isolation: "Isolation | None",
    *,
    allow_code: bool,
    original: "Run | None" = None,
) -> "Run":
    """Run a lock on this machine; ``original`` is the run that this one repeats."""
    from api.wiring import build_runner  # noqa: PLC0415

    runner = build_runner(invocation.opened, invocation.progress, say)
    return runner.run(lock, isolation=isolation, allow_code=allow_code, original=original)


@click.command()
@click.argument("target", metavar="RUN|LOCK", help="run/ID, a lockfile, or a lock's id.")
@click.option("--against", metavar="RUN", default="", help="The run to compare with; default: the latest.")
@ISOLATION
@ALLOW_CODE
@click.pass_obj
def rerun(invocation: Invocation, target: str, against: str, isolation: str, *, allow_code: bool) -> None:
    """Run a lock again and say whether the claim holds."""
    from evaluator.rerunning import judge_rerun  # noqa: PLC0415

    original, lock = _original(invocation, target, against)
    wanted = parse_isolation(isolation)
    again = execute(invocation, lock, wanted, allow_code=allow_code, original=original)
    verdict = judge_rerun(lock, original, again, invocation.opened.store)
    if invocation.as_json:
        output.print_json(verdict_document(verdict, original, again))
    else:
        print_outcome(again)
        _print_verdict(verdict, original)
    if verdict.verdict != "reproduced":
        raise click.exceptions.Exit(EXIT_REFUSED)


def _original(invocation: Invocation, target: str, against: str) -> "tuple[Run, Lock]":
    """The run to compare with, and the lock to run again."""
    from evaluator.records.runs import parse_run_id  # noqa: PLC0415
    from evaluator.rerunning import latest_done  # noqa: PLC0415

    records = invocation.opened.records
    if target.startswith(RUN_PREFIX):
        named = records.get(parse_run_id(target))
        lock = read_lock(invocation, named.start.lock)
    else:
        named = None
        lock = read_lock(invocation, target)
    if against:
        named = records.get(parse_run_id(against))
    original = latest_done(records, lock) if named is None else named
    if original.start.lock != lock.id:
        raise InvalidInputError(
            f"{original.id} is a run of another lock, {original.start.lock}", next_step="name a run of the same lock"
        )
    if original.end is None:
        raise InvalidInputError(f"{original.id} has not ended", next_step="wait for its end, or name another run")
    return original, lock


def verdict_document(verdict: "Verdict", original: "Run", again: "Run") -> dict[str, Any]:
    """The verdict as the command line's contract shows it."""
    return {
        "verdict": verdict.verdict,
        "reasons": list(verdict.reasons),
        "reported": list(verdict.reported),
        "original": original.id,
        "run": again.id,
        "predictions": verdict.predictions,
        "outcome": None if again.end is None else again.end.outcome,
    }


def _print_verdict(verdict: "Verdict", original: "Run") -> None:
    output.echo(f"\n{verdict.verdict}, compared with {original.id}")
    for reason in verdict.reasons:
        output.echo(f"  {reason}")
    for fact in verdict.reported:
        output.echo(f"  (decides nothing) {fact}")


@click.command()
@click.argument("runs", metavar="RUN RUN...", nargs=-1, required=True, help="Two runs or more.")
@click.option("--force", is_flag=True, help="Show figures side by side that are not comparable.")
@click.pass_obj
def compare(invocation: Invocation, runs: tuple[str, ...], *, force: bool) -> None:
    """Put runs side by side; refuse what is not comparable."""
    from evaluator.records.comparison import comparable  # noqa: PLC0415
    from evaluator.records.runs import parse_run_id  # noqa: PLC0415

    found = [invocation.opened.records.get(parse_run_id(text)) for text in runs]
    if len(found) < 2:  # noqa: PLR2004 - two make a pair
        raise InvalidInputError("one run alone cannot be compared", next_step="name two runs or more")
    pairs = [(read_lock(invocation, one.start.lock), one) for one in found]
    reasons = [f"{one[1].id}: {reason}" for one in pairs[1:] for reason in comparable(pairs[0], one)]
    if reasons and not force:
        raise RefusedError(
            f"these runs are not comparable with {found[0].id}: {'; '.join(reasons)}",
            next_step="compare runs of equal conditions, or see them side by side with --force",
        )
    if invocation.as_json:
        documents = [run_document(one) | {"model": lock_document(lock)["model"]} for lock, one in pairs]
        output.print_json({"comparable": not reasons, "reasons": reasons, "runs": documents})
        return
    for reason in reasons:
        say(f"warning: not comparable: {reason}")
    _print_side_by_side(pairs)


def _print_side_by_side(pairs: "list[tuple[Lock, Run]]") -> None:
    figures = [
        {metric.key: figure(metric) for metric in (run.end.metrics if run.end is not None else ())} for _, run in pairs
    ]
    names = list(dict.fromkeys(name for figures_of_run in figures for name in figures_of_run))
    rows = [
        (
            run.id,
            f"{lock.model.name} {lock.model.version}",
            f"{lock.framework.name} {lock.framework.version}",
            *(shown.get(name, "-") for name in names),
        )
        for (lock, run), shown in zip(pairs, figures, strict=True)
    ]
    output.print_table(("run", "model", "framework", *names), rows)
