"""A database made by the revisions, in a file of the test's own."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from migrations import upgrade
from registry.catalogue.database import open_engine


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "registry.db"


@pytest.fixture
def engine(path: Path) -> Iterator[Engine]:
    """An engine on the empty file."""
    engine = open_engine(path)
    yield engine
    engine.dispose()


@pytest.fixture(scope="session")
def schema(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file that the revisions made once, to be copied: every commit waits for the disk."""
    path = tmp_path_factory.mktemp("schema") / "schema.db"
    engine = open_engine(path)
    upgrade(engine)
    engine.dispose()
    return path


@pytest.fixture
def migrated(engine: Engine, schema: Path, path: Path) -> Engine:
    """An engine on a database of the newest revision."""
    shutil.copy(schema, path)
    return engine
