"""The page that compares runs: whether they are comparable, then the findings, the results and the report."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from msgspec import UNSET

from benchlock.api.client.id_prefixes import complete_prefix, describe_moment
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.web.links import compare_path, lock_diff_path, with_query
from benchlock.api.web.page import Page
from benchlock.api.web.run_lists import RUN_COLUMNS, list_others, list_run_rows
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import BenchlockError, InvalidInputError, UnknownNameError
from benchlock.artifacts.size_limits import SUMMARY, shorten
from benchlock.evaluator.analysis.tables import Cell, Column, Table
from benchlock.evaluator.charts.svg import LARGE, text
from benchlock.evaluator.evidence.prediction_scores import PAIRS, PredictionPairs
from benchlock.evaluator.queue.queue_types import MAX_COMPARED_LOCKS, MAX_ROUNDS, MachineId
from benchlock.evaluator.queue.queued_comparisons import MACHINES, find_machines, list_rounds
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.evaluator.queue.submission_checks import find_wants
from benchlock.evaluator.records.comparison_types import is_one_comparison
from benchlock.evaluator.records.evidence_status import SCRATCH
from benchlock.evaluator.records.run_texts import describe_subject, format_mark
from benchlock.evaluator.records.run_types import DamagedRun, Run, RunFilter, RunId, parse_run_id
from benchlock.evaluator.records.timing_validity import explain_unusable_times, validity_of
from benchlock.evaluator.records.training_agreement import describe_mlperf
from benchlock.evaluator.report.run_sections import describe_origin, describe_runs
from benchlock.evaluator.report.sections import Section, list_charts
from benchlock.evaluator.report.systems import System, group_systems
from benchlock.evaluator.report.trace_sections import compare_traces
from benchlock.evaluator.workflows import run_traces
from benchlock.evaluator.workflows.compare import check_question, compare_runs, compare_speeds, explain_no_interleaving
from benchlock.evaluator.workflows.comparison_texts import (
    format_flags,
    format_metrics,
    format_verdicts,
    name_arm,
    name_speeds,
)
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests.metric_definitions import is_quality
from benchlock.registry.requests.request_form import read_document

if TYPE_CHECKING:
    from benchlock.evaluator.statistics.metric_types import Finding
    from benchlock.evaluator.workflows.compare import Comparison

_RUN: Final = "run"
_unread: Final = UnknownNameError("the run was not read yet")
RUNS: Final = 20
"""The largest number of runs on one page that are not of one interleaved comparison."""
MOST_RUNS: Final = (MAX_COMPARED_LOCKS + 1) * MAX_ROUNDS
"""The largest number of runs on one page."""
_PAIR: Final = 2
_TRACED: Final = 4
"""The largest number of traced runs whose layers are compared with those of the first: each trace takes a second."""
_SHORT: Final = len("run/") + 10
_PAIRING_SECONDS: Final = 60.0
"""Maximum seconds of the comparison sample by sample."""
_STAMP: Final = "Not comparable"
_STRIP: Final = 16
"""The height of the strip below a chart that has the stamp."""
_MEASURED: Final = "results"
_FINDINGS: Final = (
    Column("system", None, "What is compared with the first system, with its number among the results."),
    Column("metric", None, "The metric."),
    Column("ratio", None, "Its value / that of the first system."),
    Column("low", None, "Lower end of the 95 % interval of the ratio."),
    Column("high", None, "Upper end of the 95 % interval of the ratio."),
    Column("noise", "fraction", "A/A: greatest difference of the first lock from itself, in interleaved runs."),
    Column("margin", "fraction", "Relative difference that counts as equivalent, stated beforehand."),
    Column("answer", None, "What follows."),
)
_TRACE_DIFFERS: Final = re.compile(r": the trace differs$")
_CHANGE: Final = re.compile(r"([+-]?[\d.]+%)[,;]? +(.+)", re.DOTALL)
"""The relative change with which a reason begins, and the rest of it."""


@dataclass(frozen=True, slots=True)
class InterleavingOffer:
    """The locks of an interleaved comparison, the machines that can run it, and its numbers of rounds and runs."""

    locks: tuple[Digest, ...]
    machines: tuple[MachineId, ...]
    rounds: tuple[tuple[int, int], ...]


def offer_interleaving(
    registry: LocalRegistry, queue: SqlQueue | None, locks: Sequence[Lock]
) -> InterleavingOffer | None:
    """Return what the form that queues an interleaved comparison offers.

    Args:
        registry: The registry.
        queue: Its queue; without one, there is no offer.
        locks: The locks, the reference first.

    Returns:
        The offer; None if runs of the locks cannot be comparable, or if no machine can run all of them now.
    """
    count = len(locks)
    if queue is None or not _PAIR <= count <= MAX_COMPARED_LOCKS or locks[0].id == locks[-1].id:
        return None
    try:
        check_question(locks, {})
        wants = [find_wants(lock, registry.store, None, allow_code=False) for lock in locks]
    except BenchlockError:
        return None
    machines = tuple(find_machines(queue.machines(limit=MACHINES), wants))
    rounds = tuple((number, number * (count + 1)) for number in list_rounds(count))
    return InterleavingOffer(tuple(lock.id for lock in locks), machines, rounds) if machines else None


def make_compare(
    registry: LocalRegistry,
    runs: Sequence[str],
    *,
    anyway: bool,
    queue: SqlQueue | None = None,
) -> Page:
    """Make the page that compares runs with the first of them.

    A run that cannot be read stays in the table, with the reason; the others are compared.

    Args:
        registry: The registry.
        runs: The ids of the runs or the beginnings of them, each counted once; fewer than two give a page on which to
            choose another.
        anyway: Whether to show the figures of runs that are not comparable.
        queue: The queue in which the locks of the runs may run in turn; without one, the page has no form for that.

    Raises:
        InvalidInputError: There are too many runs, all are one measurement, a text is no id of a run, or several ids
            begin with it.
        IntegrityError: A record contradicts its evidence.
    """
    ids, found = _find_runs(registry, runs[: MOST_RUNS + 1])
    recorded = [run for run in found.values() if isinstance(run, Run)]
    is_whole = len(recorded) == len(ids) and is_one_comparison(recorded)
    if len(ids) > (MOST_RUNS if is_whole else RUNS):
        what = f"{len(set(runs))} runs are too many for one page; the maximum is {RUNS}"
        raise InvalidInputError(what, where="run", next_step="compare fewer runs, or open a leaderboard: /leaderboards")
    locks = {id_: lock for id_, lock in registry.find_locks(run.start.lock for run in recorded).items() if lock}
    pairs = [(locks[run.start.lock], run) for run in recorded if run.start.lock in locks]
    left_out = tuple(f"{id_}: {reason}" for id_ in ids if (reason := _explain_absence(found[id_], locks)) is not None)
    context: dict[str, Any] = {
        "ids": ids,
        "left_out": left_out,
        "found": len(pairs),
        "others": list_others(registry, *pairs[0]) if pairs else (),
        "is_full": len(ids) >= RUNS,
        "reasons": (),
        "remarks": (),
        "shows_figures": False,
        "anyway": compare_path(ids, anyway=True),
        "locks": tuple(locks),
        "offer": offer_interleaving(registry, queue, list(locks.values())),
        "no_interleaving": None,
        "untraced": (),
        "is_training": bool(pairs) and pairs[0][0].target is not UNSET,
        "diffs": tuple(_list_diffs(list(locks.values()))),
        "answers": (),
        "usable": (),
        "flagged": "",
        "advice": None,
        "comparison": None,
        "sections": (),
        "section_tables": (),
    }
    tables = {"runs": _tabulate_runs(registry, found)}
    if len(pairs) >= _PAIR:
        _add_comparison(registry, pairs, context, tables, anyway=anyway)
    facts = {
        "runs": ids,
        **{name: context[name] for name in ("left_out", "reasons", "remarks", "answers", "usable", "comparison")},
    }
    facts["sections"] = [{"question": one.question, "answer": one.answer} for one in context["sections"]]
    json_path = compare_path(ids, anyway=anyway).replace("/compare", "/v1/comparisons", 1)
    charts = list_charts(context["sections"])
    return Page("compare", "Compare runs", context, tables, json_path, (("/runs", "Runs"),), charts=charts, facts=facts)


def _find_runs(
    registry: LocalRegistry, texts: Sequence[str]
) -> tuple[tuple[str, ...], dict[str, Run | DamagedRun | BenchlockError]]:
    """Return the ids of runs, and each run by its id, or the error of one that cannot be read."""
    found: dict[str, Run | DamagedRun | BenchlockError] = {}
    for given in texts:
        try:
            id_ = complete_prefix(_RUN, given, partial(_list_candidates, registry))
            found.setdefault(parse_run_id(id_), _unread)
        except UnknownNameError as error:
            found[given if given.startswith(_RUN) else f"{_RUN}/{given}"] = error
    wanted = [RunId(id_) for id_, run in found.items() if run is _unread]
    found |= {run.id: run for run in registry.records.get_each(wanted)}
    for id_ in (RunId(id_) for id_, run in found.items() if run is _unread):
        try:
            found[id_] = registry.records.get(id_)  # hidden ones are shown to administrators
        except UnknownNameError as error:
            found[id_] = error
    return tuple(found), found


def _list_candidates(registry: LocalRegistry, prefix: str, limit: int) -> list[tuple[str, str]]:
    """Return the ids of runs that begin with a text, each with its time."""
    entries = registry.records.list_entries(chosen=RunFilter(prefix=prefix), limit=limit, examine=False)
    return [(one.id, describe_moment(one.start.started_at) if isinstance(one, Run) else "damaged") for one in entries]


def _explain_absence(run: Run | DamagedRun | BenchlockError, locks: Mapping[Digest, Lock]) -> str | None:
    """Return why a run is not compared; None if it is."""
    if isinstance(run, BenchlockError):
        return run.what
    if isinstance(run, DamagedRun):
        return f"its record is damaged: {run.damage}"
    return None if run.start.lock in locks else f"its lock {run.start.lock} is missing or damaged"


def _add_comparison(
    registry: LocalRegistry,
    pairs: Sequence[tuple[Lock, Run]],
    context: dict[str, Any],
    tables: dict[str, Table],
    *,
    anyway: bool,
) -> None:
    """Add the verdict, and the figures if the runs are comparable or ``anyway`` is set."""
    prediction_pairs = PredictionPairs(registry.store, registry.home / SCRATCH, _PAIRING_SECONDS, registry.home / PAIRS)
    comparison, unread = compare_runs(pairs, prediction_pairs.compare_all), ""
    try:
        comparison = compare_speeds(comparison, registry.store)
    except BenchlockError as error:
        unread = f"The trainings are not compared: {error.what}"
    context["reasons"] = comparison.reasons
    context["remarks"] = (*comparison.replays, *_list_remarks(comparison), *([unread] if unread else ()))
    context["no_interleaving"] = explain_no_interleaving(comparison)
    context["flagged"] = _count_flagged([run for _, run in pairs])
    context["advice"] = _advise_on_trace(pairs) if any(map(_TRACE_DIFFERS.search, comparison.reasons)) else None
    if len(context["locks"]) > 1 and (anyway or all(map(_TRACE_DIFFERS.search, comparison.reasons))):
        context["untraced"] = tuple(_list_untraced(pairs))
    if comparison.reasons and not anyway:
        return
    context["shows_figures"], context["comparison"] = True, comparison.report()
    context["answers"] = tuple(_list_answers(comparison))
    context["speeds"] = tuple(f"{answer}. {describe_mlperf(speed)}." for answer, speed in name_speeds(comparison))
    context["usable"] = () if comparison.reasons else tuple(_compare_usable(pairs, comparison))
    tables |= {"findings": _tabulate_findings(comparison), _MEASURED: _tabulate_results(comparison)}
    try:
        sections = _make_sections(registry, pairs, comparison, force=anyway)
    except BenchlockError as error:
        context["remarks"] += (f"There are no charts: {error.what}",)
        sections = ()
    if comparison.reasons:
        tables |= {name: _stamp(tables[name]) for name in ("findings", _MEASURED)}
        sections = tuple(map(_stamp_section, sections))
    names = tuple(f"section-{number}" for number, _ in enumerate(sections, 1))
    context["sections"], context["section_tables"] = sections, names
    tables |= {name: part.table for name, part in zip(names, sections, strict=True) if part.table is not None}


def _make_sections(
    registry: LocalRegistry, pairs: Sequence[tuple[Lock, Run]], comparison: "Comparison", *, force: bool
) -> tuple[Section, ...]:
    """Return the sections of the report on the done runs; traces are on the pages of the runs.

    Args:
        registry: The registry.
        pairs: The runs with their locks.
        comparison: The comparison of them; the runs of a single lock are systems of their own, as they are its arms.
        force: Whether to show runs that are not comparable.
    """
    done = [(lock, run) for lock, run in pairs if run.end is not None and run.end.outcome == "done"]
    if not done:
        return ()
    if len({lock.id for lock, _ in pairs}) == 1 and not any(arm.control for arm in comparison.arms):
        finished = {run.id for _, run in done}
        arms = [arm for arm in comparison.arms if arm.runs[0].id in finished]
        systems = tuple(System(name_arm(comparison, arm), (arm,), registry.store) for arm in arms)
    else:
        systems, _ = group_systems(done, registry.store, force=force)
    return (*describe_runs(systems), *_compare_traces(registry, done), describe_origin(systems))


def _compare_traces(registry: LocalRegistry, done: Sequence[tuple[Lock, Run]]) -> Iterator[Section]:
    """Yield the layers of the first traced run beside those of each further one."""
    traced = [(lock, run) for lock, run in done if run.end is not None and run_traces.ROLE in run.end.blobs][:_TRACED]
    try:
        subjects = [
            (
                f"{lock.subject.name} {lock.subject.version}, {run.id[:_SHORT]}",
                run_traces.describe_subject(run, lock, registry.store, registry.home),
            )
            for lock, run in traced
        ]
    except BenchlockError as error:
        yield Section("In which layers do the runs differ?", (f"A trace cannot be read: {error.what}.",))
        return
    for number, other in enumerate(subjects[1:], 1):
        yield compare_traces(subjects[0], other, number)


def _list_remarks(comparison: "Comparison") -> Iterator[str]:
    """Yield which runs have unusable times, and which LoadGen does not call valid."""
    for run in (run for arm in comparison.arms for run in arm.runs):
        if reason := explain_unusable_times(run):
            yield reason
        validity = validity_of(run)
        if validity is not None and not validity.valid:
            yield f"LoadGen result of {run.id}: {validity.words}"


def _count_flagged(runs: Sequence[Run]) -> str:
    """Return how many runs have flagged times, in words; empty for none."""
    flagged = sum(explain_unusable_times(run) is not None for run in runs)
    if not flagged:
        return ""
    return "the times of all of them are flagged" if flagged == len(runs) else f"the times of {flagged} are flagged"


def _compare_usable(pairs: Sequence[tuple[Lock, Run]], comparison: "Comparison") -> Iterator[str]:
    """Yield what the runs with usable times say on times, if other runs leave these undecided.

    An interleaved comparison leaves out such runs itself, round by round.
    """
    usable = [(lock, run) for lock, run in pairs if explain_unusable_times(run) is None]
    dropped = [run.id for _, run in pairs if explain_unusable_times(run) is not None]
    first = comparison.arms[0].lock.id
    if not dropped or comparison.interleaved or len(usable) < _PAIR or usable[0][0].id != first:
        return
    try:
        rest = compare_runs(usable)
    except InvalidInputError:  # what is left is one measurement
        return
    for arm, findings in rest.findings:
        times = [finding for finding in findings if not is_quality(finding.metric)]
        yield from (
            f"{name_arm(rest, arm)}: {finding.metric}: {finding.answer}: {finding.reason}; "
            f"left out: {', '.join(dropped)}, whose times are flagged"
            for finding in times
        )


def _advise_on_trace(pairs: Sequence[tuple[Lock, Run]]) -> tuple[str, str | None]:
    """Return which metrics a difference in the trace leaves comparable, and the path of a form for the runs."""
    (first, _), locks = pairs[0], {lock.id: lock for lock, _ in pairs}.values()
    shared = [name for name in first.metrics if is_quality(name) and all(name in lock.metrics for lock in locks)]
    level = first.request.get("trace", "none")
    other = next(lock for lock in locks if lock.request.get("trace", "none") != level)
    kept = f"{', '.join(shared)} do not depend on it" if shared else "these runs share no metric that does not"
    words = (
        f"A trace makes calls slower, so no metric of time can be compared; {kept}. For comparable runs, "
        f"evaluate {other.subject.name} with the trace level of the first run, {level}."
    )
    return words, _request_path(other, level)


def _request_path(lock: Lock, trace: str) -> str | None:
    """Return the path of the form with the request of a lock at a level of trace; None for a lock without a model."""
    if lock.model is UNSET:
        return None
    fields = replace(read_document(lock.request, lock.framework.name), trace="" if trace == "none" else trace)
    return with_query("/new", **fields.as_parameters())


def _list_untraced(pairs: Sequence[tuple[Lock, Run]]) -> Iterator[tuple[str, str, str | None]]:
    """Yield the locks whose runs lack the trace that they could have: the name, why, and the path of a form with it."""
    traced = {lock.id: lock for lock, run in pairs if run.end is not None and run_traces.ROLE in run.end.blobs}
    level = next((str(lock.request["trace"]) for lock in traced.values()), run_traces.LEVEL)
    untraced = {lock.id: (lock, run) for lock, run in pairs if lock.id not in traced and run_traces.is_traceable(lock)}
    for lock, run in untraced.values():
        reason, _ = run_traces.explain_missing_trace(run, lock)
        yield describe_subject(lock), reason, _request_path(lock, level)


def _list_diffs(locks: Sequence[Lock]) -> Iterator[tuple[str, str]]:
    """Yield a link from the first lock to each further one."""
    for other in locks[1:]:
        yield lock_diff_path(locks[0].id, other.id), f"{other.subject.name} {other.subject.version}, {other.id[:19]}…"


def _tabulate_runs(registry: LocalRegistry, found: Mapping[str, Run | DamagedRun | BenchlockError]) -> Table:
    """Return the runs without their results, which may not be comparable, and with their locks."""
    shown = [place for place, column in enumerate(RUN_COLUMNS) if column.name != "results"]
    columns = (*(RUN_COLUMNS[place] for place in shown), Column("lock", None, "The lock that ran."))
    readable = {id_: run for id_, run in found.items() if not isinstance(run, BenchlockError)}
    listed = dict(zip(readable, list_run_rows(registry, readable.values()), strict=True))
    rows: list[tuple[Cell, ...]] = []
    for id_, run in found.items():
        if isinstance(run, BenchlockError):
            rows.append((id_, *(None,) * (len(shown) - 3), "unknown", run.what, None))
            continue
        row = [listed[id_][place] for place in shown]
        if isinstance(run, Run) and run.end is not None and run.end.failure_message:
            row[-1] = f"{row[-1]}: {shorten(run.end.failure_message, SUMMARY)}"
        rows.append((*row, run.start.lock if isinstance(run, Run) else None))
    return Table("runs", "Runs; each is compared with the first", columns, tuple(rows))


def _tabulate_findings(comparison: "Comparison") -> Table:

    rows: list[tuple[Cell, ...]] = [
        (
            name,
            finding.metric,
            finding.ratio.value,
            finding.ratio.ci.low,
            finding.ratio.ci.high,
            finding.noise_floor,
            finding.margin,
            finding.answer + format_mark(is_reported=finding.self_reported),
        )
        for name, findings in _name_findings(comparison)
        for finding in findings
    ]
    how = "interleaved" if comparison.interleaved else "not interleaved"
    title = f"Ratios to system 1, {name_arm(comparison, comparison.arms[0])}; the runs are {how}"
    return Table("findings", title, _FINDINGS, tuple(rows))


def _name_findings(comparison: "Comparison") -> "Iterator[tuple[str, Sequence[Finding]]]":
    """Yield the findings on each further system with its name; the first one has number 1."""
    for number, (arm, findings) in enumerate(comparison.findings, 2):
        yield f"{number}: {name_arm(comparison, arm)}", findings


def _list_answers(comparison: "Comparison") -> Iterator[str]:
    """Yield each answer with its reason, and the metrics that have both, each with its change."""
    for name, findings in _name_findings(comparison):
        metrics: dict[tuple[str, str], list[str]] = {}
        for finding in findings:
            change, reason = match.groups() if (match := _CHANGE.fullmatch(finding.reason)) else ("", finding.reason)
            metrics.setdefault((finding.answer, reason), []).append(f"{finding.metric} {change}".rstrip())
        yield from (f"{name}: {answer}: {', '.join(of)}: {reason}" for (answer, reason), of in metrics.items())


def _tabulate_results(comparison: "Comparison") -> Table:
    """Return a row for each metric and a column for each lock, or each run of a single lock."""
    arms = [arm for arm in comparison.arms if not arm.control]
    cells = [format_metrics(arm) for arm in arms]
    metrics = dict.fromkeys(name for arm in cells for name in arm)
    runs = [arm.runs[0].id if len(arm.runs) == 1 else f"{len(arm.runs)} runs" for arm in arms]
    rows: list[tuple[Cell, ...]] = [
        ("framework", *(f"{arm.lock.framework.name} {arm.lock.framework.version}" for arm in arms)),
        ("runs", *runs),
        *((name, *(arm.get(name) for arm in cells)) for name in metrics),
        ("LoadGen", *(format_verdicts(arm) or None for arm in arms)),
        ("flagged", *(format_flags(arm) or None for arm in arms)),
    ]
    rows = [row for row in rows if any(row[1:])]
    names = (f"{number}: {name_arm(comparison, arm)}" for number, arm in enumerate(arms, 1))
    columns = (Column("metric"), *map(Column, names))
    return Table(_MEASURED, "Results side by side, with 95 % intervals", columns, tuple(rows))


def _stamp(table: Table) -> Table:
    """Return a table that says in each row that its runs are not comparable."""
    columns = (*table.columns, Column("comparable", None, "Whether the runs are comparable."))
    return replace(
        table, title=f"{_STAMP}: {table.title}", columns=columns, rows=tuple((*row, "no") for row in table.rows)
    )


def _stamp_section(section: Section) -> Section:
    """Return a section whose question, charts and table say that its runs are not comparable."""
    charts = tuple(
        replace(
            chart,
            description=f"{_STAMP}: {chart.description}",
            height=chart.height + _STRIP,
            elements=(*chart.elements, text(16, chart.height + 4, _STAMP, size=LARGE)),
        )
        for chart in section.charts
    )
    table = None if section.table is None else _stamp(section.table)
    return replace(section, question=f"{_STAMP}: {section.question}", charts=charts, table=table)
