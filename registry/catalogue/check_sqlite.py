"""SQLite's own checks of a database file."""

from collections.abc import Iterator
from typing import Final

from sqlalchemy import Connection

_SOUND: Final = "ok"


def find_damage(connection: Connection) -> Iterator[str]:
    """Yield what SQLite finds damaged: pages, the order of rows, indexes, constraints and foreign keys."""
    for finding in connection.exec_driver_sql("PRAGMA integrity_check").scalars():
        if finding != _SOUND:
            yield f"SQLite's integrity check: {finding}"
    for table, _, referred, _ in connection.exec_driver_sql("PRAGMA foreign_key_check"):
        yield f"SQLite's foreign key check: a row of {table} has no row in {referred}"
