"""Down and up again with rows in every table: what a lower revision can hold stays, what is derived is made anew."""

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, inspect, select, text

from benchlock.artifacts.digest import digest_bytes
from benchlock.evaluator.records.run_types import RunId
from benchlock.evaluator.records.runs_schema import insert_hiding
from benchlock.migrations import HEAD, configure, upgrade
from benchlock.migrations.schema_check import METADATA
from benchlock.registry.auth.audit_log import record_action
from benchlock.registry.catalogue.resolver_statements import render_statement
from benchlock.registry.database.database_checks import check_database
from benchlock.registry.database.engine import read_revision, read_transaction, write_transaction
from benchlock.registry.database.record_chain import Head, chain_entry, record_kinds, walk_chain
from benchlock.registry.database.registry_schema import record_chain
from benchlock.registry.database.triggers import find_missing_triggers, list_guards
from tests.support.registry.rows import EVERY, row

DERIVED = {"environments"}
"""What a revision fills from what is published."""
STARTED = {"usages"}
"""What a revision starts anew for each owner of jobs."""
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


def chain_rows(connection: Connection) -> None:
    """Insert an entry for the one row of each kind, hidings in their midst."""
    head = Head(0, "")
    for kind in record_kinds(METADATA):
        entry = chain_entry(head, kind.name, "a", digest_bytes(kind.name.encode()))
        connection.execute(record_chain.insert(), entry)
        head = Head(entry["seq"], entry["link"])


@pytest.mark.databases
def test_down_and_up_again_keeps_what_the_lower_revision_holds(database: Engine) -> None:
    with write_transaction(database) as connection:
        for name, values in rows():
            columns, marks = ", ".join(f'"{column}"' for column in values), ", ".join(f":{column}" for column in values)
            statement = f"INSERT INTO {name} ({columns}) VALUES ({marks})"
            connection.exec_driver_sql(render_statement(statement, connection.dialect.name), values)
        chain_rows(connection)
        before = content(connection)
        steps = [one.revision for one in ScriptDirectory.from_config(configure(connection)).walk_revisions()]
    assert all(len(found) == 1 for found in before.values())
    for step in steps[1:]:
        with write_transaction(database) as connection:
            command.downgrade(configure(connection), step)
            assert read_revision(connection) == step
            lower = content(connection)
        assert lower == within(before, lower)
        upgrade(database)
        with read_transaction(database) as connection:
            again = content(connection)
            assert (read_revision(connection), find_missing_triggers(connection, list_guards(METADATA))) == (HEAD, ())
            chained = connection.execute(select(record_chain.c.kind).order_by(record_chain.c.seq)).scalars().all()
            assert not list(walk_chain(connection))
        records = {kind.name for kind in record_kinds(METADATA)}
        assert sorted(chained) == sorted(name for name in records if again[name])
        assert within(again, lower) == lower
        assert {name: again[name] for name in DERIVED} == {name: before[name] for name in DERIVED}
        assert not [name for name in again.keys() - lower.keys() - DERIVED - STARTED if again[name]]
        assert {one["owner"] for one in again["usages"]} == {one["owner"] for one in again["jobs"]}
        before = again
    assert before["versions"]


@pytest.mark.databases
def test_what_a_downgrade_drops_leaves_the_chain_whole_and_can_be_written_again(database: Engine) -> None:
    run, at = RunId("run/" + "0" * 26), datetime(2026, 1, 1, tzinfo=UTC)
    with write_transaction(database) as connection:
        record_action(connection, "before", "x", at)
        insert_hiding(connection, run, "wrong data", at)
    with write_transaction(database) as connection:
        command.downgrade(configure(connection), "0017")
        assert not list(walk_chain(connection))
    upgrade(database)
    assert check_database(database, METADATA).damaged == ()
    with write_transaction(database) as connection:
        insert_hiding(connection, run, "wrong data", at)
    assert check_database(database, METADATA).damaged == ()
