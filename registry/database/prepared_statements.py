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
_Made = Callable[[Any], Any] | None


class PreparedSelect:
    """A ``SELECT`` whose parameters have names.

    SQLite finds a row by an index in a few microseconds; what SQLAlchemy does before and after takes many times as
    long. A statement alone sees one state of the database, as ``reading`` does.
    """

    def __init__(self, statement: Select[Any]) -> None:
        self.statement = statement
        compiled = statement.compile(dialect=_SQLITE)
        self._text = str(compiled)
        self._names = tuple(compiled.positiontup or ())
        self._usual = dict(compiled.params)
        self._makers = [
            column.type.dialect_impl(_SQLITE).result_processor(_SQLITE, None) for column in statement.selected_columns
        ]

    def ask(self, engine: Engine, given: Mapping[str, Any]) -> Row | None:
        """The columns of the only row, ``None`` where there is none. ``given`` are texts and numbers.

        Raises:
            UnavailableError: as ``reading``.
        """
        rows = self.every(engine, given)
        return rows[0] if rows else None

    def every(self, engine: Engine, given: Mapping[str, Any]) -> Sequence[Row]:
        """The columns of all rows. Raises as ``ask``."""
        if engine.dialect.name != "sqlite":
            with read_transaction(engine) as connection:
                return [tuple(row) for row in connection.execute(self.statement, given)]
        with translate_errors(engine), report_decode_errors(engine), closing(engine.raw_connection()) as connection:
            return self._found(connection.cursor(), given)

    def within(self, connection: Connection, given: Mapping[str, Any]) -> Row | None:
        """As ``ask``, in a transaction that the caller holds."""
        if connection.dialect.name != "sqlite":
            row = connection.execute(self.statement, given).first()
            return None if row is None else tuple(row)
        with _as_usual(self._text):
            rows = self._found(connection.connection.cursor(), given)
        return rows[0] if rows else None

    def _found(self, cursor: DBAPICursor, given: Mapping[str, Any]) -> Sequence[Row]:
        cursor.execute(self._text, tuple(given.get(name, self._usual[name]) for name in self._names))
        return [tuple(map(_made, self._makers, row)) for row in cursor.fetchall()]


class PreparedInsert:
    """An ``INSERT`` into a table, of rows that name all of its columns."""

    def __init__(self, table: Table) -> None:
        self._statement = insert(table)
        self._names = tuple(column.name for column in table.columns)
        self._text = str(self._statement.compile(dialect=_SQLITE, column_keys=list(self._names)))
        self._makers = [column.type.dialect_impl(_SQLITE).bind_processor(_SQLITE) for column in table.columns]

    def add(self, connection: Connection, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add the rows, in a transaction that the caller holds.

        Raises:
            KeyError: a row names too few columns; that is a fault of ours.
        """
        if connection.dialect.name != "sqlite":
            connection.execute(self._statement, list(rows))
            return
        values = [tuple(map(_made, self._makers, (row[name] for name in self._names))) for row in rows]
        with _as_usual(self._text):
            connection.connection.cursor().executemany(self._text, values)


@contextmanager
def _as_usual(text: str) -> Iterator[None]:
    """What tells a database that fails from what was asked of it is raised as SQLAlchemy would."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise OperationalError(text, None, error) from error


def _made(maker: _Made, value: Any) -> Any:  # noqa: ANN401 - of any column
    return value if maker is None else maker(value)
