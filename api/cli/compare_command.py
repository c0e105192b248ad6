"""The ``compare`` command: recorded runs side by side, or locks run in alternation."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from benchlock.api.cli import output
from benchlock.api.cli.artifacts_commands import RUN_PREFIX
from benchlock.api.cli.commands import Invocation
from benchlock.api.cli.lock_commands import lock_document, read_lock
from benchlock.api.cli.output import say
from benchlock.api.cli.run_documents import run_document
from benchlock.api.cli.run_options import (
    ALLOW_CODE,
    ISOLATION,
    complete_run_ids,
    execute_lock,
    parse_isolation,
    parse_shares,
)
from benchlock.api.cli.run_tables import format_figure, format_interval, format_mark
from benchlock.api.error_codes import EXIT_REFUSED
from benchlock.artifacts.errors import InvalidInputError, RefusedError
from benchlock.evaluator.records.timing_validity import explain_unusable_times, validity_of
from benchlock.evaluator.statistics.metric_model import format_value

if TYPE_CHECKING:
    from benchlock.evaluator.evidence.prediction_scores import PredictionPairs
    from benchlock.evaluator.records.run_model import Run
    from benchlock.evaluator.statistics.equivalence import Finding, Ratio
    from benchlock.evaluator.statistics.metric_model import Interval
    from benchlock.evaluator.statistics.paired_tests import PairedTest
    from benchlock.evaluator.workflows.compare import Arm, Comparison
    from benchlock.registry.lock.lockfile import Lock


def comparison_document(found: "Comparison") -> dict[str, Any]:
    """Return the JSON document of a comparison: its runs, its arms, and each further arm compared with the first."""
    runs = [run_document(run) | {"model": lock_document(arm.lock)["model"]} for arm in found.arms for run in arm.runs]
    return {
        "comparable": not found.reasons,
        "reasons": list(found.reasons),
        "replays": list(found.replays),
        "interleaved": found.interleaved,
        "arms": [_arm_document(arm) for arm in found.arms],
        "findings": [
            {"lock": arm.lock.id, "against": found.arms[0].lock.id} | finding_document(one)
            for arm, findings in found.findings
            for one in findings
        ],
        "runs": runs,
    }


def _arm_document(arm: "Arm") -> dict[str, Any]:
    chosen = {key: part for key, part in lock_document(arm.lock).items() if key in ("lock", "model", "framework")}
    return chosen | {"control": arm.control, "runs": [run.id for run in arm.runs]}


def finding_document(one: "Finding") -> dict[str, Any]:
    """Return the JSON document of a finding: the ratio with its intervals, the noise, the margin and the answer."""
    return {
        "metric": one.metric,
        **_ratio_document(one.ratio),
        "control": None if one.control is None else _ratio_document(one.control),
        "noise_floor": one.noise_floor,
        "margin": one.margin,
        "answer": one.answer,
        "reason": one.reason,
        "self_reported": one.self_reported,
        "test": None if one.test is None else _paired_test_document(one.test),
    }


def _paired_test_document(one: "PairedTest") -> dict[str, Any]:
    return asdict(one) | {"ci": [one.ci.low, one.ci.high]}


def _ratio_document(one: "Ratio") -> dict[str, Any]:
    ends = {"ci": [one.ci.low, one.ci.high], "ci_90": [one.narrow.low, one.narrow.high]}
    return {"ratio": one.value, **ends, "n": one.n, "paired": one.paired}


def print_comparison(found: "Comparison") -> None:
    """Print the metrics of all arms side by side, then each further arm compared with the first."""
    arms = [arm for arm in found.arms if not arm.control]
    _print_side_by_side(arms)
    for sentence in (*(f"not comparable: {reason}" for reason in found.reasons), *found.replays):
        output.echo_wrapped(sentence)
    for arm, findings in found.findings:
        how = f"{len(arm.runs)} rounds" if found.interleaved else "runs that did not take turns"
        output.echo()
        output.echo(f"{_arm_name(arm)} against {_arm_name(arms[0])}, in {how}")
        rows = [
            (
                one.metric,
                ("-" if one.ratio.value is None else f"{one.ratio.value:.4g}")
                + format_mark(is_reported=one.self_reported),
                _format_ends(one.ratio.ci),
                _format_noise(one),
                _format_share(one.margin),
                one.answer,
            )
            for one in findings
        ]
        output.print_table(("metric", "ratio", "95 % interval", "noise (A/A)", "margin", "answer"), rows)
        metrics: dict[tuple[str, str], list[str]] = {}
        for one in findings:
            metrics.setdefault((one.answer, one.reason), []).append(one.metric)
        for (answer, reason), names in metrics.items():
            output.echo_wrapped(f"  {', '.join(names)}: {answer}: {reason}")


def _print_side_by_side(arms: "list[Arm]") -> None:
    """Print a column per arm and a row per metric: for several runs, the centre and the interval over runs."""
    cells = [_arm_cells(arm) for arm in arms]
    names = list(dict.fromkeys(name for arm in cells for name in arm))
    runs = [arm.runs[0].id if len(arm.runs) == 1 else f"{len(arm.runs)} runs" for arm in arms]
    frameworks = [f"{arm.lock.framework.name} {arm.lock.framework.version}" for arm in arms]
    rows = [("", *frameworks), ("", *runs), *((name, *(arm.get(name, "-") for arm in cells)) for name in names)]
    rows += [
        row
        for row in (("LoadGen", *map(_format_verdicts, arms)), ("flagged", *map(_format_flags, arms)))
        if any(row[1:])
    ]
    output.print_table(("", *map(_arm_name, arms)), rows)


def _format_verdicts(arm: "Arm") -> str:
    """Format LoadGen's verdicts on the runs, each with the number of runs if there are several."""
    marks = Counter(validity.mark for validity in map(validity_of, arm.runs) if validity is not None)
    return ", ".join(mark if len(arm.runs) == 1 else f"{number} {mark}" for mark, number in marks.items())


