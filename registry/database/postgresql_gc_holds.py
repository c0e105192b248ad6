"""Protection of blobs from garbage collection on PostgreSQL: holds of uploads and the store lock.

Writers share the store lock, and garbage collection holds it alone. It is a session-level advisory lock, so the server
releases it when the holder is killed. All writers of a process share one session; a nested writer therefore never waits
for a collection that waits for its own process. Every write transaction in a writer's thread checks that the session
still exists (``postgresql.require_protection``). The lock is polled, not queued for: a queued collection would block
the writers of all other processes until the last writer is done.
"""

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Final

from sqlalchemy import ColumnClause, Connection, Engine, Float, delete, func, literal_column, select, text
from sqlalchemy.dialects.postgresql import insert

from benchlock.artifacts.atomic_files import LOCK_TIMEOUT
from benchlock.artifacts.digest import Digest
from benchlock.artifacts.errors import UnavailableError
from benchlock.artifacts.uploads.gc_holds import BLOCK_BYTES, HOLD_SECONDS, make_owner_tag
from benchlock.registry.database.engine import (
    database_location,
    read_transaction,
    row_lock_transaction,
    translate_errors,
)
from benchlock.registry.database.postgresql import STORE_KEY, Protection, hold_protection, identify_session
from benchlock.registry.database.record_chain import BATCH, in_batches
from benchlock.registry.database.registry_schema import blob_holds

_NOW: Final[ColumnClause[float]] = literal_column("extract(epoch from clock_timestamp())::float8", Float)
"""The clock of the server, because the clocks of the hosts may differ."""


class DatabaseHolds:
    """Blob holds in PostgreSQL; implements ``Holds``.

    Args:
        engine: The database.
        seconds: How long a hold lasts, in seconds.
    """

    def __init__(self, engine: Engine, seconds: float = HOLD_SECONDS) -> None:
        """Open the holds in the database ``engine``."""
        self._engine = engine
        self._seconds = seconds

    def hold(self, digest: Digest, owner: str = "", size: int = 0) -> None:
        """Hold a blob from now on, or renew its hold; the hold is committed when this method returns.

        Args:
            digest: The digest of the blob.
            owner: Who uploads or requests the blob; empty for nobody in particular.
            size: The size in bytes that counts towards the owner's quota.

        Raises:
            UnavailableError: The database cannot be used.
        """
        until = _NOW + self._seconds
        statement = insert(blob_holds).values(digest=digest, owner=make_owner_tag(owner), size=size, until=until)
        with row_lock_transaction(self._engine) as connection:
            connection.execute(
                statement.on_conflict_do_update(index_elements=["digest", "owner"], set_={"until": until, "size": size})
            )

    def held(self) -> Iterator[Digest]:
        """Return the digests with a hold, whether or not the blob is stored.

        Raises:
            UnavailableError: The database cannot be used.
        """
        with read_transaction(self._engine) as connection:
            rows = connection.execute(select(blob_holds.c.digest).distinct().where(blob_holds.c.until >= _NOW))
            return iter([Digest(digest) for digest in rows.scalars()])

    def forget_expired(self) -> None:
        """Delete the holds that have expired.

        Raises:
            UnavailableError: The database cannot be used.
        """
        with row_lock_transaction(self._engine) as connection:
            connection.execute(delete(blob_holds).where(blob_holds.c.until < _NOW))

    def count_bytes(self, owner: str) -> int:
        """Return the bytes that an owner's holds count, at least one block for each blob.

        Expired holds count until they are released or deleted.

        Raises:
            UnavailableError: The database cannot be used.
        """
        query = select(func.coalesce(func.sum(func.greatest(blob_holds.c.size, BLOCK_BYTES)), 0)).where(
            blob_holds.c.owner == make_owner_tag(owner)
        )
        with read_transaction(self._engine) as connection:
            return int(connection.execute(query).scalar_one())

    def owned(self, owner: str) -> Collection[Digest]:
        """Return the digests of an owner's holds, expired holds included.

        Raises:
            UnavailableError: The database cannot be used.
        """
        with read_transaction(self._engine) as connection:
            query = select(blob_holds.c.digest).where(blob_holds.c.owner == make_owner_tag(owner))
            return [Digest(digest) for digest in connection.execute(query).scalars()]

    def release(self, owner: str, digests: Collection[Digest]) -> None:
        """Delete an owner's holds of ``digests``.

        Raises:
            UnavailableError: The database cannot be used.
        """
        statement = delete(blob_holds).where(blob_holds.c.owner == make_owner_tag(owner))
        with row_lock_transaction(self._engine) as connection:
            for batch in in_batches(digests, BATCH):
                connection.execute(statement.where(blob_holds.c.digest.in_(batch)))


