"""Commands that maintain a registry: db, backup, restore, verify, gc and doctor."""

import platform
import shutil
from pathlib import Path
from typing import Any

import click

from benchlock.api.build_info import this_build
from benchlock.api.cli import output
from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.run_options import RUN_PREFIX, complete_run_target, read_lock, suggest_targets
from benchlock.api.error_codes import EXIT_INTEGRITY, EXIT_REFUSED
from benchlock.api.local.backups import BackupReport, back_up
from benchlock.api.local.backups import restore as restored
from benchlock.api.local.local_registry import folder_of, now
from benchlock.api.local.run_setup import connect_engine
from benchlock.api.local.schema_upgrades import (
    SchemaChange,
    current_revision,
    downgrade_registry,
    schema_differences,
    upgrade_registry,
    upgrade_statements,
)
from benchlock.api.schemas.registry_protocol import Json
from benchlock.artifacts.errors import IntegrityError, SchemaRevisionError
from benchlock.artifacts.user_output import format_bytes, format_count
from benchlock.evaluator.runner.energy import describe_counters
from benchlock.evaluator.runner.host_platform import Host, this_host
from benchlock.migrations import HEAD
from benchlock.registry.artifact_names import KINDS
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.requests.hardware_requirements import HostFacts

_BACKUP_MADE = "Confirm that a backup exists and skip making one. Required for a database on a server."

_REPAIR = "run `benchlock verify` to check the records, too, then restore the registry from a backup"


@click.group(no_args_is_help=False)
def db() -> None:
    """Create a registry; show, check and upgrade its schema."""


@db.command()
@click.pass_obj
def create(invocation: Invocation) -> None:
    """Create an empty registry unless one exists.

    BENCHLOCK_DATABASE and BENCHLOCK_STORE locate its database and its blobs.

    Example: benchlock --registry /srv/registry db create
    """
    home = str(invocation.folder.home)
    if invocation.as_json:
        output.print_json({"registry": home, "revision": HEAD})
    else:
        output.print_fields({"registry": home, "revision": HEAD})


@db.command()
@click.pass_obj
def current(invocation: Invocation) -> None:
    """Show the schema revision of the database and of this build.

    Example: benchlock --registry /srv/registry db current
    """
    revision = current_revision(folder_of(invocation.registry))
    if invocation.as_json:
        output.print_json({"revision": revision, "needed": HEAD})
    else:
        output.print_fields({"revision": revision or "none", "needed": HEAD})


@db.command()
@click.pass_obj
def check(invocation: Invocation) -> None:
    """Compare the tables, indexes and triggers with this build.

    Exits with 1 if they differ.

    Example: benchlock --registry /srv/registry db check
    """
    differences = schema_differences(folder_of(invocation.registry))
    if invocation.as_json:
        repair = {"next": _REPAIR} if differences else {}
        output.print_json({"revision": HEAD, "differences": differences, **repair})
    else:
        for difference in differences:
            next_step = _REPAIR if difference == differences[-1] else None
            output.say_error(IntegrityError(difference, next_step=next_step))
        output.echo(f"revision {HEAD}, {len(differences)} differences")
    if differences:
        raise click.exceptions.Exit(EXIT_REFUSED)


@db.command()
@click.option("--dry-run", is_flag=True, help="Print the SQL without running it.")
@click.option("--backup-made", is_flag=True, help=_BACKUP_MADE)
@click.pass_obj
def upgrade(invocation: Invocation, *, dry_run: bool, backup_made: bool) -> None:
    """Upgrade the schema to this build.

    A SQLite database is backed up first.

    Example: benchlock --registry /srv/registry db upgrade
    """
    home = folder_of(invocation.registry)
    if not dry_run:
        with invocation.progress.task("upgrading the database"):
            change = upgrade_registry(home, now, backup_made=backup_made)
        _print_change(invocation, change)
        return
    statements = upgrade_statements(home)
    if invocation.as_json:
        output.print_json({"statements": statements})
        return
    for statement in statements:
        output.echo(statement)


@db.command()
@click.option("--to", "target", metavar="REVISION", required=True, help="Schema revision of the older build.")
@click.option("--backup-made", is_flag=True, help=_BACKUP_MADE)
@click.pass_obj
def downgrade(invocation: Invocation, target: str, *, backup_made: bool) -> None:
    """Downgrade the schema for an older build.

    A SQLite database is backed up first. Rows and columns that the older schema has no place for are lost.

    Example: benchlock --registry /srv/registry db downgrade --to 0012
    """
    with invocation.progress.task("downgrading the database"):
        change = downgrade_registry(folder_of(invocation.registry), target, now, backup_made=backup_made)
    _print_change(invocation, change)


