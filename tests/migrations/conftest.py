"""The file of the database, which these tests open in more than one way."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import Engine

from registry.catalogue.database import open_engine


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "registry.db"


@pytest.fixture
def empty(path: Path) -> Iterator[Engine]:
    """An engine on no file yet."""
    engine = open_engine(path)
    yield engine
    engine.dispose()
