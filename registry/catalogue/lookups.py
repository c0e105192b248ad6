"""Rows that are looked up all the time: the question is made once, and put to SQLite without a detour."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

from sqlalchemy import Engine, Select
from sqlalchemy.dialects.sqlite import dialect

from registry.catalogue.database import reading, translated

_SQLITE = dialect()
Row = tuple[Any, ...]


class Lookup:
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
            with reading(engine) as connection:
                return [tuple(row) for row in connection.execute(self.statement, given)]
        values = tuple(given.get(name, self._usual[name]) for name in self._names)
        with translated(engine), closing(engine.raw_connection()) as connection:
            found = connection.cursor().execute(self._text, values).fetchall()
        return [tuple(map(_made, self._makers, row)) for row in found]


def _made(maker: Callable[[Any], Any] | None, value: Any) -> Any:  # noqa: ANN401 - of any column
    return value if maker is None else maker(value)
