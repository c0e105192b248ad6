"""The page of a verdict: whether a run reproduces an earlier run of its lock."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from msgspec import UNSET

from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.web.choices import list_run_options
from benchlock.api.web.links import run_path
from benchlock.api.web.page import Page
from benchlock.api.web.pages.lock_pages import request_path
from benchlock.api.web.run_lists import RUN_COLUMNS, list_run_rows
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import BenchlockError
from benchlock.evaluator.analysis.tables import Table
from benchlock.evaluator.queue.queue_texts import describe_seconds
from benchlock.evaluator.queue.queue_types import MAX_ROUNDS, MachineId
from benchlock.evaluator.queue.queued_comparisons import MACHINES, find_machines, list_rounds
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.evaluator.queue.submission_checks import find_wants
from benchlock.evaluator.records.comparison_types import Verdict
from benchlock.evaluator.records.run_comparison import COUNTED, describe_offered, explain_cited, host_differences
from benchlock.evaluator.records.run_types import Run, RunFilter, RunId
from benchlock.evaluator.records.timing_validity import explain_unusable_times
from benchlock.evaluator.runner.self_reported_times import mark_run
from benchlock.evaluator.statistics.equivalence import FEWEST
from benchlock.evaluator.workflows.rerun import (
    UNRELEASED,
    find_margins,
    is_same_repetition,
    judge_recorded_run,
    margins_of,
)
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests.metric_definitions import is_automatic, is_quality

CHOICES: Final = 20
"""The number of earlier runs to choose from."""
_PARTS: Final = 2 * MAX_ROUNDS
"""The maximum number of runs of one lock in a comparison."""
_COUNTED: Final = 20
"""The number of machines whose waiting jobs are counted."""
_LATEST: Final = 3
"""The number of latest runs that must all be flagged for a warning."""
Answer = tuple[str, str, str]
"""A question, its answer in a word, and the reason."""


@dataclass(frozen=True, slots=True)
class RepetitionOffer:
    """What the form offers that queues runs of a lock until they decide on its times.

    Attributes:
        lock: The lock.
        machines: The machines that can run it now.
        metrics: The metrics of time that a reviewer may choose; empty if the lock states the margins.
        rounds: The numbers of rounds, each with its number of runs and about how long they take.
        seconds: About how long one run takes, in words.
        fewest: The number of earlier runs from which the times can also be refuted.
        obstacle: Why no number of runs can decide; empty if it can.
        waiting: The machines, each with the number of jobs that wait for it.
        warning: Why new runs will probably not decide: the latest runs are flagged. Empty if the latest one is not.
    """

    lock: Digest
    machines: tuple[MachineId, ...] = ()
    metrics: tuple[str, ...] = ()
    rounds: tuple[tuple[int, int, str], ...] = ()
    seconds: str = ""
    fewest: int = FEWEST
    obstacle: str = ""
    waiting: tuple[tuple[MachineId, int], ...] = ()
    warning: str = ""


def offer_repetition(registry: LocalRegistry, queue: SqlQueue | None, lock: Lock, run: Run) -> RepetitionOffer | None:
    """Return the offer to repeat a run until its times are decided; None if it has no times, or without a queue.

    Args:
        registry: The registry.
        queue: Its queue.
        lock: The lock of the run.
        run: A run of the lock, whose metrics and duration the repeated ones will have.
    """
    if queue is None or run.end is None or run.end.outcome != "done":
        return None
    end = mark_run(run, lock, registry.store).end
    times = [metric for metric in end.metrics if _is_time(metric.name, lock)] if end is not None else []
    if not times:
        return None
    trusted = tuple(dict.fromkeys(metric.name for metric in times if not metric.self_reported))
    if not trusted:
        what = "its times are self-reported: code of the model or of an unreleased harness could have forged them"
        return RepetitionOffer(lock.id, obstacle=what)
    try:
        wants = [find_wants(lock, registry.store, None, allow_code=False)]
    except BenchlockError as error:
        return RepetitionOffer(lock.id, obstacle=error.what)
    machines = tuple(find_machines(queue.machines(limit=MACHINES), wants))
    if not machines:
        return RepetitionOffer(lock.id, obstacle="no machine can run the lock now")
    each = (run.end.ended_at - run.start.started_at).total_seconds()
    rounds = tuple((count, 2 * count, describe_seconds(2 * count * each)) for count in list_rounds(1)[::3])
    return RepetitionOffer(
        lock.id,
        machines,
        () if margins_of(lock) else trusted,
        rounds,
        describe_seconds(each),
        waiting=tuple((machine, queue.count_waiting(machine)) for machine in machines[:_COUNTED]),
        warning=_warn_of_flags(registry, lock, run),
    )


def _warn_of_flags(registry: LocalRegistry, lock: Lock, run: Run) -> str:
    """Return that the latest runs of a lock on hosts like that of a run are flagged, and why; empty if one is not."""
    chosen = RunFilter(lock=lock.id, outcome="done")
    entries = registry.records.list_entries(chosen=chosen, limit=CHOICES, examine=False, with_host=True)
    alike = [entry for entry in entries if isinstance(entry, Run) and not host_differences(run, entry)][:_LATEST]
    reasons = [reason for reason in map(explain_unusable_times, alike) if reason]
    if not reasons or len(reasons) < len(alike):
        return ""
    runs = "the latest run" if len(reasons) == 1 else f"each of the latest {len(reasons)} runs"
    return f"{runs} of this lock on such a host is flagged, so new ones will probably be too; {reasons[0]}"


def _is_time(metric: str, lock: Lock) -> bool:
    is_decidable = describe_offered(metric, lock.scenario["name"]) is None
    return metric in lock.metrics and not is_quality(metric) and not is_automatic(metric) and is_decidable


def make_verdict(registry: LocalRegistry, id_: RunId, against: RunId | None, queue: SqlQueue | None = None) -> Page:
    """Make the page of the verdict on a run.

    Args:
        registry: The registry.
        id_: The run.
        against: The earlier run of the same lock; None for the latest one.
        queue: The queue that may repeat the run; without one, the page has no form for that.

    Raises:
        UnknownNameError: There is no such run.
        InvalidInputError: There is no earlier run of the lock, or one of them has not ended.
        IntegrityError: A record contradicts its evidence.
    """
    verdict = judge_recorded_run(registry.records, registry.store, registry.read_lock, id_, against)
    runs = [registry.records.get(RunId(run)) for run in (verdict.original, verdict.run)]
    lock = registry.read_lock(runs[0].start.lock)
    tables = {"runs": Table("runs", "Both runs, the earlier first", RUN_COLUMNS, list_run_rows(registry, runs))}
    breadcrumbs = (("/runs", "Runs"), (run_path(id_), f"{lock.subject.name} {lock.subject.version}"))
    margins, is_lock = find_margins(lock, runs[1]), bool(margins_of(lock))
    is_training = lock.recipe is not UNSET
    whose = "the request" if is_lock else "the reviewer"
    answers = answer_training(verdict) if is_training else answer_questions(verdict, runs, margins, whose)
    context = {
        "verdict": verdict,
        "answers": answers,
        "headline": "; ".join(f"{question} {answer}" for question, answer, _ in answers).capitalize(),
        "judges_times": not any(answer[:2] == ("Times", "not judged") for answer in answers),
        "is_flagged": any(explain_unusable_times(run) for run in runs),
        "states_margins": is_lock or is_training,
        "margins": () if is_lock else tuple(f"{name} {margin:.3g}" for name, margin in margins.items()),
        "offer": None if is_training else offer_repetition(registry, queue, lock, runs[1]),
        "change": request_path(lock),
        "choices": _list_choices(registry, runs[1], runs[0]),
        "options": list_run_options(registry, lock, runs[0].start.isolation),
    }
    return Page("verdict", "Is the result reproduced?", context, tables, None, breadcrumbs)


def answer_training(verdict: Verdict) -> tuple[Answer, ...]:
    """Answer whether a training is reproduced: one question, on its weights and losses or on its epochs."""
    return (("Training", verdict.verdict, "; ".join(verdict.reasons)),)


def answer_questions(
    verdict: Verdict, runs: Sequence[Run], margins: Mapping[str, float], whose: str = "the request"
) -> tuple[Answer, ...]:
    """Answer separately whether the predictions and whether the times are reproduced.

    Args:
        verdict: The verdict on both.
        runs: The original and the run.
        margins: The relative margins by metric that decide on times.
        whose: Who states the margins.
    """
    if any(run.end is None or run.end.outcome != "done" for run in runs):
        return (("Outcome", verdict.verdict, ""), ("Times", "not judged", "a run has no results"))
    answer, reason = _answer_times(verdict, margins, whose)
    flags = [flag for run in runs if (flag := explain_unusable_times(run))]
    if not margins and flags:
        reason = f"{'; '.join(flags)}; and {reason}"
    elif margins and (cited := explain_cited(runs[0])):
        answer, reason = ("undecided" if answer == "reproduced" else answer), f"{cited}; {reason}"
    return (("Predictions", *_answer_predictions(verdict)), ("Times", answer, reason))


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


def _answer_times(verdict: Verdict, margins: Mapping[str, float], whose: str) -> tuple[str, str]:
    """Return the answer on times, and its reason."""
    if not margins:
        return "not judged", "the request states no `equivalence`"
    by_answer: dict[str, list[str]] = {}
    for finding in verdict.times:
        by_answer.setdefault(finding.answer, []).append(finding.metric)
    if "different" in by_answer:
        return "not reproduced", f"{', '.join(by_answer['different'])}: beyond the margin of {whose}"
    decided = tuple(finding.reason for finding in verdict.times if finding.answer != "undecided")
    sentences = (text for text in (*verdict.reasons, *verdict.reported) if COUNTED in text)
    if waiting := [text for text in sentences if not text.endswith(decided)]:
        return "undecided", "; ".join(waiting)
    if "equivalent" in by_answer:
        return "reproduced", f"{', '.join(by_answer['equivalent'])}: within the margin of {whose}"
    return "not judged", "these runs cannot decide it; the reasons are below"


def list_earlier(registry: LocalRegistry, run: Run, limit: int) -> tuple[Run, ...]:
    """Return summaries of the latest done runs of the same lock before this one, the newest first.

    Runs of the same rerun or comparison are not among them. They are at most those of the largest comparison.
    """
    chosen = RunFilter(lock=run.start.lock, outcome="done")
    entries = registry.records.list_entries(chosen=chosen, before=run.id, limit=limit + _PARTS, examine=False)
    earlier = (entry for entry in entries if isinstance(entry, Run) and not is_same_repetition(entry, run))
    return tuple(islice(earlier, limit))


def find_earlier(registry: LocalRegistry, run: Run) -> RunId | None:
    """Return the latest done run of the same lock before this one; None if there is none."""
    return next((entry.id for entry in list_earlier(registry, run, 1)), None)


def _list_choices(registry: LocalRegistry, run: Run, original: Run) -> tuple[tuple[RunId, str], ...]:
    """Return the earlier runs to choose from, each with its description, those whose times are not flagged first.

    The run that is compared with is among them, however old it is.
    """
    entries = {entry.id: entry for entry in (*list_earlier(registry, run, CHOICES), original)}
    flagged = [(explain_unusable_times(entry) is not None, entry) for entry in entries.values()]
    return tuple(
        (entry.id, f"{entry.id}, {entry.start.started_at:%Y-%m-%d %H:%M} UTC{', times flagged' if is_flagged else ''}")
        for is_flagged, entry in sorted(flagged, key=lambda item: item[0])
    )
