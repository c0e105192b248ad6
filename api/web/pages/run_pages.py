"""The pages of runs: the list, one run with its results, evidence and report, and its wrong samples."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from typing import Any, Final, get_args

from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.schemas.pagination_cursors import decode_cursor, encode_cursor
from benchlock.api.web.choices import list_lock_isolations, list_run_options
from benchlock.api.web.links import (
    compare_path,
    comparison_path,
    find_downloads,
    job_path,
    name_run_file,
    run_path,
    with_query,
)
from benchlock.api.web.page import Page
from benchlock.api.web.pages.queue_pages import LivePart, make_live
from benchlock.api.web.pages.verdict_pages import find_earlier
from benchlock.api.web.run_lists import RUN_COLUMNS, list_others, list_run_rows
from benchlock.artifacts.blob_store import read
from benchlock.artifacts.errors import BenchlockError
from benchlock.artifacts.user_output import format_count
from benchlock.evaluator.analysis.tables import Column, Table
from benchlock.evaluator.evidence.class_details import ClassDetails, read_classes
from benchlock.evaluator.evidence.wrong_samples import WrongSamples, find_wrong_samples
from benchlock.evaluator.harness_releases import is_released
from benchlock.evaluator.queue.queue_types import Job
from benchlock.evaluator.queue.sql_queue import SqlQueue
from benchlock.evaluator.records.comparison_types import read_turn
from benchlock.evaluator.records.evidence_status import SCRATCH, EvidenceStatus
from benchlock.evaluator.records.resource_texts import describe_resources
from benchlock.evaluator.records.run_texts import (
    describe_extent,
    describe_load_generation,
    describe_question,
    describe_subject,
    describe_surroundings,
    format_interval,
    format_metric,
    list_footnotes,
    name_question,
    select_main_metrics,
)
from benchlock.evaluator.records.run_types import ALL_RUNS, Outcome, Run, RunEnd, RunFilter, RunId, parse_run_id
from benchlock.evaluator.records.time_texts import list_time_notes
from benchlock.evaluator.records.timing_validity import (
    calls_of,
    describe_clocks,
    explain_unusable_times,
    list_flags,
    validity_of,
)
from benchlock.evaluator.report.leaderboards import SINGLE_RUNS
from benchlock.evaluator.report.report_files import make_report
from benchlock.evaluator.report.sections import list_charts
from benchlock.evaluator.report.single_run import chart_confusion, tabulate_calls
from benchlock.evaluator.report.systems import group_systems
from benchlock.evaluator.statistics.metric_types import Metric, format_value
from benchlock.evaluator.workflows import run_traces
from benchlock.evaluator.workflows.claim_verdicts import claims_of
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.manifests.metric_definitions import is_quality

RUNS: Final = 30
SAMPLES: Final = 50
"""The number of wrong samples of a page; CSV and JSON have all that are listed."""
_LOG_LINES: Final = 200
_TEX: Final = {
    **{character: f"\\{character}" for character in "&%$#_"},
    "{": "(",
    "}": ")",
    "\\": "/",
    "~": "\\textasciitilde ",
    "^": "\\textasciicircum ",
}
_REFRESH: Final = 5
_METRICS: Final = (
    Column("metric", None, "The name of the metric."),
    Column("value", None, "In its unit."),
    Column("unit", None, "The unit of the value and of the interval."),
    Column("low", None, "Lower end of the 95 % interval."),
    Column("high", None, "Upper end of the 95 % interval."),
    Column("over", None, "What the interval covers."),
    Column("n", None, "Number of samples or calls."),
)
_SHOWN_METRICS: Final = tuple(column for column in _METRICS if column.name != "unit")
_CLAIMS: Final = (
    Column("metric", None, "The metric."),
    Column("stated", None, "What the author states."),
    Column("verdict", None, "Whether the claim holds."),
    Column("reason", None, "Why."),
)
_CLASSES: Final = (
    Column("label", None, "The label of the dataset."),
    Column("samples", None, "Samples with this label."),
    Column("predicted", None, "Samples that were decided so."),
    Column("right", None, "Both."),
    Column("recall", "fraction", "right / samples"),
    Column("precision", "fraction", "right / predicted"),
    Column("f1", "fraction", "Their harmonic mean."),
)
_CONFUSION: Final = (
    Column("label", None, "The label of the dataset."),
    Column("predicted as", None, "The label that was decided; unknown where there was no decision."),
    Column("samples", None, "Number of samples."),
)
_SAMPLES: Final = (
    Column("index", None, "The index of the sample in the split, from 0."),
    Column("sample", None, "The name of the sample in the dataset."),
    Column("expected", None, "The label of the dataset."),
    Column("predicted", None, "What the model predicted; unknown where it decided nothing."),
)
_SCORES: Final = (
    Column("score of predicted", None, "The model's score of the predicted class; unknown without scores."),
    Column("score of expected", None, "The model's score of the label; unknown without a score of its own."),
)
_ERROR: Final = (Column("error", None, "The absolute difference between the prediction and the label."),)
_FILES: Final = (
    Column("role", None, "What the file is."),
    Column("size", "B", "Bytes."),
    Column("digest", None, "The digest of its bytes."),
)


FLAGS: Final = {"true": "flagged", "false": "not flagged"}
"""The values of ``flagged`` in the address of the list of runs, with their names."""


@dataclass(frozen=True, slots=True)
class RunQuery:
    """The state of the list of runs in its address; texts are as the reader wrote them."""

    model: str = ""
    operator: str = ""
    recipe: str = ""
    dataset: str = ""
    outcome: str = ""
    since: str = ""
    flagged: str = ""
    lock: str = ""
    cursor: str = ""

    def as_parameters(self) -> dict[str, str]:
        """Return the parameters without the cursor."""
        return {name: value for name, value in asdict(self).items() if name != "cursor"}


def make_runs(registry: LocalRegistry, query: RunQuery, chosen: RunFilter) -> Page:
    """Make a page of the list of runs, newest first.

    Args:
        registry: The registry.
        query: The filters as in the address.
        chosen: The same filters, parsed.
    """
    before = parse_run_id(decode_cursor(query.cursor, 1)[0]) if query.cursor else None
    runs, last = registry.records.list_some(chosen=chosen, before=before, limit=RUNS + 1)
    given = query.as_parameters()
    last = runs[RUNS - 1].id if len(runs) > RUNS else last
    cursor = "" if last is None else encode_cursor((last,))
    return Page(
        "runs",
        "Runs",
        {
            "chosen": query,
            "outcomes": get_args(Outcome),
            "flags": FLAGS,
            "is_filtered": chosen != ALL_RUNS,
            "next": with_query("/runs", **given, cursor=cursor) if cursor else None,
        },
        {"runs": Table("runs", "Runs, newest first", RUN_COLUMNS, list_run_rows(registry, runs[:RUNS]))},
        with_query("/v1/runs", **given, cursor=query.cursor),
    )


def make_run(registry: LocalRegistry, queue: SqlQueue, id_: RunId) -> Page:
    """Make the page of a run; while it runs, with the progress of its job.

    Args:
        registry: The registry.
        queue: Its queue.
        id_: The run.

    Raises:
        UnknownNameError: There is no such run.
    """
    run = registry.records.get(id_)
    lock = registry.read_lock(run.start.lock)
    outcome = "running" if run.end is None else run.end.outcome
    job = _find_job(queue, run)
    tables: dict[str, Table] = {}
    context: dict[str, Any] = {
        "run": run,
        "summary": f"{describe_subject(lock)}: {outcome}, {run.start.isolation} on {run.start.platform_name}",
        "live": _find_live(queue, run, lock) if run.end is None else None,
        "citation": f"{describe_subject(lock)}, harness {lock.harness.version}, {run.id}, lock {lock.id}",
        "bibtex": cite_run(run, lock),
        "notices": tuple(_list_notices(run, lock)),
        "notes": (),
        "is_flagged": explain_unusable_times(run) is not None,
        "shown": {},
        "log": _read_log(registry, run),
        "earlier": None if run.end is None else find_earlier(registry, run),
        "others": list_others(registry, lock, run),
        "compared": _find_comparison(registry, run, job),
        "job": "" if job is None or run.end is None else job_path(job.id),
        "sections": (),
        "section_tables": (),
        "confusion": None,
        "subject": tuple(describe_question(lock).items()),
        "surroundings": (*_name_machine(job), *describe_surroundings(run).items()),
        "resources": (),
        "evidence": "",
        "isolations": list_lock_isolations(registry, queue, lock, run.start.isolation),
        "options": list_run_options(registry, lock, run.start.isolation),
        "is_traced": run.end is not None and "trace" in run.end.blobs,
        "has_samples": run.end is not None and "predictions" in run.end.blobs and any(map(is_quality, lock.metrics)),
    }
    if run.end is not None:
        context["resources"] = (
            *describe_load_generation(run, run.end).items(),
            *describe_resources(run.end.details).items(),
        )
        context["evidence"] = _describe_evidence(run.evidence, run.end)
        rows = tuple((role, blob.size, blob.digest) for role, blob in sorted(run.end.blobs.items()))
        tables["files"] = Table("files", "Files of the run", _FILES, rows)
        context["downloads"] = find_downloads(registry.store, *_name_files(run, run.end))
        _add_results(registry, run, lock, context, tables)
    breadcrumbs = (("/runs", "Runs"),)
    title = name_question(lock)
    json_path = f"/v1{run_path(run.id)}"
    charts = (*list_charts(context["sections"]), *((context["confusion"],) if context["confusion"] else ()))
    refresh = _REFRESH if run.end is None else None
    return Page(
        "run", title, context, tables, json_path, breadcrumbs, refresh, charts, tuple(_caption_charts(run, lock))
    )


def _caption_charts(run: Run, lock: Lock) -> Iterator[str]:
    """Yield what a chart of a run must say where its page is not beside it."""
    yield describe_subject(lock)
    cpu = run.start.host.get("cpu_model", "unknown CPU")
    yield f"{run.id} on {run.start.platform_name}, {cpu}, {run.start.isolation}"
    yield from (notice[1] for notice in list_time_notices(run) if notice[0] == "bad")
    yield "Error bars, where drawn, are 95 % intervals."


def cite_run(run: Run, lock: Lock) -> str:
    """Return the BibTeX entry of a run without its address: the main results, the host, the run and the lock."""
    verified = run.end is not None and (run.evidence is None or run.evidence.state == "verified")
    metrics = run.end.metrics if run.end is not None and verified else ()
    results = [
        f"{metric.key} {format_metric(metric)}"
        + ("" if format_interval(metric) == "-" else f", 95 % interval {format_interval(metric)}")
        for metric in select_main_metrics(metrics)
    ]
    cpu = run.start.host.get("cpu_model", "unknown CPU")
    note = "; ".join([*results, f"on {run.start.platform_name}, {cpu}", run.id, f"lock {lock.id}"])
    fields = {
        "title": f"Evaluation of {describe_subject(lock)}",
        "year": str(run.start.started_at.year),
        "version": f"harness {lock.harness.version}",
        "note": note,
    }
    lines = (f"  {name} = {{{_escape_tex(value)}}},\n" for name, value in fields.items())
    return f"@misc{{benchlock-{run.id.removeprefix('run/')},\n{''.join(lines)}"


def _escape_tex(text: str) -> str:
    """Return a text whose characters mean themselves in BibTeX."""
    return "".join(_TEX.get(character, character) for character in " ".join(text.split()))


def make_samples(registry: LocalRegistry, id_: RunId, number: int = 1) -> Page:
    """Make a page of the list of the samples that a run predicted wrongly, the worst first.

    Args:
        registry: The registry.
        id_: The run.
        number: The number of the page, from 1.

    Raises:
        UnknownNameError: There is no such run.
        IsolatedFaultError: The samples cannot be read.
    """
    run = registry.records.get(id_)
    lock = registry.read_lock(run.start.lock)
    path = run_path(run.id)
    listed = _find_samples(registry, run, lock)
    columns = (*_SAMPLES, *(_SCORES if listed.has_classes else _ERROR))
    rows = tuple(sample[: len(columns)] for sample in listed.samples)
    table = Table("samples", "Wrong samples, the worst first", columns, rows)
    shown = replace(table, rows=table.rows[(number - 1) * SAMPLES : number * SAMPLES])
    has_more = len(table.rows) > number * SAMPLES
    summary = listed.reason or _summarize_samples(listed)
    context = {
        "subject": describe_subject(lock),
        "summary": summary,
        "shown": {"samples": shown},
        "next": with_query(f"{path}/samples", page=str(number + 1)) if has_more else "",
    }
    return Page(
        "samples",
        f"Wrong samples of {name_question(lock)}",
        context,
        {"samples": table},
        f"/v1{path}/samples",
        (("/runs", "Runs"), (path, run.id)),
        facts={"summary": summary, "wrong": listed.wrong, "total": listed.total},
    )


def _name_files(run: Run, end: RunEnd) -> tuple[list[str], dict[str, str]]:
    """Return the digests of the files of a run, and the names under which they are downloaded."""
    names = {str(blob.digest): name_run_file(run.id, role) for role, blob in end.blobs.items()}
    return list(names), names


def _find_samples(registry: LocalRegistry, run: Run, lock: Lock) -> WrongSamples:
    """Return the wrong samples of a run whose record matches its files; of others the reason why there are none."""
    if run.end is None or run.end.outcome != "done":
        return WrongSamples(reason="The run has no results.")
    if run.evidence is None or run.evidence.state != "verified":
        return WrongSamples(reason=_describe_evidence(run.evidence, run.end))
    return find_wrong_samples(lock, run, registry.store, registry.home / SCRATCH)


def _summarize_samples(listed: WrongSamples) -> str:
    """Return how many samples are wrong, and how many of them are listed."""
    wrong = f"{listed.wrong:,} of {listed.total:,} samples"
    order = "ordered by how far the score of the predicted class is above that of the label"
    sentence = f"{wrong} predicted wrongly, {order}."
    if not listed.has_classes:
        sentence = f"{wrong} with an error, the largest first."
    cut = f" The list has the first {len(listed.samples):,}." if len(listed.samples) < listed.wrong else ""
    return sentence + cut


def _find_live(queue: SqlQueue, run: Run, lock: Lock) -> LivePart | None:
    """Return the live part of a run in progress; None if no worker of this queue runs it."""
    job = queue.job_of_run(run.id)
    return (
        None
        if job is None
        else make_live(queue.live({job: None})[job], queue.job(job), lock, run, may_cancel=queue.may_cancel(job))
    )


def _find_job(queue: SqlQueue, run: Run) -> Job | None:
    """Return the job of a run; None for a run that was not queued here, or whose job was tried again."""
    id_ = queue.job_of_run(run.id)
    job = None if id_ is None else queue.job(id_)
    return job if job is not None and job.run == run.id else None


def _name_machine(job: Job | None) -> tuple[tuple[str, str], ...]:
    """Return the name of the worker's machine; nothing without a job."""
    return (("machine", job.machine),) if job is not None and job.machine is not None else ()


