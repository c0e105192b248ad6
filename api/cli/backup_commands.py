"""backup, restore: a copy of a registry that a lost disk does not take with it, and the registry made of it again."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchlock.api.cli import output
from benchlock.api.cli.invocation import Invocation
from benchlock.api.faults import EXIT_INTEGRITY
from benchlock.artifacts.plurals import count_of

if TYPE_CHECKING:
    from benchlock.api.backups import Copied


@click.command()
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path), help="Where the backup is, or is made.")
@click.pass_obj
def backup(invocation: Invocation, folder: Path) -> None:
    """Copy the database and every blob that it names; what the folder has already is not copied again.

    Others may publish, run and serve meanwhile. A database on a server is dumped before, by pg_dump.
    """
    from benchlock.api.backups import back_up  # noqa: PLC0415 - rarely asked

    _tell(invocation, folder, back_up(invocation.folder, folder, invocation.progress), "backed up")


@click.command()
@click.argument("folder", metavar="FOLDER", type=click.Path(path_type=Path), help="What `backup` made.")
@click.pass_obj
def restore(invocation: Invocation, folder: Path) -> None:
    """Make a new registry, which --registry names, of a backup.

    BENCHLOCK_DATABASE and BENCHLOCK_STORE say where its rows and blobs are; a database on a server must
    have its dump already.
    """
    from benchlock.api.backups import restore as restored  # noqa: PLC0415 - as above
    from benchlock.registry.catalogue.revisions import SchemaRevisionError  # noqa: PLC0415

    found = restored(invocation.registry, folder, invocation.progress)
    try:
        _ = invocation.folder  # runs that nobody ends are recorded as abandoned
    except SchemaRevisionError as error:  # a backup of another version is restored as it is
        output.say(f"warning: {error}")
    _tell(invocation, folder, found, "restored")


def _tell(invocation: Invocation, folder: Path, found: "Copied", done: str) -> None:
    if invocation.as_json:
        damaged = [{"message": one.what, "where": one.where, "next": one.next_step} for one in found.damaged]
        document = {"path": str(folder), "blobs": found.blobs, "copied": found.copied, "damaged": damaged}
        output.print_json(document)
    else:
        for fault in found.damaged:
            output.say_error(fault)
        output.echo(
            f"{done}: {count_of(found.blobs, 'blob')}, {found.copied} of them copied, {len(found.damaged)} damaged"
        )
    if found.damaged:
        raise click.exceptions.Exit(EXIT_INTEGRITY)
