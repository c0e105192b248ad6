"""Comparisons as JSON and as text."""

from collections import Counter
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from benchlock.api.cli import output
from benchlock.api.cli.lock_commands import lock_document
from benchlock.api.cli.run_documents import run_document
from benchlock.api.cli.run_tables import figure, interval, mark
from benchlock.evaluator.records.calls import unusable_times
from benchlock.evaluator.records.validity import validity_of
from benchlock.evaluator.statistics.units import in_unit

if TYPE_CHECKING:
    from benchlock.evaluator.comparing import Arm, Comparison
    from benchlock.evaluator.statistics.equivalence import Finding
    from benchlock.evaluator.statistics.figures import Interval
    from benchlock.evaluator.statistics.pairing import PairedTest
    from benchlock.evaluator.statistics.repeats import Ratio


def comparison_document(found: "Comparison") -> dict[str, Any]:
    """The runs, the arms that they make, and what each further arm is of the first."""
    runs = [run_document(run) | {"model": lock_document(arm.lock)["model"]} for arm in found.arms for run in arm.runs]
    return {
        "comparable": not found.reasons,
        "reasons": list(found.reasons),
        "replays": list(found.replays),
        "interleaved": found.interleaved,
        "arms": [_arm(arm) for arm in found.arms],
        "findings": [
            {"lock": arm.lock.id, "against": found.arms[0].lock.id} | finding_document(one)
            for arm, findings in found.findings
            for one in findings
        ],
        "runs": runs,
    }


def _arm(arm: "Arm") -> dict[str, Any]:
    chosen = {key: part for key, part in lock_document(arm.lock).items() if key in ("lock", "model", "framework")}
    return chosen | {"control": arm.control, "runs": [run.id for run in arm.runs]}


def finding_document(one: "Finding") -> dict[str, Any]:
    """A finding on a metric: the ratio with its intervals, what it was held against, and the answer."""
    return {
        "metric": one.metric,
        **_ratio(one.ratio),
        "control": None if one.control is None else _ratio(one.control),
        "noise_floor": one.noise_floor,
        "margin": one.margin,
        "answer": one.answer,
        "reason": one.reason,
        "self_reported": one.self_reported,
        "test": None if one.test is None else _test(one.test),
    }


def _test(one: "PairedTest") -> dict[str, Any]:
    return asdict(one) | {"ci": [one.ci.low, one.ci.high]}


def _ratio(one: "Ratio") -> dict[str, Any]:
    ends = {"ci": [one.ci.low, one.ci.high], "ci_90": [one.narrow.low, one.narrow.high]}
    return {"ratio": one.value, **ends, "n": one.n, "paired": one.paired}


def print_comparison(found: "Comparison") -> None:
    """The figures of all arms side by side, then what each further arm is of the first."""
    arms = [arm for arm in found.arms if not arm.control]
    _print_side_by_side(arms)
    for sentence in (*(f"not comparable: {reason}" for reason in found.reasons), *found.replays):
        output.echo_wrapped(sentence)
    for arm, findings in found.findings:
        how = f"{len(arm.runs)} rounds" if found.interleaved else "runs that did not take turns"
        output.echo()
        output.echo(f"{_name(arm)} against {_name(arms[0])}, in {how}")
        rows = [
            (
                one.metric,
                f"{'-' if one.ratio.value is None else f'{one.ratio.value:.4g}'}{mark(is_reported=one.self_reported)}",
                _ends(one.ratio.ci),
                _noise(one),
                _share(one.margin),
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
    """A column an arm, a line a metric: of several runs the centre and the interval between runs; and their quality."""
    cells = [_cells(arm) for arm in arms]
    names = list(dict.fromkeys(name for arm in cells for name in arm))
    runs = [arm.runs[0].id if len(arm.runs) == 1 else f"{len(arm.runs)} runs" for arm in arms]
    frameworks = [f"{arm.lock.framework.name} {arm.lock.framework.version}" for arm in arms]
    rows = [("", *frameworks), ("", *runs), *((name, *(arm.get(name, "-") for arm in cells)) for name in names)]
    rows += [row for row in (("LoadGen", *map(_verdicts, arms)), ("flagged", *map(_flagged, arms))) if any(row[1:])]
    output.print_table(("", *map(_name, arms)), rows)


def _verdicts(arm: "Arm") -> str:
    """What LoadGen says of the runs: each verdict, with the number of runs where there are several."""
    marks = Counter(validity.mark for validity in map(validity_of, arm.runs) if validity is not None)
    return ", ".join(mark if len(arm.runs) == 1 else f"{number} {mark}" for mark, number in marks.items())


def _flagged(arm: "Arm") -> str:
    flagged = [run for run in arm.runs if unusable_times(run) is not None]
    if not flagged:
        return ""
    reported = mark(is_reported=any(run.end is not None and run.end.times_self_reported for run in flagged))
    return ("yes" if len(arm.runs) == 1 else f"{len(flagged)} of {len(arm.runs)}") + reported


def _cells(arm: "Arm") -> dict[str, str]:
    from benchlock.evaluator.statistics.repeats import centre, is_exact, over_runs  # noqa: PLC0415 - numpy

    shown = {}
    for first in () if arm.runs[0].end is None else arm.runs[0].end.metrics:
        metric = replace(first, self_reported=arm.is_self_reported(first.key))
        values = arm.values(metric.key)
        if len(values) == 1 or is_exact(metric.name, values):
            shown[metric.key] = f"{figure(metric)} {interval(metric)}"
        else:
            ci = over_runs(values)
            ends = f"[{in_unit(ci.low, metric.unit)}, {in_unit(ci.high, metric.unit)}]"
            shown[metric.key] = f"{figure(replace(metric, value=centre(values)))} {ends}"
    return shown


def _name(arm: "Arm") -> str:
    return f"{arm.lock.model.name} {arm.lock.model.version}"


def _ends(ci: "Interval") -> str:
    """Return the ends of an interval; a value that is known exactly, on the samples that were seen, has none."""
    if ci.low is not None and ci.low == ci.high:
        return "exact"
    ends = ("-" if end is None else f"{end:.4g}" for end in (ci.low, ci.high))
    return f"[{', '.join(ends)}]"


def _noise(one: "Finding") -> str:
    return "-" if one.noise_floor is None else f"± {one.noise_floor:.2%}"


def _share(share: float | None) -> str:
    return "-" if share is None else f"{share:.2%}"