def _find_comparison(registry: LocalRegistry, run: Run, job: Job | None) -> tuple[str, str] | None:
    """Return the path of the interleaved comparison of a run, and the place of the run in it; None without one."""
    turn = read_turn(run)
    ids = () if turn is None else registry.records.list_compared(run.id, turn.id)
    if turn is None or run.id not in ids or len(ids) == 1:
        return None
    path = compare_path(ids) if job is None or job.part_of is None else comparison_path(turn.id)
    return (
        path,
        f"Run of an interleaved comparison, round {turn.round} of {turn.rounds}{', control' if turn.control else ''}",
    )


def _describe_evidence(status: EvidenceStatus | None, end: RunEnd) -> str:
    """Return what the comparison of a record with its files found, and what it covers."""
    if status is None:
        return "This record was not yet compared with its files."
    sentence = f"The record {status.sentence}."
    if status.state != "verified":
        return sentence
    count = sum(f"end.metrics.{metric.name}" not in status.reported for metric in end.metrics)
    return (
        f"{sentence} Checked: the digests of {format_count(len(end.blobs), 'file')}, and "
        f"{format_count(count, 'metric')} recomputed from them. Not recomputed, because only the host and the harness "
        f"know them: {format_count(len(status.reported), 'field')}, such as the packages and the facts of the host."
    )


