"""Pages of what is large, foreign or damaged: each is a page without a traceback."""

import dataclasses
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from html import unescape
from typing import Any

import pytest
from litestar.testing import TestClient

from benchlock.api.http.routes.app import create_app
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.web.links import compare_path, run_path
from benchlock.evaluator.evidence.run_examination import ExaminedRecords
from benchlock.evaluator.records.run_types import Run, RunEnd
from benchlock.registry.catalogue.catalogue_protocol import Provenance
from benchlock.registry.database import sqlite
from benchlock.registry.lock.lockfile import Lock
from tests.api.http.conftest import Client
from tests.support.evaluator.evidence import CURRENT, IDX, make_run
from tests.support.evaluator.recorded import NOON
from tests.support.resolution.locks import DATASET, FILES, published
from tests.support.resolution.variants import variant

LONG = "\N{LATIN SMALL LETTER SHARP S}" * 4 + "x" * 496
VERSIONS = 600


@pytest.fixture
def opened(registry: LocalRegistry) -> LocalRegistry:
    return dataclasses.replace(registry, records=ExaminedRecords(registry.database, registry.examiner))


@pytest.fixture
def pages(opened: LocalRegistry) -> Iterator[Client]:
    with TestClient(create_app(opened), raise_server_exceptions=False) as client:
        client.headers["accept"] = "text/html"
        yield client


@pytest.fixture
def lock(opened: LocalRegistry) -> Lock:
    made = variant({"lock": CURRENT, "files": IDX})
    made.publish(opened.catalogue, opened.store)
    opened.catalogue.put_lock(made.lock)
    return made.lock


def record(registry: LocalRegistry, run: Run, end: RunEnd | None = None) -> Run:
    final = end or run.end
    assert final is not None
    registry.records.start(run.start)
    registry.records.finish(run.id, final)
    return run


def read(pages: Client, path: str, status: int = 200) -> str:
    answer = pages.get(path)
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("text/html")
    assert "Traceback" not in answer.text
    return answer.text


def publish_versions(registry: LocalRegistry, count: int) -> str:
    for number in range(count):
        manifest = published(DATASET, FILES["dataset"], version=f"1.{number}.0")
        registry.catalogue.publish(manifest, Provenance("# text\n", {}))
    return "/dataset/digits"


def test_an_artifact_with_hundreds_of_versions_is_shown_in_parts(pages: Client, registry: LocalRegistry) -> None:
    path = publish_versions(registry, VERSIONS)
    newest = read(pages, path)
    assert f"1.{VERSIONS - 1}.0" in newest
    assert "1.100.0" not in newest
    assert len(newest) < 60 << 10
    last = read(pages, f"{path}?below=1.2.0")
    assert "1.0.0" in last
    assert "below=1.0.0" not in last


def test_a_failed_run_without_results_says_why_and_its_long_message_is_escaped(
    pages: Client, opened: LocalRegistry, lock: Lock
) -> None:
    message = f"<script>{LONG}"
    end = RunEnd(outcome="failed", ended_at=NOON + timedelta(minutes=1), failure_class="crash", failure_message=message)
    run = record(opened, make_run(lock, opened.store), end)
    text = read(pages, run_path(run.id))
    assert f"&lt;script&gt;{LONG}" in text
    assert "<script>" not in text
    for path in ("/runs", f"/locks/{lock.id}", compare_path([run.id])):
        assert run_path(run.id) in read(pages, path)


def test_a_run_whose_blob_is_missing_is_a_page_that_names_the_blob(
    pages: Client, opened: LocalRegistry, lock: Lock
) -> None:
    run = record(opened, make_run(lock, opened.store))
    assert run.end is not None
    for blob in run.end.blobs.values():
        opened.store.delete(blob.digest)
    text = read(pages, run_path(run.id))
    assert re.search("There is no report on this run: the store has no blob sha256:[0-9a-f]{64}", text)
    for path in ("/runs", "/leaderboards", compare_path([run.id]), f"{run_path(run.id)}/trace"):
        read(pages, path)


def test_the_json_of_a_later_page_continues_as_the_page_does(
    pages: Client, opened: LocalRegistry, lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened.catalogue.publish(published(DATASET, FILES["dataset"], version="1.1.0"), Provenance("", {}))
    earlier, later = (
        record(opened, make_run(lock, opened.store, at=NOON + timedelta(minutes=minute))) for minute in (0, 5)
    )
    monkeypatch.setattr("benchlock.api.web.pages.run_pages.RUNS", 1)
    monkeypatch.setattr("benchlock.api.web.pages.catalogue_pages.NAMES", 1)

    def follow(path: str) -> tuple[str, Any]:
        """Return the next page after that of ``path``, and the JSON that it links."""
        after = unescape(re.findall(r'rel="next" href="([^"]*)"', read(pages, path))[0])
        page = read(pages, after)
        return page, pages.get(unescape(re.findall(r'type="application/json" href="([^"]*)"', page)[0])).json()

    page, document = follow("/runs?outcome=done")
    assert [run["start"]["id"] for run in document["runs"]] == [earlier.id]
    assert run_path(earlier.id) in page
    assert run_path(later.id) not in page
    for path in ("/artifacts", "/artifacts?search=digits"):
        page, document = follow(path)
        first = document["artifacts"][0]
        assert f"/{first['kind']}/{first['name']}@" in page, path


@pytest.mark.parametrize("path", ["/", "/artifacts", "/runs", "/leaderboards", "/jobs"])
def test_a_locked_database_is_a_page_that_says_when_to_try_again(
    pages: Client, opened: LocalRegistry, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_MS", 100)
    opened.database.dispose()
    with closing(sqlite3.connect(str(opened.database.url.database), isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode = EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        answer = pages.get(path)
        assert (answer.status_code, answer.headers.get("retry-after")) == (503, "5"), answer.text
        assert "Service unavailable" in answer.text
        assert "Traceback" not in answer.text
    read(pages, path)
