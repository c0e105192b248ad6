"""Commands for bundles: bundle create and bundle import."""

from pathlib import Path

import click
from msgspec import to_builtins

from benchlock.api.cli import output
from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.output import say
from benchlock.api.cli.run_options import RUN_PREFIX, complete_run_target, read_lock, suggest_targets
from benchlock.api.schemas.artifact_schemas import PublishedVersion
from benchlock.api.schemas.maintenance_schemas import ImportReport, SkippedArtifact
from benchlock.artifacts.bundles.bundle_reader import open_bundle
from benchlock.artifacts.user_output import format_bytes
from benchlock.evaluator.records.run_types import Run, parse_run_id
from benchlock.evaluator.workflows.bundles import create_bundle
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.publishing.lock_bundle import describe_absent_parts


@click.group(no_args_is_help=False)
def bundle() -> None:
    """Export and import locks and runs as single files."""


@bundle.command()
@click.argument(
    "target",
    metavar="LOCK|RUN",
    shell_complete=suggest_targets,
    callback=complete_run_target,
    help="Lockfile, lock id or run id.",
)
@click.option(
    "-o",
    "--output",
    "out",
    metavar="FILE",
    type=click.Path(path_type=Path),
    required=True,
    help="Bundle file.",
)
@click.option(
    "--platform", metavar="OS/ARCH/DEVICE", default="", help="Only blobs that this platform needs; default: all."
)
@click.pass_obj
def create(invocation: Invocation, target: str, out: Path, platform: str) -> None:
    """Write a lock or a run with all its blobs to a file.

    Example: benchlock bundle create run/01kam1v3mz4w0q3d5g7h9j2k4m -o digits.bundle
    """
    lock, run = _find_lock_and_run(invocation, target)
    created = create_bundle(out, lock, run, invocation.opened.store, invocation.progress, platform=platform)
    for warning in describe_absent_parts(created.platforms):
        say(f"warning: {warning}")
    runs = [] if run is None else [run.id]
    if invocation.as_json:
        output.print_json(
            {
                "path": str(out),
                "digest": created.file.digest,
                "bytes": created.file.size,
                "lock": lock.id,
                "runs": runs,
                "platforms": [str(target_platform) for target_platform in created.platforms],
                "blobs": created.blobs,
            }
        )
        return
    output.echo(f"{out}  {format_bytes(created.file.size)}  {created.file.digest}")
    output.print_fields(
        {
            "lock": lock.id,
            "runs": ", ".join(runs) or "none, so an importer cannot compare a rerun",
            "platforms": ", ".join(str(target_platform) for target_platform in created.platforms),
            "blobs": created.blobs,
        }
    )


def _find_lock_and_run(invocation: Invocation, target: str) -> tuple[Lock, Run | None]:
    """Return the lock that ``target`` names, or the run that it names with its lock."""
    if not target.startswith(RUN_PREFIX):
        return read_lock(invocation, target), None
    run = invocation.opened.records.get(parse_run_id(target))
    return read_lock(invocation, run.start.lock), run


@bundle.command("import")
@click.argument("file", metavar="FILE", type=click.Path(path_type=Path), help="Bundle file.")
@click.pass_obj
def import_(invocation: Invocation, file: Path) -> None:
    """Verify a bundle and import its blobs, lock and runs.

    Existing names in the registry do not change.

    Example: benchlock bundle import digits.bundle
    """
    with open_bundle(file):  # an invalid bundle must not create a registry
        pass
    report = invocation.opened.import_bundle(file, invocation.progress)
    for warning in report.warnings:
        say(f"warning: {warning}")
    for skipped in report.kept_out:
        say(f"{_reference(skipped)} was not added to the catalogue, but the lock can run: {skipped.reason}")
    if invocation.as_json:
        output.print_json(_import_document(report))
        return
    runs = [entry.run for entry in report.runs]
    output.echo(f"{'imported' if report.changed else 'already imported:'} {report.lock}")
    output.print_fields(
        {
            "artifacts": ", ".join(map(_reference, report.artifacts)) or "none",
            "runs": ", ".join(runs) or "none",
            "platforms": ", ".join(report.platforms),
            "blobs": report.blobs,
        }
    )
    output.echo(f"next: benchlock {'rerun' if runs else 'run'} {next(iter(runs), report.lock)}")


def _reference(artifact: PublishedVersion | SkippedArtifact) -> str:
    return f"{artifact.kind}/{artifact.name}@{artifact.version}"


def _import_document(report: ImportReport) -> dict[str, object]:
    document = dict(to_builtins(report))
    for part in (document, *document["artifacts"]):
        del part["warnings"]
    return document
