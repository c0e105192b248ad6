"""What is looked up is what the database says by any other way, and a database that fails is said."""

from pathlib import Path

import pytest
from sqlalchemy import Engine

from artifacts.errors import UnavailableError
from registry.catalogue.catalogue import Catalogue
from registry.catalogue.database import open_engine, reading
from registry.catalogue.direct import Lookup
from registry.catalogue.entries import Provenance
from registry.catalogue.queries import CONTENT, ENTRY, PUBLISHED
from registry.catalogue.rows import key_of
from registry.names import parse_reference
from tests.registry.test_catalogue import NOON
from tests.support.frameworks import framework

REFERENCE = parse_reference("framework/acme/ort@1.0.0")


@pytest.mark.databases
@pytest.mark.parametrize("statement", [ENTRY, CONTENT, PUBLISHED])
def test_a_row_is_the_same_in_either_way(database: Engine, statement: object) -> None:
    catalogue, lookup = Catalogue(database, lambda: NOON), Lookup(statement)  # type: ignore[arg-type]
    assert lookup.ask(database, key_of(REFERENCE)) is None
    catalogue.publish(framework("acme/ort", "1.0.0"), Provenance("as written", {"a": "b"}))
    for act in (lambda: None, lambda: catalogue.yank(REFERENCE, "it's wrong"), lambda: catalogue.unyank(REFERENCE)):
        act()
        with reading(database) as connection:
            row = connection.execute(statement, key_of(REFERENCE)).one()  # type: ignore[call-overload]
        assert lookup.ask(database, key_of(REFERENCE)) == tuple(row)


def test_a_file_that_is_no_database_is_said(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    engine = open_engine(path)
    Catalogue(engine, lambda: NOON)
    path.write_bytes(b"not a database" * 100)
    with pytest.raises(UnavailableError, match="the database cannot be used"):
        Lookup(ENTRY).ask(engine, key_of(REFERENCE))
    engine.dispose()
