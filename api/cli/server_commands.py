"""Commands for operators of a server: serve, token and log."""

from typing import TYPE_CHECKING, Any

import click

from benchlock.api.cli import output
from benchlock.api.cli.command_group import Invocation
from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.auth.token_format import DEFAULT_LIFETIME_DAYS

if TYPE_CHECKING:
    from benchlock.api.schemas.access_schemas import LogEntry, NewToken, TokenDocument


_PROXY = "A proxy in front, or the network where it is: X-Forwarded-For of such a one says who asks. May be repeated."


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen at.")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True, help="The port.")
@click.option("--open", "is_open", is_flag=True, help="Let in whoever reaches it, without a token: on loopback alone.")
@click.option("--proxy", "proxies", multiple=True, help=_PROXY, metavar="ADDRESS")
@click.pass_obj
def serve(invocation: Invocation, host: str, port: int, proxies: tuple[str, ...], *, is_open: bool) -> None:
    """Serve the registry over HTTP; the OpenAPI document is at /v1/openapi.json."""
    from benchlock.api.http.request_authorization import OpenAuthority, is_loopback  # noqa: PLC0415
    from benchlock.api.http.routes.app import create_app  # noqa: PLC0415 - used by `serve` only
    from benchlock.api.http.server_process import serve as serve_app  # noqa: PLC0415
    from benchlock.api.local.local_registry import now, open_registry, open_tokens  # noqa: PLC0415
    from benchlock.api.local.running_services import running_service  # noqa: PLC0415
    from benchlock.api.service_log import log, log_to_stderr  # noqa: PLC0415
    from benchlock.registry.auth.tokens import Authenticator  # noqa: PLC0415

    log_to_stderr()
    if is_open and not is_loopback(host):
        raise InvalidInputError(
            f"--open lets in whoever reaches {host}, and that may be anyone",
            where=f"--host {host}",
            next_step="leave --open out, so that tokens are asked for, or listen at 127.0.0.1",
        )
    if is_open and proxies:
        raise InvalidInputError(
            "--open lets in whoever the proxy sends on, and that may be anyone",
            where=f"--proxy {proxies[0]}",
            next_step="leave --open out, so that tokens are asked for, or leave --proxy out",
        )
    registry = open_registry(invocation.registry, log.info, invocation.progress)
    with running_service(registry.home, registry.database):
        app = create_app(
            registry, authority=OpenAuthority(local=True) if is_open else Authenticator(open_tokens(registry), now)
        )
        place = f"[{host}]" if ":" in host else host
        url = f"http://{place}:{port}"
        fields = {"url": url, "registry": str(registry.home)}
        serve_app(app, host, port, lambda: log.info(f"serving at {url}", extra={"fields": fields}), proxies)


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
    "--expires",
    metavar="TIME",
    default=f"{DEFAULT_LIFETIME_DAYS}d",
    show_default=True,
    help="When it ends: 30d, 12h; 365d at most.",
)
@click.pass_obj
def create(invocation: Invocation, name: str, scopes: tuple[str, ...], expires: str) -> None:
    """Make a token and print it: once, on standard output, alone."""
    from benchlock.registry.auth.permissions import Scopes  # noqa: PLC0415 - unused by the help text
    from benchlock.registry.auth.tokens import parse_lifetime  # noqa: PLC0415

    parsed_scopes = Scopes.parse(scopes)
    parse_lifetime(expires)
    _show_secret(invocation, invocation.access.create(name, parsed_scopes, expires))


@token.command()
@click.argument("token", metavar="ID", help="token/…, as `token list` lists it.")
@click.option(
    "--expires",
    metavar="TIME",
    default=f"{DEFAULT_LIFETIME_DAYS}d",
    show_default=True,
    help="When the token expires; 365d at most.",
)
@click.option(
    "--grace", metavar="TIME", default="1h", show_default=True, help="How long the old secret stays valid; 0 to 7d."
)
@click.pass_obj
def rotate(invocation: Invocation, token: str, expires: str, grace: str) -> None:
    """Give a token a new secret; its id, machines, jobs and runs stay.

    Example: benchlock token rotate token/01m7zpsb9cmkr23pzwhqxxkrge > worker.token
    """
    from benchlock.registry.auth.tokens import parse_grace, parse_lifetime, parse_token_id  # noqa: PLC0415

    id_ = parse_token_id(token)
    parse_lifetime(expires)
    parse_grace(grace)
    _show_secret(invocation, invocation.access.rotate(id_, expires, grace))


@token.command("list")
@click.pass_obj
def list_tokens(invocation: Invocation) -> None:
    """List tokens, also those that are of no use any more."""
    tokens = invocation.access.tokens()
    if invocation.as_json:
        output.print_json({"tokens": [token_document(token) for token in tokens]})
        return
    rows = [
        (token.id, token.name, " ".join(token.scopes), token.expires_at.strftime(_TIME), token.state)
        for token in tokens
    ]
    output.print_table(("token", "name", "scopes", "expires", ""), rows)


@token.command()
@click.argument("token", metavar="ID", help="token/…, as `token list` lists it.")
@click.pass_obj
def revoke(invocation: Invocation, token: str) -> None:
    """End a token before its time."""
    from benchlock.registry.auth.tokens import parse_token_id  # noqa: PLC0415

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
    entries = invocation.access.log(limit, before, actor)
    if invocation.as_json:
        output.print_json({"log": [log_entry_document(entry) for entry in entries]})
        return
    rows = [
        (
            entry.at.strftime("%Y-%m-%d %H:%M:%S"),
            entry.actor,
            entry.action,
            entry.target,
            "" if entry.outcome == "done" else f"{entry.outcome}: {entry.reason}",
        )
        for entry in entries
    ]
    output.print_table(("when", "who", "what", "on", ""), rows)


def _show_secret(invocation: Invocation, new: "NewToken") -> None:
    """Print a token on standard error and its secret, alone, on standard output."""
    token = new.token
    if invocation.as_json:
        output.print_json({"token": token_document(token), "secret": new.secret})
        return
    output.say(f"{token.id} of {token.name} may {' '.join(token.scopes)}, until {token.expires_at.strftime(_TIME)} UTC")
    output.say("it is shown this once: set BENCHLOCK_TOKEN to it, or keep it in the file of BENCHLOCK_TOKEN_FILE")
    output.echo(new.secret)


def token_document(token: "TokenDocument") -> dict[str, Any]:
    """Return the JSON document of a token, without its secret."""
    return {
        "id": token.id,
        "name": token.name,
        "scopes": list(token.scopes),
        "created_by": token.created_by,
        "created_at": token.created_at.isoformat(),
        "expires_at": token.expires_at.isoformat(),
        "revoked_at": None if token.revoked_at is None else token.revoked_at.isoformat(),
        "rotated_at": None if token.rotated_at is None else token.rotated_at.isoformat(),
        "state": token.state,
    }


def log_entry_document(entry: "LogEntry") -> dict[str, Any]:
    """Return the JSON document of an entry of the audit log."""
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
