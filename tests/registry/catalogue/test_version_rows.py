"""What is looked up is what the database says by any other way, and a database that fails is said."""

import sqlite3
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, insert, select

from benchlock.artifacts.errors import UnavailableError
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.catalogue.catalogue_protocol import Provenance
from benchlock.registry.catalogue.version_rows import CONTENT, ENTRY, PUBLISHED, READ, TEXT, YANK, key_of
from benchlock.registry.database.engine import open_engine, read_transaction, write_transaction
from benchlock.registry.database.prepared_statements import PreparedInsert, PreparedSelect
from benchlock.registry.database.registry_schema import yanks
from benchlock.registry.manifests.manifest_content import manifest_digest
from benchlock.registry.names import parse_reference
from tests.registry.catalogue.test_catalogue import NOON
from tests.support.registry.frameworks import framework

REFERENCE = parse_reference("framework/acme/ort@1.0.0")


@pytest.mark.databases
@pytest.mark.parametrize("statement", [ENTRY, READ, CONTENT, PUBLISHED, TEXT, YANK])
def test_a_row_is_the_same_in_either_way(database: Engine, statement: object) -> None:
    catalogue, lookup = Catalogue(database, lambda: NOON), PreparedSelect(statement)  # type: ignore[arg-type]
    given = {"digest": manifest_digest(framework("acme/ort", "1.0.0"))} if statement is TEXT else key_of(REFERENCE)
    assert lookup.fetch_one(database, given) is None
    catalogue.publish(framework("acme/ort", "1.0.0"), Provenance("as written", {"a": "b"}))
    for act in (lambda: None, lambda: catalogue.yank(REFERENCE, "it's wrong"), lambda: catalogue.unyank(REFERENCE)):
        act()
        with read_transaction(database) as connection:
            row = connection.execute(statement, given).one_or_none()  # type: ignore[call-overload]
            assert lookup.fetch_one_in(connection, given) == (None if row is None else tuple(row))
        assert lookup.fetch_one(database, given) == (None if row is None else tuple(row))
        assert row is not None or statement is YANK


def yank_of_a_version(database: Engine) -> dict[str, Any]:
    """A row of ``yanks``, of a version that is there."""
    Catalogue(database, lambda: NOON).publish(framework("acme/ort", "1.0.0"), Provenance("", {}))
    return key_of(REFERENCE) | {"position": 1, "yanked": True, "reason": "r", "at": NOON}


@pytest.mark.databases
def test_a_row_is_inserted_as_the_database_would_by_any_other_way(database: Engine) -> None:
    row = yank_of_a_version(database)
    with write_transaction(database) as connection:
        PreparedInsert(yanks).add(connection, [row, row | {"position": 2, "yanked": False}])
        connection.execute(insert(yanks), [row | {"position": 3}, row | {"position": 4, "yanked": False}])
    with read_transaction(database) as connection:
        one, two, three, four = (tuple(found) for found in connection.execute(select(yanks).order_by("position")))
    assert (one[:3], one[4:], two[4:]) == (three[:3], three[4:], four[4:])
    assert one[4:] == (True, "r", NOON)


def test_a_row_that_lacks_a_column_or_breaks_a_rule_is_a_fault_of_ours(database: Engine) -> None:
    row = yank_of_a_version(database)
    with pytest.raises(KeyError, match="reason"), write_transaction(database) as connection:
        PreparedInsert(yanks).add(connection, [{key: value for key, value in row.items() if key != "reason"}])
    with pytest.raises(sqlite3.IntegrityError, match="append-only"), write_transaction(database) as connection:
        PreparedInsert(yanks).add(connection, [row, row])
    with read_transaction(database) as connection:
        assert connection.execute(select(yanks)).all() == []


def test_a_file_that_is_no_database_is_said(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    engine = open_engine(path)
    Catalogue(engine, lambda: NOON)
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(UnavailableError, match="the database cannot be used"):
        PreparedSelect(ENTRY).fetch_one(engine, key_of(REFERENCE))
    engine.dispose()
