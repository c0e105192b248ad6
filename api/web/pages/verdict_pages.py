"""The page of a verdict: whether a run reproduces an earlier run of its lock."""

from collections.abc import Mapping, Sequence
from typing import Final

from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.web.links import run_path
from benchlock.api.web.page import Page
from benchlock.api.web.pages.lock_pages import request_path
from benchlock.api.web.run_lists import RUN_COLUMNS, list_run_rows
from benchlock.evaluator.analysis.tables import Table
from benchlock.evaluator.records.comparison_types import Verdict
from benchlock.evaluator.records.run_comparison import COUNTED
from benchlock.evaluator.records.run_types import Run, RunFilter, RunId
from benchlock.evaluator.records.timing_validity import explain_unusable_times
from benchlock.evaluator.workflows.rerun import UNRELEASED, judge_recorded_run, margins_of

CHOICES: Final = 20
"""The number of earlier runs to choose from."""
Answer = tuple[str, str, str]
"""A question, its answer in a word, and the reason."""


def make_verdict(registry: LocalRegistry, id_: RunId, against: RunId | None) -> Page:
    """Make the page of the verdict on a run.

    Args:
        registry: The registry.
        id_: The run.
        against: The earlier run of the same lock; None for the latest one.

    Raises:
        UnknownNameError: There is no such run.
        InvalidInputError: There is no earlier run of the lock, or one of them has not ended.
        IntegrityError: A record contradicts its evidence.
    """
    verdict = judge_recorded_run(registry.records, registry.store, registry.read_lock, id_, against)
    runs = [registry.records.get(RunId(run)) for run in (verdict.original, verdict.run)]
    lock = registry.read_lock(runs[0].start.lock)
    tables = {"runs": Table("runs", "Both runs, the earlier first", RUN_COLUMNS, list_run_rows(registry, runs))}
    trail = (("/runs", "Runs"), (run_path(id_), f"{lock.subject.name} {lock.subject.version}"))
    margins = margins_of(lock)
    context = {
        "verdict": verdict,
        "answers": answer_questions(verdict, runs, margins),
        "states_margins": bool(margins),
        "change": request_path(lock),
        "choices": _list_choices(registry, runs[1]),
    }
    return Page("verdict", "Is the result reproduced?", context, tables, None, trail)


def answer_questions(verdict: Verdict, runs: Sequence[Run], margins: Mapping[str, float]) -> tuple[Answer, ...]:
    """Answer separately whether the predictions and whether the times are reproduced.

    Args:
        verdict: The verdict on both.
        runs: The original and the run.
        margins: The relative margins by metric that the request states as ``equivalence``.
    """
    if any(run.end is None or run.end.outcome != "done" for run in runs):
        return (("Outcome", verdict.verdict, ""), ("Times", "not judged", "a run has no results"))
    return (("Predictions", *_answer_predictions(verdict)), ("Times", *_answer_times(verdict, margins)))


def _answer_predictions(verdict: Verdict) -> tuple[str, str]:
    """Return the answer on predictions and the quality that follows from them, and its reason."""
    agreement = (
        verdict.predictions or "none were requested, or no rule compares them; the outcome and the quality decide"
    )
    different_times = sum(finding.answer == "different" for finding in verdict.times)
    if verdict.predictions == "different":
        return "not reproduced", agreement
    if verdict.verdict == "not reproduced" and len(verdict.reasons) > different_times:
        return "not reproduced", f"{agreement}, but the metrics of quality differ"
    if verdict.predictions is None:
        return "not judged", agreement
    if any(UNRELEASED in reason for reason in verdict.reasons):
        return "undecided", f"{agreement}, but the harness {UNRELEASED}"
    return "reproduced", agreement


def _answer_times(verdict: Verdict, margins: Mapping[str, float]) -> tuple[str, str]:
    """Return the answer on times, and its reason."""
    if not margins:
        return "not judged", "the request states no `equivalence`"
    by_answer: dict[str, list[str]] = {}
    for finding in verdict.times:
        by_answer.setdefault(finding.answer, []).append(finding.metric)
    if "different" in by_answer:
        return "not reproduced", f"{', '.join(by_answer['different'])}: beyond the margin of the request"
    decided = tuple(finding.reason for finding in verdict.times if finding.answer != "undecided")
    sentences = (text for text in (*verdict.reasons, *verdict.reported) if COUNTED in text)
    if waiting := [text for text in sentences if not text.endswith(decided)]:
        return "undecided", "; ".join(waiting)
    if "equivalent" in by_answer:
        return "reproduced", f"{', '.join(by_answer['equivalent'])}: within the margin of the request"
    return "not judged", "these runs cannot decide it; the reasons are below"


def list_earlier(registry: LocalRegistry, run: Run, limit: int) -> tuple[Run, ...]:
    """Return summaries of the latest done runs of the same lock before this one, the newest first."""
    chosen = RunFilter(lock=run.start.lock, outcome="done")
    entries = registry.records.list_entries(chosen=chosen, before=run.id, limit=limit, examine=False)
    return tuple(entry for entry in entries if isinstance(entry, Run))


def find_earlier(registry: LocalRegistry, run: Run) -> RunId | None:
    """Return the latest done run of the same lock before this one; None if there is none."""
    return next((entry.id for entry in list_earlier(registry, run, 1)), None)


def _list_choices(registry: LocalRegistry, run: Run) -> tuple[tuple[RunId, str], ...]:
    """Return the earlier runs to choose from, each with its description, runs with usable times first."""
    unusable = [(explain_unusable_times(entry) is not None, entry) for entry in list_earlier(registry, run, CHOICES)]
    return tuple(
        (entry.id, f"{entry.id}, {entry.start.started_at:%Y-%m-%d %H:%M} UTC{', times unusable' if is_flagged else ''}")
        for is_flagged, entry in sorted(unusable, key=lambda item: item[0])
    )
