"""Column types that mean the same in SQLite and PostgreSQL.

Texts are compared and sorted byte by byte, as SQLite does. PostgreSQL would use the collation of the database, but the
order of keys, names and digests is significant. Integers have 64 bits.
"""

from datetime import datetime

from sqlalchemy import BigInteger, ColumnElement, Integer, String, Text, and_
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator

from benchlock.registry.database.ids_and_timestamps import format_time

_BYTEWISE = "C"

TEXT = Text().with_variant(Text(collation=_BYTEWISE), "postgresql")
WHOLE = Integer().with_variant(BigInteger(), "postgresql")


def bounded_text(most: int) -> String:
    """Return the type of a text of at most ``most`` characters."""
    return String(most).with_variant(String(most, collation=_BYTEWISE), "postgresql")


DIGEST = bounded_text(len("sha256:") + 64)
MOMENT = bounded_text(len("2026-01-31T12:00:00.000000Z"))


def begins_with(column: ColumnElement[str], prefix: str) -> ColumnElement[bool]:
    """Return the condition that an id begins with ``prefix``, as a range of its index; ``~`` follows all digits."""
    return and_(column >= prefix, column < f"{prefix}~")


class Moment(TypeDecorator[datetime]):
    """A time as ISO 8601 text in UTC with microseconds. The length is fixed, so text order is time order."""

    impl = MOMENT
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> str | None:  # noqa: ARG002
        """Return the stored text of a time."""
        return None if value is None else format_time(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002
        """Return the time of a stored text."""
        return None if value is None else datetime.fromisoformat(value)