_PAUSE: Final = 0.05


class DatabaseStoreLock:
    """The lock of the blob store that belongs to a database; implements ``StoreLock``.

    Args:
        engine: Returns the database; it is called when the lock is first needed.
    """

    def __init__(self, engine: Callable[[], Engine]) -> None:
        """Create the lock without opening the database."""
        self._engine = engine
        self._turn = Lock()
        self._writers = 0
        self._session: Connection | None = None
        self._protection: Protection | None = None
        self._collection: Connection | None = None

    @contextmanager
    def held(self, *, alone: bool) -> Iterator[None]:
        """Hold the lock together with other writers, or alone.

        Raises:
            UnavailableError: The database cannot be used, or the lock was not free within ``LOCK_TIMEOUT``. A write
                transaction inside the context raises it as well if the lock was lost.
        """
        if alone:
            with self._held_alone():
                yield
            return
        protection = self._enter()
        try:
            with hold_protection(protection):
                yield
        finally:
            self._leave()

    def check(self) -> None:
        """Require that a running collection still holds the lock alone; do nothing outside of a collection.

        Raises:
            UnavailableError: The session that held the lock has ended.
        """
        if self._collection is not None:
            with translate_errors(self._engine()):
                self._collection.execute(text("SELECT 1"))

    @contextmanager
    def _held_alone(self) -> Iterator[None]:
        session = self._locked_session("pg_try_advisory_lock")
        self._collection = session
        try:
            yield
        finally:
            self._collection = None
            _end(session)

    def _enter(self) -> Protection:
        patience = LOCK_TIMEOUT.get()
        if not self._turn.acquire(timeout=-1 if patience is None else patience):
            raise self._timeout(patience or 0)
        try:
            if self._session is None or not self._is_alive(self._session):
                if self._session is not None:
                    _end(self._session)
                self._session = self._protection = None
                self._session, self._protection = self._shared_session()
            assert self._protection is not None
            self._writers += 1
            return self._protection
        finally:
            self._turn.release()

    def _is_alive(self, session: Connection) -> bool:
        try:
            with translate_errors(self._engine()):
                session.execute(text("SELECT 1"))
        except UnavailableError:  # the session has ended, which released the lock
            return False
        return True

    def _leave(self) -> None:
        with self._turn:
            self._writers -= 1
            if self._writers or self._session is None:
                return
            session, self._session, self._protection = self._session, None, None
            try:
                with translate_errors(self._engine()):
                    session.execute(text(f"SELECT pg_advisory_unlock_shared({STORE_KEY})"))
                    session.close()
            except UnavailableError:  # the session has ended, which released the lock
                _end(session)

    def _shared_session(self) -> tuple[Connection, Protection]:
        session = self._locked_session("pg_try_advisory_lock_shared")
        try:
            with translate_errors(self._engine()):
                return session, identify_session(session)
        except BaseException:
            _end(session)
            raise

    def _locked_session(self, function: str) -> Connection:
        engine = self._engine()
        with translate_errors(engine):
            session = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            self._poll(session, function)
        except BaseException:
            _end(session)
            raise
        return session

    def _poll(self, session: Connection, function: str) -> None:
        patience = LOCK_TIMEOUT.get()
        until = None if patience is None else time.monotonic() + patience
        while True:
            with translate_errors(self._engine()):
                if session.execute(text(f"SELECT {function}({STORE_KEY})")).scalar():
                    return
            if until is not None and time.monotonic() >= until:
                raise self._timeout(patience or 0)
            time.sleep(_PAUSE)

    def _timeout(self, patience: float) -> UnavailableError:
        return UnavailableError(
            f"the store has been locked by garbage collection for more than {patience:g} seconds",
            where=database_location(self._engine()),
            next_step="try again in a few seconds",
        )


def _end(session: Connection) -> None:
    """End the session, which releases its locks, instead of returning it to the pool."""
    with suppress(Exception):  # it may have ended already
        session.invalidate()
    with suppress(Exception):
        session.close()