def _add_results(
    registry: LocalRegistry, run: Run, lock: Lock, context: dict[str, Any], tables: dict[str, Table]
) -> None:
    """Add the metrics of a run; of a verified one also the claims of its model, and the report on it."""
    assert run.end is not None
    if run.end.metrics:
        tables["metrics"] = tabulate_metrics(run.end.metrics)
        context["shown"] = {"metrics": show_metrics(run.end.metrics)}
        is_timed = any(not is_quality(metric.name) and format_interval(metric) != "-" for metric in run.end.metrics)
        notes = list_footnotes(run.end.metrics, is_server=lock.scenario["name"] == "server")
        times = list_time_notes(run.end, str(lock.scenario["name"]))
        if calls := calls_of(run):
            tables["calls"] = tabulate_calls(run.end.metrics, calls)
        context["notes"] = (*times, *notes, *([SINGLE_RUNS] if is_timed else ()))
    if run.end.outcome == "done" and run.evidence is not None and run.evidence.state == "verified":
        try:
            sections = _report(registry, run, lock)
        except BenchlockError as error:
            context["notices"] += (("", f"There is no report on this run: {error.what}"),)
            return
        names = tuple(f"section-{number}" for number, _ in enumerate(sections, 1))
        context["sections"], context["section_tables"] = sections, names
        tables |= {name: part.table for name, part in zip(names, sections, strict=True) if part.table is not None}
        classes = read_classes(run.end.details)
        tables |= tabulate_classes(classes)
        context["confusion"] = chart_confusion(classes)
        tables["claims"] = _judge_claims(registry, run, lock)
        if not tables["claims"].rows:
            del tables["claims"]


