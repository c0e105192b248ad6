"""why: why a lock has this version, and no newer one."""

import click

from benchlock.api.cli import output
from benchlock.api.cli.invocation import Invocation
from benchlock.api.cli.lock_commands import read_lock
from benchlock.artifacts.errors import InvalidInputError


@click.command()
@click.argument("target", metavar="KIND/NAME", help="An artifact of the lock.")
@click.argument("lock", metavar="LOCK", help="A lockfile, or a lock's id.")
@click.pass_obj
def why(invocation: Invocation, target: str, lock: str) -> None:
    """Say why a lock has this version of an artifact, and why no newer one."""
    from benchlock.registry.names import parse_target  # noqa: PLC0415

    kind, name, constraint = parse_target(target)
    if constraint is not None:
        raise InvalidInputError(
            f"{target} has a constraint", where=target, next_step=f"name {kind}/{name}: a lock has one version of it"
        )
    answer = invocation.opened.why(read_lock(invocation, lock), kind, name)
    if invocation.as_json:
        output.print_json(answer.document)
    else:
        output.echo_lines(answer.prose)
