"""run, rerun, compare: from a lockfile to figures, and to a verdict on them."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from api.cli import output
from api.cli.artifacts_commands import RUN_PREFIX
from api.cli.invocation import Invocation, of
from api.cli.lock_commands import lock_document, read_lock
from api.cli.output import EXIT_REFUSED, say
from api.cli.run_documents import figure, print_outcome, run_document
from artifacts.errors import InvalidInputError, RefusedError

if TYPE_CHECKING:
    from evaluator.records.runs import Isolation, Run
    from evaluator.records.verdicts import Verdict
    from registry.lockfile import Lock

AllowCode = Annotated[bool, typer.Option("--allow-code", help="Let a model's own code run in a process.")]
IsolationOption = Annotated[
    str, typer.Option("--isolation", metavar="container|process", help="Default: a container where one can be had.")
]


def register(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for command in (run, rerun, compare):
        app.command()(command)


def run(
    context: typer.Context,
    lock: Annotated[str, typer.Argument(metavar="LOCK", help="A lockfile, or a lock's id.")],
    isolation: IsolationOption = "",
    *,
    allow_code: AllowCode = False,
) -> None:
    """Verify every digest that the lock names, run it, record the run."""
    invocation = of(context)
    locked = read_lock(invocation, lock)
    done = execute(invocation, locked, parse_isolation(isolation), allow_code=allow_code)
    if invocation.as_json:
        output.print_json(
            run_document(done) | {key: part for key, part in lock_document(locked).items() if key != "platforms"}
        )
    else:
        print_outcome(done)
    if done.end is None or done.end.outcome != "done":
        raise typer.Exit(EXIT_REFUSED)


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


def rerun(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="RUN|LOCK", help="run/ID, a lockfile, or a lock's id.")],
    against: Annotated[str, typer.Option(metavar="RUN", help="The run to compare with; default: the latest.")] = "",
    isolation: IsolationOption = "",
    *,
    allow_code: AllowCode = False,
) -> None:
    """Run a lock again and say whether the claim holds."""
    from evaluator.rerunning import judge_rerun  # noqa: PLC0415

    invocation = of(context)
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
        raise typer.Exit(EXIT_REFUSED)


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
    typer.echo(f"\n{verdict.verdict}, compared with {original.id}")
    for reason in verdict.reasons:
        typer.echo(f"  {reason}")
    for fact in verdict.reported:
        typer.echo(f"  (decides nothing) {fact}")


def compare(
    context: typer.Context,
    runs: Annotated[list[str], typer.Argument(metavar="RUN RUN...", help="Two runs or more.")],
    *,
    force: Annotated[bool, typer.Option("--force", help="Show figures side by side that are not comparable.")] = False,
) -> None:
    """Put runs side by side; refuse what is not comparable."""
    from evaluator.records.comparison import comparable  # noqa: PLC0415
    from evaluator.records.runs import parse_run_id  # noqa: PLC0415

    invocation = of(context)
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
        {metric.name: figure(metric) for metric in (run.end.metrics if run.end is not None else ())} for _, run in pairs
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
