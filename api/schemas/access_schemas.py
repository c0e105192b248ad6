"""Bodies for tokens, the audit log and the current caller."""

from datetime import datetime
from typing import Annotated

from msgspec import UNSET, Meta, Struct, UnsetType

from benchlock.api.schemas.shared_fields import limit_text
from benchlock.registry.auth.audit_log import AuditEntry, Outcome
from benchlock.registry.auth.tokens import State, Token

Scope = Annotated[str, limit_text(144, "publish:acme")]
TokenIdText = Annotated[str, Meta(pattern=r"^token/[0-9a-z]{26}$", examples=["token/01m7zpsb9cmkr23pzwhqxxkrge"])]


class TokenRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token to make; ``expires`` is its life in days, hours or minutes."""

    name: Annotated[str, limit_text(64, "ci")]
    scopes: Annotated[tuple[Scope, ...], Meta(min_length=1, max_length=64)]
    expires: Annotated[str, Meta(examples=["30d"], max_length=16)] = "90d"


class RotationRequest(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A new secret for a token. The current secret stays valid for the period ``grace``."""

    expires: Annotated[str, Meta(examples=["30d"], max_length=16)] = "90d"
    grace: Annotated[str, Meta(examples=["1h"], max_length=16)] = "1h"


class TokenDocument(Struct, frozen=True, kw_only=True):
    """What is known of a token: everything but its text."""

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
    """A token that was made, and its text, which nobody can ask for again."""

    token: TokenDocument
    secret: str


class TokenPage(Struct, frozen=True, kw_only=True):
    """Tokens, oldest first; ``next`` is the cursor of what follows, absent at the end."""

    tokens: tuple[TokenDocument, ...]
    next: str | UnsetType = UNSET


class Revoked(Struct, frozen=True, kw_only=True):
    """``changed`` is false where it was revoked already."""

    token: TokenIdText
    revoked: bool = True
    changed: bool


class LogEntry(Struct, frozen=True, kw_only=True):
    """Something that was done, or refused. ``actor`` is a token's id, or a word where there is none."""

    id: str
    at: datetime
    actor: str
    action: str
    target: str
    request: str | None
    outcome: Outcome
    reason: str


class LogPage(Struct, frozen=True, kw_only=True):
    """Entries, newest first; ``next`` is the cursor of what follows, absent at the end."""

    log: tuple[LogEntry, ...]
    next: str | UnsetType = UNSET


def encode_token(token: Token, at: datetime) -> TokenDocument:
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


def encode_log_entry(entry: AuditEntry) -> LogEntry:
    return LogEntry(
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
    """Who asks: a token by its id, or a word where there is none; and what they may do."""

    id: str
    scopes: tuple[str, ...]
