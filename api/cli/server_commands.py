"""Commands for operators of a server: serve, token and log."""

from typing import Any

import click

from benchlock.api import service_log
from benchlock.api.cli import output
from benchlock.api.cli.command_group import Invocation
from benchlock.api.cli.run_options import complete_id
from benchlock.api.client.id_prefixes import Candidates, describe_moment
from benchlock.api.client.remote_registry import RemoteRegistry
from benchlock.api.client.token_admin import Access, EmbeddedAccess, RemoteAccess
from benchlock.api.local.local_registry import now, open_registry, open_tokens
from benchlock.api.local.running_services import running_service
from benchlock.api.schemas.access_schemas import AuditLogEntry, NewToken, TokenDocument
from benchlock.artifacts.blob_store import BlobReader, SigningStore
from benchlock.artifacts.digest import Descriptor, digest_bytes
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.net.urls import is_loopback
from benchlock.registry.auth.permissions import Scopes
from benchlock.registry.auth.token_format import DEFAULT_LIFETIME_DAYS
from benchlock.registry.auth.tokens import Authenticator, parse_grace, parse_lifetime, parse_token_id

_DIRECT = "Redirect downloads of blobs to the bucket of the registry; clients must reach it."
_PROXY = "Address or network of a trusted proxy, whose X-Forwarded-For gives the client's address; may be repeated."


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True, help="Port to listen on.")
@click.option("--open", "is_open", is_flag=True, help="Accept requests without a token; on loopback only.")
@click.option("--proxy", "proxies", multiple=True, help=_PROXY, metavar="ADDRESS")
@click.option("--direct-downloads", "is_direct", is_flag=True, help=_DIRECT)
@click.pass_obj
def serve(
    invocation: Invocation, host: str, port: int, proxies: tuple[str, ...], *, is_open: bool, is_direct: bool
) -> None:
    """Serve the registry over HTTP.

    The OpenAPI document is at /v1/openapi.json.

    Example: benchlock serve --port 8080
    """
    from benchlock.api.http.request_authorization import OpenAuthority  # noqa: PLC0415 - Litestar, 300 ms; only `serve` needs it
    from benchlock.api.http.routes.app import create_app  # noqa: PLC0415 - as above
    from benchlock.api.http.server_process import serve as serve_app  # noqa: PLC0415 - as above
    from benchlock.api.http.service_settings import Settings  # noqa: PLC0415 - as above

    service_log.log_to_stderr()
    if is_open and not is_loopback(host):
        raise InvalidInputError(
            f"--open would give everyone who can reach {host} access without a token",
            where=f"--host {host}",
            next_step="omit --open to require tokens, or listen on 127.0.0.1",
        )
    if is_open and proxies:
        raise InvalidInputError(
            "--open would give every client of the proxy access without a token",
            where=f"--proxy {proxies[0]}",
            next_step="omit --open to require tokens, or omit --proxy",
        )
    registry = open_registry(invocation.registry, service_log.log.info, invocation.progress)
    if is_direct:
        _check_direct_downloads(registry.store)
    with running_service(registry.home, registry.database):
        authority = OpenAuthority(local=True) if is_open else Authenticator(open_tokens(registry), now)
        app = create_app(registry, Settings(direct_downloads=is_direct), authority)
        place = f"[{host}]" if ":" in host else host
        url = f"http://{place}:{port}"
        fields = {"url": url, "registry": str(registry.home)}
        serve_app(app, host, port, lambda: service_log.log.info(f"serving at {url}", extra={"fields": fields}), proxies)


def _check_direct_downloads(store: BlobReader) -> None:
    """Raise unless URLs of the registry's bucket can be signed, so that not every download fails."""
    if not isinstance(store, SigningStore):
        raise InvalidInputError(
            "the blobs of this registry are not in a bucket",
            where="--direct-downloads",
            next_step="omit the option: clients download from this service",
        )
    store.sign_url(Descriptor(digest_bytes(b""), 0), 1)


def open_access(invocation: Invocation) -> Access:
    """Open the access control of the registry: tokens and the audit log."""
    if "://" not in invocation.registry:
        return EmbeddedAccess(invocation.folder)
    assert isinstance(invocation.opened, RemoteRegistry)
    return RemoteAccess(invocation.opened.client)


def _find_tokens(invocation: Invocation, prefix: str, limit: int) -> Candidates:
    return [
        (token.id, f"{describe_moment(token.created_at)}, {token.name}, {token.state}")
        for token in open_access(invocation).tokens(prefix, limit)
    ]


