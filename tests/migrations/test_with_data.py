"""Down and up again with rows in every table: what a lower revision can hold stays, what is derived is made anew."""

from collections.abc import Iterator
from typing import Any

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, inspect, select, text

from migrations import HEAD, configure, revision, upgrade
from migrations.schema import METADATA
from registry.catalogue.chain import record_kinds, walk_chain
from registry.catalogue.database import reading, writing
from registry.catalogue.guards import guards, missing
from registry.catalogue.statements import spelled
from registry.catalogue.tables import record_chain
from tests.support.rows import EVERY, row

DERIVED = {"environments"}
"""What a revision fills from what is published."""
IMAGE = {"kind": "image", "framework": "f"}
PUBLISHED = {"version": "1.0.0", "framework_version": "2.0.0", "framework_precedence": "0012.0010.0010~"}
CHAIN = "record_chain"
"""Filled by its revision with an entry for each record that is there."""
Content = dict[str, list[dict[str, Any]]]


def rows() -> Iterator[tuple[str, dict[str, Any]]]:
    """One for each table, which belong together; what they publish is an image."""
    for table in EVERY:
        if table.name == CHAIN:
            continue
        made, given = row(table, "a"), dict[str, Any]()
        if table.name in ("versions", "yanks") or table.info.get("sealed_by") == "versions":
            given = IMAGE | PUBLISHED
        yield table.name, {name: given.get(name, made[name]) for name in made}


def content(connection: Connection) -> Content:
    names = [name for name in inspect(connection).get_table_names() if name in METADATA.tables and name != CHAIN]
    return {name: [dict(one) for one in connection.execute(text(f"SELECT * FROM {name}")).mappings()] for name in names}


def within(found: Content, other: Content) -> Content:
    """What there is of ``found`` in the tables and columns of ``other``."""
    return {
        name: [{column: one[column] for column in (held[0] if held else one)} for one in found[name]]
        for name, held in other.items()
    }


@pytest.mark.databases
def test_down_and_up_again_keeps_what_the_lower_revision_holds(database: Engine) -> None:
    with writing(database) as connection:
        for name, values in rows():
            columns, marks = ", ".join(f'"{column}"' for column in values), ", ".join(f":{column}" for column in values)
            statement = f"INSERT INTO {name} ({columns}) VALUES ({marks})"
            connection.exec_driver_sql(spelled(statement, connection.dialect.name), values)
        before = content(connection)
        steps = [one.revision for one in ScriptDirectory.from_config(configure(connection)).walk_revisions()]
    assert all(len(found) == 1 for found in before.values())
    for step in steps[1:]:
        with writing(database) as connection:
            command.downgrade(configure(connection), step)
            assert revision(connection) == step
            lower = content(connection)
        assert lower == within(before, lower)
        upgrade(database)
        with reading(database) as connection:
            again = content(connection)
            assert (revision(connection), missing(connection, guards(METADATA))) == (HEAD, ())
            chained = connection.execute(select(record_chain.c.kind).order_by(record_chain.c.seq)).scalars().all()
            assert not list(walk_chain(connection))
        records = {kind.name for kind in record_kinds(METADATA)}
        if step < "0016":  # whose upgrade makes the chain of what is there
            assert sorted(chained) == sorted(name for name in records if again[name])
        assert within(again, lower) == lower
        assert {name: again[name] for name in DERIVED} == {name: before[name] for name in DERIVED}
        assert not [name for name in again.keys() - lower.keys() - DERIVED if again[name]]
        before = again
    assert before["versions"]
