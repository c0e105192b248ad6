"""why: why a lock has this version, and not the newest."""

from typing import Annotated

import typer

from api.cli import output
from api.cli.invocation import of
from api.cli.lock_commands import read_lock


def register(app: typer.Typer) -> None:
    """Add the command of this module."""
    app.command()(why)


def why(
    context: typer.Context,
    target: Annotated[str, typer.Argument(metavar="KIND/NAME", help="An artifact of the lock.")],
    lock: Annotated[str, typer.Argument(metavar="LOCK", help="A lockfile, or a lock's id.")],
) -> None:
    """Say why a lock has this version of an artifact, and why no newer one."""
    from artifacts.errors import InvalidInputError  # noqa: PLC0415
    from registry.locks import why_chosen  # noqa: PLC0415
    from registry.names import parse_target  # noqa: PLC0415

    invocation = of(context)
    kind, name, constraint = parse_target(target)
    if constraint is not None:
        raise InvalidInputError(
            f"{target} has a constraint", where=target, next_step=f"name {kind}/{name}: a lock has one version of it"
        )
    answer = why_chosen(read_lock(invocation, lock), kind, name, invocation.opened.catalogue)
    if invocation.as_json:
        output.print_json(answer.as_json())
    else:
        typer.echo(answer.prose())
