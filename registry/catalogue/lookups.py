"""Rows that are looked up all the time: the question is made once, and put to SQLite without a detour."""

from collections.abc import Mapping
from contextlib import closing
from typing import Any

from sqlalchemy import Engine, Select
from sqlalchemy.dialects.sqlite import dialect

from registry.catalogue.database import reading, translated

_SQLITE = dialect()


class Lookup:
    """A ``SELECT`` of one row at most, whose parameters have names.

    SQLite finds a row by an index in a few microseconds; what SQLAlchemy does before and after takes many times as
    long. A statement alone sees one state of the database, as ``reading`` does.
    """

    def __init__(self, statement: Select[Any]) -> None:
        self.statement = statement
        compiled = statement.compile(dialect=_SQLITE)
        self._text = str(compiled)
        self._names = tuple(compiled.positiontup or ())
        self._usual = dict(compiled.params)
        self._made = [
            column.type.dialect_impl(_SQLITE).result_processor(_SQLITE, None) for column in statement.selected_columns
        ]

    def ask(self, engine: Engine, given: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """The columns of the row, ``None`` where there is none. ``given`` are texts and numbers.

        Raises:
            UnavailableError: as ``reading``.
        """
        if engine.dialect.name != "sqlite":
            with reading(engine) as connection:
                row = connection.execute(self.statement, given).first()
                return None if row is None else tuple(row)
        values = tuple(given.get(name, self._usual[name]) for name in self._names)
        with translated(engine), closing(engine.raw_connection()) as connection:
            found = connection.cursor().execute(self._text, values).fetchone()
        if found is None:
            return None
        return tuple(value if made is None else made(value) for made, value in zip(self._made, found, strict=True))
