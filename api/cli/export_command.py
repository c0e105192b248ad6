"""The ``export`` command: a verified run in the format of another tool."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from benchlock.api.cli import output
from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.output import say
from benchlock.api.cli.run_options import complete_run_id, read_lock
from benchlock.api.export.exported_run import ExportedRun, export_run
from benchlock.api.export.mlflow_run import EXPERIMENT, log_to_mlflow
from benchlock.api.export.provenance_statement import format_statement
from benchlock.api.export.submission_folder import write_submission
from benchlock.api.export.text_formats import FORMATS, select_metrics
from benchlock.artifacts.atomic_files import create_file
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.user_output import format_count
from benchlock.evaluator.records.run_types import Run, parse_run_id
from benchlock.registry.lock.lockfile import Lock

_MLFLOW, _SUBMISSION, _STATEMENT = "mlflow", "mlperf", "in-toto"


@dataclass(frozen=True, slots=True)
class _ExportOptions:
    """The options of the command by name."""

    export_format: str
    path: str
    metrics: tuple[str, ...]
    experiment: str
    submitter: str
    benchmark: str


@click.command()
@click.argument("run", metavar="RUN", callback=complete_run_id, help="Run id, as listed by `runs`.")
@click.option(
    "--format",
    "export_format",
    type=click.Choice([*FORMATS, _MLFLOW, _SUBMISSION, _STATEMENT]),
    default="json",
    show_default=True,
    help="Format of the export.",
)
@click.option("-o", "--output", "path", metavar="FILE", default="", help="File or, of mlperf, folder to write.")
@click.option("--metric", "metrics", metavar="METRIC", multiple=True, help="Only this metric; repeatable.")
@click.option("--experiment", default=EXPERIMENT, show_default=True, help="Experiment of MLflow.")
@click.option("--submitter", default="", help="Name of the submitter in the folder of mlperf.")
@click.option("--benchmark", default="", help="MLCommons' benchmark that the model implements, of mlperf.")
@click.pass_obj
def export(invocation: Invocation, /, run: str, **options: Any) -> None:  # noqa: ANN401 - the fields of _ExportOptions
    """Export a verified run for other tools.

    The evidence of the run is read again first. A run whose evidence is damaged or not verified is not exported.

    Example: benchlock export run/01kam1v3mz4w0q3d5g7h9j2k4m --format model-card -o results.md
    """
    settings = _ExportOptions(**options)
    recorded = invocation.opened.records.get(parse_run_id(run))
    lock = read_lock(invocation, recorded.start.lock)
    exported = select_metrics(
        export_run(recorded, lock, invocation.opened.store, invocation.progress), settings.metrics
    )
    if settings.export_format == _SUBMISSION:
        _export_submission(invocation, recorded, lock, exported, settings)
        return
    if settings.export_format == _MLFLOW:
        logged = log_to_mlflow(exported, settings.experiment)
        if invocation.as_json:
            output.print_json(logged)
        else:
            verb = "logged" if logged.created else "already logged"
            output.echo(f"{exported.run}: {verb} as run {logged.run_id} in {logged.tracking_uri}")
        return
    if settings.export_format == _STATEMENT:
        if settings.metrics:
            raise InvalidInputError("a statement has no metrics", where="--metric", next_step="omit --metric")
        text = format_statement(recorded, lock)
    else:
        text = FORMATS[settings.export_format](exported)
    if not settings.path:
        output.print_text(text)
        return
    with create_file(Path(settings.path)) as file:
        file.write(text.encode())
    content = "provenance" if settings.export_format == _STATEMENT else format_count(len(exported.metrics), "metric")
    say(f"{settings.path}: {content} of {exported.run}")


def _export_submission(
    invocation: Invocation, run: Run, lock: Lock, exported: ExportedRun, settings: _ExportOptions
) -> None:
    if not settings.path or not settings.submitter:
        raise InvalidInputError(
            "the format mlperf needs a folder and the name of the submitter", next_step="add -o DIR --submitter NAME"
        )
    names = (settings.submitter, settings.benchmark)
    place = write_submission(run, lock, exported, invocation.opened.store, Path(settings.path), names)
    say(f"{place}: submission folder of {run.id}; not an MLPerf result")
