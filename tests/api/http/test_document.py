"""Requests made from the OpenAPI document, well-formed and not: no fault, and no answer that it does not tell of."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from api.http.app import create_app
from api.wiring import Registry
from artifacts.local import LocalStore
from evaluator.records.records import Records
from migrations import upgrade
from registry.catalogue.catalogue import Catalogue
from registry.catalogue.database import open_engine
from tests.api.http.conftest import Clock
from tests.support.variants import variant

CHECKS = (not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance)
EXAMPLES = settings(
    max_examples=5, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)


@pytest.fixture(scope="module")
def described(tmp_path_factory: pytest.TempPathFactory) -> Iterator[schemathesis.schemas.BaseSchema]:
    """The document of a service over a registry that has a version of each kind, and a lock."""
    home = tmp_path_factory.mktemp("described")
    database = open_engine(home / "registry.db")
    upgrade(database)
    registry = Registry(home, LocalStore(home / "blobs"), Catalogue(database, Clock()), Records(database), database)
    whole = variant({})
    whole.publish(registry.catalogue, registry.store)
    registry.catalogue.put_lock(whole.lock)
    yield schemathesis.openapi.from_asgi("/v1/openapi.json", create_app(registry))
    database.dispose()


def test_every_answer_is_one_that_the_document_tells_of(described: schemathesis.schemas.BaseSchema) -> None:
    found = []
    for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
        for result in described.get_all_operations():
            assert isinstance(result, Ok)
            operation = result.ok()

            @settings(EXAMPLES)
            @given(case=operation.as_strategy(generation_mode=mode))
            def ask(case: schemathesis.Case[Any]) -> None:
                case.call_and_validate(checks=list(CHECKS))

            try:
                ask()
            except Unsatisfiable:
                continue
            except BaseExceptionGroup as errors:
                found.append(f"{operation.label}: {errors.exceptions}")
    assert not found, "\n".join(found)
    assert sum(1 for _ in described.get_all_operations()) > 20
