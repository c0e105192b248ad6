"""The commands ``inspect`` and ``trace export``: what a traced run spent its time on, and its trace for viewers."""

from pathlib import Path

import click

from benchlock.api.cli import output
from benchlock.api.cli.analysis_tables import print_tables
from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.run_options import complete_run_id, read_lock, suggest_targets
from benchlock.artifacts.atomic_files import create_file
from benchlock.artifacts.user_output import format_bytes
from benchlock.evaluator.analysis.exports.formats import EXPORTS
from benchlock.evaluator.analysis.inspection import analyze, parse_analyses
from benchlock.evaluator.analysis.roofline import tabulate_roofs
from benchlock.evaluator.analysis.table_formats import table_document
from benchlock.evaluator.analysis.tables import Table
from benchlock.evaluator.records.run_types import parse_run_id
from benchlock.evaluator.workflows.run_traces import (
    check_same_model,
    describe_subject,
    read_run_trace,
    record_roofs,
)

_TOP = 10


@click.command()
@click.argument(
    "runs",
    metavar="RUN [RUN...]",
    nargs=-1,
    required=True,
    shell_complete=suggest_targets,
    callback=complete_run_id,
    help="Traced run; further runs of the model add batch sizes to A1 and A15.",
)
@click.option(
    "--analysis",
    metavar="NAME[,NAME...]|all",
    default="",
    help="Analyses: A1 to A15, overhead, cold-start, counters; default: A2,A6,overhead.",
)
@click.option("--top", type=click.IntRange(min=1), help="Largest rows of A2, A3, A4, A8 and A10; default: 10 of A2.")
@click.option("--roof", is_flag=True, help="Measure the roofs of this host for rooflines, once (5 seconds).")
@click.pass_obj
def inspect(invocation: Invocation, runs: tuple[str, ...], analysis: str, top: int | None, *, roof: bool) -> None:
    """Show layers, kernels and the cost of tracing of a run.

    The request of the run needs `trace: framework`, `system` or `full`.

    Example: benchlock inspect run/01kam1v3mz4w0q3d5g7h9j2k4m --analysis A2,A6 --top 5
    """
    tables = list(_analyze(invocation, runs, analysis, top, roof=roof))
    if invocation.as_json:
        output.print_json({"runs": list(runs), "tables": [table_document(table) for table in tables]})
    else:
        print_tables(tables)


def _analyze(
    invocation: Invocation, runs: tuple[str, ...], analysis: str, top: int | None, *, roof: bool
) -> tuple[Table, ...]:
    """Perform the analyses of runs, the first of which is the subject."""
    names, store = parse_analyses(analysis), invocation.opened.store
    recorded = [invocation.opened.records.get(parse_run_id(text)) for text in runs]
    locks = [read_lock(invocation, run.start.lock) for run in recorded]
    first, lock, host = recorded[0], locks[0], recorded[0].start.host
    traces = [read_run_trace(run, lock, store) for run, lock in zip(recorded, locks, strict=True)]
    check_same_model(locks, traces)
    home, threads = invocation.opened.home, traces[0].header.threads
    if roof:
        with invocation.progress.task("measuring the roofs of this host"):
            record_roofs(home, host, threads)
    subject = describe_subject(first, lock, store, home, traces)
    tables = analyze(subject, names, top or (None if analysis else _TOP))
    return (*tables, tabulate_roofs(subject.roofs)) if roof and subject.roofs else tables


@click.group(no_args_is_help=False)
def trace() -> None:
    """Export traces of runs to viewers."""


@trace.command("export")
@click.argument(
    "run", metavar="RUN", shell_complete=suggest_targets, callback=complete_run_id, help="Run id, as listed by `runs`."
)
@click.option(
    "--format",
    "trace_format",
    type=click.Choice(list(EXPORTS)),
    default="chrome",
    show_default=True,
    help="Format of the file.",
)
@click.option(
    "-o", "--output", "path", metavar="FILE", type=click.Path(path_type=Path), required=True, help="File to write."
)
@click.pass_obj
def export_trace(invocation: Invocation, run: str, trace_format: str, path: Path) -> None:
    """Write the trace of a run to a file for a viewer.

    Perfetto (ui.perfetto.dev) and chrome://tracing open `chrome` and `perfetto`, speedscope.app `chrome` and
    `speedscope`, OpenTelemetry collectors `otlp`, and flame graph tools `folded`.

    Example: benchlock trace export run/01kam1v3mz4w0q3d5g7h9j2k4m --format chrome -o digits.json
    """
    recorded = invocation.opened.records.get(parse_run_id(run))
    found = read_run_trace(recorded, read_lock(invocation, recorded.start.lock), invocation.opened.store)
    with create_file(path) as file:
        for chunk in EXPORTS[trace_format](found, recorded.id):
            file.write(chunk)
        size = file.tell()
    spans = sum(experiment.durations.size for experiment in found.experiments.values())
    if invocation.as_json:
        output.print_json(
            {"run": recorded.id, "path": str(path), "format": trace_format, "bytes": size, "spans": spans}
        )
    else:
        output.echo(f"{path}: {format_bytes(size)}, {spans} spans of {recorded.id}")