def _format_flags(arm: "Arm") -> str:
    flagged = [run for run in arm.runs if explain_unusable_times(run) is not None]
    if not flagged:
        return ""
    reported = format_mark(is_reported=any(run.end is not None and run.end.times_self_reported for run in flagged))
    return ("yes" if len(arm.runs) == 1 else f"{len(flagged)} of {len(arm.runs)}") + reported


def _arm_cells(arm: "Arm") -> dict[str, str]:
    from benchlock.evaluator.statistics.equivalence import centre, find_interval_over_runs, is_exact  # noqa: PLC0415 - numpy

    shown = {}
    for first in () if arm.runs[0].end is None else arm.runs[0].end.metrics:
        metric = replace(first, self_reported=arm.is_self_reported(first.key))
        values = arm.values(metric.key)
        if len(values) == 1 or is_exact(metric.name, values):
            shown[metric.key] = f"{format_figure(metric)} {format_interval(metric)}"
        else:
            ci = find_interval_over_runs(values)
            ends = f"[{format_value(ci.low, metric.unit)}, {format_value(ci.high, metric.unit)}]"
            shown[metric.key] = f"{format_figure(replace(metric, value=centre(values)))} {ends}"
    return shown


def _arm_name(arm: "Arm") -> str:
    return f"{arm.lock.model.name} {arm.lock.model.version}"


def _format_ends(ci: "Interval") -> str:
    """Format the ends of an interval; a value known exactly on the given samples has none."""
    if ci.low is not None and ci.low == ci.high:
        return "exact"
    ends = ("-" if end is None else f"{end:.4g}" for end in (ci.low, ci.high))
    return f"[{', '.join(ends)}]"


def _format_noise(one: "Finding") -> str:
    return "-" if one.noise_floor is None else f"± {one.noise_floor:.2%}"


def _format_share(share: float | None) -> str:
    return "-" if share is None else f"{share:.2%}"