def tabulate_metrics(metrics: Iterable[Metric]) -> Table:
    """Return metrics as plain numbers; an end of an interval that is not bounded is unknown."""
    rows = tuple(
        (metric.key, metric.value, metric.unit, metric.ci.low, metric.ci.high, describe_extent(metric), metric.n)
        for metric in metrics
    )
    return Table("metrics", "Metrics", _METRICS, rows)


def show_metrics(metrics: Iterable[Metric]) -> Table:
    """Return metrics as readers see them, each figure with its unit; of one value there is no interval."""
    rows = []
    for metric in metrics:
        ends = (format_value(end, metric.unit) for end in (metric.ci.low, metric.ci.high))
        low, high = ends if format_interval(metric) != "-" else (None, None)
        rows.append((metric.key, format_metric(metric), low, high, describe_extent(metric), metric.n))
    return Table("metrics", "Metrics, with the 95 % interval from low to high", _SHOWN_METRICS, tuple(rows))


def tabulate_classes(details: ClassDetails) -> dict[str, Table]:
    """Return the results of each class, and which classes were taken for which, the most frequent first."""
    classes = tuple((*each, each.recall, each.precision, each.f1) for each in details.per_class)
    wrong = sorted((cell for cell in details.confusion if cell[0] != cell[1]), key=lambda cell: -cell[2])
    tables = (
        Table(
            "classes", "Results by class", _CLASSES, classes, notes=(details.unavailable,) * bool(details.unavailable)
        ),
        Table("confusion", "Classes that were taken for others", _CONFUSION, tuple(wrong)),
    )
    return {table.id: table for table in tables if table.rows}


