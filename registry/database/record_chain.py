"""The chain of records: the digest of every append-only record, linked in insertion order.

A record is a row of an append-only table that no other table seals, together with the rows that it seals: a version
with its manifest and files, or the end of a run with its metrics. Its digest is the SHA-256 of the canonical JSON (RFC
8785) of all these rows. The link of an entry is the SHA-256 of the previous link and of the entry, so no entry can be
changed, removed or inserted without changing every later link.

The canonical form omits null columns. A revision may therefore add nullable columns and further part tables without
changing the digest of any record.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import groupby, islice
from typing import Any, Final

from sqlalchemy import Connection, MetaData, Select, Table, bindparam, insert, literal_column, select
from sqlalchemy.dialects.sqlite import dialect

from benchlock.artifacts.digest import Digest, digest_bytes, parse_digest
from benchlock.artifacts.errors import InvalidInputError
from benchlock.artifacts.json_codec import MAX_EXACT, encode_canonical
from benchlock.registry.database.engine import DamagedDatabaseError, damage_error, fetch_first, raise_as_sqlalchemy
from benchlock.registry.database.ids_and_timestamps import as_json, format_time
from benchlock.registry.database.registry_schema import record_chain

Values = Mapping[str, Any]
Parts = Iterable[tuple[Table, Sequence[Values]]]

BATCH: Final = 500
"""Number of records that one statement reads, compares or inserts."""
_MAX_DIGITS: Final = 18
_ORIGIN: Final = ""
"""The link that precedes the first entry."""


def _entries() -> Select[Any]:
    """Select entries by kinds and keys, each with the previous link."""
    previous = record_chain.alias("previous")
    columns = (*record_chain.columns, previous.c.link.label("before"))
    joined = record_chain.outerjoin(previous, previous.c.seq == record_chain.c.seq - 1)
    conditions = (record_chain.c[column].in_(bindparam(f"{column}s", expanding=True)) for column in ("kind", "key"))
    return select(*columns).select_from(joined).where(*conditions)


_ENTRIES: Final = _entries()
_HEAD: Final = "SELECT seq, link FROM record_chain ORDER BY seq DESC LIMIT 1"
_SQLITE: Final = dialect(json_serializer=as_json)
_Converter = Callable[[Any], Any] | None


@dataclass(frozen=True, slots=True)
class Head:
    """The last entry of a chain: the number of entries, and the link that depends on all of them."""

    seq: int
    link: str

    def __str__(self) -> str:
        """Return the head as ``verify`` prints it: ``SEQ:sha256:HEX``."""
        return f"{self.seq}:{self.link}"


def parse_head(text: str) -> Head:
    """Parse a head as ``verify`` prints it: ``SEQ:sha256:HEX``.

    Raises:
        InvalidInputError: The text has another form.
    """
    seq, _, link = text.partition(":")
    if not (seq.isascii() and seq.isdecimal() and len(seq) <= _MAX_DIGITS):
        raise InvalidInputError(
            f"invalid head of the chain of records {text[:100]!r}",
            next_step="write SEQ:sha256:HEX, as verification reports it",
        )
    return Head(int(seq), parse_digest(link))


@dataclass(frozen=True, slots=True)
class RecordKind:
    """A kind of record: the table with one row for each record, and the tables whose rows it seals."""

    table: Table
    parts: tuple[Table, ...] = ()

    @property
    def name(self) -> str:
        """The name of the table, which identifies the kind in the chain."""
        return self.table.name

    def key(self, values: Values) -> str:
        """Return the key in the chain of the record with the row ``values``."""
        return _key(self.table, values)

    def columns_of(self, part: Table) -> tuple[str, ...]:
        """Return the columns of ``part`` that reference the record, in the order of the record's primary key."""
        (foreign_key,) = (
            constraint for constraint in part.foreign_key_constraints if constraint.referred_table.name == self.name
        )
        by_column = {element.column.name: element.parent.name for element in foreign_key.elements}
        return tuple(by_column[column.name] for column in self.table.primary_key.columns)


def record_kinds(metadata: MetaData) -> tuple[RecordKind, ...]:
    """Return every kind of record of ``metadata``: one for each append-only table that no other table seals."""
    tables = [
        table for table in metadata.sorted_tables if table.info.get("append_only") and table.name != record_chain.name
    ]
    return tuple(record_kind(table) for table in tables if "sealed_by" not in table.info)