def _print_change(invocation: Invocation, change: SchemaChange) -> None:
    if invocation.as_json:
        backup = None if change.backup is None else str(change.backup)
        output.print_json({"before": change.before, "after": change.after, "backup": backup})
        return
    if not change.is_needed:
        output.echo(f"already at revision {change.after}")
        return
    if change.backup is not None:
        output.echo(f"backup: {change.backup}")
    output.echo(f"revision {change.before or 'none'} -> {change.after}")


@click.command()
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path), help="Backup folder; created if missing.")
@click.pass_obj
def backup(invocation: Invocation, folder: Path) -> None:
    """Back up the database and all blobs that it references.

    Blobs that the folder already has are not copied again. The registry stays usable meanwhile. A PostgreSQL
    database is not copied: dump it with pg_dump first.

    Example: benchlock backup /backup/registry
    """
    _print_backup_report(invocation, folder, back_up(invocation.folder, folder, invocation.progress), "backed up")


@click.command()
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path), help="Folder written by `backup`.")
@click.pass_obj
def restore(invocation: Invocation, folder: Path) -> None:
    """Restore a registry from a backup.

    The new registry is the one in --registry. BENCHLOCK_DATABASE and BENCHLOCK_STORE locate its database and its blobs;
    restore a database on a server from its dump before.

    Example: benchlock --registry /srv/registry restore /backup/registry
    """
    report = restored(invocation.registry, folder, invocation.progress)
    try:
        _ = invocation.folder  # opening it records abandoned runs
    except SchemaRevisionError as error:  # a backup of another version is restored as it is
        output.say_error(error, "warning")
    _print_backup_report(invocation, folder, report, "restored")


def _print_backup_report(invocation: Invocation, folder: Path, result: BackupReport, verb: str) -> None:
    if invocation.as_json:
        damaged = [
            output.with_commands({"message": error.what, "where": error.where, "next": error.next_step})
            for error in result.damaged
        ]
        document = {"path": str(folder), "blobs": result.blobs, "copied": result.copied, "damaged": damaged}
        output.print_json(document)
    else:
        for fault in result.damaged:
            output.say_error(fault)
        output.echo(
            f"{verb}: {format_count(result.blobs, 'blob')}, {result.copied} of them copied, "
            f"{len(result.damaged)} damaged"
        )
    if result.damaged:
        raise click.exceptions.Exit(EXIT_INTEGRITY)


_NO_ENGINE = "none (start Docker, or set DOCKER_HOST): `run` uses processes, `worker` needs --processes"


@click.command()
@click.argument(
    "targets",
    metavar="[TARGET]...",
    nargs=-1,
    shell_complete=suggest_targets,
    callback=complete_run_target,
    help="KIND/NAME[@CONSTRAINT], run id or lock; default: everything.",
)
@click.option("--remote", is_flag=True, help="Read blobs from the OCI repository or bucket, not local copies.")
@click.option("--head", metavar="SEQ:DIGEST", help="Require that the chain of records contains this earlier head.")
@click.pass_obj
def verify(invocation: Invocation, targets: tuple[str, ...], *, remote: bool, head: str | None) -> None:
    """Verify blob checksums, metrics of runs and the database.

    Metrics are recomputed from the blobs of runs. Without TARGET, the database is checked, too.

    The last line is the head of the chain of records. Note it elsewhere: `benchlock verify --head 1204:sha256:…`
    detects records that were rewritten since.

    Example: benchlock verify run/01kam1v3mz4w0q3d5g7h9j2k4m
    """
    if head is not None and targets:
        raise click.UsageError("--head checks the whole database and takes no targets")
    parsed_targets = [_parse_target(invocation, target) for target in targets]
    report = invocation.opened.verify(parsed_targets, invocation.progress, remote=remote, head=head)
    if invocation.as_json:
        document: dict[str, Any] = {"blobs": report.blobs, "damaged": list(map(output.with_commands, report.damaged))}
        document |= {"runs": report.runs, "contradictions": list(map(output.with_commands, report.contradictions))}
        output.print_json(document if targets else document | {"records": report.records, "head": report.head})
    else:
        for fault in (*report.damaged, *report.contradictions):
            output.say_error(IntegrityError(fault["message"], where=fault["where"], next_step=fault["next"]))
        records = "" if report.records is None else f" and {format_count(report.records, 'record')}"
        output.echo(f"{format_count(report.blobs, 'blob')}{records} verified, {len(report.damaged)} damaged")
        if report.runs:
            differing = len(report.contradictions)
            output.echo(f"{format_count(report.runs, 'run')} compared with the evidence, {differing} not verified")
        if report.head is not None:
            output.echo(f"head of the chain of records: {report.head}")
    if report.damaged or report.contradictions:
        raise click.exceptions.Exit(EXIT_INTEGRITY)