def _report(registry: LocalRegistry, run: Run, lock: Lock) -> tuple[Any, ...]:

    systems, warnings = group_systems([(lock, run)], registry.store)
    is_traced = run.end is not None and run_traces.ROLE in run.end.blobs
    subjects = (
        [(systems[0].name, run_traces.describe_subject(run, lock, registry.store, registry.home))] if is_traced else []
    )
    return make_report(systems, warnings, subjects, has_overview=False).sections  # here is one system


def _judge_claims(registry: LocalRegistry, run: Run, lock: Lock) -> Table:

    rows = tuple(
        (verdict.claim.metric, f"{verdict.claim.value:g} ± {verdict.claim.tolerance:g}", verdict.answer, verdict.reason)
        for verdict in claims_of(lock, run, registry.store)
        if verdict.possible
    )
    return Table("claims", "Claims of the model", _CLAIMS, rows)


def _list_notices(run: Run, lock: Lock) -> Iterator[tuple[str, ...]]:
    """Yield what a reader must know before all else: the class of its mark, and paragraphs."""
    if run.end is None:
        yield "", "The run is in progress, or its host lost it. This page renews itself until the run ends."
    elif run.end.outcome == "failed":
        yield "bad", f"{run.end.failure_class}: {run.end.failure_message}"
    elif run.end.outcome != "done":
        yield "bad", f"The run was {run.end.outcome}, so it has no results."
    if run.hidden is not None:
        reason = run.hidden.reason or "no reason given"
        yield "bad", f"Hidden from all but administrators since {run.hidden.at:%Y-%m-%d}: {reason}"
    if run.evidence is not None and run.evidence.state != "verified":
        yield "bad", f"Metrics are withheld: the record {run.evidence.sentence}"
    if not is_released(lock.harness):
        yield "", f"Harness {lock.harness.version} is not a released harness: all metrics are self-reported."
    yield from list_time_notices(run)


