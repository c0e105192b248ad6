"""Text output of runs, their metrics, claims and golden tensors."""

import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from benchlock.api.cli import output
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.user_output import escape_line, format_bytes, format_count
from benchlock.evaluator.evidence.class_details import read_classes
from benchlock.evaluator.evidence.distributed.rank_details import (
    COLUMNS,
    describe_ranks,
    list_rank_rows,
    read_rank_details,
)
from benchlock.evaluator.evidence.networks.network_texts import describe_network
from benchlock.evaluator.harness_releases import is_released
from benchlock.evaluator.records.resource_texts import describe_resources
from benchlock.evaluator.records.run_texts import (
    describe_extent,
    describe_load_generation,
    describe_question,
    describe_subject,
    describe_surroundings,
    format_interval,
    format_mark,
    format_metric,
    format_price,
    list_footnotes,
    list_remarks,
    select_headline,
)
from benchlock.evaluator.records.run_types import DamagedRun, Run, RunEnd
from benchlock.evaluator.records.timing_validity import (
    CLOCKS_DISAGREE,
    Flag,
    ObservedTimes,
    calls_of,
    clocks_disagree,
    find_observed_times,
    flag_of,
    list_early_stopping,
    list_flags,
    validity_of,
)
from benchlock.evaluator.statistics.metric_types import Calls, Metric, format_duration, format_value
from benchlock.registry.lock.lockfile import Lock, describe_dataset
from benchlock.registry.manifests.metric_definitions import COST, DEFINITIONS

if TYPE_CHECKING:
    from benchlock.evaluator.workflows.claim_verdicts import ClaimVerdict
    from benchlock.evaluator.workflows.repeat import Repetition


def golden_summary(report: Mapping[str, object]) -> str:
    """Format the number of checked samples; the failure of a run describes a sample that deviates."""
    return f"{format_count(report.get('samples'), 'sample')}, all within the tolerance"


def golden_lines(report: Mapping[str, object]) -> Iterator[str]:
    """Format each checked input and output: the largest difference and the tolerance.

    Records of other versions in another form are skipped.
    """
    for kind in ("input", "output"):
        ports = report.get(f"{kind}s")
        for name, port in ports.items() if isinstance(ports, dict) else ():
            if isinstance(port, dict) and isinstance(port.get("largest"), int | float):
                yield f"{kind} {name}: maximum difference {port['largest']:.6g}{_format_tolerance(port)}"


def _format_tolerance(port: Mapping[str, object]) -> str:
    """Format a tolerance, empty if it was not recorded, as by older harnesses."""
    absolute, relative = port.get("absolute"), port.get("relative")
    if not isinstance(absolute, int | float) or not isinstance(relative, int | float):
        return ""
    return f" (tolerance {absolute:g} + {relative:g} * |expected|)"


_WIDTH = 100
_SHORT_ID = len("sha256:") + 8
_LAST_LINES = 20


def print_outcome(run: Run, lock: Lock | None = None) -> None:
    """Print how a run ended, LoadGen's verdict, its metrics, and disturbances of its calls."""
    end = run.end
    where = f"{run.start.isolation} on {run.start.platform_name}"
    outcome = "running" if end is None else end.outcome
    output.echo(f"{run.id}  {outcome}  {where}", outcome)
    if run.hidden is not None:
        output.echo(f"  hidden from all but administrators since {run.hidden.at:%Y-%m-%d}: {run.hidden.reason}")
    if lock is not None:
        output.echo(f"  {describe_subject(lock)}")
    if end is None:
        return
    if end.outcome == "failed":
        output.echo(f"  {end.failure_class}: {end.failure_message}")
    print_evidence(run)
    if lock is not None and not is_released(lock.harness):
        output.echo_wrapped(
            f"  harness {lock.harness.version} is not a released harness: all metrics are self-reported"
        )
    validity = validity_of(run)
    if validity is not None:
        output.echo_wrapped(f"  LoadGen result: {validity.words}")
    for stopping in list_early_stopping(run):
        if stopping.words:
            output.echo_wrapped(f"  LoadGen early stopping, {stopping.phase}: {stopping.words}")
    _print_metrics_and_notes(run, end, lock)
    _print_observed(find_observed_times(run))
    calls = calls_of(run)
    if calls is not None:
        print_calls(calls, list_flags(run))


