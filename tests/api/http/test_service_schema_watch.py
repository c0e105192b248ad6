"""A service whose schema changes under it answers nothing but health; it resumes when the schema is back."""

from collections.abc import Iterator

import pytest
from litestar.testing import TestClient
from sqlalchemy import Engine, text

from benchlock.api.http.routes.app import create_app
from benchlock.api.http.service_settings import Settings
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.migrations import HEAD, prepare
from benchlock.registry.database.engine import write_transaction
from tests.api.http.conftest import Client
from tests.support.registry.tiny import FRAMEWORK

pytestmark = pytest.mark.databases


@pytest.fixture
def watched(registry: LocalRegistry) -> Iterator[Client]:
    """A service that compares the revision with every request."""
    prepare(registry.database)
    with TestClient(create_app(registry, Settings(schema_seconds=0, ready_seconds=0))) as client:
        yield client


def set_revision(database: Engine, number: str) -> None:
    with database.connect() as connection, connection.begin():
        connection.execute(text("UPDATE alembic_version SET version_num = :number"), {"number": number})


@pytest.mark.parametrize("other", ["0001", "9999"])
def test_requests_are_refused_while_the_revision_differs(watched: Client, database: Engine, other: str) -> None:
    assert watched.get("/v1/artifacts").status_code == 200
    assert watched.get("/v1/ready").json()["schema"] == HEAD
    set_revision(database, other)
    for path in ("artifacts", "runs", "jobs", "metrics", "caller", "openapi.json", "ready"):
        answer = watched.get(f"/v1/{path}")
        assert answer.status_code == 503, path
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        assert (problem["code"], other in problem["detail"], HEAD in problem["detail"]) == (
            "schema-revision",
            True,
            True,
        )
    assert watched.post("/v1/artifacts", json={"manifest": FRAMEWORK}).json()["code"] == "schema-revision"
    assert watched.get("/v1/health").json()["schema"] == HEAD
    set_revision(database, HEAD)
    assert watched.get("/v1/ready").status_code == 200
    assert watched.get("/v1/artifacts").status_code == 200


def test_a_write_between_two_looks_is_refused_all_the_same(registry: LocalRegistry, database: Engine) -> None:
    prepare(database)
    with TestClient(create_app(registry, Settings(schema_seconds=3600))) as client:
        set_revision(database, "9999")
        answer = client.post("/v1/artifacts", json={"manifest": FRAMEWORK})
        assert (answer.status_code, answer.json()["code"]) == (503, "schema-revision")
        set_revision(database, HEAD)
        with write_transaction(database) as connection:
            assert connection.execute(text("SELECT count(*) FROM versions")).scalar() == 0
        assert client.post("/v1/artifacts", json={"manifest": FRAMEWORK}).status_code == 201
