"""The revision of a database's schema, compared with the revision that this build needs."""

from typing import Final

from sqlalchemy import Connection, Engine

from benchlock.artifacts.errors import UnavailableError

_EXPECTED: Final = "schema_revision"
_VERSION: Final = "SELECT version_num FROM alembic_version"


class SchemaRevisionError(UnavailableError):
    """The database's schema has another revision than this build needs."""

    code = "schema-revision"


def read_revision(connection: Connection) -> str | None:
    """Read the revision of the database's schema; ``None`` where the database is empty."""
    if not connection.dialect.has_table(connection, "alembic_version"):
        return None
    return _read_version(connection)


def require_revision(found: str | None, needed: str, where: str) -> None:
    """Compare the revision of a database with the one that this build needs.

    Args:
        found: The revision of the database.
        needed: The revision that this build needs.
        where: The place of the database, for the error.

    Raises:
        SchemaRevisionError: The revisions differ; the error names the next step.
    """
    if found == needed:
        return
    if found is not None and found > needed:
        raise SchemaRevisionError(
            f"the database schema is at revision {found}, and this benchlock needs the older revision {needed}",
            where=where,
            next_step=f"use a benchlock that needs revision {found}, or go back: with the newer benchlock, stop every "
            f"service and run `benchlock db downgrade --to {needed}`",
        )
    raise SchemaRevisionError(
        f"the database schema is at revision {found}, and this benchlock needs revision {needed}",
        where=where,
        next_step="stop every service of this registry, then run `benchlock db upgrade`",
    )


def expect_revision(engine: Engine, needed: str) -> None:
    """Make every later write transaction of ``engine`` compare the revision before it writes."""
    engine.update_execution_options(**{_EXPECTED: needed})


def require_expected_revision(connection: Connection) -> None:
    """Compare the revision with the one that the connection's engine expects, if it expects one.

    Raises:
        SchemaRevisionError: The schema changed since the engine was opened.
    """
    from benchlock.registry.catalogue.database import place_of  # noqa: PLC0415 - that module imports this one

    needed: str | None = connection.get_execution_options().get(_EXPECTED)
    if needed is not None:
        require_revision(_read_version(connection), needed, place_of(connection.engine))


def _read_version(connection: Connection) -> str | None:
    if connection.dialect.name == "sqlite":  # past SQLAlchemy: every write transaction asks
        cursor = connection.connection.cursor()
        cursor.execute(_VERSION)
        row = cursor.fetchone()
        return row[0] if row else None
    found: str | None = connection.exec_driver_sql(_VERSION).scalar()
    return found
