"""The ``compare`` command: recorded runs side by side, or locks run in alternation."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import click

from benchlock.api.cli import output
from benchlock.api.cli.analysis_tables import print_tables
from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.output import say
from benchlock.api.cli.run_options import (
    ALLOW_CODE,
    ISOLATION,
    RUN_PREFIX,
    complete_run_target,
    parse_shares,
    read_lock,
    suggest_targets,
)
from benchlock.api.client.lock_runs import FEWEST_ROUNDS, LockRunner, compare_by_id
from benchlock.api.error_codes import EXIT_REFUSED
from benchlock.api.schemas.run_documents import comparison_document
from benchlock.artifacts.errors import InvalidInputError
from benchlock.evaluator.analysis.layer_comparison import compare_layers
from benchlock.evaluator.analysis.table_formats import table_document
from benchlock.evaluator.records.run_types import Run, parse_isolation, parse_run_id
from benchlock.evaluator.records.timing_validity import explain_unusable_times, validity_of
from benchlock.evaluator.records.training_agreement import describe_mlperf
from benchlock.evaluator.workflows.compare import Arm, Comparison, shared_margins
from benchlock.evaluator.workflows.comparison_texts import (
    FINDING_HEADINGS,
    format_finding,
    format_flags,
    format_metrics,
    format_verdicts,
    name_arm,
    name_speeds,
)
from benchlock.evaluator.workflows.run_traces import describe_subject
from benchlock.registry.lock.lock_assembly import change_seed
from benchlock.registry.lock.lockfile import Lock


def print_comparison(comparison: Comparison, *, mlperf: bool = False) -> None:
    """Print the metrics of all arms side by side, then each further arm compared with the first.

    ``mlperf`` adds MLPerf's convergence check of trainings.
    """
    arms = [arm for arm in comparison.arms if not arm.control]
    if output.settings.format in ("csv", "md"):
        _print_one_table(comparison, arms)
        return
    _print_side_by_side(comparison, arms)
    for sentence in (*(f"not comparable: {reason}" for reason in comparison.reasons), *comparison.replays):
        output.echo_wrapped(sentence)
    for text, speed in name_speeds(comparison):
        output.echo()
        output.echo_wrapped(text, speed.answer)
        if mlperf:
            output.echo_wrapped(f"  {describe_mlperf(speed)}")
    for arm, findings in comparison.findings:
        how = f"{len(arm.runs)} interleaved rounds" if comparison.interleaved else "not interleaved"
        output.echo()
        output.echo(f"{name_arm(comparison, arm)} against {name_arm(comparison, arms[0])}, {how}")
        output.print_table(
            ("metric", *FINDING_HEADINGS), [(finding.metric, *format_finding(finding)) for finding in findings]
        )
        metrics: dict[tuple[str, str], list[str]] = {}
        for finding in findings:
            metrics.setdefault((finding.answer, finding.reason), []).append(finding.metric)
        for (answer, reason), names in metrics.items():
            output.echo_wrapped(f"  {', '.join(names)}: {answer}: {output.append_commands(reason)}", answer)


def _print_one_table(comparison: Comparison, arms: list[Arm]) -> None:
    """Print a row per metric of each further arm, with its finding; the first arm is the baseline."""
    first, rows = format_metrics(arms[0]), []
    for arm, findings in comparison.findings:
        cells, answers = format_metrics(arm), {finding.metric: format_finding(finding) for finding in findings}
        for metric in dict.fromkeys((*first, *cells, *answers)):
            values = (first.get(metric, "-"), cells.get(metric, "-"))
            names = (name_arm(comparison, arms[0]), name_arm(comparison, arm))
            rows.append((metric, *names, *values, *answers.get(metric, ("-",) * len(FINDING_HEADINGS))))
    columns = ("metric", "baseline", "compared", "baseline value", "compared value")
    output.print_table((*columns, *FINDING_HEADINGS), rows)


def _print_side_by_side(comparison: Comparison, arms: list[Arm]) -> None:
    """Print a column per arm and a row per metric: for several runs, the centre and the interval over runs."""
    cells = [format_metrics(arm) for arm in arms]
    names = list(dict.fromkeys(name for arm in cells for name in arm))
    runs = [arm.runs[0].id if len(arm.runs) == 1 else f"{len(arm.runs)} runs" for arm in arms]
    frameworks = [f"{arm.lock.framework.name} {arm.lock.framework.version}" for arm in arms]
    rows = [("", *frameworks), ("", *runs), *((name, *(arm.get(name, "-") for arm in cells)) for name in names)]
    rows += [
        row for row in (("LoadGen", *map(format_verdicts, arms)), ("flagged", *map(format_flags, arms))) if any(row[1:])
    ]
    output.print_table(("", *(name_arm(comparison, arm) for arm in arms)), rows)


_ROUNDS = "Number of rounds with --interleave; default: 6 to 10."


@dataclass(frozen=True, slots=True)
class _CompareOptions:
    """The options of the command by name."""

    layers: bool
    force: bool
    mlperf: bool
    interleave: bool
    rounds: int | None
    margin: tuple[str, ...]
    other_seed: int | None
    isolation: str
    allow_code: bool


@click.command()
@click.argument(
    "targets",
    metavar="RUN RUN...|LOCK LOCK...",
    nargs=-1,
    required=True,
    shell_complete=suggest_targets,
    callback=complete_run_target,
    help="Two or more runs or locks.",
)
@click.option("--layers", is_flag=True, help="Compare the layers of two traced runs instead of their metrics.")
@click.option("--force", is_flag=True, help="Show the metrics even if the runs are not comparable.")
@click.option("--mlperf", is_flag=True, help="Add MLPerf's convergence check, for trainings.")
@click.option("--interleave", is_flag=True, help="Run locks interleaved, with an A/A control of the first.")
@click.option("--rounds", type=click.IntRange(min=FEWEST_ROUNDS), help=_ROUNDS)
@click.option(
    "--margin",
    metavar="METRIC=SHARE",
    multiple=True,
    help="Relative difference that counts as equivalent, with --interleave.",
)
@click.option(
    "--other-seed",
    type=int,
    metavar="SEED",
    help="Compare one lock with itself under another seed, with --interleave and a margin.",
)
@ISOLATION
@ALLOW_CODE
@click.pass_obj
def compare(invocation: Invocation, /, targets: tuple[str, ...], **options: Any) -> None:  # noqa: ANN401 - the fields of _CompareOptions
    """Compare runs, or run locks interleaved and compare them.

    Runs under different conditions are refused.

    Example: benchlock compare --interleave old.lock new.lock
    """
    settings = _CompareOptions(**options)
    if settings.layers:
        _compare_layers(invocation, targets, settings)
        return
    margins = parse_shares("--margin", settings.margin)
    comparison = (
        _compare_interleaved(invocation, targets, settings, margins)
        if settings.interleave
        else _compare_runs(invocation, targets, settings)
    )
    for reason in comparison.reasons:
        say(f"warning: not comparable: {reason}")
    for run in (run for arm in comparison.arms for run in arm.runs):
        warn_about_comparison(run)
    if invocation.as_json:
        output.print_json(comparison_document(comparison))
    else:
        print_comparison(comparison, mlperf=settings.mlperf)
    if settings.interleave and (comparison.reasons or not all_equivalent(comparison, margins)):
        raise click.exceptions.Exit(EXIT_REFUSED)


def _compare_layers(invocation: Invocation, targets: tuple[str, ...], settings: _CompareOptions) -> None:
    """Compare the layers of two traced runs, which must be comparable unless ``--force`` is set."""
    if settings.interleave:
        reason = "--layers compares recorded runs, and --interleave runs locks"
        raise InvalidInputError(reason, where="--layers", next_step="leave one of the options out")
    if len(targets) != 2:  # noqa: PLR2004 - two make a pair
        raise InvalidInputError("--layers needs two runs", where="--layers", next_step="give two run ids")
    comparison = _compare_runs(invocation, targets, settings)
    for reason in comparison.reasons:
        say(f"warning: not comparable: {reason}")
    opened = invocation.opened
    runs = [opened.records.get(parse_run_id(text)) for text in targets]
    first, second = (
        describe_subject(run, read_lock(invocation, run.start.lock), opened.store, opened.home) for run in runs
    )
    tables = compare_layers(first, second)
    if invocation.as_json:
        documents = [table_document(table) for table in tables]
        output.print_json({"runs": list(targets), "reasons": list(comparison.reasons), "tables": documents})
    else:
        print_tables(tables if output.settings.format != "csv" else tables[1:])


def all_equivalent(comparison: Comparison, margins: Mapping[str, float]) -> bool:
    """Check whether every metric with a margin is equivalent for each lock; a missing metric is not."""
    several = [[finding for finding in findings if finding.margin is not None] for _, findings in comparison.findings]
    missing = {
        name
        for name in margins
        for group in several
        if not any(finding.metric.partition("@")[0] == name for finding in group)
    }
    for name in sorted(missing):
        say(f"warning: cannot compare {name}: not every run has it")
    return not missing and all(finding.answer == "equivalent" for group in several for finding in group)


def _compare_runs(invocation: Invocation, targets: tuple[str, ...], settings: _CompareOptions) -> Comparison:
    """Compare recorded runs.

    Raises:
        InvalidInputError: A target is not a run, or an option applies to new runs only.
        RefusedError: The runs are not comparable, and ``--force`` is not set.
    """
    new_runs = (settings.rounds, settings.margin, settings.other_seed, settings.isolation, settings.allow_code)
    if any(option not in (None, (), "", False) for option in new_runs):
        raise InvalidInputError(
            "--rounds, --margin, --other-seed, --isolation and --allow-code need --interleave",
            next_step="give locks with --interleave; `equivalence` in a request also states margins in advance",
        )
    for text in targets:
        if not text.startswith(RUN_PREFIX):
            step = "use a run id as listed by `runs`; to compare locks, add --interleave"
            raise InvalidInputError(f"invalid run id {text!r}", where=text, next_step=step)
    ids = [parse_run_id(text) for text in targets]
    with invocation.progress.task("comparing the runs"):
        return compare_by_id(invocation.opened, partial(read_lock, invocation), ids, force=settings.force)


def _compare_interleaved(
    invocation: Invocation, targets: tuple[str, ...], settings: _CompareOptions, margins: Mapping[str, float]
) -> Comparison:
    """Run the locks in alternation, print each run, and compare them."""
    isolation, locks = parse_isolation(settings.isolation), [read_lock(invocation, text) for text in targets]
    if settings.other_seed is not None:
        locks = vary_seed(locks, settings.other_seed, margins)
    runner = LockRunner(invocation.opened, invocation.progress, say, isolation, settings.allow_code)
    return runner.compare(locks, settings.rounds, margins)


def vary_seed(locks: list[Lock], seed: int, margins: Mapping[str, float]) -> list[Lock]:
    """Return a lock, and the same lock with another seed, after MLPerf's TEST05."""
    if len(locks) != 1 or locks[0].request["seed"] == seed:
        raise InvalidInputError(
            "--other-seed needs one lock, and a seed that differs from the lock's",
            where=f"--other-seed {seed}",
            next_step="give one lock and another seed",
        )
    if not margins and not shared_margins(locks):
        raise InvalidInputError(
            "--other-seed needs a margin, within which the seed may change a metric",
            where=f"--other-seed {seed}",
            next_step="add --margin latency_p90=5%, or state `equivalence` in the request",
        )
    other = change_seed(locks[0], seed)
    say(f"{other.id} differs from {locks[0].id} in the seed: {seed}, {locks[0].request['seed']}")
    return [locks[0], other]


def warn_about_comparison(run: Run) -> None:
    """Print why the times of ``run`` decide nothing, and whether LoadGen calls its result invalid."""
    if reason := explain_unusable_times(run):
        say(f"warning: {reason}")
    validity = validity_of(run)
    if validity is not None and not validity.valid:
        say(f"warning: LoadGen result of {run.id}: {validity.words}")
