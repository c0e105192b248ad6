"""Entries of the record chain, as written by revisions that fill it or remove records.

The digest of a record is the SHA-256 of the canonical JSON (RFC 8785) of its rows by table, without nulls. The link of
an entry is the SHA-256 of the previous link and the entry.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from itertools import groupby, islice
from typing import Any, Final

from sqlalchemy import Connection, Table, select

from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.json_codec import MAX_EXACT, encode_canonical

BATCH: Final = 500
"""Records that one statement reads or inserts."""

Row = Mapping[str, Any]
Groups = Iterator[tuple[tuple[Any, ...], list[Row]]]


@dataclass(frozen=True, slots=True)
class Head:
    """The last entry of a chain: the number of entries, and the link, which depends on all of them."""

    seq: int = 0
    link: str = ""


def chain_entry(head: Head, kind: str, key: str, digest: str) -> dict[str, Any]:
    """Make the entry that follows ``head``."""
    link = _digest(encode_canonical([head.link, kind, key, digest]))
    return {"seq": head.seq + 1, "kind": kind, "key": key, "digest": digest, "link": link}


def read_records(connection: Connection, table: Table, parts: Sequence[Table]) -> Iterator[tuple[str, str]]:
    """Yield the key and the digest of every record of ``table`` with its ``parts``, in order of the keys.

    All tables are read in parallel, each once, in bounded memory.
    """
    streams = [_Stream(part.name, _grouped(connection, part, _columns_of(part, table))) for part in parts]
    own = tuple(column.name for column in table.primary_key.columns)
    for place, rows in _grouped(connection, table, own):
        members = {stream.name: stream.rows_of(place) for stream in streams} | {table.name: rows}
        yield " ".join(str(rows[0][column]) for column in own), _digest_record(members)


def in_batches(entries: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Yield ``entries`` in lists of ``size``; the last one may be shorter."""
    iterator = iter(entries)
    while batch := list(islice(iterator, size)):
        yield batch


class _Stream:
    """The rows of a part, grouped by record, read in step with the records."""

    def __init__(self, name: str, groups: Groups) -> None:
        self.name = name
        self._groups = groups
        self._next = next(groups, None)

    def rows_of(self, place: tuple[Any, ...]) -> list[Row]:
        """Return the rows of the record ``place``; calls must be in ascending order."""
        while self._next is not None and self._next[0] < place:
            self._next = next(self._groups, None)
        if self._next is None or self._next[0] != place:
            return []
        rows = self._next[1]
        self._next = next(self._groups, None)
        return rows


def _columns_of(part: Table, table: Table) -> tuple[str, ...]:
    """Return the columns of ``part`` that refer to the record, in the order of its primary key."""
    (foreign,) = (one for one in part.foreign_key_constraints if one.referred_table.name == table.name)
    ours = {element.column.name: element.parent.name for element in foreign.elements}
    return tuple(ours[column.name] for column in table.primary_key.columns)


def _grouped(connection: Connection, table: Table, columns: tuple[str, ...]) -> Groups:
    query = select(table).order_by(*(table.c[column] for column in columns))
    with connection.execute(query, execution_options={"yield_per": BATCH}) as rows:
        entries = (row._asdict() for row in rows)
        for place, group in groupby(entries, key=lambda values: tuple(values[column] for column in columns)):
            yield place, list(group)


def _digest_record(rows: Mapping[str, Iterable[Row]]) -> str:
    members: list[bytes] = []
    for name in sorted(rows):
        entries = sorted(map(_encode_row, rows[name]))
        if entries:
            members.append(b'"%s":[%s]' % (name.encode(), b",".join(entries)))
    return _digest(b"{%s}" % b",".join(members))


def _encode_row(values: Row) -> bytes:
    row = {
        column: _moment(value) if type(value) is datetime else value
        for column, value in values.items()
        if value is not None
    }
    try:
        return encode_canonical(row)
    except InvalidInputError:
        return encode_canonical(_restore_floats(row))


def _restore_floats(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return ``value`` with large integers as floats: JSON writes 2.0**60 without a point, and reads an int."""
    if isinstance(value, dict):
        return {key: _restore_floats(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_restore_floats(item) for item in value]
    return float(value) if type(value) is int and abs(value) > MAX_EXACT else value


def _moment(time: datetime) -> str:
    return time.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"


def _digest(data: bytes) -> str:
    return f"sha256:{sha256(data).hexdigest()}"
