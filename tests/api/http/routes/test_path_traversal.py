"""Names that lead elsewhere, in every parameter and every word of a body: nothing outside is read, nothing is made."""

import shutil
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
from litestar.testing import TestClient

from benchlock.api.http.request_limits import TokenBuckets
from benchlock.api.http.routes.app import create_app
from benchlock.api.http.service_settings import Settings
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.evidence.run_examination import Examiner
from benchlock.evaluator.records.run_store import Records
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.database.engine import open_engine
from tests.api.http.conftest import Client, Clock
from tests.support.api.questions import Question, Questions

SECRET: Final = "not of this registry"
WORDS: Final = ("../secret", "../../secret", "..%2fsecret", "..\\secret", "x/../../secret", "....//secret", "PATH")
IN_QUERIES: Final = ("../secret", "..\\secret", "PATH")
IN_BODIES: Final = ("../secret", "PATH")
FAULT: Final = 500
NO_PLACE: Final = {503}


@pytest.fixture(scope="module")
def site(schema: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Client, Questions, Path]]:
    """A service, what it can be asked, and a folder that holds its registry beside a file of somebody else."""
    folder = tmp_path_factory.mktemp("site")
    home = folder / "registry"
    home.mkdir()
    shutil.copy(schema, home / "registry.db")
    (folder / "secret").write_text(SECRET)
    database = open_engine(home / "registry.db")
    store, catalogue = LocalStore(home / "blobs"), Catalogue(database, Clock())
    examiner = Examiner(store, home, catalogue.get_lock)
    registry = LocalRegistry(home, store, catalogue, Records(database), database, examiner)
    with pytest.MonkeyPatch.context() as patched, TestClient(create_app(registry, Settings(rate=1e9))) as client:
        patched.setattr(TokenBuckets, "take", lambda *_: True)
        yield client, Questions(registry, client), folder
    database.dispose()


def operations(client: Client) -> Iterator[tuple[str, str, list[dict[str, Any]]]]:
    """Each method and path of the document, with its parameters."""
    for path, methods in client.get("/v1/openapi.json").json()["paths"].items():
        for method, told in methods.items():
            yield method.upper(), path, told.get("parameters", [])


def ask(client: Client, method: str, path: str, made: Question, **changed: str) -> None:
    """Ask with one parameter changed; its raw text is in the path."""
    for name in made.path:
        path = path.replace(f"{{{name}}}", changed.get(name, quote(made.path[name], safe="")))
    for name, word in changed.items():
        path = path.replace(f"{{{name}}}", word)
    query = {**made.query, **{name: word for name, word in changed.items() if name not in made.path}}
    body = {"content": made.body} if isinstance(made.body, bytes) else {"json": made.body}
    answer = client.request(method, path, params=query, headers=dict(made.headers), **body)
    told = (method, path, changed, answer.text[:500])
    assert answer.status_code < FAULT or answer.status_code in NO_PLACE, told
    assert SECRET not in answer.text, told


def untouched(folder: Path) -> bool:
    return sorted(one.name for one in folder.iterdir()) == ["registry", "secret"]


def test_no_parameter_leads_elsewhere(site: tuple[Client, Questions, Path]) -> None:
    client, questions, folder = site
    asked = 0
    for method, path, parameters in operations(client):
        make = questions.by_operation.get(f"{method} {path}", Question)
        for parameter in parameters:
            if parameter["in"] == "header":
                continue
            made, is_path = make(), parameter["in"] == "path"
            for word in (one.replace("PATH", str(folder / "secret")) for one in (WORDS if is_path else IN_QUERIES)):
                for written in {word, quote(word, safe="")} if is_path else {word}:
                    ask(client, method, path, made, **{parameter["name"]: written})
                    asked += 1
    assert asked > 300
    assert untouched(folder)


def test_no_word_of_a_body_leads_elsewhere(site: tuple[Client, Questions, Path]) -> None:
    client, questions, folder = site
    asked = 0
    for label, make in questions.by_operation.items():
        method, _, path = label.partition(" ")
        body = make().body
        for place in places(body) if isinstance(body, dict) else ():
            for word in IN_BODIES:
                made = make()
                changed = deepcopy(made.body)
                put(changed, place, word.replace("PATH", str(folder / "secret")))
                ask(client, method, path, Question(made.path, body=changed))
                asked += 1
    assert asked > 100
    assert untouched(folder)


def places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:  # noqa: ANN401 - a JSON value
    """Where the texts of a document are."""
    if isinstance(value, str):
        yield before
    for key, part in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield from places(part, (*before, key))


def put(document: Any, place: tuple[Any, ...], text: str) -> None:  # noqa: ANN401 - a JSON value
    *above, last = place
    for key in above:
        document = document[key]
    document[last] = text
