"""The tables of tokens and of the audit log, in SQLAlchemy Core.

All of them are append-only. A token ends when it expires or when a row revokes it; a rotation adds a secret to it.
"""

from sqlalchemy import Column, ForeignKey, Index, Table

from benchlock.registry.database.catalogue_schema import APPEND_ONLY, metadata
from benchlock.registry.database.column_types import DIGEST, TEXT, WHOLE, Moment, bounded_text
from benchlock.registry.database.record_values import DIGITS

TOKEN_ID = bounded_text(len("token/") + DIGITS)

tokens = Table(
    "tokens",
    metadata,
    Column("id", TOKEN_ID, primary_key=True),
    Column("digest", DIGEST, nullable=False),  # of the token's text, which is not stored
    Column("name", TEXT, nullable=False),
    Column("scopes", TEXT, nullable=False),  # separated by spaces
    Column("created_by", TEXT, nullable=False),
    Column("created_at", Moment, nullable=False),
    Column("expires_at", Moment, nullable=False),
    Index(None, "digest", unique=True),
    info=APPEND_ONLY,
    sqlite_with_rowid=False,
)

token_revocations = Table(
    "token_revocations",
    metadata,
    Column("token", TOKEN_ID, ForeignKey("tokens.id"), primary_key=True),
    Column("at", Moment, nullable=False),
    info=APPEND_ONLY,
    sqlite_with_rowid=False,
)

token_rotations = Table(  # new secrets of tokens; the previous secret expires at ``grace_until``
    "token_rotations",
    metadata,
    Column("token", TOKEN_ID, ForeignKey("tokens.id"), primary_key=True),
    Column("number", WHOLE, primary_key=True, autoincrement=False),  # 1 for the first rotation
    Column("digest", DIGEST, nullable=False),  # of the new secret
    Column("at", Moment, nullable=False),
    Column("grace_until", Moment, nullable=False),
    Column("expires_at", Moment, nullable=False),  # the new expiry of the token
    Index(None, "digest", unique=True),
    info=APPEND_ONLY,
    sqlite_with_rowid=False,
)

actions = Table(
    "actions",
    metadata,
    Column("id", bounded_text(DIGITS), primary_key=True),  # sorts by time
    Column("at", Moment, nullable=False),
    Column("actor", TEXT, nullable=False),  # a token's id, or a word such as "embedded" without one
    Column("action", TEXT, nullable=False),
    Column("target", TEXT, nullable=False),
    Column("request", TEXT),  # the id of the HTTP request; null without a server
    Column("outcome", bounded_text(16), nullable=False),
    Column("reason", TEXT, nullable=False),
    Index(None, "actor", "id"),
    info=APPEND_ONLY,
    sqlite_with_rowid=False,
)
