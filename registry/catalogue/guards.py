"""How the database itself refuses to change what is published: triggers, made from a description of each table.

No statement changes a row that is there, whoever sends it: UPDATE, DELETE, TRUNCATE, MERGE, and an INSERT that replaces
are refused. Rows that would be added to something sealed are too: to a version already published, to a run already
ended. ``guards_sqlite`` and ``guards_postgresql`` say how.

A table asks for it in its ``info``: ``{"append_only": True}``, and ``{"sealed_by": TABLE}`` where the row of TABLE
that its foreign key names ends what may be added.
"""

from collections.abc import Iterable, Mapping

from sqlalchemy import Connection, MetaData, Table, UniqueConstraint

from benchlock.registry.catalogue import guards_postgresql, guards_sqlite
from benchlock.registry.catalogue.guarded import REFUSAL, Guard, Seal

__all__ = ["REFUSAL", "Guard", "Seal", "guards", "leftovers", "missing", "triggers"]


def guards(metadata: MetaData) -> tuple[Guard, ...]:
    """The guard of every append-only table of ``metadata``."""
    return tuple(
        Guard(table.name, _unique_keys(table), _seal(table))
        for table in metadata.sorted_tables
        if table.info.get("append_only")
    )


def triggers(guard: Guard, dialect: str) -> Mapping[str, str]:
    """The statements that make the guard's triggers, to be executed in their order; each by a name of its own."""
    return guards_sqlite.triggers(guard) if dialect == "sqlite" else guards_postgresql.triggers(guard)


def leftovers(guard: Guard, dialect: str) -> tuple[str, ...]:
    """The statements that remove what is left of the guard when its table, and so its triggers, are dropped."""
    return () if dialect == "sqlite" else guards_postgresql.leftovers(guard)


def missing(connection: Connection, wanted: Iterable[Guard]) -> tuple[str, ...]:
    """The names of the triggers that the database lacks, or has in another form."""
    missing_there = guards_sqlite.missing if connection.dialect.name == "sqlite" else guards_postgresql.missing
    return missing_there(connection, wanted)


def _unique_keys(table: Table) -> tuple[tuple[str, ...], ...]:
    constraints = [tuple(c.columns.keys()) for c in table.constraints if isinstance(c, UniqueConstraint)]
    indexes = [tuple(index.columns.keys()) for index in table.indexes if index.unique]
    return (tuple(table.primary_key.columns.keys()), *sorted(constraints + indexes))


def _seal(table: Table) -> Seal | None:
    sealing = table.info.get("sealed_by")
    if sealing is None:
        return None
    (key,) = (key for key in table.foreign_key_constraints if key.referred_table.name == sealing)
    return Seal(sealing, tuple((element.parent.name, element.column.name) for element in key.elements))
