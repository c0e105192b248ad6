"""Moving what was committed from SQLite's log into its file: beside the writers, not inside of a commit."""

import sqlite3
import threading
from contextlib import closing, suppress
from typing import Final

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

PAGES: Final = 4000
"""Pages of the log after which a commit moves itself what is left to move, and the log starts anew."""
NAME: Final = "checkpoint"
"""Of its thread."""
_ROWS: Final = 250
_COUNTED: Final = "rows counted"


class Checkpoints:
    """A checkpoint after so many rows, each in a thread that ends by itself.

    Left to itself SQLite makes one in about every hundredth commit, which then waits for the pages of a hundred: the
    more versions there are, the farther apart those lie.
    """

    def __init__(self) -> None:
        self._own = threading.Lock()
        self._rows = 0
        self._runs = False

    def after(self, connection: Connection) -> None:
        """Count what was committed on the connection; nobody waits for the checkpoint that may begin."""
        rows: int = connection.connection.total_changes
        with self._own:
            self._rows += rows - connection.info.get(_COUNTED, 0)
            connection.info[_COUNTED] = rows
            if self._runs or self._rows < _ROWS:
                return
            self._rows, self._runs = 0, True
        try:
            threading.Thread(target=self._checkpoint, args=(connection.engine,), name=NAME).start()
        except RuntimeError:  # no thread can be had; what was committed is, and a later commit tries again
            self._runs = False

    def _checkpoint(self, engine: Engine) -> None:
        try:
            # Where it fails nothing is lost: a later one does it, and who writes hears of a disk that is full.
            with suppress(sqlite3.Error, SQLAlchemyError), closing(engine.raw_connection()) as connection:
                connection.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        finally:
            self._runs = False
