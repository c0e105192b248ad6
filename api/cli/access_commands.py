"""token, log: who may do what in a registry that is served, and who did what."""

from typing import TYPE_CHECKING, Any

import click

from api.cli import output
from api.cli.invocation import Invocation

if TYPE_CHECKING:
    from api.wire.access import LogEntry, TokenDocument

_TIME = "%Y-%m-%d %H:%M"


@click.group(no_args_is_help=False)
def token() -> None:
    """Tokens: who may read, publish and run in a registry that is served."""


@token.command()
@click.argument("name", metavar="NAME", help="Whose it is, or what for, such as ci.")
@click.option(
    "--scope",
    "scopes",
    metavar="SCOPE",
    multiple=True,
    required=True,
    help="read, run, admin, publish:NAMESPACE, or publish:* for every name. May be given several times.",
)
@click.option(
    "--expires", metavar="TIME", default="90d", show_default=True, help="When it ends: 30d, 12h; 365d at most."
)
@click.pass_obj
def create(invocation: Invocation, name: str, scopes: tuple[str, ...], expires: str) -> None:
    """Make a token and print it: once, on standard output, alone."""
    from registry.access.scopes import Scopes  # noqa: PLC0415 - the help text needs none of it
    from registry.access.tokens import parse_lifetime  # noqa: PLC0415

    given = Scopes.parse(scopes)
    parse_lifetime(expires)
    done = invocation.access.create(name, given, expires)
    made = done.token
    if invocation.as_json:
        output.print_json({"token": token_document(made), "secret": done.secret})
        return
    output.say(f"{made.id} of {made.name} may {' '.join(made.scopes)}, until {made.expires_at.strftime(_TIME)} UTC")
    output.say("it is shown this once: set BENCHLOCK_TOKEN to it")
    output.echo(done.secret)


@token.command("list")
@click.pass_obj
def list_tokens(invocation: Invocation) -> None:
    """List tokens, also those that are of no use any more."""
    found = invocation.access.tokens()
    if invocation.as_json:
        output.print_json({"tokens": [token_document(one) for one in found]})
        return
    rows = [(one.id, one.name, " ".join(one.scopes), one.expires_at.strftime(_TIME), one.state) for one in found]
    output.print_table(("token", "name", "scopes", "expires", ""), rows)


@token.command()
@click.argument("token", metavar="ID", help="token/…, as `token list` lists it.")
@click.pass_obj
def revoke(invocation: Invocation, token: str) -> None:
    """End a token before its time."""
    from registry.access.tokens import parse_token_id  # noqa: PLC0415

    id_ = parse_token_id(token)
    changed = invocation.access.revoke(id_)
    if invocation.as_json:
        output.print_json({"token": id_, "revoked": True, "changed": changed})
    else:
        output.echo(f"{id_} is revoked{'' if changed else ' already'}")


@click.command()
@click.option(
    "--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="At most so many, newest first."
)
@click.option("--before", metavar="ENTRY", default=None, help="Only those before this entry, by its id.")
@click.option("--actor", metavar="ACTOR", default=None, help="Only those of this token, or of embedded.")
@click.pass_obj
def log(invocation: Invocation, limit: int, before: str | None, actor: str | None) -> None:
    """Say who did what, newest first; what was refused to somebody too."""
    found = invocation.access.log(limit, before, actor)
    if invocation.as_json:
        output.print_json({"log": [logged_document(one) for one in found]})
        return
    rows = [
        (
            one.at.strftime("%Y-%m-%d %H:%M:%S"),
            one.actor,
            one.action,
            one.target,
            "" if one.outcome == "done" else f"{one.outcome}: {one.reason}",
        )
        for one in found
    ]
    output.print_table(("when", "who", "what", "on", ""), rows)


def token_document(found: "TokenDocument") -> dict[str, Any]:
    """What is known of a token: never its text."""
    return {
        "id": found.id,
        "name": found.name,
        "scopes": list(found.scopes),
        "created_by": found.created_by,
        "created_at": found.created_at.isoformat(),
        "expires_at": found.expires_at.isoformat(),
        "revoked_at": None if found.revoked_at is None else found.revoked_at.isoformat(),
        "state": found.state,
    }


def logged_document(entry: "LogEntry") -> dict[str, Any]:
    """An entry of the log."""
    return {
        "id": entry.id,
        "at": entry.at.isoformat(),
        "actor": entry.actor,
        "action": entry.action,
        "target": entry.target,
        "request": entry.request,
        "outcome": entry.outcome,
        "reason": entry.reason,
    }