def list_time_notices(run: Run) -> Iterator[tuple[str, ...]]:
    """Yield whether the times of a run are usable, with causes and next steps, and below that LoadGen's verdict.

    Each is the class of its mark, and paragraphs.
    """
    if clocks := describe_clocks(run):
        yield "bad", f"Times are unusable: {clocks.cause}", clocks.advice
    yield from (("bad", f"Flagged: {flag.cause}", flag.advice) for flag in list_flags(run))
    validity = validity_of(run)
    if validity is not None and validity.valid:
        is_usable = explain_unusable_times(run) is None
        yield "good" if is_usable else "neutral", f"LoadGen's own rules were met ({validity.words})"
    elif validity is not None:
        advice = (f"Next: {validity.next_step}.",) if validity.next_step else ()
        yield "bad", f"LoadGen result: {validity.words}", *advice


def _read_log(registry: LocalRegistry, run: Run) -> str:
    """Return the last lines of the log of a run that failed; empty for others, or if it cannot be read."""
    if run.end is None or run.end.outcome != "failed" or "log" not in run.end.blobs:
        return ""
    try:
        content = read(registry.store, run.end.blobs["log"].digest, name=f"{run.id} log")
    except BenchlockError:
        return ""
    return "\n".join(content.decode(errors="replace").splitlines()[-_LOG_LINES:])
