"""The schema of a database file, compared with the schema that the revisions make."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Final

from sqlalchemy import Connection, create_engine, text

from benchlock.migrations import upgrade_within

_OBJECTS: Final = text("SELECT type || ' ' || name AS named, sql FROM sqlite_master WHERE sql IS NOT NULL")
_INSIGNIFICANT: Final = re.compile(r'[\s"]+')
"""What releases of SQLite write in different ways when a table is altered."""
_UNEXPECTED: Final = "trigger "
"""What changes how others work; a table or an index that an administrator adds does not."""


def find_changes(connection: Connection) -> Iterator[str]:
    """Yield what differs from the schema that the revisions make: tables, indexes and triggers of SQLite.

    PostgreSQL keeps its schema in tables of its own, with types and triggers that are compared elsewhere.
    """
    if connection.dialect.name != "sqlite":
        return
    found, expected = _read_objects(connection), _read_expected()
    for name in sorted(expected.keys() | found.keys()):
        if name not in found:
            yield f"the {name} is missing from the schema"
        elif name not in expected and name.startswith(_UNEXPECTED):
            yield f"the {name} is not part of the schema"
        elif name in expected and found[name] != expected[name]:
            yield f"the {name} is not what the revisions of the schema make"


@cache
def _read_expected() -> Mapping[str, str]:
    engine = create_engine("sqlite://")
    try:
        with engine.begin() as connection:
            upgrade_within(connection)
            return _read_objects(connection)
    finally:
        engine.dispose()


def _read_objects(connection: Connection) -> Mapping[str, str]:
    return {row.named: _INSIGNIFICANT.sub("", row.sql) for row in connection.execute(_OBJECTS)}