@dataclass(frozen=True, slots=True)
class _CompareOptions:
    """The options of the command by name."""

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
def compare(invocation: Invocation, /, targets: tuple[str, ...], **options: Any) -> None:  # noqa: ANN401 - as _CompareOptions says
    """Put runs side by side, or run locks by turns; refuse what is not comparable."""
    asked = _CompareOptions(**options)
    margins = parse_shares("--margin", asked.margin)
    found = (
        _compare_interleaved(invocation, targets, asked, margins)
        if asked.interleave
        else _compare_runs(invocation, targets, asked)
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
    """Check whether every metric with a margin is equivalent for each lock; a missing metric is not."""
    several = [[one for one in findings if one.margin is not None] for _, findings in found.findings]
    missing = {
        name for name in margins for judged in several if not any(_is_equivalent(name, one.metric) for one in judged)
    }
    for name in sorted(missing):
        say(f"warning: {name} cannot be compared: not every run has it")
    return not missing and all(one.answer == "equivalent" for judged in several for one in judged)


def _is_equivalent(name: str, key: str) -> bool:
    return key.partition("@")[0] == name


def _compare_runs(invocation: Invocation, targets: tuple[str, ...], asked: _CompareOptions) -> "Comparison":
    """Compare recorded runs.

    Raises:
        InvalidInputError: A target is not a run, or an option applies to new runs only.
        RefusedError: The runs are not comparable, and ``--force`` is not set.
    """
    from benchlock.evaluator.records.run_model import parse_run_id  # noqa: PLC0415
    from benchlock.evaluator.workflows.compare import compare_runs  # noqa: PLC0415

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
    found = compare_runs([(locks[run.start.lock], run) for run in runs], _open_prediction_pairs(invocation).compare)
    if found.reasons and not asked.force:
        raise RefusedError(
            f"these runs are not comparable with {runs[0].id}: {'; '.join(found.reasons)}",
            next_step="compare runs of equal conditions, or see them side by side with --force",
        )
    return found


def _compare_interleaved(
    invocation: Invocation, targets: tuple[str, ...], asked: _CompareOptions, margins: Mapping[str, float]
) -> "Comparison":
    """Run the locks in alternation, print each run, and compare them."""
    from benchlock.evaluator.workflows.compare import check_question, default_rounds, interleave, shared_margins  # noqa: PLC0415

    wanted, locks = parse_isolation(asked.isolation), [read_lock(invocation, text) for text in targets]
    stated = {**shared_margins(locks), **margins}
    check_question(locks, stated)

    def once(lock: "Lock", part_of: Mapping[str, Any]) -> "Run":
        made = execute_lock(invocation, lock, wanted, allow_code=asked.allow_code, part_of=part_of)
        word = "running" if made.end is None else made.end.outcome
        control = ", again" if part_of["control"] else ""
        say(f"round {part_of['round']} of {part_of['rounds']}: {lock.model.name}{control}: {made.id} {word}")
        return made

    rounds = asked.rounds or default_rounds(len(locks))
    return interleave(locks, once, rounds, stated, _open_prediction_pairs(invocation).compare)


def _open_prediction_pairs(invocation: Invocation) -> "PredictionPairs":
    """Create the sample-by-sample comparison of runs."""
    from benchlock.evaluator.evidence.prediction_scores import PredictionPairs  # noqa: PLC0415
    from benchlock.evaluator.records.evidence_status import SCRATCH  # noqa: PLC0415

    return PredictionPairs(invocation.opened.store, invocation.opened.home / SCRATCH)


def _warn(run: "Run") -> None:
    from benchlock.evaluator.records.timing_validity import (  # noqa: PLC0415
        explain_unusable_times,
        validity_of,
    )

    if reason := explain_unusable_times(run):
        say(f"warning: {reason}")
    validity = validity_of(run)
    if validity is not None and not validity.valid:
        say(f"warning: LoadGen calls {run.id} {validity.words}")