def _print_metrics_and_notes(run: Run, end: RunEnd, lock: Lock | None) -> None:
    """Print all metrics, and why times are unusable."""
    if clocks_disagree(run):
        output.echo_wrapped(f"  times are unusable: {CLOCKS_DISAGREE}")
    if end.metrics:
        output.echo()
        print_metrics("metric", end.metrics)
        if lock is not None and (finding := describe_network(end, lock)) is not None:
            output.echo_wrapped(finding)
        for note in list_footnotes(end.metrics, is_server=lock is not None and lock.scenario["name"] == "server"):
            output.echo(note)
        if lock is not None and any(metric.name == COST for metric in end.metrics):
            output.echo_wrapped(format_price(lock.request.get("price")))


def _print_observed(observed: ObservedTimes | None) -> None:
    """Print the runner's bounds of self-reported times, if there are any."""
    if observed is None:
        return
    cpu = "" if observed.cpu_seconds is None else f" and {format_duration(observed.cpu_seconds)} of CPU"
    line = f"observed by the runner: {format_duration(observed.seconds)}{cpu}, model start included"
    if observed.queries is not None and observed.seconds_a_query is not None:
        each = format_duration(observed.seconds_a_query)
        line += f"; {observed.queries} queries (self-reported), so at most {each} per query"
    output.echo()
    output.echo_wrapped(line)


def print_evidence(run: Run) -> None:
    """Print why metrics are withheld, if the record differs from its evidence."""
    if (evidence := run.evidence) is not None and evidence.state != "verified":
        output.echo_wrapped(f"  metrics withheld: the record {evidence.predicate}")
        for reason in evidence.reasons:
            output.echo_wrapped(f"    {reason}")


def print_metrics(title: str, metrics: Iterable[Metric]) -> None:
    """Print one row per metric."""
    rows = [
        (metric.key, format_metric(metric), format_interval(metric), describe_extent(metric), str(metric.n))
        for metric in metrics
    ]
    output.print_table((title, "value", "95 % interval", "over", "n"), rows)


def print_calls(calls: Calls, flags: Iterable[Flag]) -> None:
    """Print the latencies of undisturbed calls, the CPU time of all, and why the run is flagged."""
    reported = format_mark(is_reported=any(metric.self_reported for metric in (*calls.undisturbed, *calls.cpu_time)))
    disturbed = f"{calls.preempted} of {calls.n} calls were pre-empted ({calls.share:.1%}){reported}"
    if calls.without_cpu is not None:
        disturbed += f", off-CPU for {calls.without_cpu:.1%} of call time"
    output.echo()
    output.echo(f"{disturbed}; undisturbed calls, and CPU time of all calls:")
    print_metrics(f"per call, by {calls.scope}", (*calls.undisturbed, *calls.cpu_time))
    if calls.undelayed:
        print_metrics("without the host's delay", calls.undelayed)
    for flag in flags:
        output.echo_wrapped(f"flagged: {flag.cause}: {flag.meaning}, so timings are unreliable")