def record_kind(table: Table) -> RecordKind:
    """Return the kind of record whose rows are in ``table``; its parts are the tables that ``table`` seals."""
    every = table.metadata.sorted_tables
    return RecordKind(table, tuple(part for part in every if part.info.get("sealed_by") == table.name))


@dataclass(frozen=True, slots=True)
class Record:
    """A record to be inserted.

    Attributes:
        table: The table with one row for each record of this kind.
        values: The row of the record; it has all columns.
        parts: The rows that belong to the record, by table; each has all columns.
    """

    table: Table
    values: Values
    parts: Parts = ()


def insert_record(connection: Connection, table: Table, values: Values, parts: Parts = ()) -> None:
    """Insert a record and its chain entry, as ``insert_records`` does; the arguments are those of ``Record``."""
    insert_records(connection, (Record(table, values, parts),))


def insert_records(connection: Connection, records: Iterable[Record]) -> None:
    """Insert records and their chain entries, in a transaction of ``write_transaction``."""
    digests = []
    for record in records:
        rows = {part: part_rows for part, part_rows in record.parts if part_rows} | {record.table: [record.values]}
        for table, table_rows in rows.items():
            _insert(connection, table, table_rows)
        digest = digest_record({table.name: table_rows for table, table_rows in rows.items()})
        digests.append((record.table.name, _key(record.table, record.values), digest))
    # Rows before the head: on PostgreSQL, their triggers make this transaction the only writer if it was not before.
    head, entries = read_head(connection), []
    for kind, key, digest in digests:
        entries.append(chain_entry(head, kind, key, digest))
        head = Head(entries[-1]["seq"], entries[-1]["link"])
    _insert(connection, record_chain, entries)


def _insert(connection: Connection, table: Table, rows: Sequence[Values]) -> None:
    """Insert rows that have all columns.

    On SQLite the driver executes the compiled statement: SQLAlchemy would need five times as long for each, while other
    writers wait.

    Raises:
        OperationalError: The database cannot be written.
        ValueError: A row has other columns, which is a bug of the caller.
    """
    if connection.dialect.name != "sqlite":
        connection.execute(insert(table), rows)
        return
    text, columns = _compile_insert(table)
    if any(len(row) != len(columns) for row in rows):
        raise ValueError(f"rows of {table.name} with other columns than {[name for name, _ in columns]}")
    values = [[row[name] if convert is None else convert(row[name]) for name, convert in columns] for row in rows]
    with raise_as_sqlalchemy(text):
        connection.connection.cursor().executemany(text, values)


@cache
def _compile_insert(table: Table) -> tuple[str, tuple[tuple[str, _Converter], ...]]:
    """Compile the ``INSERT`` of a row for SQLite; return it with the name and the converter of each column."""
    names = [column.name for column in table.columns]
    text = str(insert(table).compile(dialect=_SQLITE, column_keys=names))
    return text, tuple((c.name, c.type.dialect_impl(_SQLITE).bind_processor(_SQLITE)) for c in table.columns)


def read_head(connection: Connection) -> Head:
    """Return the head of the chain; the head of an empty chain has no entries."""
    row = fetch_first(connection, _HEAD)
    return Head(0, _ORIGIN) if row is None else Head(*row)


def chain_entry(head: Head, kind: str, key: str, digest: Digest) -> dict[str, Any]:
    """Return the chain entry of a record after ``head``.

    Args:
        head: The last entry of the chain.
        kind: The kind of the record.
        key: The key of the record.
        digest: The digest of the record.
    """
    link = _link(head.link, kind, key, digest)
    return {"seq": head.seq + 1, "kind": kind, "key": key, "digest": digest, "link": link}


def digest_record(rows: Mapping[str, Iterable[Values]]) -> Digest:
    """Return the digest of a record from its rows by table name."""
    members: list[bytes] = []
    for name in sorted(rows):
        entries = sorted(map(_encode_row, rows[name]))
        if entries:
            members.append(b'"%s":[%s]' % (name.encode(), b",".join(entries)))
    return digest_bytes(b"{%s}" % b",".join(members))


