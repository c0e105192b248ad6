"""Signals between the processes of a registry: a commit of one process wakes others that wait for it."""

import time
from contextlib import ExitStack, suppress
from typing import Any, Final, Protocol

from sqlalchemy import Connection, Engine, text
from sqlalchemy.exc import SQLAlchemyError

from benchlock.registry.database import sqlite
from benchlock.registry.database.engine import translate_errors

JOBS: Final = "benchlock_jobs"
"""The channel for jobs that become available, machines that are drained or resumed, and tokens that are revoked."""
_PAUSE_SECONDS: Final = 0.05
"""Seconds between two reads of SQLite's commit counter, which takes microseconds."""
_RETRY_SECONDS: Final = 1.0
"""Seconds without a new session after PostgreSQL ended the one that listened."""


class Signal(Protocol):
    """The signals of one channel, for one thread at a time."""

    def wait(self, seconds: float) -> bool:
        """Wait for a signal since the last call, ``seconds`` at most; return whether there may have been one.

        The first call returns ``True`` at once.
        """

    def close(self) -> None:
        """Close the connection of the signal; the next ``wait`` opens another one."""


def open_signal(database: Engine, channel: str) -> Signal:
    """Open the signals of a channel, without a connection until the first ``wait``."""
    return _Notifications(database, channel) if database.dialect.name == "postgresql" else _Commits(database)


def send_signal(connection: Connection, channel: str) -> None:
    """Wake those that wait for the channel when the transaction of ``connection`` commits.

    On SQLite every commit wakes them.
    """
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_notify(:channel, '')"), {"channel": channel})


class _Commits:
    """The commits of an SQLite database."""

    def __init__(self, database: Engine) -> None:
        self._database = database
        self._counter: sqlite.CommitCounter | None = None
        self._number = 0

    def wait(self, seconds: float) -> bool:
        until = time.monotonic() + seconds
        if self._counter is None:
            with translate_errors(self._database):
                self._counter = sqlite.CommitCounter(self._database)
            self._number = self._counter()
            return True  # there may have been commits before
        while (number := self._counter()) == self._number:
            left = until - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(left, _PAUSE_SECONDS))
        self._number = number
        time.sleep(_PAUSE_SECONDS)  # commits that follow each other wake once
        return True

    def close(self) -> None:
        if self._counter is not None:
            self._counter.close()
            self._counter = None


class _Notifications:
    """The notifications of a PostgreSQL database, in a session of its own."""

    def __init__(self, database: Engine, channel: str) -> None:
        self._database, self._channel = database, channel
        self._session: Connection | None = None

    def wait(self, seconds: float) -> bool:
        try:
            if self._session is None:
                self._session = self._listen()
                return True  # there may have been signals before
            driver: Any = self._session.connection.dbapi_connection
            is_woken = any(True for _ in driver.notifies(timeout=seconds, stop_after=1))
            for _ in driver.notifies(timeout=0):
                pass  # signals of the same time wake once
        except (SQLAlchemyError, self._database.dialect.loaded_dbapi.Error):
            self.close()
            time.sleep(min(seconds, _RETRY_SECONDS))
            return True
        except BaseException:  # an interrupted session is in an unknown state
            self.close()
            raise
        return is_woken

    def close(self) -> None:
        session, self._session = self._session, None
        if session is not None:
            with suppress(SQLAlchemyError):
                session.close()

    def _listen(self) -> Connection:
        with ExitStack() as stack:
            session = stack.enter_context(self._database.connect().execution_options(isolation_level="AUTOCOMMIT"))
            session.detach()  # the pool would lend it to others
            session.exec_driver_sql(f'LISTEN "{self._channel}"')
            stack.pop_all()
        return session
