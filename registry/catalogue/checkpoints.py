"""Moving what was committed from SQLite's log into its file: beside the writers, not inside of a commit."""

import sqlite3
import threading
from contextlib import closing, suppress
from typing import Final

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

PAGES: Final = 4000
"""Pages of the log after which a commit moves itself what is left to move, and the log starts anew."""
NAME: Final = "checkpoint"
"""Of its thread."""
EVERY: Final = 64
"""Commits."""


class Checkpoints:
    """A checkpoint after so many commits, each in a thread that ends by itself.

    Left to itself SQLite makes one in about every hundredth commit, which then waits for the pages of a hundred: the
    more versions there are, the farther apart those lie.
    """

    def __init__(self) -> None:
        self._commits = 0
        self._runs = False

    def committed(self, engine: Engine) -> None:
        """Count a commit, by whoever has the turn to write; nobody waits for the checkpoint that may begin."""
        self._commits += 1
        if self._runs or self._commits < EVERY:
            return
        self._commits, self._runs = 0, True
        try:
            threading.Thread(target=self._checkpoint, args=(engine,), name=NAME).start()
        except RuntimeError:  # no thread can be had; what was committed is, and a later commit tries again
            self._runs = False

    def _checkpoint(self, engine: Engine) -> None:
        try:
            # Where it fails nothing is lost: a later one does it, and who writes hears of a disk that is full.
            with suppress(sqlite3.Error, SQLAlchemyError), closing(engine.raw_connection()) as connection:
                connection.cursor().execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
        finally:
            self._runs = False