def check_records(
    connection: Connection, kinds: Collection[str], keys: Collection[str], digests: Mapping[tuple[str, str], Digest]
) -> None:
    """Require that records agree with the chain.

    Args:
        connection: A connection in a read transaction.
        kinds: The kinds of the records.
        keys: The keys of the records.
        digests: The digest of each stored record, by kind and key.

    Raises:
        DamagedDatabaseError: A record differs from what was written, is missing, or is not in the chain.
    """
    for fault in find_differences(connection, kinds, keys, digests):
        raise fault


def find_positions(connection: Connection, kind: str, keys: Collection[str]) -> dict[str, int]:
    """Return the chain positions of records of a kind by key, which give their insertion order."""
    query = select(record_chain.c.key, record_chain.c.seq)
    query = query.where(record_chain.c.kind == kind, record_chain.c.key.in_(keys))
    return {row.key: row.seq for row in connection.execute(query)}


def check_stored(connection: Connection, kind: RecordKind, key: Values) -> None:
    """Require that one stored record agrees with the chain.

    Args:
        connection: A connection in a read transaction.
        kind: The kind of the record.
        key: The values of its primary key, by column.

    Raises:
        DamagedDatabaseError: The record differs from what was written, is missing, or is not in the chain.
    """
    query = select(kind.table).where(*(kind.table.c[column] == value for column, value in key.items()))
    rows = {kind.name: [row._asdict() for row in connection.execute(query)]}
    for part in kind.parts:
        columns = zip(kind.columns_of(part), kind.table.primary_key.columns.keys(), strict=True)
        own = select(part).where(*(part.c[ours] == key[theirs] for ours, theirs in columns))
        rows[part.name] = [row._asdict() for row in connection.execute(own)]
    place = (kind.name, kind.key(key))
    digests = {place: digest_record(rows)} if rows[kind.name] else {}
    check_records(connection, (kind.name,), (place[1],), digests)


def check_all_stored(connection: Connection, kind: RecordKind, keys: Collection[str]) -> None:
    """Require of several records what ``check_stored`` requires of one, with a query for each table.

    Args:
        connection: A connection in a read transaction.
        kind: A kind of record whose key is one column.
        keys: The values of that column.

    Raises:
        DamagedDatabaseError: As ``check_stored``.
    """
    (column,) = kind.table.primary_key.columns
    columns = {kind.table: column} | {part: part.c[kind.columns_of(part)[0]] for part in kind.parts}
    rows: dict[str, dict[str, list[Values]]] = {key: {} for key in keys}
    for table, own in columns.items():
        for row in connection.execute(select(table).where(own.in_(keys))):
            values = row._asdict()
            rows[values[own.name]].setdefault(table.name, []).append(values)
    digests = {
        (kind.name, kind.key({column.name: key})): digest_record(of) for key, of in rows.items() if kind.name in of
    }
    check_records(connection, (kind.name,), [kind.key({column.name: key}) for key in keys], digests)


def find_differences(
    connection: Connection, kinds: Collection[str], keys: Collection[str], digests: Mapping[tuple[str, str], Digest]
) -> Iterator[DamagedDatabaseError]:
    """Yield an error for each record that fails ``check_records``; the arguments are the same."""
    chained: set[tuple[str, str]] = set()
    for batch in in_batches(keys, BATCH):
        for row in connection.execute(_ENTRIES, {"kinds": list(kinds), "keys": batch}):
            place = (row.kind, row.key)
            chained.add(place)
            if row.link != _link(row.before or _ORIGIN, *place, row.digest):
                yield damage_error(
                    f"entry {row.seq} of the chain of records does not follow the one before it", name(*place)
                )
            if place not in digests:
                yield damage_error("a record is missing", name(*place))
            elif digests[place] != row.digest:
                what = f"a record has the digest {digests[place]}, but was recorded with {row.digest}"
                yield damage_error(what, name(*place))
    for place in digests.keys() - chained:
        yield damage_error("a record is not in the chain of records", name(*place))


def read_records(connection: Connection, kind: RecordKind) -> Iterator[tuple[str, Digest]]:
    """Yield the key and the digest of every stored record of a kind, in the order of the keys.

    All tables of the kind are read in parallel, each once, so memory use does not depend on their size.
    """
    parts = [_Stream(connection, part, kind.columns_of(part)) for part in kind.parts]
    key_columns = tuple(column.name for column in kind.table.primary_key.columns)
    for place, rows in _group_rows(connection, kind.table, key_columns):
        record_rows = {part.table.name: part.rows_of(place) for part in parts} | {kind.name: rows}
        yield kind.key(rows[0]), digest_record(record_rows)