def print_repetition(repetition: "Repetition", lock: Lock) -> None:
    """Print the metrics over several runs, the width of their intervals, and why the repetition ended."""
    output.echo(f"{format_count(len(repetition.runs), 'run')}: {repetition.reason}")
    output.echo(f"  {describe_subject(lock)}")
    output.echo()
    rows = [
        (
            entry.metric.key,
            format_metric(entry.metric),
            format_interval(entry.metric),
            f"{entry.width:.2%}" if math.isfinite(entry.width) else "-",
            "-" if entry.wanted is None else f"{entry.wanted:.2%}",
        )
        for entry in repetition.metrics
    ]
    output.print_table(("metric", "over runs", "95 % interval", "±", "requested"), rows)
    if any(entry.metric.ci.low is None and math.isinf(entry.width) for entry in repetition.metrics):
        output.echo("-: too few runs to estimate the spread; at least 6 are needed (--repeat 6)")
    for run in repetition.runs:
        if flag := flag_of(run):
            output.echo_wrapped(f"flagged: {run.id}: {flag}")
        if clocks_disagree(run):
            output.echo_wrapped(f"times unusable: {run.id}: {CLOCKS_DISAGREE}")
        validity = validity_of(run)
        if validity is not None and not validity.valid:
            output.echo_wrapped(f"LoadGen result of {run.id}: {validity.words}")


def print_wall(account: Mapping[str, float]) -> None:
    """Print how long the command took, and with --verbose each part of it."""
    output.echo()
    output.echo(f"wall clock: {format_duration(sum(account.values()))}")
    if output.settings.verbosity >= output.VERBOSE:
        output.print_fields({f"  {name.replace('.', ': ')}": format_duration(time) for name, time in account.items()})


def print_run(run: Run, lock: Lock, log: str | None) -> None:
    """Print a run's settings, host, durations and blobs; ``log`` is the output of a failed run."""
    end = run.end
    if log is not None:
        output.echo()
        output.echo(f"last lines of its log (complete log: benchlock get {run.id})")
        output.echo_quoted(log.splitlines()[-_LAST_LINES:])
    _fields("request", describe_question(lock))
    _fields("environment", describe_surroundings(run))
    if end is None:
        return
    if run.evidence is not None and run.evidence.state == "verified":
        reported = ", ".join(run.evidence.reported)
        _section("metrics were recomputed from the blobs below; reported, not recomputed:", _wrap_text(reported))
    title = "durations; phases timed by the harness are self-reported" if end.times_self_reported else "durations"
    _fields(title, {name.replace("_", " "): format_duration(spent) for name, spent in end.timings.items()})
    _fields("load generation", describe_load_generation(run, end))
    _fields("resources; those of the timed calls are reported by the harness", describe_resources(end.details))
    _print_classes(end)
    _print_ranks(end)
    golden = end.details.get("golden")
    if isinstance(golden, dict) and isinstance(golden.get("samples"), int):
        _section(f"golden tensors: {golden_summary(golden)}", tuple(golden_lines(golden)))
    blobs = {role: f"{format_bytes(blob.size)}  {blob.digest}" for role, blob in end.blobs.items()}
    _fields(f"blobs (to write them to files: benchlock get {run.id})", blobs)
    packages = ", ".join(f"{name} {version}" for name, version in sorted(end.packages.items()))
    _section("packages", _wrap_text(" ".join(escape_line(packages).split())))


def _wrap_text(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, break_on_hyphens=False)


_SHOWN_CLASSES = 20


def _print_classes(end: RunEnd) -> None:
    """Print the results of each class, and the greatest cells of the confusion matrix, if the record has them."""
    found = read_classes(end.details)
    if found.unavailable:
        output.echo()
        output.echo(f"results of classes are incomplete: {found.unavailable}")
    if not found.per_class:
        return
    output.echo()
    rows = [
        (*map(str, each), *(format_value(share, "fraction") for share in (each.recall, each.precision, each.f1)))
        for each in found.per_class[:_SHOWN_CLASSES]
    ]
    output.print_table(("label", "samples", "predicted", "right", "recall", "precision", "F1"), rows)
    if len(found.per_class) > _SHOWN_CLASSES:
        output.echo(f"and {len(found.per_class) - _SHOWN_CLASSES} more labels (--json has all)")
    confused = sorted((cell for cell in found.confusion if cell[0] != cell[1]), key=lambda cell: -cell[2])
    if confused:
        output.echo()
        cells = [(str(label), "-" if other is None else str(other), str(n)) for label, other, n in confused]
        output.print_table(("label", "predicted as", "samples"), cells[:_SHOWN_CLASSES])


