"""Bodies for tokens, the audit log and the current caller."""

from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from benchlock.artifacts import size_limits
from benchlock.registry.auth.permissions import AuditEntry, Outcome
from benchlock.registry.auth.token_format import DEFAULT_LIFETIME_DAYS, State, Token

Scope = Annotated[str, size_limits.limit_text(144, "publish:acme")]
TokenIdText = Annotated[str, Meta(pattern=r"^token/[0-9a-z]{26}$", examples=["token/01m7zpsb9cmkr23pzwhqxxkrge"])]


class TokenRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token to create; ``expires`` is its lifetime in days, hours or minutes."""

    name: Annotated[str, size_limits.limit_text(64, "ci")]
    scopes: Annotated[tuple[Scope, ...], Meta(min_length=1, max_length=64)]
    expires: Annotated[str, Meta(examples=["30d"], max_length=16)] = f"{DEFAULT_LIFETIME_DAYS}d"


class RotationRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new secret for a token. The current secret stays valid for the period ``grace``."""

    expires: Annotated[str, Meta(examples=["30d"], max_length=16)] = f"{DEFAULT_LIFETIME_DAYS}d"
    grace: Annotated[str, Meta(examples=["1h"], max_length=16)] = "1h"


class TokenDocument(Struct, frozen=True, kw_only=True):
    """The metadata of a token, without its secret."""

    id: TokenIdText
    name: str
    scopes: tuple[str, ...]
    created_by: str
    created_at: datetime
    expires_at: datetime
    revoked_at: datetime | None
    state: State
    rotated_at: datetime | None = None


class NewToken(Struct, frozen=True, kw_only=True):
    """A new token and its secret, which cannot be retrieved again."""

    token: TokenDocument
    secret: str


class TokenPage(Struct, frozen=True, kw_only=True):
    """Tokens, oldest first; ``next`` is the cursor of the next page, absent on the last."""

    tokens: tuple[TokenDocument, ...]
    next: str | UnsetType = UNSET


class RevocationResult(Struct, frozen=True, kw_only=True):
    """The result of a revocation; ``changed`` is false if the token was already revoked."""

    token: TokenIdText
    revoked: bool = True
    changed: bool


class AuditLogEntry(Struct, frozen=True, kw_only=True):
    """An action that was performed or refused; ``actor`` is the id of a token, or a word if there was no token."""

    id: str
    at: datetime
    actor: str
    action: str
    target: str
    request: str | None
    outcome: Outcome
    reason: str


class AuditLogPage(Struct, frozen=True, kw_only=True):
    """Entries, newest first; ``next`` is the cursor of the next page, absent on the last."""

    log: tuple[AuditLogEntry, ...]
    next: str | UnsetType = UNSET


def encode_token(token: Token, at: datetime) -> TokenDocument:
    """Encode a token with its state at the time ``at``."""
    return TokenDocument(
        id=token.id,
        name=token.name,
        scopes=tuple(sorted(token.scopes.texts)),
        created_by=token.created_by,
        created_at=token.created_at,
        expires_at=token.expires_at,
        revoked_at=token.revoked_at,
        state=token.state(at),
        rotated_at=token.rotated_at,
    )


def encode_log_entry(entry: AuditEntry) -> AuditLogEntry:
    """Encode an entry of the audit log."""
    return AuditLogEntry(
        id=entry.id,
        at=entry.at,
        actor=entry.actor,
        action=entry.action,
        target=entry.target,
        request=entry.request,
        outcome=entry.outcome,
        reason=entry.reason,
    )


class Caller(Struct, frozen=True, kw_only=True):
    """The current caller, a token's id or a word without a token, and its scopes."""

    id: str
    scopes: tuple[str, ...]
