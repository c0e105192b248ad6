"""The catalogue, artifacts and what uses them, as browsers and programs read them."""

import csv
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from litestar.testing import TestClient

from benchlock.api.http.request_authorization import OpenAuthority
from benchlock.api.http.routes.app import create_app
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.web.links import lock_path, used_by_path
from benchlock.api.web.pages import yank_pages
from benchlock.registry.lock.lockfile import Lock
from tests.api.http.conftest import Client
from tests.support.registry.frameworks import publish_framework
from tests.support.resolution.variants import variant

HTML = {"accept": "text/html"}


@pytest.fixture
def pages(registry: LocalRegistry) -> Iterator[Client]:
    app = create_app(registry, authority=OpenAuthority(local=True))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        client.follow_redirects = False
        yield client


@pytest.fixture
def lock(registry: LocalRegistry) -> Lock:
    whole = variant({})
    whole.publish(registry.catalogue, registry.store)
    registry.catalogue.put_lock(whole.lock)
    return whole.lock


def test_the_beginning_of_an_id_leads_to_its_page(pages: Client, lock: Lock) -> None:
    for text in (lock.id, lock.id[:15], lock.id[7:15]):
        answer = pages.get("/artifacts", params={"search": text}, headers=HTML)
        assert (answer.status_code, answer.headers["location"]) == (303, lock_path(lock.id))
        filtered = pages.get("/artifacts", params={"search": text, "kind": "model"}, headers=HTML)
        assert filtered.status_code == 200
        rows = csv.DictReader(pages.get("/artifacts", params={"search": text, "csv": "ids"}).text.splitlines())
        assert [row["lock"] for row in rows] == [lock.id]
    assert "Nothing matches." in pages.get("/artifacts", params={"search": "sha256:0000"}, headers=HTML).text


def test_what_uses_a_version_is_a_page_a_csv_and_json(
    pages: Client, registry: LocalRegistry, lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = f"framework/{lock.framework.name}@{lock.framework.version}"
    versions = [f"image/{lock.image.name}@{lock.image.version}", f"model/{lock.subject.name}@{lock.subject.version}"]
    assert used_by_path(target) in pages.get(f"/{target}", headers=HTML).text
    other = variant({"model": {"name": "other"}, "request": {"model": {"name": "other", "version": "*"}}})
    other.publish(registry.catalogue, registry.store, ("model",))
    registry.catalogue.put_lock(other.lock)
    versions.append(f"model/other@{other.lock.subject.version}")
    monkeypatch.setattr(yank_pages, "ROWS", 1)
    found: dict[str, list[object]] = {"versions": [], "locks": []}
    for name, listed in found.items():
        cursor = ""
        while cursor is not None:
            path = used_by_path(target, **{name: cursor})
            document = pages.get(f"/v1{path}").json()
            rows = document["tables"][name]["rows"]
            page = pages.get(path, headers=HTML)
            assert page.status_code == 200
            assert all(str(row[0])[:15] in page.text for row in rows)
            shown = [*csv.reader(pages.get(f"{path}&csv={name}").text.splitlines())][1:]
            assert [row[0] for row in shown] == [row[0] for row in rows]
            listed += [row[0] for row in rows]
            cursor = document["facts"][f"next_{name}"]
    assert found["versions"] == versions
    assert sorted(map(str, found["locks"])) == sorted((lock.id, other.lock.id))
    for place in ("x", "WyJ4IiwieCJd", "WyIyMDI2IiwieCJd"):
        assert pages.get(used_by_path(target, locks=place), headers=HTML).status_code == 422
        assert pages.get(f"/v1{used_by_path(target, versions=place)}").status_code == 422
    assert pages.get(used_by_path("model/none@1.0.0"), headers=HTML).status_code == 404
    assert pages.get(used_by_path("nothing"), headers=HTML).status_code == 422


def test_a_wrong_range_is_an_error_on_the_page_and_a_right_one_filters_it(
    pages: Client, registry: LocalRegistry
) -> None:
    for version in ("1.0.0", "1.2.0", "2.0.0"):
        publish_framework(registry.catalogue, registry.store, "acme", version)

    def read(range_: str) -> list[str]:
        answer = pages.get(f"/framework/acme?versions={quote(range_)}&csv=versions")
        assert answer.status_code == 200
        return [row["artifact"].partition("@")[2] for row in csv.DictReader(answer.text.splitlines())]

    assert read(">=1.2 <2") == ["1.2.0"]
    assert read(">=") == ["2.0.0", "1.2.0", "1.0.0"]
    page = pages.get("/framework/acme?versions=%3E%3D", headers=HTML)
    assert page.status_code == 200
    assert 'role="alert"' in page.text
    assert "get framework/acme@2.0.0" in page.text


def test_the_catalogue_has_facets_of_licenses_and_platforms(pages: Client, lock: Lock) -> None:
    def read(**query: str) -> list[str]:
        listed = pages.get("/v1/artifacts", params=query).json()["artifacts"]
        rows = csv.DictReader(pages.get("/artifacts", params={**query, "csv": "artifacts"}).text.splitlines())
        names = [f"{one['kind']}/{one['name']}@{one['version']}" for one in listed]
        assert [row["artifact"] for row in rows] == names
        return names

    assert read(platform="linux") == [f"image/{lock.image.name}@{lock.image.version}"]
    assert read(platform="plan9") == []
    assert read(license="apache-2.0", kind="model") == [f"model/{lock.subject.name}@{lock.subject.version}"]
    assert read(license="none") == []
