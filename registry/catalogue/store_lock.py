"""A lock of the blob store in PostgreSQL, for processes of several hosts that share a database.

Writers share it, the collection of garbage holds it alone. It is a session-level advisory lock: the server frees it
when its holder is killed. All writers of one process share one session, so nested writers never wait for a collection
that waits for them. Every transaction that writes in a writer's thread checks that the writer's session still stands
(``protection``). A lock is polled rather than queued for, since a queued collection would block the writers of every
other process until the last writer is done.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Final

from sqlalchemy import Connection, Engine, text

from benchlock.artifacts.errors import UnavailableError
from benchlock.artifacts.locking import PATIENCE
from benchlock.registry.catalogue.database import place_of, translated
from benchlock.registry.catalogue.protection import STORE_KEY, Protection, identify_session, requiring

_PAUSE: Final = 0.05


class DatabaseStoreLock:
    """The lock of the store that belongs to a database. Implements ``StoreLock``."""

    def __init__(self, engine: Callable[[], Engine]) -> None:
        """``engine`` is called when the lock is first needed."""
        self._engine = engine
        self._turn = Lock()
        self._writers = 0
        self._session: Connection | None = None
        self._protection: Protection | None = None
        self._collection: Connection | None = None

    @contextmanager
    def held(self, *, alone: bool) -> Iterator[None]:
        """Hold the lock, together with other writers or alone.

        Raises:
            UnavailableError: The database cannot be used, or others held the lock for longer than ``PATIENCE``. Also of
                a transaction that writes inside of the context, where the lock was lost meanwhile.
        """
        if alone:
            with self._held_alone():
                yield
            return
        protection = self._enter()
        try:
            with requiring(protection):
                yield
        finally:
            self._leave()

    def check(self) -> None:
        """Require that a collection still holds the lock alone; nothing to check outside of one.

        Raises:
            UnavailableError: The session that held it has ended.
        """
        if self._collection is not None:
            with translated(self._engine()):
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
        patience = PATIENCE.get()
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
            with translated(self._engine()):
                session.execute(text("SELECT 1"))
        except UnavailableError:  # the session has ended, and with it the lock
            return False
        return True

    def _leave(self) -> None:
        with self._turn:
            self._writers -= 1
            if self._writers or self._session is None:
                return
            session, self._session, self._protection = self._session, None, None
            try:
                with translated(self._engine()):
                    session.execute(text(f"SELECT pg_advisory_unlock_shared({STORE_KEY})"))
                    session.close()
            except UnavailableError:  # the session has ended, and with it the lock
                _end(session)

    def _shared_session(self) -> tuple[Connection, Protection]:
        session = self._locked_session("pg_try_advisory_lock_shared")
        try:
            with translated(self._engine()):
                return session, identify_session(session)
        except BaseException:
            _end(session)
            raise

    def _locked_session(self, function: str) -> Connection:
        engine = self._engine()
        with translated(engine):
            session = engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        try:
            self._poll(session, function)
        except BaseException:
            _end(session)
            raise
        return session

    def _poll(self, session: Connection, function: str) -> None:
        patience = PATIENCE.get()
        until = None if patience is None else time.monotonic() + patience
        while True:
            with translated(self._engine()):
                if session.execute(text(f"SELECT {function}({STORE_KEY})")).scalar():
                    return
            if until is not None and time.monotonic() >= until:
                raise self._timeout(patience or 0)
            time.sleep(_PAUSE)

    def _timeout(self, patience: float) -> UnavailableError:
        return UnavailableError(
            f"the store is locked for more than {patience:g} seconds: garbage is being collected",
            where=place_of(self._engine()),
            next_step="try again in a few seconds",
        )


def _end(session: Connection) -> None:
    """End the session itself, which frees its locks, instead of giving it back to the pool."""
    with suppress(Exception):  # it may have ended already
        session.invalidate()
    with suppress(Exception):
        session.close()
