"""Tokens and the audit log of a registry, in a folder or on a server."""

from typing import Protocol

from benchlock.api.client.api_client import ApiClient
from benchlock.api.client.embedded_queue import open_queue
from benchlock.api.local.local_registry import LocalRegistry, now, open_log, open_tokens
from benchlock.api.schemas import access_schemas as wire
from benchlock.api.schemas.pagination_cursors import encode_cursor
from benchlock.registry.auth.audit_log import AuditLog
from benchlock.registry.auth.permissions import Scopes
from benchlock.registry.auth.token_format import TokenId
from benchlock.registry.auth.tokens import Tokens, parse_grace, parse_lifetime

_PAGE = 1000


class Access(Protocol):
    """The tokens and the audit log of a registry."""

    def create(self, name: str, scopes: Scopes, expires: str) -> wire.NewToken:
        """Create a token with a lifetime such as ``30d``; only this result has its secret."""

    def tokens(self, prefix: str | None = None, limit: int | None = None) -> tuple[wire.TokenDocument, ...]:
        """List tokens, oldest first.

        Args:
            prefix: Only tokens whose ids begin with this, with ``token/``.
            limit: The maximum number of tokens; None for all.
        """

    def rotate(self, token: TokenId, expires: str, grace: str) -> wire.NewToken:
        """Give a token a new secret; the current one stays valid for the period ``grace``.

        Args:
            token: The token.
            expires: The lifetime of the new secret, such as ``30d``.
            grace: How long the current secret stays valid, such as ``1h``.
        """

    def revoke(self, token: TokenId) -> bool:
        """Revoke a token and cancel the work that it started; return whether this changed it."""

    def log(self, limit: int, before: str | None, actor: str | None) -> tuple[wire.AuditLogEntry, ...]:
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
        new_token, secret = self._tokens.create(name, scopes, parse_lifetime(expires))
        return wire.NewToken(token=wire.encode_token(new_token, now()), secret=secret.text)

    def tokens(self, prefix: str | None = None, limit: int | None = None) -> tuple[wire.TokenDocument, ...]:
        """List the tokens, with their states as of now."""
        at = now()
        return tuple(wire.encode_token(token, at) for token in self._tokens.list(prefix=prefix, limit=limit))

    def rotate(self, token: TokenId, expires: str, grace: str) -> wire.NewToken:
        """Give a token a new secret."""
        new_token, secret = self._tokens.rotate(token, parse_lifetime(expires), parse_grace(grace))
        return wire.NewToken(token=wire.encode_token(new_token, now()), secret=secret.text)

    def revoke(self, token: TokenId) -> bool:
        """Revoke a token, then cancel the jobs of revoked tokens."""
        changed = self._tokens.revoke(token)
        while self._queue.cancel_token_work():
            pass
        return changed

    def log(self, limit: int, before: str | None, actor: str | None) -> tuple[wire.AuditLogEntry, ...]:
        """List entries of the audit log, newest first."""
        return tuple(map(wire.encode_log_entry, self._log.list(limit=limit, before=before, actor=actor)))


class RemoteAccess:
    """Access control of a registry on a server."""

    def __init__(self, client: ApiClient) -> None:
        """Send requests with ``client``."""
        self._client = client

    def create(self, name: str, scopes: Scopes, expires: str) -> wire.NewToken:
        """Create a token on the server; the request is sent once, because each would create another token."""
        body = wire.TokenRequest(name=name, scopes=tuple(sorted(scopes.texts)), expires=expires)
        return self._client.send("POST", "tokens", body, wire.NewToken, again=False)

    def tokens(self, prefix: str | None = None, limit: int | None = None) -> tuple[wire.TokenDocument, ...]:
        """List the tokens of as many pages as ``limit`` needs."""
        tokens: list[wire.TokenDocument] = []
        cursor: str | None = None
        while limit is None or len(tokens) < limit:
            page_size = _PAGE if limit is None else min(limit - len(tokens), _PAGE)
            page = self._client.get("tokens", wire.TokenPage, limit=page_size, cursor=cursor, prefix=prefix)
            tokens += page.tokens
            if not isinstance(page.next, str):
                break
            cursor = page.next
        return tuple(tokens)

    def rotate(self, token: TokenId, expires: str, grace: str) -> wire.NewToken:
        """Give a token a new secret; the request is sent once, because each would create another secret."""
        body = wire.RotationRequest(expires=expires, grace=grace)
        path = f"{token.replace('token/', 'tokens/')}/rotation"
        return self._client.send("POST", path, body, wire.NewToken, again=False)

    def revoke(self, token: TokenId) -> bool:
        """Revoke a token on the server."""
        return self._client.send("DELETE", token.replace("token/", "tokens/"), None, wire.RevocationResult).changed

    def log(self, limit: int, before: str | None, actor: str | None) -> tuple[wire.AuditLogEntry, ...]:
        """List entries of as many pages as ``limit`` needs."""
        cursor = None if before is None else encode_cursor((before,))
        entries: list[wire.AuditLogEntry] = []
        while len(entries) < limit:
            page = self._client.get("log", wire.AuditLogPage, limit=limit - len(entries), cursor=cursor, actor=actor)
            entries += page.log
            if not isinstance(page.next, str):
                break
            cursor = page.next
        return tuple(entries)
