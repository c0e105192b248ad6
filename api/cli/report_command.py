"""The ``report`` command: verified runs as one page with figures and tables."""

from pathlib import Path

import click

from benchlock.api.cli import output
from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.output import say
from benchlock.api.cli.run_options import complete_run_id, read_lock, suggest_targets
from benchlock.api.export.exported_run import require_verified
from benchlock.artifacts.digest import Digest
from benchlock.evaluator.records.run_types import Run, parse_run_id
from benchlock.evaluator.report.prices import parse_prices
from benchlock.evaluator.report.systems import System, group_systems
from benchlock.evaluator.workflows.run_traces import ROLE, describe_subject
from benchlock.registry.lock.lockfile import Lock


@click.command()
@click.argument(
    "runs",
    metavar="RUN [RUN...]",
    nargs=-1,
    required=True,
    shell_complete=suggest_targets,
    callback=complete_run_id,
    help="Run ids, as listed by `runs`.",
)
@click.option("-o", "--output", "folder", metavar="DIR", required=True, help="Folder to write to.")
@click.option(
    "--price",
    "prices",
    metavar="[RUN=]PRICE",
    multiple=True,
    help="Price of the machine, such as 0.10USD/h@2026-11-01; repeatable with RUN=.",
)
@click.option("--force", is_flag=True, help="Show runs side by side even if they are not comparable.")
@click.pass_obj
def report(invocation: Invocation, runs: tuple[str, ...], folder: str, prices: tuple[str, ...], *, force: bool) -> None:
    """Write a report on verified runs as a web page with charts.

    The evidence of each run is read again first. Runs that are not comparable are refused. Traced runs add their
    layers, rooflines and the cost of tracing.

    Example: benchlock report run/01kam1v3mz4w0q3d5g7h9j2k4m --price 0.10USD/h@2026-11-01 -o report
    """
    from benchlock.evaluator.report.report_files import make_report, write_report  # noqa: PLC0415 - templates, which no other command needs

    ids, opened = [parse_run_id(text) for text in dict.fromkeys(runs)], invocation.opened
    parsed = parse_prices(prices, ids)
    recorded = [opened.records.get(run) for run in ids]
    locks: dict[Digest, Lock] = {}
    for run in recorded:
        require_verified(run, opened.store, invocation.progress)
        if run.start.lock not in locks:
            locks[run.start.lock] = read_lock(invocation, run.start.lock)
    pairs = [(locks[run.start.lock], run) for run in recorded]
    systems, warnings = group_systems(pairs, opened.store, force=force)
    for warning in warnings:
        say(f"warning: {warning}")
    subjects = [
        (system.name, describe_subject(run, locks[run.start.lock], opened.store, opened.home))
        for system in systems
        for run in _first_traces(system)
    ]
    page = write_report(make_report(systems, warnings, subjects, parsed), Path(folder))
    if invocation.as_json:
        output.print_json({"page": str(page), "runs": [run.id for run in recorded], "warnings": list(warnings)})
    else:
        output.echo(str(page))


def _first_traces(system: System) -> list[Run]:
    """Return the first traced run of each lock of a system."""
    traced = [[run for run in arm.runs if run.end is not None and ROLE in run.end.blobs] for arm in system.arms]
    return [runs[0] for runs in traced if runs]
