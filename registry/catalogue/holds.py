"""Blobs that are no garbage yet, in the database: for services whose processes share it. See ``artifacts.holds``."""

from collections.abc import Collection, Iterator
from typing import Final

from sqlalchemy import ColumnClause, Engine, Float, delete, func, literal_column, select
from sqlalchemy.dialects.postgresql import insert

from benchlock.artifacts.digest import Digest
from benchlock.artifacts.holds import BLOCK, SECONDS, tag_of
from benchlock.registry.catalogue.chain import BATCH, in_batches
from benchlock.registry.catalogue.database import changing, reading
from benchlock.registry.catalogue.tables import blob_holds

_NOW: Final[ColumnClause[float]] = literal_column("extract(epoch from clock_timestamp())::float8", Float)
"""The server's own clock: those of the hosts may differ."""


class DatabaseHolds:
    """Blobs that are held, in PostgreSQL. Implements ``Holds``."""

    def __init__(self, engine: Engine, seconds: float = SECONDS) -> None:
        self._engine = engine
        self._seconds = seconds

    def hold(self, digest: Digest, owner: str = "", size: int = 0) -> None:
        """Hold the blob from now on, committed when this returns; a hold that is there is renewed.

        Raises:
            UnavailableError: The database cannot be used.
        """
        until = _NOW + self._seconds
        statement = insert(blob_holds).values(digest=digest, owner=tag_of(owner), size=size, until=until)
        with changing(self._engine) as connection:
            connection.execute(
                statement.on_conflict_do_update(index_elements=["digest", "owner"], set_={"until": until, "size": size})
            )

    def held(self) -> Iterator[Digest]:
        """Return every blob that is held, there or not.

        Raises:
            UnavailableError: The database cannot be used.
        """
        with reading(self._engine) as connection:
            found = connection.execute(select(blob_holds.c.digest).distinct().where(blob_holds.c.until >= _NOW))
            return iter([Digest(digest) for digest in found.scalars()])

    def forget_expired(self) -> None:
        """Delete the holds that have expired.

        Raises:
            UnavailableError: The database cannot be used.
        """
        with changing(self._engine) as connection:
            connection.execute(delete(blob_holds).where(blob_holds.c.until < _NOW))

    def count_bytes(self, owner: str) -> int:
        """Return the bytes that an owner holds or held, a block a blob at least, until they are released or forgotten.

        Raises:
            UnavailableError: The database cannot be used.
        """
        query = select(func.coalesce(func.sum(func.greatest(blob_holds.c.size, BLOCK)), 0)).where(
            blob_holds.c.owner == tag_of(owner)
        )
        with reading(self._engine) as connection:
            return int(connection.execute(query).scalar_one())

    def owned(self, owner: str) -> Collection[Digest]:
        """Return the digests of those blobs.

        Raises:
            UnavailableError: The database cannot be used.
        """
        with reading(self._engine) as connection:
            query = select(blob_holds.c.digest).where(blob_holds.c.owner == tag_of(owner))
            return [Digest(digest) for digest in connection.execute(query).scalars()]

    def release(self, owner: str, digests: Collection[Digest]) -> None:
        """Delete an owner's holds of ``digests``.

        Raises:
            UnavailableError: The database cannot be used.
        """
        own = delete(blob_holds).where(blob_holds.c.owner == tag_of(owner))
        with changing(self._engine) as connection:
            for batch in in_batches(digests, BATCH):
                connection.execute(own.where(blob_holds.c.digest.in_(batch)))
