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
    """Who may do what, and who did what."""

    def create(self, name: str, scopes: Scopes, expires: str) -> wire.NewToken: ...
    def tokens(self) -> tuple[wire.TokenDocument, ...]: ...
    def rotate(self, token: TokenId, expires: str, grace: str) -> wire.NewToken: ...
    def revoke(self, token: TokenId) -> bool: ...
    def log(self, limit: int, before: str | None, actor: str | None) -> tuple[wire.LogEntry, ...]: ...


class EmbeddedAccess:
    """That of a registry in a folder."""

    def __init__(self, registry: LocalRegistry) -> None:
        self._tokens: Tokens = open_tokens(registry)
        self._log: AuditLog = open_log(registry)
        self._queue = open_queue(registry)

    def create(self, name: str, scopes: Scopes, expires: str) -> wire.NewToken:
        made, secret = self._tokens.create(name, scopes, parse_lifetime(expires))
        return wire.NewToken(token=wire.encode_token(made, now()), secret=secret.text)

    def tokens(self) -> tuple[wire.TokenDocument, ...]:
        at = now()
        return tuple(wire.encode_token(one, at) for one in self._tokens.list())

    def rotate(self, token: TokenId, expires: str, grace: str) -> wire.NewToken:
        made, secret = self._tokens.rotate(token, parse_lifetime(expires), parse_grace(grace))
        return wire.NewToken(token=wire.encode_token(made, now()), secret=secret.text)

    def revoke(self, token: TokenId) -> bool:
        changed = self._tokens.revoke(token)
        while self._queue.cancel_token_work():
            pass
        return changed

    def log(self, limit: int, before: str | None, actor: str | None) -> tuple[wire.LogEntry, ...]:
        return tuple(map(wire.encode_log_entry, self._log.list(limit=limit, before=before, actor=actor)))


class RemoteAccess:
    """That of a registry on a server."""

    def __init__(self, talk: ApiClient) -> None:
        self._talk = talk

    def create(self, name: str, scopes: Scopes, expires: str) -> wire.NewToken:
        asked = wire.TokenRequest(name=name, scopes=tuple(sorted(scopes.texts)), expires=expires)
        return self._talk.send("POST", "tokens", asked, wire.NewToken, again=False)

    def tokens(self) -> tuple[wire.TokenDocument, ...]:
        found: list[wire.TokenDocument] = []
        page = self._talk.get("tokens", wire.TokenPage, limit=_PAGE)
        found += page.tokens
        while isinstance(page.next, str):
            page = self._talk.get("tokens", wire.TokenPage, limit=_PAGE, cursor=page.next)
            found += page.tokens
        return tuple(found)

    def rotate(self, token: TokenId, expires: str, grace: str) -> wire.NewToken:
        asked = wire.RotationRequest(expires=expires, grace=grace)
        path = f"{token.replace('token/', 'tokens/')}/rotation"
        return self._talk.send("POST", path, asked, wire.NewToken, again=False)

    def revoke(self, token: TokenId) -> bool:
        return self._talk.send("DELETE", token.replace("token/", "tokens/"), None, wire.Revoked).changed

    def log(self, limit: int, before: str | None, actor: str | None) -> tuple[wire.LogEntry, ...]:
        cursor = None if before is None else encode_cursor((before,))
        found: list[wire.LogEntry] = []
        while len(found) < limit:
            page = self._talk.get("log", wire.LogPage, limit=limit - len(found), cursor=cursor, actor=actor)
            found += page.log
            if not isinstance(page.next, str):
                break
            cursor = page.next
        return tuple(found)