def _parse_target(invocation: Invocation, target: str) -> str | Lock:
    """Load the lock if ``target`` is the file or id of one, else return ``target`` unchanged."""
    is_named = target.startswith(RUN_PREFIX) or target.partition("/")[0] in KINDS
    return target if is_named else read_lock(invocation, target)


@click.command()
@click.option("--dry-run", is_flag=True, help="Show what would be deleted.")
@click.option(
    "--local", is_flag=True, help="Also delete local copies of blobs that are intact in the OCI repository or bucket."
)
@click.pass_obj
def gc(invocation: Invocation, *, dry_run: bool, local: bool) -> None:
    """Delete unreferenced blobs.

    Blobs uploaded to a service within the last day remain, because they may not be published yet. Leftover files of
    killed commands and interrupted downloads are deleted, too.

    Example: benchlock gc --dry-run
    """
    with invocation.progress.task("finding unreferenced blobs"):
        report = invocation.opened.collect(dry_run=dry_run, local=local)
    if invocation.as_json:
        document: dict[str, Any] = {"blobs": report.blobs, "bytes": report.bytes, "dry_run": dry_run}
        document |= {"leftovers": report.leftovers}
        output.print_json(document if report.local is None else document | {"local": report.local})
        return
    verb = "would delete" if dry_run else "deleted"
    output.echo(f"{verb} {format_count(report.blobs, 'blob')}, {format_bytes(report.bytes)}")
    if (unfinished := report.leftovers).files:
        removed = "would delete" if dry_run else "deleted"
        output.echo(f"{removed} {format_count(unfinished.files, 'unfinished file')}, {format_bytes(unfinished.bytes)}")
    if (cache := report.local) is not None:
        output.echo(f"{verb} local copies of {format_count(cache['blobs'], 'blob')}, {format_bytes(cache['bytes'])}")
        if cache["kept"]:
            output.say(
                f"warning: kept {len(cache['kept'])} blobs whose remote copy is lost or damaged: see verify --remote"
            )


@click.command()
@click.pass_obj
def doctor(invocation: Invocation) -> None:
    """Check the local environment.

    Example: benchlock doctor
    """
    registry = invocation.find_registry()
    description = _describe_missing(invocation.registry) if registry is None else registry.describe()
    engine = connect_engine()
    host = this_host()
    build = this_build()
    document = {
        **description,
        "benchlock": build.version,
        "commit": build.commit,
        "python": platform.python_version(),
        "engine": None if engine is None else engine.version,
        "mmdebstrap": shutil.which("mmdebstrap"),
        "host": host.fingerprint(None if engine is None else engine.version),
        "measurement": describe_counters(),
    }
    if invocation.as_json:
        output.print_json(document)
    else:
        _print_machine(description, document, host)
    if description.get("damaged"):
        raise click.exceptions.Exit(EXIT_INTEGRITY)


def _describe_missing(registry: str) -> Json:
    return {"registry": f"none in {folder_of(registry)}; create one with `benchlock db create`"}


def _print_machine(description: Json, document: dict[str, Any], host: Host) -> None:
    for fault in description.get("damaged", ()):
        output.say_error(IntegrityError(fault))
    output.print_fields(
        {
            **{name: value for name, value in description.items() if name != "damaged"},
            "benchlock": f"{document['benchlock']} (commit {document['commit']})",
            "python": document["python"],
            "engine": document["engine"] or _NO_ENGINE,
            "mmdebstrap": document["mmdebstrap"] or "missing: `image build` needs --base or --no-layers",
            "platform": host.facts.platform,
            "cpu": f"{host.cpu_model}, {len(host.cpus)} cores",
            "memory": format_bytes(host.memory),
            "accelerators": _accelerators(host.facts),
            **document["measurement"],
        }
    )


def _accelerators(host: HostFacts) -> str:
    if not host.accelerators:
        return f"none ({host.without})"
    return ", ".join(f"{accelerator}, driver {accelerator.driver}" for accelerator in host.accelerators)
