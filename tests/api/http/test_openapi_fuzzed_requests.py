"""Requests made from the OpenAPI document, well-formed and not: no fault, and no answer that it does not tell of.

The registry has something of everything, and a request is made of three parts, as chance has it: what the document
allows or forbids, what is really there, and words that break things. BENCHLOCK_DOCUMENT_EXAMPLES says how many requests
of each sort are made of each operation; a few here, hundreds by hand.
"""

import os
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis.checks import not_a_server_error
from schemathesis.core.result import Ok
from schemathesis.python.asgi import get_client
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from benchlock.api.http.request_limits import TokenBuckets
from benchlock.api.http.routes.app import create_app
from benchlock.api.http.service_settings import Settings
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.evidence.run_examination import Examiner
from benchlock.evaluator.records.run_store import Records
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.database.engine import open_engine
from tests.api.http.conftest import Clock
from tests.support.api.questions import Question, Questions

COUNT: Final = int(os.environ.get("BENCHLOCK_DOCUMENT_EXAMPLES", "3"))
CHECKS: Final = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES: Final = settings(
    max_examples=COUNT,
    deadline=None,
    derandomize=True,
    database=None,
    phases=[Phase.generate],  # the first that is wrong is told as it is: it need not be the smallest
    suppress_health_check=list(HealthCheck),
)
ODD: Final[list[Any]] = [
    *(None, True, 0, -1, 1 << 53, 1 << 63, 1 << 64, 10**400, 0.5, -0.0, 1e308),
    *("", " ", "\0", "a\0b", "\n", "é", "\U0001f600", "%00", "x" * 5000, "1" * 5000, "9" * 20),
    *("../../etc/passwd", "/etc/passwd", "..", "~root", "file:///etc/passwd", "http://127.0.0.1:1/"),
    *("sha256:", "sha256:" + "0" * 64, "run/" + "0" * 26, "latest", "^1.0", "2026-11-21T12:00:00+99:99", "9999-12-31"),
    *([], {}, [[]], [None], {"": None}, {"a": {"b": {"c": [1]}}}, ["x"] * 50),
]
"""What stands where something else is meant."""
OPTIONAL: Final = 0.5
KNOWN: Final = 0.7


@dataclass
class Desk:
    """The document of a service, questions that it answers, and a client; ``found`` is what was wrong."""

    document: schemathesis.schemas.BaseSchema
    questions: Questions
    client: Any
    statuses: dict[str, Counter[int]] = field(default_factory=dict)
    found: list[str] = field(default_factory=list)

    def ask(self, operation: str, case: schemathesis.Case[Any]) -> None:
        """Make a request, which a check may refuse."""
        answer = case.call_and_validate(checks=CHECKS, session=self.client)
        self.statuses.setdefault(operation, Counter())[answer.status_code] += 1


@pytest.fixture
def desk(schema: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    home = tmp_path_factory.mktemp("described")
    shutil.copy(schema, home / "registry.db")
    database = open_engine(home / "registry.db")
    store, catalogue = LocalStore(home / "blobs"), Catalogue(database, Clock())
    examiner = Examiner(store, home, catalogue.get_lock)
    registry = LocalRegistry(home, store, catalogue, Records(database), database, examiner)
    app: Any = create_app(registry, Settings(rate=1e9))
    with pytest.MonkeyPatch.context() as patched, get_client(app) as client:
        patched.setattr(TokenBuckets, "take", lambda *_: True)
        document = schemathesis.openapi.from_asgi("/v1/openapi.json", create_app(registry))  # it ends what it asks
        yield Desk(document, Questions(registry, client), client)
    database.dispose()


def operations(desk: Desk) -> Iterator[Any]:
    for result in desk.document.get_all_operations():
        assert isinstance(result, Ok)
        yield result.ok()


def _ask_each(desk: Desk) -> None:
    """Each operation answers a question that it can answer."""
    for operation in operations(desk):
        made = desk.questions.by_operation.get(operation.label, Question)()
        body = {} if made.body is None else {"body": made.body, "media_type": _media_type(made.body)}
        case = operation.Case(
            path_parameters=dict(made.path), query=dict(made.query), headers=dict(made.headers), **body
        )
        answer = case.call_and_validate(checks=CHECKS, session=desk.client)
        assert answer.status_code < 300, (operation.label, answer.status_code, answer.text)


def test_every_answer_is_one_that_the_document_tells_of(desk: Desk) -> None:
    _ask_each(desk)
    for mode in (schemathesis.GenerationMode.POSITIVE, schemathesis.GenerationMode.NEGATIVE):
        for operation in operations(desk):
            _ask_around(desk, operation, mode)
    assert not desk.found, "\n".join(desk.found)
    assert len(desk.statuses) > 40
    unanswered = [label for label, seen in desk.statuses.items() if not any(status < 300 for status in seen)]
    assert COUNT < 20 or not unanswered, unanswered


def _ask_around(desk: Desk, operation: Any, mode: schemathesis.GenerationMode) -> None:  # noqa: ANN401 - it has no public type
    @settings(EXAMPLES)
    @given(case=operation.as_strategy(generation_mode=mode), numbers=st.randoms(use_true_random=False))
    def ask(case: schemathesis.Case[Any], numbers: random.Random) -> None:
        if operation.label in desk.questions.by_operation:
            _mix(case, desk.questions.by_operation[operation.label](), numbers)
        desk.ask(operation.label, case)

    try:
        ask()
    except Unsatisfiable:
        return
    except BaseExceptionGroup as errors:
        desk.found.append(f"{operation.label}: {errors.exceptions}")
    except Exception as error:  # noqa: BLE001 - all of them are told at the end
        desk.found.append(f"{operation.label}: {error!r}")


def _mix(case: schemathesis.Case[Any], known: Question, numbers: random.Random) -> None:
    """Put what is known into the request, here and there, and something odd."""
    for name, value in known.path.items():
        if numbers.random() < KNOWN:
            case.path_parameters[name] = value
    for name, value in known.query.items():
        if numbers.random() < OPTIONAL:
            case.query[name] = value if numbers.random() < KNOWN else _word(numbers)
    for name, value in known.headers.items():
        if numbers.random() < OPTIONAL:
            case.headers[name] = value
    if known.body is not None and numbers.random() < KNOWN:
        case.body = _spoiled(known.body, numbers)
        case.media_type = _media_type(known.body)
    if isinstance(case.body, dict) and "wait" in case.body:
        case.body["wait"] = 0
    if "wait" in case.query:
        case.query["wait"] = "0"


def _media_type(body: object) -> str:
    return "application/octet-stream" if isinstance(body, bytes) else "application/json"


def _word(numbers: random.Random) -> str:
    return next(one for one in numbers.sample(ODD, len(ODD)) if isinstance(one, str))


def _spoiled(body: Any, numbers: random.Random) -> Any:  # noqa: ANN401 - a JSON value
    """The body with something odd in a place of it; a third of the time as it is."""
    if not isinstance(body, dict) or numbers.random() < 1 / 3:
        return body
    spoiled = deepcopy(body)
    place: Any = spoiled
    while True:
        keys = list(place) if isinstance(place, dict) else range(len(place))
        key = numbers.choice(keys)
        deeper = isinstance(place[key], dict | list) and place[key]
        if not deeper or numbers.random() < 1 / 4:
            break
        place = place[key]
    if isinstance(place, dict) and numbers.random() < 1 / 5:
        del place[key]
    else:
        place[key] = numbers.choice(ODD)
    return spoiled
