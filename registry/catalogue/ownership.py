"""Whose database it is: one registry's, since what the others say of runs and blobs is not true in its folder."""

from datetime import datetime

from sqlalchemy import Connection, Engine, select

from benchlock.artifacts.errors import RefusedError
from benchlock.registry.catalogue.chain import insert_record
from benchlock.registry.catalogue.database import place_of, reading, writing
from benchlock.registry.catalogue.tables import owners


def claim(engine: Engine, registry: str, at: datetime) -> bool:
    """Make the database that of the registry with the id ``registry``; again it changes nothing.

    Returns:
        Whether this call claimed it.

    Raises:
        RefusedError: it is another registry's.
        UnavailableError: it cannot be used.
    """
    with reading(engine) as connection:
        found = _owner(connection)
    if found is None:
        with writing(engine) as connection:
            found = _owner(connection)
            if found is None:
                insert_record(connection, owners, {"id": registry, "at": at})
                return True
    _refuse_other(engine, found, registry)
    return False


def require_owner(engine: Engine, registry: str) -> None:
    """Require that no other registry than ``registry`` has claimed the database, whatever its schema's revision.

    Raises:
        RefusedError: Another registry has.
        UnavailableError: The database cannot be used.
    """
    _refuse_other(engine, owner(engine), registry)


def _refuse_other(engine: Engine, found: str | None, registry: str) -> None:
    if found not in (None, registry):
        raise RefusedError(
            "the database belongs to another registry of benchlock",
            where=place_of(engine),
            next_step="name a database of its own, or restore the folder of the registry that has this one",
        )


def owner(engine: Engine) -> str | None:
    """The id of the registry whose database it is; none where nobody claimed it, or it is empty."""
    with reading(engine) as connection:
        return _owner(connection) if connection.dialect.has_table(connection, owners.name) else None


def _owner(connection: Connection) -> str | None:
    found: str | None = connection.execute(select(owners.c.id)).scalar()
    return found
