"""Commands that maintain a registry: db, backup, restore, verify, gc and doctor."""

import platform
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from benchlock.api.cli import output
from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.run_options import complete_run_ids
from benchlock.api.error_codes import EXIT_INTEGRITY, EXIT_REFUSED
from benchlock.artifacts.errors import IntegrityError
from benchlock.artifacts.user_text import format_count

if TYPE_CHECKING:
    from benchlock.api.local.backups import BackupReport
    from benchlock.api.local.schema_upgrades import SchemaChange
    from benchlock.api.schemas.registry_protocol import Json
    from benchlock.evaluator.runner.host_platform import Host
    from benchlock.registry.lock.lockfile import Lock
    from benchlock.registry.requests.hardware_requirements import HostFacts


_BACKUP_MADE = "Confirm that you have a backup, and make none. Required for a database on a server."

_REPAIR = "run `benchlock verify` to check the records too, then restore the registry from a backup"


@click.group(no_args_is_help=False)
def db() -> None:
    """Create a registry; show, check and upgrade its schema."""


@db.command()
@click.pass_obj
def create(invocation: Invocation) -> None:
    """Create an empty registry, unless there is one.

    BENCHLOCK_DATABASE and BENCHLOCK_STORE say where its database and its blobs are.

    Example: benchlock --registry /srv/registry db create
    """
    from benchlock.migrations import HEAD  # noqa: PLC0415 - unused by the help text

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
    from benchlock.api.local.local_registry import folder_of  # noqa: PLC0415
    from benchlock.api.local.schema_upgrades import current_revision  # noqa: PLC0415 - as above
    from benchlock.migrations import HEAD  # noqa: PLC0415

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
    from benchlock.api.local.local_registry import folder_of  # noqa: PLC0415
    from benchlock.api.local.schema_upgrades import schema_differences  # noqa: PLC0415 - as above
    from benchlock.migrations import HEAD  # noqa: PLC0415

    differences = schema_differences(folder_of(invocation.registry))
    if invocation.as_json:
        repair = {"next": _REPAIR} if differences else {}
        output.print_json({"revision": HEAD, "differences": differences, **repair})
    else:
        for difference in differences:
            output.say(f"error: {difference}")
        if differences:
            output.say(f"  next: {_REPAIR}")
        output.echo(f"revision {HEAD}, {len(differences)} differences")
    if differences:
        raise click.exceptions.Exit(EXIT_REFUSED)


@db.command()
@click.option("--dry-run", is_flag=True, help="Print the SQL and change nothing.")
@click.option("--backup-made", is_flag=True, help=_BACKUP_MADE)
@click.pass_obj
def upgrade(invocation: Invocation, *, dry_run: bool, backup_made: bool) -> None:
    """Upgrade the schema to this build; back up SQLite first.

    Example: benchlock --registry /srv/registry db upgrade
    """
    from benchlock.api.local.local_registry import folder_of, now  # noqa: PLC0415
    from benchlock.api.local.schema_upgrades import upgrade_registry, upgrade_statements  # noqa: PLC0415 - as above

    home = folder_of(invocation.registry)
    if not dry_run:
        _print_change(invocation, upgrade_registry(home, now, backup_made=backup_made))
        return
    statements = upgrade_statements(home)
    if invocation.as_json:
        output.print_json({"statements": statements})
        return
    for statement in statements:
        output.echo(statement)


@db.command()
@click.option("--to", "target", metavar="REVISION", required=True, help="Revision that the older build needs.")
@click.option("--backup-made", is_flag=True, help=_BACKUP_MADE)
@click.pass_obj
def downgrade(invocation: Invocation, target: str, *, backup_made: bool) -> None:
    """Downgrade the schema for an older build; back up SQLite first.

    Rows and columns that the older schema has no place for are lost.

    Example: benchlock --registry /srv/registry db downgrade --to 0012
    """
    from benchlock.api.local.local_registry import folder_of, now  # noqa: PLC0415
    from benchlock.api.local.schema_upgrades import downgrade_registry  # noqa: PLC0415 - as above

    _print_change(invocation, downgrade_registry(folder_of(invocation.registry), target, now, backup_made=backup_made))


def _print_change(invocation: Invocation, change: "SchemaChange") -> None:
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
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path), help="Where the backup is, or is made.")
@click.pass_obj
def backup(invocation: Invocation, folder: Path) -> None:
    """Copy the database and every blob that it names; what the folder has already is not copied again.

    Others may publish, run and serve meanwhile. A database on a server is dumped before, by pg_dump.
    """
    from benchlock.api.local.backups import back_up  # noqa: PLC0415 - rarely used

    _print_backup_report(invocation, folder, back_up(invocation.folder, folder, invocation.progress), "backed up")


@click.command()
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path), help="What `backup` made.")
@click.pass_obj
def restore(invocation: Invocation, folder: Path) -> None:
    """Make a new registry, which --registry names, of a backup.

    BENCHLOCK_DATABASE and BENCHLOCK_STORE say where its rows and blobs are; a database on a server must
    have its dump already.
    """
    from benchlock.api.local.backups import restore as restored  # noqa: PLC0415 - as above
    from benchlock.registry.database.engine import SchemaRevisionError  # noqa: PLC0415

    report = restored(invocation.registry, folder, invocation.progress)
    try:
        _ = invocation.folder  # opening it records abandoned runs
    except SchemaRevisionError as error:  # a backup of another version is restored as it is
        output.say(f"warning: {error}")
    _print_backup_report(invocation, folder, report, "restored")


def _print_backup_report(invocation: Invocation, folder: Path, result: "BackupReport", verb: str) -> None:
    if invocation.as_json:
        damaged = [{"message": error.what, "where": error.where, "next": error.next_step} for error in result.damaged]
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


