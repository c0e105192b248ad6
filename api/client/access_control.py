"""Tokens and the audit log of a registry, in a folder or on a server."""

from typing import Protocol

from benchlock.api.client.api_client import ApiClient
from benchlock.api.client.worker_agent import open_queue
from benchlock.api.local.local_registry import LocalRegistry, now, open_log, open_tokens
from benchlock.api.schemas import access_schemas as wire
from benchlock.api.schemas.shared_fields import encode_cursor
from benchlock.registry.auth.audit_log import AuditLog
from benchlock.registry.auth.permissions import Scopes
from benchlock.registry.auth.tokens import TokenId, Tokens, parse_grace, parse_lifetime

_PAGE = 1000


class Access(Protocol):
    """The tokens and the audit log of a registry."""

    def create(self, name: str, scopes: Scopes, expires: str) -> wire.NewToken:
        """Create a token with a lifetime such as ``30d``; only this result has its secret."""

    def tokens(self) -> tuple[wire.TokenDocument, ...]:
        """List all tokens, oldest first."""

    def rotate(self, token: TokenId, expires: str, grace: str) -> wire.NewToken:
        """Give a token a new secret; the current one stays valid for the period ``grace``.

        Args:
            token: The token.
            expires: The lifetime of the new secret, such as ``30d``.
            grace: How long the current secret stays valid, such as ``1h``.
        """

    def revoke(self, token: TokenId) -> bool:
        """Revoke a token and cancel the work that it started; return whether this changed it."""

    def log(self, limit: int, before: str | None, actor: str | None) -> tuple[wire.LogEntry, ...]:
        """List entries of the audit log, newest first.

        Args:
            limit: The maximum number of entries.
            before: Only entries older than the one with this id.
            actor: Only entries of this actor.
        """


class EmbeddedAccess:
    """Access control of a registry in a folder."""

    def __init__(self, registry: LocalRegistry) -> None:
        """Open the tokens, the audit log and the queue of ``registry``."""
        self._tokens: Tokens = open_tokens(registry)
        self._log: AuditLog = open_log(registry)
        self._queue = open_queue(registry)

    def create(self, name: str, scopes: Scopes, expires: str) -> wire.NewToken:
        """Create a token in the registry's database."""
        made, secret = self._tokens.create(name, scopes, parse_lifetime(expires))
        return wire.NewToken(token=wire.encode_token(made, now()), secret=secret.text)

    def tokens(self) -> tuple[wire.TokenDocument, ...]:
        """List the tokens, with their states as of now."""
        at = now()
        return tuple(wire.encode_token(one, at) for one in self._tokens.list())

    def rotate(self, token: TokenId, expires: str, grace: str) -> wire.NewToken:
        """Give a token a new secret."""
        made, secret = self._tokens.rotate(token, parse_lifetime(expires), parse_grace(grace))
        return wire.NewToken(token=wire.encode_token(made, now()), secret=secret.text)

    def revoke(self, token: TokenId) -> bool:
        """Revoke a token, then cancel the jobs of revoked tokens."""
        changed = self._tokens.revoke(token)
        while self._queue.cancel_token_work():
            pass
        return changed

    def log(self, limit: int, before: str | None, actor: str | None) -> tuple[wire.LogEntry, ...]:
        """List entries of the audit log, newest first."""
        return tuple(map(wire.encode_log_entry, self._log.list(limit=limit, before=before, actor=actor)))


class RemoteAccess:
    """Access control of a registry on a server."""

    def __init__(self, talk: ApiClient) -> None:
        """Send requests with ``talk``."""
        self._talk = talk

    def create(self, name: str, scopes: Scopes, expires: str) -> wire.NewToken:
        """Create a token on the server; the request is sent once, because each would create another token."""
        asked = wire.TokenRequest(name=name, scopes=tuple(sorted(scopes.texts)), expires=expires)
        return self._talk.send("POST", "tokens", asked, wire.NewToken, again=False)

    def tokens(self) -> tuple[wire.TokenDocument, ...]:
        """List the tokens of all pages."""
        found: list[wire.TokenDocument] = []
        page = self._talk.get("tokens", wire.TokenPage, limit=_PAGE)
        found += page.tokens
        while isinstance(page.next, str):
            page = self._talk.get("tokens", wire.TokenPage, limit=_PAGE, cursor=page.next)
            found += page.tokens
        return tuple(found)

    def rotate(self, token: TokenId, expires: str, grace: str) -> wire.NewToken:
        """Give a token a new secret; the request is sent once, because each would create another secret."""
        asked = wire.RotationRequest(expires=expires, grace=grace)
        path = f"{token.replace('token/', 'tokens/')}/rotation"
        return self._talk.send("POST", path, asked, wire.NewToken, again=False)

    def revoke(self, token: TokenId) -> bool:
        """Revoke a token on the server."""
        return self._talk.send("DELETE", token.replace("token/", "tokens/"), None, wire.Revoked).changed

    def log(self, limit: int, before: str | None, actor: str | None) -> tuple[wire.LogEntry, ...]:
        """List entries of as many pages as ``limit`` needs."""
        cursor = None if before is None else encode_cursor((before,))
        found: list[wire.LogEntry] = []
        while len(found) < limit:
            page = self._talk.get("log", wire.LogPage, limit=limit - len(found), cursor=cursor, actor=actor)
            found += page.log
            if not isinstance(page.next, str):
                break
            cursor = page.next
        return tuple(found)
