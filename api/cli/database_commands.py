"""db: the schema of the registry's database: its revision, a check, upgrades and downgrades."""

from typing import TYPE_CHECKING

import click

from api.cli import output
from api.cli.invocation import Invocation
from api.faults import EXIT_REFUSED

if TYPE_CHECKING:
    from api.upgrades import SchemaChange

_BACKUP_MADE = "Make no backup: you have one. Required for a database on a server."


@click.group(no_args_is_help=False)
def db() -> None:
    """Show, check and upgrade the database schema."""


@db.command()
@click.pass_obj
def current(invocation: Invocation) -> None:
    """Show the schema revision of the database, and the one that this build needs."""
    from api.upgrades import current_revision  # noqa: PLC0415 - the help text needs no SQL
    from api.wiring import folder_of  # noqa: PLC0415
    from migrations import HEAD  # noqa: PLC0415

    found = current_revision(folder_of(invocation.registry))
    if invocation.as_json:
        output.print_json({"revision": found, "needed": HEAD})
    else:
        output.print_fields({"revision": found or "none", "needed": HEAD})


@db.command()
@click.pass_obj
def check(invocation: Invocation) -> None:
    """Check that the database has the schema that this build needs, with all its triggers."""
    from api.upgrades import schema_differences  # noqa: PLC0415 - as above
    from api.wiring import folder_of  # noqa: PLC0415
    from migrations import HEAD  # noqa: PLC0415

    differences = schema_differences(folder_of(invocation.registry))
    if invocation.as_json:
        output.print_json({"revision": HEAD, "differences": differences})
    else:
        for difference in differences:
            output.say(f"error: {difference}")
        output.echo(f"revision {HEAD}, {len(differences)} differences")
    if differences:
        raise click.exceptions.Exit(EXIT_REFUSED)


@db.command()
@click.option("--dry-run", is_flag=True, help="Print the SQL, roll it back.")
@click.option("--backup-made", is_flag=True, help=_BACKUP_MADE)
@click.pass_obj
def upgrade(invocation: Invocation, *, dry_run: bool, backup_made: bool) -> None:
    r"""Upgrade the schema to this build; copy SQLite's file before.

    \b
    Example: benchlock --registry /srv/registry db upgrade
    """
    from api.upgrades import upgrade_registry, upgrade_statements  # noqa: PLC0415 - as above
    from api.wiring import folder_of, now  # noqa: PLC0415

    home = folder_of(invocation.registry)
    if not dry_run:
        _tell(invocation, upgrade_registry(home, now, backup_made=backup_made))
        return
    statements = upgrade_statements(home)
    if invocation.as_json:
        output.print_json({"statements": statements})
        return
    for statement in statements:
        output.echo(statement)


@db.command()
@click.option("--to", "target", metavar="REVISION", required=True, help="The revision that the older build needs.")
@click.option("--backup-made", is_flag=True, help=_BACKUP_MADE)
@click.pass_obj
def downgrade(invocation: Invocation, target: str, *, backup_made: bool) -> None:
    r"""Downgrade the schema for an older build; copy SQLite's file before.

    Rows and columns that the older schema has no place for are lost.

    \b
    Example: benchlock --registry /srv/registry db downgrade --to 0012
    """
    from api.upgrades import downgrade_registry  # noqa: PLC0415 - as above
    from api.wiring import folder_of, now  # noqa: PLC0415

    _tell(invocation, downgrade_registry(folder_of(invocation.registry), target, now, backup_made=backup_made))


def _tell(invocation: Invocation, change: "SchemaChange") -> None:
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
