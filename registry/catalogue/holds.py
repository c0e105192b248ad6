"""Blobs that are no garbage yet, in the database: for services whose processes share it. See ``artifacts.holds``."""

from collections.abc import Iterator
from typing import Final

from sqlalchemy import ColumnClause, Engine, Float, delete, literal_column, select
from sqlalchemy.dialects.postgresql import insert

from artifacts.digest import Digest
from artifacts.holds import SECONDS
from registry.catalogue.database import changing
from registry.catalogue.tables import blob_holds

_NOW: Final[ColumnClause[float]] = literal_column("extract(epoch from clock_timestamp())::float8", Float)
"""The server's own clock: those of the hosts may differ."""


class DatabaseHolds:
    """Blobs that are held, in PostgreSQL. Implements ``Holds``."""

    def __init__(self, engine: Engine, seconds: float = SECONDS) -> None:
        self._engine = engine
        self._seconds = seconds

    def hold(self, digest: Digest) -> None:
        """Hold the blob from now on, committed when this returns; a hold that is there is renewed.

        Raises:
            UnavailableError: The database cannot be used.
        """
        until = _NOW + self._seconds
        statement = insert(blob_holds).values(digest=digest, until=until)
        with changing(self._engine) as connection:
            connection.execute(statement.on_conflict_do_update(index_elements=["digest"], set_={"until": until}))

    def held(self) -> Iterator[Digest]:
        """Return every blob that is held, there or not; delete the holds that are over.

        Raises:
            UnavailableError: The database cannot be used.
        """
        with changing(self._engine) as connection:
            connection.execute(delete(blob_holds).where(blob_holds.c.until < _NOW))
            found = connection.execute(select(blob_holds.c.digest)).scalars().all()
        return (Digest(digest) for digest in found)
