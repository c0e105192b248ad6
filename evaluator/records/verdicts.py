"""The verdict of a rerun: does what the original run claims hold, and why or why not."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from evaluator.records.comparison import host_differences
from evaluator.records.predictions import Agreed, Agreement
from evaluator.records.runs import Run
from evaluator.statistics.figures import Metric

Word = Literal["reproduced", "not reproduced"]

_QUALITY = {"top1": 1, "top5": 5}
"""Quality metrics, and how many best classes decide them."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """``reasons`` are what decided, in words; ``reported`` is what was seen and decides nothing."""

    verdict: Word
    reasons: tuple[str, ...]
    reported: tuple[str, ...]
    predictions: Agreement | None


def differing_processors(a: Run, b: Run) -> bool:
    """Whether bits may differ for the processor alone: another model, or other instruction sets."""
    return any(a.start.host.get(fact) != b.start.host.get(fact) for fact in ("cpu_model", "cpu_flags"))


def judge(original: Run, rerun: Run, agreed: Agreed | None, equivalence: Mapping[str, float]) -> Verdict:
    """The verdict on two ended runs of one lock.

    ``agreed`` is how far their predictions agree, None where either has none. ``equivalence`` maps metrics of time to
    the relative margin within which the request wants them equal; they decide only on comparable hosts.
    """
    assert original.end is not None
    assert rerun.end is not None
    ends = (original.end, rerun.end)
    if any(end.outcome != "done" for end in ends):
        return _of_failures(original, rerun)
    against = [*_quality_faults(original, rerun, agreed)]
    if agreed is not None and agreed.agreement == "different":
        against += agreed.reasons
    decided, reported = _times(original, rerun, equivalence)
    against += decided
    word: Word = "not reproduced" if against else "reproduced"
    return Verdict(
        word, tuple(against or _supporting(agreed)), tuple(reported), None if agreed is None else agreed.agreement
    )


def _of_failures(original: Run, rerun: Run) -> Verdict:
    texts = []
    ways = []
    for name, run in (("the original", original), ("the rerun", rerun)):
        assert run.end is not None
        ways.append((run.end.outcome, run.end.failure_class))
        failure = f" ({run.end.failure_class}: {run.end.failure_message})" if run.end.failure_class else ""
        texts.append(f"{name} {run.id} ended as {run.end.outcome}{failure}")
    same = ways[0] == ways[1] and ways[0][0] == "failed"
    return Verdict("reproduced" if same else "not reproduced", tuple(texts), (), None)


def _supporting(agreed: Agreed | None) -> Iterator[str]:
    if agreed is None:
        yield "no predictions were asked for, so the outcome and the metrics decide"
    elif agreed.agreement == "bit-equal":
        whose = f"of all {agreed.samples} samples " if agreed.samples else ""
        yield f"the predictions {whose}are bit-equal"
    else:
        yield from agreed.reasons


def _quality_faults(original: Run, rerun: Run, agreed: Agreed | None) -> Iterator[str]:
    """Quality metrics are equal, or moved by no more samples than the predictions were allowed to change."""
    left, right = _metrics(original), _metrics(rerun)
    for name in sorted(left.keys() ^ right.keys()):
        yield f"{name} was measured in one of the runs only"
    for name, k in _QUALITY.items():
        if name not in left or name not in right:
            continue
        a, b = left[name], right[name]
        allowed = 0 if agreed is None or not agreed.samples else agreed.changed.get(k, 0) / agreed.samples
        if a.n != b.n or abs(a.value - b.value) > allowed + 1e-12:
            yield f"{name} was {a.value:.6g} of {a.n}, and is {b.value:.6g} of {b.n}"


def _times(original: Run, rerun: Run, equivalence: Mapping[str, float]) -> tuple[list[str], list[str]]:
    """What the times decide against the claim, and what is only reported."""
    against: list[str] = []
    reported: list[str] = []
    left, right = _metrics(original), _metrics(rerun)
    differences = host_differences(original, rerun)
    for name in sorted((left.keys() & right.keys()) - _QUALITY.keys()):
        a, b = left[name].value, right[name].value
        change = b / a - 1 if a else 0.0
        text = f"{name} was {a:.4g} {left[name].unit}, and is {b:.4g} ({change:+.1%})"
        margin = equivalence.get(name)
        if margin is None or differences:
            reported.append(text)
        elif abs(change) > margin:
            against.append(f"{text}, beyond the margin of {margin:.0%} that the request states")
        else:
            reported.append(f"{text}, within the margin of {margin:.0%}")
    if reported and differences:
        reported.append(f"these times are not comparable: {'; '.join(differences)}")
    return against, reported


def _metrics(run: Run) -> Mapping[str, Metric]:
    assert run.end is not None
    return {metric.key: metric for metric in run.end.metrics}
