"""PostgreSQL's checks: a search by every index for every row, and its extension amcheck where it is installed."""

from collections.abc import Iterator, Sequence
from typing import Final

from sqlalchemy import Connection, Engine, text

from benchlock.registry.catalogue.database import reading

_INDEXES: Final = text("""
SELECT relations.relname AS held, indexes.relname AS searched, indexrelid AS id,
  pg_get_expr(indpred, indrelid) AS condition,
  ARRAY(SELECT attname::text FROM pg_attribute WHERE attrelid = indrelid AND attnum = ANY(indkey)) AS columns
FROM pg_index
JOIN pg_class AS relations ON relations.oid = indrelid
JOIN pg_class AS indexes ON indexes.oid = indexrelid
WHERE relations.relnamespace = current_schema()::regnamespace AND relations.relkind = 'r'
ORDER BY 1, 2
""")
_TABLES: Final = text("""
SELECT oid AS id, relname FROM pg_class
WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' ORDER BY relname
""")
_AMCHECK: Final = text("""
SELECT (SELECT quote_ident(extnamespace::regnamespace::text) FROM pg_extension WHERE extname = 'amcheck') AS schema,
  (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) AS may_use
""")
_CHECKSUMS: Final = text("SELECT current_setting('data_checksums')::boolean")
_BY_INDEX: Final = ("seqscan", "bitmapscan", "tidscan", "hashjoin", "mergejoin", "material", "memoize")
"""The kinds of plan that are switched off, so that rows are searched by an index."""


def find_damage(connection: Connection) -> Iterator[str]:
    """Yield what is damaged: rows that a search does not find, and what amcheck reports of tables and indexes."""
    connection.exec_driver_sql("SET LOCAL jit = off")
    for kind in _BY_INDEX:
        connection.exec_driver_sql(f"SET LOCAL enable_{kind} = off")
    indexes = connection.execute(_INDEXES).all()
    for index in indexes:
        lost = _count_lost(connection, index.held, index.columns, index.condition)
        if lost:
            yield f"{lost} rows of {index.held} are not found by the columns of {index.searched}"
    amcheck = connection.execute(_AMCHECK).one()
    if amcheck.schema is None or not amcheck.may_use:
        return
    schema = amcheck.schema
    for table in connection.execute(_TABLES).all():
        query = text(f"SELECT msg FROM {schema}.verify_heapam(CAST(:id AS oid)::regclass)")  # noqa: S608 - our own schema
        for finding in connection.execute(query, {"id": table.id}).scalars():
            yield f"amcheck of {table.relname}: {finding}"
    for index in indexes:
        query = text(f"SELECT {schema}.bt_index_check(CAST(:id AS oid)::regclass, true)")
        connection.execute(query, {"id": index.id})


def describe_checks(engine: Engine) -> tuple[str, ...]:
    """Return what the server does itself about damage, and what it lacks with the next step."""
    with reading(engine) as connection:
        has_checksums = connection.execute(_CHECKSUMS).scalar()
        amcheck = connection.execute(_AMCHECK).one()
    if has_checksums:
        checksums = "page checksums are on"
    else:
        checksums = "page checksums are off: stop the server and run `pg_checksums --enable`, so that it detects damage"
    if amcheck.schema is None:
        return checksums, "not checked by amcheck: it is not installed (as a superuser: CREATE EXTENSION amcheck)"
    if not amcheck.may_use:
        return checksums, "not checked by amcheck: the user is not a superuser"
    return checksums, "checked by amcheck"


def _count_lost(connection: Connection, table: str, columns: Sequence[str], condition: str | None) -> int:
    """Return how many rows a search for their own values does not find. All rows are read without any index."""
    quoted = [_quoted(connection, column) for column in columns]
    known = " AND ".join([f"{column} IS NOT NULL" for column in quoted] + ([condition] if condition else []))
    equal = " AND ".join(f"found.{column} = own.{column}" for column in quoted)
    every = f"SELECT ctid AS place, * FROM {_quoted(connection, table)} TABLESAMPLE SYSTEM (100)"  # noqa: S608
    found = f"SELECT 1 FROM {_quoted(connection, table)} AS found WHERE {equal} AND found.ctid = own.place"  # noqa: S608
    lost = f"SELECT count(*) FROM ({every} WHERE {known} OFFSET 0) AS own WHERE NOT EXISTS ({found})"  # noqa: S608
    return int(connection.exec_driver_sql(lost.replace("%", "%%")).scalar_one())


def _quoted(connection: Connection, identifier: str) -> str:
    return connection.dialect.identifier_preparer.quote(identifier)