def walk_chain(connection: Connection, noted: Head | None = None) -> Iterator[DamagedDatabaseError]:
    """Yield the errors of the chain: gaps in its numbers, wrong links, and a difference from the ``noted`` head."""
    head, query = Head(0, _ORIGIN), select(record_chain).order_by(record_chain.c.seq)
    with connection.execute(query, execution_options={"yield_per": BATCH}) as rows:
        for row in rows:
            place = name(row.kind, row.key)
            if row.seq != head.seq + 1:
                yield damage_error(f"entry {head.seq + 1} of the chain of records is missing", record_chain.name)
            elif row.link != _link(head.link, row.kind, row.key, row.digest):
                yield damage_error(f"entry {row.seq} of the chain of records does not follow the one before it", place)
            head = Head(row.seq, row.link)
            if noted is not None and noted.seq == head.seq and noted.link != head.link:
                yield damage_error(f"entry {head.seq} of the chain has the link {head.link}, not {noted.link} as noted")
    if noted is not None and noted.seq > head.seq:
        yield damage_error(f"the chain of records has {head.seq} entries, but {noted.seq} were noted")


def find_missing(connection: Connection, kind: RecordKind) -> Iterator[DamagedDatabaseError]:
    """Yield an error for each record of a kind that is in the chain but not in its table."""
    columns = " || ' ' || ".join(f'"{column.name}"' for column in kind.table.primary_key.columns)
    stored: Select[Any] = select(literal_column(columns)).select_from(kind.table)
    chained = select(record_chain.c.key).where(record_chain.c.kind == kind.name)
    for key in connection.execute(chained.except_(stored)).scalars():
        yield damage_error("a record is missing", name(kind.name, key))


def name(kind: str, key: str) -> str:
    """Return the name of a record for messages."""
    return f"{kind}: {key}"


def in_batches(entries: Iterable[Any], size: int) -> Iterator[list[Any]]:
    """Yield ``entries`` in lists of ``size``; the last list may be shorter."""
    iterator = iter(entries)
    while batch := list(islice(iterator, size)):
        yield batch


class _Stream:
    """The rows of a part table, grouped by record in the order of the records' keys."""

    def __init__(self, connection: Connection, table: Table, columns: tuple[str, ...]) -> None:
        self.table = table
        self._groups = _group_rows(connection, table, columns)
        self._next = next(self._groups, None)

    def rows_of(self, place: tuple[Any, ...]) -> list[dict[str, Any]]:
        """Return the rows of the record ``place``. Calls must follow the order of the keys."""
        while self._next is not None and self._next[0] < place:
            self._next = next(self._groups, None)
        if self._next is None or self._next[0] != place:
            return []
        rows = self._next[1]
        self._next = next(self._groups, None)
        return rows


def _group_rows(
    connection: Connection, table: Table, columns: tuple[str, ...]
) -> Iterator[tuple[tuple[Any, ...], list[dict[str, Any]]]]:
    query = select(table).order_by(*(table.c[column] for column in columns))
    with connection.execute(query, execution_options={"yield_per": BATCH}) as rows:
        row_values = (row._asdict() for row in rows)
        for place, group in groupby(row_values, key=lambda values: tuple(values[column] for column in columns)):
            yield place, list(group)


def _encode_row(values: Values) -> bytes:
    row = {
        str(column): format_time(value) if type(value) is datetime else value  # a name may be a subclass of str
        for column, value in values.items()
        if value is not None
    }
    try:
        return encode_canonical(row)
    except InvalidInputError:
        return encode_canonical(_restore_floats(row))


def _restore_floats(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return ``value`` with large integers as floats: JSON writes 2.0**60 without a point and reads it as an int."""
    if isinstance(value, dict):
        return {key: _restore_floats(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_restore_floats(item) for item in value]
    return float(value) if type(value) is int and abs(value) > MAX_EXACT else value


def _link(before: str, kind: str, key: str, digest: str) -> Digest:
    return digest_bytes(encode_canonical([before, str(kind), key, digest]))


def _key(table: Table, values: Values) -> str:
    return " ".join(str(values[column.name]) for column in table.primary_key.columns)
