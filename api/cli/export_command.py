"""The ``export`` command: a verified run in the format of another tool."""

from pathlib import Path

import click

from benchlock.api.cli import output
from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.output import say
from benchlock.api.cli.run_options import complete_run_id, read_lock
from benchlock.api.export.exported_run import export_run
from benchlock.api.export.mlflow_run import EXPERIMENT, log_to_mlflow
from benchlock.api.export.text_formats import FORMATS, select_metrics
from benchlock.artifacts.atomic_files import create_file
from benchlock.artifacts.user_output import format_count
from benchlock.evaluator.records.run_types import parse_run_id

_MLFLOW = "mlflow"


@click.command()
@click.argument("run", metavar="RUN", callback=complete_run_id, help="Run id, as listed by `runs`.")
@click.option(
    "--format",
    "export_format",
    type=click.Choice([*FORMATS, _MLFLOW]),
    default="json",
    show_default=True,
    help="Format of the export.",
)
@click.option("-o", "--output", "path", metavar="FILE", default="", help="File to write; default: standard output.")
@click.option("--metric", "metrics", metavar="METRIC", multiple=True, help="Only this metric; repeatable.")
@click.option("--experiment", default=EXPERIMENT, show_default=True, help="Experiment of MLflow.")
@click.pass_obj
def export(
    invocation: Invocation, run: str, export_format: str, path: str, metrics: tuple[str, ...], experiment: str
) -> None:
    """Export a verified run for other tools.

    The evidence of the run is read again first. A run whose evidence is damaged or not verified is not exported.

    Example: benchlock export run/01kam1v3mz4w0q3d5g7h9j2k4m --format model-card -o results.md
    """
    recorded = invocation.opened.records.get(parse_run_id(run))
    lock = read_lock(invocation, recorded.start.lock)
    exported = select_metrics(export_run(recorded, lock, invocation.opened.store, invocation.progress), metrics)
    if export_format == _MLFLOW:
        logged = log_to_mlflow(exported, experiment)
        if invocation.as_json:
            output.print_json(logged)
        else:
            verb = "logged" if logged.created else "already logged"
            output.echo(f"{exported.run}: {verb} as run {logged.run_id} in {logged.tracking_uri}")
        return
    text = FORMATS[export_format](exported)
    if not path:
        output.print_text(text)
        return
    with create_file(Path(path)) as file:
        file.write(text.encode())
    say(f"{path}: {format_count(len(exported.metrics), 'metric')} of {exported.run}")