_NO_ENGINE = (
    "none answers (start Docker, or set DOCKER_HOST): `run` runs processes, `worker` takes jobs with --processes alone"
)


@click.command()
@click.argument(
    "targets",
    metavar="[TARGET]...",
    nargs=-1,
    callback=complete_run_ids,
    help="KIND/NAME[@CONSTRAINT], run/ID or LOCK; default: everything.",
)
@click.option("--remote", is_flag=True, help="Read the blobs from the OCI repository, not from the local copies.")
@click.option(
    "--head", metavar="SEQ:DIGEST", help="Require that the chain of records contains this head, noted earlier."
)
@click.pass_obj
def verify(invocation: Invocation, targets: tuple[str, ...], *, remote: bool, head: str | None) -> None:
    """Verify blob checksums, the figures of runs and the database.

    The figures of runs are recomputed from their blobs. The database is checked if no TARGET is given.

    The last line is the head of the chain of records. Note it elsewhere: ``benchlock verify --head 1204:sha256:…``
    detects records that were rewritten since.

    Example: benchlock verify run/01kam1v3mz4w0q3d5g7h9j2k4m
    """
    if head is not None and targets:
        raise click.UsageError("--head checks the whole database; leave out the targets")
    parsed_targets = [_parse_target(invocation, target) for target in targets]
    report = invocation.opened.verify(parsed_targets, invocation.progress, remote=remote, head=head)
    if invocation.as_json:
        document: dict[str, Any] = {"blobs": report.blobs, "damaged": list(report.damaged)}
        document |= {"runs": report.runs, "contradictions": list(report.contradictions)}
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


def _parse_target(invocation: Invocation, target: str) -> "str | Lock":
    """Load the lock if ``target`` is the file or id of one, else return ``target`` unchanged."""
    from benchlock.api.cli.artifacts_commands import RUN_PREFIX  # noqa: PLC0415
    from benchlock.api.cli.lock_commands import read_lock  # noqa: PLC0415
    from benchlock.registry.names import KINDS  # noqa: PLC0415

    is_named = target.startswith(RUN_PREFIX) or target.partition("/")[0] in KINDS
    return target if is_named else read_lock(invocation, target)


@click.command()
@click.option("--dry-run", is_flag=True, help="Say what would be freed, free nothing.")
@click.option("--local", is_flag=True, help="Free also what is kept here of blobs that the OCI repository has intact.")
@click.pass_obj
def gc(invocation: Invocation, *, dry_run: bool, local: bool) -> None:
    """Free the blobs that no version, no lock and no run names.

    What was sent to a service within the last day stays: whoever sent it may have still to publish it. Unfinished
    files of commands that were killed, and of interrupted downloads, are removed too.
    """
    report = invocation.opened.collect(dry_run=dry_run, local=local)
    if invocation.as_json:
        document: dict[str, Any] = {"blobs": report.blobs, "bytes": report.bytes, "dry_run": dry_run}
        document |= {"leftovers": report.leftovers}
        output.print_json(document if report.local is None else document | {"local": report.local})
        return
    verb = "would free" if dry_run else "freed"
    output.echo(f"{verb} {format_count(report.blobs, 'blob')}, {output.byte_count(report.bytes)}")
    if (unfinished := report.leftovers).files:
        removed = "would remove" if dry_run else "removed"
        output.echo(
            f"{removed} {format_count(unfinished.files, 'unfinished file')}, {output.byte_count(unfinished.bytes)}"
        )
    if (cache := report.local) is not None:
        output.echo(
            f"{verb} what is kept here of {format_count(cache['blobs'], 'blob')}, {output.byte_count(cache['bytes'])}"
        )
        if cache["kept"]:
            output.say(
                f"warning: the repository lost or damaged {len(cache['kept'])} blobs, which stay: verify --remote"
            )


@click.command()
@click.pass_obj
def doctor(invocation: Invocation) -> None:
    """Say what this machine has and lacks."""
    from benchlock.api.build_info import this_build  # noqa: PLC0415
    from benchlock.api.local.local_registry import connect_engine  # noqa: PLC0415
    from benchlock.evaluator.runner.host_platform import this_host  # noqa: PLC0415

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
    }
    if invocation.as_json:
        output.print_json(document)
    else:
        _print_machine(description, document, host)
    if description.get("damaged"):
        raise click.exceptions.Exit(EXIT_INTEGRITY)


def _describe_missing(registry: str) -> "Json":
    from benchlock.api.local.local_registry import folder_of  # noqa: PLC0415

    return {"registry": f"none in {folder_of(registry)} yet: `benchlock db create` makes one"}


def _print_machine(description: "Json", document: dict[str, Any], host: "Host") -> None:
    for fault in description.get("damaged", ()):
        output.say(f"error: {fault}")
    output.print_fields(
        {
            **{name: value for name, value in description.items() if name != "damaged"},
            "benchlock": f"{document['benchlock']} (commit {document['commit']})",
            "python": document["python"],
            "engine": document["engine"] or _NO_ENGINE,
            "mmdebstrap": document["mmdebstrap"] or "missing: `image build` needs --base or --no-layers",
            "platform": host.facts.platform,
            "cpu": f"{host.cpu_model}, {len(host.cpus)} cores",
            "memory": output.byte_count(host.memory),
            "accelerators": _accelerators(host.facts),
        }
    )


def _accelerators(host: "HostFacts") -> str:
    if not host.accelerators:
        return f"none found: {host.without}"
    return ", ".join(f"{accelerator}, driver {accelerator.driver}" for accelerator in host.accelerators)