def _print_ranks(end: RunEnd) -> None:
    """Print a row for each rank of a distributed training, and the finding on them."""
    details = read_rank_details(end.details)
    if details is not None:
        output.echo()
        output.print_table(COLUMNS, list(list_rank_rows(details)))
        for line in _wrap_text(describe_ranks(details)):
            output.echo(line)


def _fields(title: str, fields: Mapping[str, str]) -> None:
    if fields:
        output.echo()
        output.echo(title)
        output.print_fields({f"  {name}": value for name, value in fields.items()})


def _section(title: str, lines: Sequence[str]) -> None:
    if lines:
        output.echo()
        output.echo(title)
        for line in lines:
            output.echo(f"  {line}")


def print_runs(runs: Sequence[Run | DamagedRun], locks: Mapping[Digest, Lock | None]) -> None:
    """Print one row per run: versions, outcome, first metrics and remarks."""
    rows = []
    for run in runs:
        if isinstance(run, DamagedRun):
            rows.append((run.id, "-", "-", "-", "-", "damaged", "withheld", textwrap.shorten(run.damage, _WIDTH)))
            continue
        lock = locks.get(run.start.lock)
        rows.append((
            run.id,
            f"{run.start.started_at:%Y-%m-%d %H:%M}",
            "-" if lock is None else f"{lock.subject.name} {lock.subject.version}",
            "-" if lock is None else describe_dataset(lock),
            run.start.lock[:_SHORT_ID],
            "running" if run.end is None else run.end.outcome,
            ", ".join(select_headline(run)),
            "; ".join(list_remarks(run)),
        ))  # fmt: skip
    output.print_table(("run", "started (UTC)", "model", "dataset", "lock", "outcome", "metrics", "remarks"), rows)


def print_claims(claim_verdicts: "Sequence[ClaimVerdict]") -> None:
    """Print the answer to each claim with its interval, then the claims that the scenario cannot measure."""
    if not claim_verdicts:
        return
    output.echo()
    possible, impossible = (
        [claim_verdict for claim_verdict in claim_verdicts if claim_verdict.possible],
        [claim_verdict for claim_verdict in claim_verdicts if not claim_verdict.possible],
    )
    if possible:
        output.print_table(
            ("claim", "stated", "measured", "verdict"), [_claim_row(claim_verdict) for claim_verdict in possible]
        )
    reasons: dict[tuple[str, str], list[str]] = {}
    for claim_verdict in possible:
        if claim_verdict.answer != "holds":
            reasons.setdefault((claim_verdict.answer, claim_verdict.reason), []).append(claim_verdict.claim.metric)
    for (answer, reason), metrics in reasons.items():
        names = ", ".join(dict.fromkeys(metrics))
        output.echo_wrapped(f"  {names}: {answer}: {output.append_commands(reason)}", answer)
    if impossible:
        names = ", ".join(dict.fromkeys(claim_verdict.claim.metric for claim_verdict in impossible))
        output.echo_wrapped(f"  not measured by this scenario: {names}")


def _claim_row(claim_verdict: "ClaimVerdict") -> tuple[str, str, str, str]:
    claim, measured = claim_verdict.claim, claim_verdict.measured
    unit = DEFINITIONS[claim.metric].unit if claim.metric in DEFINITIONS else ""
    stated = f"{format_value(claim.value, unit)} ± {format_value(claim.tolerance, unit)}"
    value = "-" if measured is None else f"{format_metric(measured)} {format_interval(measured)}"
    return claim.metric, stated, value, claim_verdict.answer
