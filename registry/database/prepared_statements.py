"""Frequent statements, compiled once and executed on the SQLite driver without SQLAlchemy."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, Select, Table, insert
from sqlalchemy.dialects.sqlite import dialect
from sqlalchemy.engine.interfaces import DBAPICursor
from sqlalchemy.exc import OperationalError

from benchlock.registry.database.engine import read_transaction, report_decode_errors, translate_errors
from benchlock.registry.database.record_values import as_json

_SQLITE = dialect(json_serializer=as_json)
Row = tuple[Any, ...]
_Converter = Callable[[Any], Any] | None


class PreparedSelect:
    """A ``SELECT`` with named parameters, compiled once.

    SQLite finds a row by an index in a few microseconds, and SQLAlchemy needs many times as long before and after it. A
    single statement sees one state of the database, as in ``read_transaction``.
    """

    def __init__(self, statement: Select[Any]) -> None:
        """Compile ``statement`` for SQLite; other databases execute it through SQLAlchemy."""
        self.statement = statement
        compiled = statement.compile(dialect=_SQLITE)
        self._text = str(compiled)
        self._names = tuple(compiled.positiontup or ())
        self._defaults = dict(compiled.params)
        self._converters = [
            column.type.dialect_impl(_SQLITE).result_processor(_SQLITE, None) for column in statement.selected_columns
        ]

    def fetch_one(self, engine: Engine, values: Mapping[str, Any]) -> Row | None:
        """Return the columns of the only row, or ``None`` if there is none. Parameters are texts and numbers.

        Raises:
            UnavailableError: The database cannot be opened or read.
        """
        rows = self.fetch_all(engine, values)
        return rows[0] if rows else None

    def fetch_all(self, engine: Engine, values: Mapping[str, Any]) -> Sequence[Row]:
        """Return the columns of all rows. Raise as ``fetch_one``."""
        if engine.dialect.name != "sqlite":
            with read_transaction(engine) as connection:
                return [tuple(row) for row in connection.execute(self.statement, values)]
        with translate_errors(engine), report_decode_errors(engine), closing(engine.raw_connection()) as connection:
            return self._fetch(connection.cursor(), values)

    def fetch_one_in(self, connection: Connection, values: Mapping[str, Any]) -> Row | None:
        """Return the same row as ``fetch_one``, in a transaction of the caller."""
        if connection.dialect.name != "sqlite":
            row = connection.execute(self.statement, values).first()
            return None if row is None else tuple(row)
        with _raise_as_sqlalchemy(self._text):
            rows = self._fetch(connection.connection.cursor(), values)
        return rows[0] if rows else None

    def _fetch(self, cursor: DBAPICursor, values: Mapping[str, Any]) -> Sequence[Row]:
        cursor.execute(self._text, tuple(values.get(name, self._defaults[name]) for name in self._names))
        return [tuple(map(_convert, self._converters, row)) for row in cursor.fetchall()]


class PreparedInsert:
    """An ``INSERT`` of rows with values for all columns of a table."""

    def __init__(self, table: Table) -> None:
        """Compile the statement for SQLite; other databases execute it through SQLAlchemy."""
        self._statement = insert(table)
        self._names = tuple(column.name for column in table.columns)
        self._text = str(self._statement.compile(dialect=_SQLITE, column_keys=list(self._names)))
        self._converters = [column.type.dialect_impl(_SQLITE).bind_processor(_SQLITE) for column in table.columns]

    def add(self, connection: Connection, rows: Iterable[Mapping[str, Any]]) -> None:
        """Insert the rows in a transaction of the caller.

        Raises:
            KeyError: A row lacks a column, which is a bug of the caller.
        """
        if connection.dialect.name != "sqlite":
            connection.execute(self._statement, list(rows))
            return
        values = [tuple(map(_convert, self._converters, (row[name] for name in self._names))) for row in rows]
        with _raise_as_sqlalchemy(self._text):
            connection.connection.cursor().executemany(self._text, values)


@contextmanager
def _raise_as_sqlalchemy(text: str) -> Iterator[None]:
    """Raise operational errors of the driver as SQLAlchemy does, so that callers handle one type."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise OperationalError(text, None, error) from error


def _convert(converter: _Converter, value: Any) -> Any:  # noqa: ANN401 - the value of any column
    return value if converter is None else converter(value)
