"""The tables of the registry, in SQLAlchemy Core: versions, locks, tokens and the audit log.

Triggers protect every table whose ``info`` has ``append_only`` (``triggers.py``). The rows that belong to a version or
lock are inserted before the row of the version or lock, in the same transaction. That row seals them: nothing can be
added afterwards. Foreign keys to a sealing row are therefore checked at the commit. No table has a hidden row number,
which a REPLACE could use in place of the key.

The key of a version is (kind, name, precedence). Precedence is a text whose bytewise order is the SemVer order. It
excludes build metadata, so versions that differ only in build metadata are the same version.

All of them are append-only. A token ends when it expires or when a row revokes it; a rotation adds a secret to it.
"""

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    MetaData,
    Table,
    text,
)

from benchlock.registry.database.column_types import DIGEST, TEXT, WHOLE, Moment, bounded_text
from benchlock.registry.database.ids_and_timestamps import DIGITS

metadata = MetaData(
    naming_convention={
        "pk": "pk_%(table_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
    }
)

APPEND_ONLY = {"append_only": True}
VERSION = ("kind", "name", "precedence")
PROVIDED = ("framework", "os", "arch", "device", "framework_precedence", "name", "precedence")


def only_prereleases(key: str) -> dict[str, Any]:
    """Return the arguments that restrict an index to rows whose column ``key`` is that of a pre-release.

    Pre-releases are few, and far apart in other indexes. Revisions contain the condition for every database; naming
    another database here would load its whole dialect.
    """
    return {"sqlite_where": text(f"{key} NOT LIKE '%~'")}


def deferred_key(columns: Sequence[str], referred: Sequence[str]) -> ForeignKeyConstraint:
    """Return a foreign key that is checked at the commit, so that dependent rows can be inserted first."""
    return ForeignKeyConstraint(columns, referred, deferrable=True, initially="DEFERRED")


def _of_version(name: str, *parts: Any) -> Table:  # noqa: ANN401 - columns and constraints alike, as Table takes them
    """Return a table whose rows belong to a version and are sealed by it."""
    return Table(
        name,
        metadata,
        *_version_key(),
        *parts,
        deferred_key(VERSION, [f"versions.{column}" for column in VERSION]),
        info=APPEND_ONLY | {"sealed_by": "versions"},
        sqlite_with_rowid=False,
    )


def _version_key() -> tuple[Column[str], Column[str], Column[str]]:
    return (
        Column("kind", bounded_text(16), primary_key=True),
        Column("name", TEXT, primary_key=True),
        Column("precedence", TEXT, primary_key=True),
    )


versions = Table(
    "versions",
    metadata,
    *_version_key(),
    Column("version", TEXT, nullable=False),  # as published, build metadata included
    Column("digest", DIGEST, nullable=False),  # of the manifest's content
    Column("framework", TEXT),  # provided by an image; null for every other kind
    Column("framework_version", TEXT),
    Column("published_at", Moment, nullable=False),
    Index(None, "digest", unique=True),
    Index(None, "framework", "name"),
    Index("ix_versions_prereleases", *VERSION, **only_prereleases("precedence")),
    info=APPEND_ONLY,
    sqlite_with_rowid=False,
)

manifests = _of_version(
    "manifests",
    Column("content", TEXT, nullable=False),  # canonical JSON; its digest is in ``versions``
    Column("authored", TEXT, nullable=False),  # the author's text: provenance, excluded from the digest
    Column("sources", TEXT, nullable=False),  # JSON: maps a file's path to its source as written
)

files = _of_version(
    "files",
    Column("path", TEXT, primary_key=True),
    Column("digest", DIGEST, nullable=False),
    Column("size", WHOLE, nullable=False),  # bytes; for a tree, the total of its files
    Column("tree", Boolean, nullable=False),  # the digest is that of a tree listing, which references further blobs
    Index(None, "digest"),
)

requirements = _of_version(
    "requirements",
    Column("required_kind", bounded_text(16), primary_key=True),
    Column("required_name", TEXT, primary_key=True),
    Column("range", TEXT, nullable=False),
    Index("ix_requirements_needs", "kind", "name", "required_kind", "required_name", "range", "precedence"),
    Index("ix_requirements_needed", "required_kind", "required_name", *VERSION, "range"),
)

platforms = _of_version(
    "platforms",
    Column("os", TEXT, primary_key=True),
    Column("arch", TEXT, primary_key=True),
    Column("device", TEXT, primary_key=True),
    Column("python", TEXT, primary_key=True),
    Column("layered", Boolean, nullable=False),  # has layers, so a container can run
)

