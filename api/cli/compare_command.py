"""compare: runs side by side, or locks by runs that take turns."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from benchlock.api.cli import output
from benchlock.api.cli.artifacts_commands import RUN_PREFIX
from benchlock.api.cli.comparisons import comparison_document, print_comparison
from benchlock.api.cli.invocation import Invocation
from benchlock.api.cli.lock_commands import read_lock
from benchlock.api.cli.output import say
from benchlock.api.cli.run_names import complete_run_ids
from benchlock.api.cli.running import ALLOW_CODE, ISOLATION, execute, parse_isolation, parse_shares
from benchlock.api.faults import EXIT_REFUSED
from benchlock.artifacts.errors import InvalidInputError, RefusedError

if TYPE_CHECKING:
    from benchlock.evaluator.comparing import Comparison
    from benchlock.evaluator.evidence.pairing import PredictionPairs
    from benchlock.evaluator.records.runs import Run
    from benchlock.registry.lockfile import Lock


@dataclass(frozen=True, slots=True)
class _Asked:
    """The options of the command, by their names."""

    force: bool
    interleave: bool
    rounds: int | None
    margin: tuple[str, ...]
    isolation: str
    allow_code: bool


@click.command()
@click.argument(
    "targets",
    metavar="RUN RUN...|LOCK LOCK...",
    nargs=-1,
    required=True,
    callback=complete_run_ids,
    help="Two or more.",
)
@click.option("--force", is_flag=True, help="Show figures side by side that are not comparable.")
@click.option("--interleave", is_flag=True, help="Run LOCKs by turns, the first one twice a round, and compare.")
@click.option("--rounds", type=click.IntRange(min=3), help="With --interleave: so many; default: 6 to 10.")
@click.option(
    "--margin",
    metavar="METRIC=SHARE",
    multiple=True,
    help="With --interleave: relative difference that counts as equivalent.",
)
@ISOLATION
@ALLOW_CODE
@click.pass_obj
def compare(invocation: Invocation, /, targets: tuple[str, ...], **options: Any) -> None:  # noqa: ANN401 - as _Asked says
    """Put runs side by side, or run locks by turns; refuse what is not comparable."""
    asked = _Asked(**options)
    margins = parse_shares("--margin", asked.margin)
    found = (
        _interleaved(invocation, targets, asked, margins) if asked.interleave else _of_runs(invocation, targets, asked)
    )
    for reason in found.reasons:
        say(f"warning: not comparable: {reason}")
    for run in (run for arm in found.arms for run in arm.runs):
        _warn(run)
    if invocation.as_json:
        output.print_json(comparison_document(found))
    else:
        print_comparison(found)
    if asked.interleave and (found.reasons or not _all_equivalent(found, margins)):
        raise click.exceptions.Exit(EXIT_REFUSED)


def _all_equivalent(found: "Comparison", margins: Mapping[str, float]) -> bool:
    """Whether every metric with a margin is equivalent for each lock; one that could not be compared is not."""
    several = [[one for one in findings if one.margin is not None] for _, findings in found.findings]
    missing = {name for name in margins for judged in several if not any(_of(name, one.metric) for one in judged)}
    for name in sorted(missing):
        say(f"warning: {name} cannot be compared: not every run has it")
    return not missing and all(one.answer == "equivalent" for judged in several for one in judged)


def _of(name: str, key: str) -> bool:
    return key.partition("@")[0] == name


def _of_runs(invocation: Invocation, targets: tuple[str, ...], asked: _Asked) -> "Comparison":
    """Runs that exist.

    Raises:
        InvalidInputError: there is one alone, or an option is for runs that are yet to be made.
        RefusedError: they are not comparable.
    """
    from benchlock.evaluator.comparing import compare_runs  # noqa: PLC0415
    from benchlock.evaluator.records.runs import parse_run_id  # noqa: PLC0415

    if asked.rounds is not None or asked.margin or asked.isolation or asked.allow_code:
        raise InvalidInputError(
            "--rounds, --margin, --isolation and --allow-code are for runs that are yet to be made",
            next_step="name locks with --interleave; a request's `equivalence` states margins beforehand too",
        )
    for text in targets:
        if not text.startswith(RUN_PREFIX):
            step = "write run/ and its 26 characters, as `runs` lists them; locks are compared with --interleave"
            raise InvalidInputError(f"{text!r} is no run", where=text, next_step=step)
    runs = [invocation.opened.records.get(parse_run_id(text)) for text in targets]
    locks = {id_: read_lock(invocation, id_) for id_ in dict.fromkeys(run.start.lock for run in runs)}
    found = compare_runs([(locks[run.start.lock], run) for run in runs], _pairs(invocation).compare)
    if found.reasons and not asked.force:
        raise RefusedError(
            f"these runs are not comparable with {runs[0].id}: {'; '.join(found.reasons)}",
            next_step="compare runs of equal conditions, or see them side by side with --force",
        )
    return found


def _interleaved(
    invocation: Invocation, targets: tuple[str, ...], asked: _Asked, margins: Mapping[str, float]
) -> "Comparison":
    """Runs made by turns, and told one by one."""
    from benchlock.evaluator.comparing import check_question, default_rounds, interleave, shared_margins  # noqa: PLC0415

    wanted, locks = parse_isolation(asked.isolation), [read_lock(invocation, text) for text in targets]
    stated = {**shared_margins(locks), **margins}
    check_question(locks, stated)

    def once(lock: "Lock", part_of: Mapping[str, Any]) -> "Run":
        made = execute(invocation, lock, wanted, allow_code=asked.allow_code, part_of=part_of)
        word = "running" if made.end is None else made.end.outcome
        control = ", again" if part_of["control"] else ""
        say(f"round {part_of['round']} of {part_of['rounds']}: {lock.model.name}{control}: {made.id} {word}")
        return made

    rounds = asked.rounds or default_rounds(len(locks))
    return interleave(locks, once, rounds, stated, _pairs(invocation).compare)


def _pairs(invocation: Invocation) -> "PredictionPairs":
    """Return what compares runs sample by sample."""
    from benchlock.evaluator.evidence.pairing import PredictionPairs  # noqa: PLC0415
    from benchlock.evaluator.evidence.status import SCRATCH  # noqa: PLC0415

    return PredictionPairs(invocation.opened.store, invocation.opened.home / SCRATCH)


def _warn(run: "Run") -> None:
    from benchlock.evaluator.records.calls import unusable_times  # noqa: PLC0415
    from benchlock.evaluator.records.validity import validity_of  # noqa: PLC0415

    if reason := unusable_times(run):
        say(f"warning: {reason}")
    validity = validity_of(run)
    if validity is not None and not validity.valid:
        say(f"warning: LoadGen calls {run.id} {validity.words}")
