"""The file of the database, which these tests open in more than one way, and databases before the first revision."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from tests.support.servers.postgresql import EMPTY, PostgresServer, open_any


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "registry.db"


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, path: Path) -> Iterator[str]:
    """The file, or the address, of a database in which there is nothing."""
    if request.param == "sqlite":
        yield str(path)
        return
    server: PostgresServer = request.getfixturevalue("postgresql")
    with server.database(EMPTY) as address:
        yield address


@pytest.fixture
def empty(place: str) -> Iterator[Engine]:
    """An engine on a database in which there is nothing."""
    engine = open_any(place)
    yield engine
    engine.dispose()