environments = _of_version(  # the framework of an image on each platform, one row for all Python versions
    "environments",
    Column("os", TEXT, primary_key=True),
    Column("arch", TEXT, primary_key=True),
    Column("device", TEXT, primary_key=True),
    Column("framework", TEXT, nullable=False),
    Column("framework_precedence", TEXT, nullable=False),
    Index("ix_environments_provided", *PROVIDED),
    Index("ix_environments_of_prereleases", *PROVIDED, **only_prereleases("framework_precedence")),
    Index("ix_environments_in_prereleases", *PROVIDED, **only_prereleases("precedence")),
)

yanks = Table(
    "yanks",
    metadata,
    *_version_key(),
    Column("position", WHOLE, primary_key=True, autoincrement=False),  # 1, 2, ...: the last row is current
    Column("yanked", Boolean, nullable=False),
    Column("reason", TEXT, nullable=False),
    Column("at", Moment, nullable=False),
    ForeignKeyConstraint(VERSION, [f"versions.{column}" for column in VERSION]),
    info=APPEND_ONLY,
    sqlite_with_rowid=False,
)

locks = Table(
    "locks",
    metadata,
    Column("id", DIGEST, primary_key=True),
    Column("text", TEXT, nullable=False),
    Column("request", TEXT, nullable=False),  # the request's name
    Column("model", TEXT, nullable=False),
    Column("model_version", TEXT, nullable=False),
    Column("dataset", TEXT, nullable=False),
    Column("dataset_version", TEXT, nullable=False),
    Column("framework", TEXT, nullable=False),
    Column("framework_version", TEXT, nullable=False),
    Column("image", TEXT, nullable=False),
    Column("image_version", TEXT, nullable=False),
    Column("created_at", Moment, nullable=False),
    Index(None, "created_at"),
    *(
        Index(f"ix_locks_with_{kind}", kind, f"{kind}_version", "created_at", "id")
        for kind in ("model", "dataset", "framework", "image")
    ),
    info=APPEND_ONLY,
    sqlite_with_rowid=False,
)

lock_blobs = Table(
    "lock_blobs",
    metadata,
    Column("lock", DIGEST, primary_key=True),
    Column("digest", DIGEST, primary_key=True),
    Column("tree", Boolean, nullable=False),
    deferred_key(["lock"], ["locks.id"]),
    info=APPEND_ONLY | {"sealed_by": "locks"},
    sqlite_with_rowid=False,
)

imported_platforms = Table(  # platforms that bundles brought; no rows for a lock created here
    "imported_platforms",
    metadata,
    Column("lock", DIGEST, primary_key=True),
    Column("os", TEXT, primary_key=True),
    Column("arch", TEXT, primary_key=True),
    Column("device", TEXT, primary_key=True),
    Column("python", TEXT, primary_key=True),
    Column("at", Moment, nullable=False),
    ForeignKeyConstraint(["lock"], ["locks.id"]),
    info=APPEND_ONLY,
    sqlite_with_rowid=False,
)

owners = Table(  # the registry that owns this database: several registries could be configured with one address
    "owners",
    metadata,
    Column("id", bounded_text(32), primary_key=True),
    Column("at", Moment, nullable=False),
    info=APPEND_ONLY,
    sqlite_with_rowid=False,
)

blob_holds = Table(  # blobs protected from garbage collection until a time in epoch seconds; PostgreSQL only
    "blob_holds",
    metadata,
    Column("digest", DIGEST, primary_key=True),
    Column("owner", bounded_text(16), primary_key=True),  # the tag of the uploader or requester; empty in old rows
    Column("size", BigInteger, nullable=False),  # bytes of the owner's quota until the row is deleted
    Column("until", Float, nullable=False),
    Index(None, "owner"),
    sqlite_with_rowid=False,
)

record_chain = Table(  # the digest of every record, in insertion order (``record_chain.py``)
    "record_chain",
    metadata,
    Column("seq", WHOLE, primary_key=True, autoincrement=False),  # 1, 2, ... without a gap
    Column("kind", bounded_text(32), nullable=False),  # the record's table
    Column("key", TEXT, nullable=False),  # the record's primary key, its columns separated by spaces
    Column("digest", DIGEST, nullable=False),  # of the record's canonical form
    Column("link", DIGEST, nullable=False),  # SHA-256 of the previous link and of this entry
    Index(None, "kind", "key", unique=True),
    info=APPEND_ONLY,
    sqlite_with_rowid=False,
)


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
