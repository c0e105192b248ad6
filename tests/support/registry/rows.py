"""Rows of every table, made of the tables' descriptions alone."""

from typing import Any

from sqlalchemy import JSON, Boolean, Column, Float, Integer, Table

from benchlock.migrations.schema_check import METADATA
from benchlock.registry.database.triggers import list_guards

MUTABLE = {
    "open_runs",
    "held_runs",
    "dispatch",
    "classes",
    "machines",
    "eligible",
    "jobs",
    "avoided",
    "shares",
    "usages",
    "leases",
    "lease_slots",
    "progress_lines",
    "blob_holds",
    "matrices",
    "matrix_cells",
}
GUARDS = {guard.table: guard for guard in list_guards(METADATA)}
TABLES = [METADATA.tables[name] for name in GUARDS]
SEALED = [table for table in TABLES if GUARDS[table.name].seal]
CHILDREN_FIRST = [*SEALED, *(table for table in TABLES if table not in SEALED)]
EVERY = [*SEALED, *(table for table in METADATA.sorted_tables if table not in SEALED)]
"""In an order in which they can be written: what seals comes last, what is named first."""


def row(table: Table, text: str) -> dict[str, Any]:
    """A row whose key columns are all ``text``, so that rows of different tables belong together."""
    return {column.name: value(column, text) for column in table.columns}


def value(column: Column[Any], text: str) -> Any:  # noqa: ANN401 - a value of any column
    """What ``text`` is in the column."""
    if isinstance(column.type, Boolean):
        return len(text) == 1
    if isinstance(column.type, Integer):
        return len(text)
    return 0.5 if isinstance(column.type, Float) else "{}" if isinstance(column.type, JSON) else text


def over(table: Table, key: tuple[str, ...]) -> dict[str, Any]:
    """Another row than ``a``, but for the columns of ``key``."""
    return row(table, "bc") | {name: part for name, part in row(table, "a").items() if name in key}


def joining(table: Table) -> dict[str, Any]:
    """A row that would belong to what the row ``a`` of the sealing table has sealed."""
    seal = GUARDS[table.name].seal
    assert seal is not None
    whole = {name for name, _ in seal.columns}
    return row(table, "a") | {name: part for name, part in row(table, "bc").items() if name not in whole}
