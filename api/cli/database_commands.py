"""The ``db`` commands: create a registry; show, check, upgrade and downgrade the database schema."""

from typing import TYPE_CHECKING

import click

from benchlock.api.cli import output
from benchlock.api.cli.invocation import Invocation
from benchlock.api.faults import EXIT_REFUSED

if TYPE_CHECKING:
    from benchlock.api.upgrades import SchemaChange

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
    from benchlock.migrations import HEAD  # noqa: PLC0415 - the help text needs no SQL

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
    from benchlock.api.upgrades import current_revision  # noqa: PLC0415 - as above
    from benchlock.api.wiring import folder_of  # noqa: PLC0415
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
    from benchlock.api.upgrades import schema_differences  # noqa: PLC0415 - as above
    from benchlock.api.wiring import folder_of  # noqa: PLC0415
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
    from benchlock.api.upgrades import upgrade_registry, upgrade_statements  # noqa: PLC0415 - as above
    from benchlock.api.wiring import folder_of, now  # noqa: PLC0415

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
    from benchlock.api.upgrades import downgrade_registry  # noqa: PLC0415 - as above
    from benchlock.api.wiring import folder_of, now  # noqa: PLC0415

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
