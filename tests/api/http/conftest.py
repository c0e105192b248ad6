"""A service over an empty registry, and one with a few versions, asked without a socket in between."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from litestar import Litestar
from litestar.testing import TestClient
from sqlalchemy import Engine

from benchlock.api.http.routes.app import create_app
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.evaluator.evidence.run_examination import Examiner
from benchlock.evaluator.records.run_store import Records
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.catalogue.catalogue_protocol import CataloguedStore

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)

Client = TestClient[Litestar]


class Clock:
    """It goes on by a second each time it is looked at."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> datetime:
        self.now += timedelta(seconds=1)
        return self.now


@pytest.fixture
def registry(database: Engine, tmp_path: Path) -> LocalRegistry:
    catalogue = Catalogue(database, Clock())
    store = CataloguedStore(tmp_path / "blobs", catalogue.text_of)
    return LocalRegistry(
        tmp_path, store, catalogue, Records(database), database, Examiner(store, tmp_path, catalogue.get_lock)
    )


@pytest.fixture
def client(registry: LocalRegistry) -> Iterator[Client]:
    with TestClient(create_app(registry), raise_server_exceptions=False) as client:
        yield client