TOKEN = click.argument(
    "token", metavar="ID", callback=complete_id("token", _find_tokens), help="Token id, as listed by `token list`."
)


@click.group(no_args_is_help=False)
def token() -> None:
    """Manage the access tokens of a served registry."""


@token.command()
@click.argument("name", metavar="NAME", help="Owner or purpose, such as ci.")
@click.option(
    "--scope",
    "scopes",
    metavar="SCOPE",
    multiple=True,
    required=True,
    help="read, run, admin, publish:NAMESPACE, or publish:* for every name. May be repeated.",
)
@click.option(
    "--expires",
    metavar="TIME",
    default=f"{DEFAULT_LIFETIME_DAYS}d",
    show_default=True,
    help="Lifetime, such as 30d or 12h; at most 365d.",
)
@click.pass_obj
def create(invocation: Invocation, name: str, scopes: tuple[str, ...], expires: str) -> None:
    """Create a token and print its secret once.

    Standard output contains only the secret.

    Example: benchlock token create ci --scope read --scope publish:digits
    """
    parsed_scopes = Scopes.parse(scopes)
    parse_lifetime(expires)
    _show_secret(invocation, open_access(invocation).create(name, parsed_scopes, expires))


@token.command()
@TOKEN
@click.option(
    "--expires",
    metavar="TIME",
    default=f"{DEFAULT_LIFETIME_DAYS}d",
    show_default=True,
    help="Lifetime; at most 365d.",
)
@click.option(
    "--grace", metavar="TIME", default="1h", show_default=True, help="How long the old secret stays valid; 0 to 7d."
)
@click.pass_obj
def rotate(invocation: Invocation, token: str, expires: str, grace: str) -> None:
    """Give a token a new secret.

    Its id, machines, jobs and runs remain.

    Example: benchlock token rotate token/01m7zpsb9cmkr23pzwhqxxkrge > worker.token
    """
    id_ = parse_token_id(token)
    parse_lifetime(expires)
    parse_grace(grace)
    _show_secret(invocation, open_access(invocation).rotate(id_, expires, grace))


@token.command("list")
@click.pass_obj
def list_tokens(invocation: Invocation) -> None:
    """List tokens, including expired and revoked ones.

    Example: benchlock token list
    """
    tokens = open_access(invocation).tokens()
    if invocation.as_json:
        output.print_json({"tokens": [token_document(token) for token in tokens]})
        return
    rows = [
        (token.id, token.name, " ".join(token.scopes), describe_moment(token.expires_at), token.state)
        for token in tokens
    ]
    output.print_table(("token", "name", "scopes", "expires", "state"), rows)


@token.command()
@TOKEN
@click.pass_obj
def revoke(invocation: Invocation, token: str) -> None:
    """Revoke a token.

    Example: benchlock token revoke token/01m7zpsb9cmkr23pzwhqxxkrge
    """
    id_ = parse_token_id(token)
    changed = open_access(invocation).revoke(id_)
    if invocation.as_json:
        output.print_json({"token": id_, "revoked": True, "changed": changed})
    else:
        output.echo(f"{id_} {'revoked' if changed else 'was already revoked'}")


@click.command()
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Maximum number of entries.")
@click.option("--before", metavar="ENTRY", default=None, help="Only entries before this entry id.")
@click.option(
    "--actor",
    metavar="ACTOR",
    default=None,
    callback=complete_id("token", _find_tokens, only=False),
    help="Only entries of this token, or of `embedded`.",
)
@click.pass_obj
def log(invocation: Invocation, limit: int, before: str | None, actor: str | None) -> None:
    """Show the audit log, newest first.

    It contains denied requests, too.

    Example: benchlock log --limit 20
    """
    entries = open_access(invocation).log(limit, before, actor)
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
    output.print_table(("time", "actor", "action", "target", "outcome"), rows)


def _show_secret(invocation: Invocation, new: NewToken) -> None:
    """Print a token on standard error and its secret, alone, on standard output."""
    token = new.token
    if invocation.as_json:
        output.print_json({"token": token_document(token), "secret": new.secret})
        return
    output.say(
        f"{token.id} ({token.name}): scopes {' '.join(token.scopes)}, expires {describe_moment(token.expires_at)} UTC"
    )
    output.say("the secret is not shown again: set BENCHLOCK_TOKEN, or save it to the file in BENCHLOCK_TOKEN_FILE")
    output.echo(new.secret)


def token_document(token: TokenDocument) -> dict[str, Any]:
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


def log_entry_document(entry: AuditLogEntry) -> dict[str, Any]:
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
