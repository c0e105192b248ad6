"""The pages of administrators: tokens and the audit log."""

from dataclasses import dataclass
from datetime import datetime
from typing import Final

from benchlock.api.schemas.pagination_cursors import decode_cursor, encode_cursor
from benchlock.api.web.links import with_query
from benchlock.api.web.page import Page
from benchlock.evaluator.analysis.tables import Column, Table
from benchlock.registry.auth.audit_log import AuditLog
from benchlock.registry.auth.permissions import AuditEntry
from benchlock.registry.auth.token_format import DEFAULT_LIFETIME_DAYS, Secret, Token
from benchlock.registry.auth.tokens import Tokens

ROWS: Final = 50
_TOKENS: Final = (
    Column("token", None, "The id of the token."),
    Column("name", None, "Its name."),
    Column("scopes", None, "What it may do."),
    Column("state", None, "Whether it is valid."),
    Column("expires", None, "When it expires, UTC."),
    Column("last_logged", None, "Its newest entry in the audit log, UTC. Reading is not logged."),
    Column("created", None, "When it was created, UTC."),
    Column("created_by", None, "Who created it."),
)
_LOG: Final = (
    Column("at", None, "When, UTC."),
    Column("actor", None, "The id of a token, or a word without one."),
    Column("action", None, "The name of the action."),
    Column("target", None, "The object of the action, with details."),
    Column("outcome", None, "Whether it was done, refused or failed."),
    Column("reason", None, "Why it was not done."),
    Column("request", None, "The id of the HTTP request."),
)
_NOTE: Final = "Last logged is the newest entry of the token in the audit log. The registry does not log reads."


@dataclass(frozen=True, slots=True)
class TokenQuery:
    """The state of the list of tokens in its address."""

    cursor: str = ""


@dataclass(frozen=True, slots=True)
class LogQuery:
    """The state of the audit log in its address."""

    actor: str = ""
    cursor: str = ""


def make_open_tokens() -> Page:
    """Make the page of tokens of a service that accepts everybody."""
    return Page("tokens", "Tokens", {"is_managed": False})


def make_tokens(tokens: Tokens, log: AuditLog, query: TokenQuery, at: datetime) -> Page:
    """Make a page of the list of tokens, oldest first.

    Args:
        tokens: The tokens of the registry.
        log: Its audit log.
        query: The state of the list.
        at: The current time.
    """
    after = decode_cursor(query.cursor, 1)[0] if query.cursor else None
    entries = tokens.list(after=after, limit=ROWS + 1)
    page, more = entries[:ROWS], len(entries) > ROWS
    last = log.find_last_times([token.id for token in page])
    rows = tuple(
        (
            token.id,
            token.name,
            str(token.scopes),
            token.state(at),
            _format_minute(token.expires_at),
            _format_minute(last[token.id]) if token.id in last else None,
            _format_minute(token.created_at),
            token.created_by,
        )
        for token in page
    )
    return Page(
        "tokens",
        "Tokens",
        {
            "is_managed": True,
            "valid": tuple(token for token in page if token.state(at) == "valid"),
            "lifetime": f"{DEFAULT_LIFETIME_DAYS}d",
            "next": with_query("/tokens", cursor=encode_cursor((page[-1].id,))) if more else "",
        },
        {"tokens": Table("tokens", "Tokens, oldest first", _TOKENS, rows, notes=(_NOTE,))},
        with_query("/v1/tokens", cursor=query.cursor),
    )


def make_new_token(token: Token, secret: Secret) -> Page:
    """Make the only page that shows the secret of a token."""
    return Page(
        "token",
        f"New token {token.name}",
        {"token": token, "secret": secret.text},
        breadcrumbs=(("/tokens", "Tokens"),),
        has_secret=True,
    )


def make_log(log: AuditLog, query: LogQuery) -> Page:
    """Make a page of the audit log, newest first."""
    before = decode_cursor(query.cursor, 1)[0] if query.cursor else None
    entries = log.list(limit=ROWS + 1, before=before, actor=query.actor or None)
    cursor = encode_cursor((entries[ROWS - 1].id,)) if len(entries) > ROWS else ""
    rows = tuple(map(_make_log_row, entries[:ROWS]))
    return Page(
        "audit",
        "Audit log",
        {"chosen": query, "next": with_query("/audit", actor=query.actor, cursor=cursor) if cursor else ""},
        {"log": Table("log", "Actions, newest first", _LOG, rows)},
        with_query("/v1/log", actor=query.actor, cursor=query.cursor),
    )


def _make_log_row(entry: AuditEntry) -> tuple[str | None, ...]:
    time = f"{entry.at:%Y-%m-%d %H:%M:%S}"
    return time, entry.actor, entry.action, entry.target, entry.outcome, entry.reason or None, entry.request


def _format_minute(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M}"
