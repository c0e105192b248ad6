"""Pages of locks, comparisons and leaderboards over HTTP: addresses, downloads, errors and who may read."""

import dataclasses
import re
from collections.abc import Iterator
from datetime import timedelta
from html import unescape
from xml.etree import ElementTree as ET

import pytest
from litestar.testing import TestClient

from benchlock.api.http.routes.app import create_app
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.web.links import compare_path, leaderboard_path, run_path
from benchlock.evaluator.analysis.table_formats import format_cell, format_csv
from benchlock.evaluator.analysis.tables import Column, Table
from benchlock.evaluator.evidence.run_examination import ExaminedRecords
from benchlock.registry.auth.permissions import UnauthorizedError
from benchlock.registry.lock.lockfile import Lock, dataset_of, load
from tests.api.http.conftest import Client
from tests.support.api.html_tables import read_cells
from tests.support.evaluator.evidence import CURRENT, IDX, make_run
from tests.support.evaluator.recorded import NOON
from tests.support.registry.forging import forge, remove_guards
from tests.support.resolution.variants import variant

HOSTILE = "%22%3E%3Cscript%3Ealert(1)"
PAGES = ("/locks/{lock}", "/locks/{lock}.toml", "/locks/{lock}...{lock}", "/compare", "/leaderboards")


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


@pytest.fixture
def runs(opened: LocalRegistry, lock: Lock) -> list[str]:
    made = [make_run(lock, opened.store, at=NOON + timedelta(minutes=5 * number)) for number in range(2)]
    for run in made:
        assert run.end is not None
        opened.records.start(run.start)
        opened.records.finish(run.id, run.end)
    return [run.id for run in made]


def test_a_lock_is_found_by_a_prefix_and_downloaded_as_a_file(pages: Client, lock: Lock) -> None:
    answer = pages.get(f"/locks/{lock.id[:14]}")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    for name in (lock.id, lock.id[:14]):
        file = pages.get(f"/locks/{name}.toml")
        assert file.headers["content-disposition"].startswith("attachment; filename=")
        assert file.headers["content-type"] == "application/toml"
        assert load(file.text, "the file") == lock


def test_a_form_leads_to_the_differences(pages: Client, lock: Lock) -> None:
    answer = pages.get(f"/locks/{lock.id}", params={"against": lock.id[:14]}, follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, f"/locks/{lock.id}...{lock.id[:14]}")
    assert "Nothing differs" in pages.get(answer.headers["location"]).text
    hostile = pages.get(f"/locks/{lock.id}?against=//evil.example%0d%0ax:y", follow_redirects=False)
    assert hostile.headers["location"].startswith(f"/locks/{lock.id}...%2F%2Fevil")
    assert "x" not in hostile.headers


def test_every_table_is_offered_as_csv(pages: Client, lock: Lock) -> None:
    answer = pages.get(f"/locks/{lock.id}?csv=artifacts")
    assert answer.headers["content-type"].startswith("text/csv")
    assert lock.subject.digest in answer.text


ERRORS = (
    (f"/locks/sha256:{'0' * 64}", 404),
    (f"/locks/sha256:{'0' * 64}.toml", 404),
    (f"/locks/{HOSTILE}", 422),
    (f"/locks/sha256:0...{HOSTILE}", 422),
    (f"/compare?run={HOSTILE}", 422),
    (f"/leaderboards?dataset={HOSTILE}", 422),
    (f"/leaderboards?dataset={'a' * 2000}", 422),
    ("/compare?" + "&".join(f"run={number:026}" for number in range(21)), 422),
)


def test_errors_are_pages_that_escape_what_was_sent(pages: Client) -> None:
    for path, status in ERRORS:
        answer = pages.get(path)
        assert answer.status_code == status, path
        assert answer.headers["content-type"].startswith("text/html"), path
        assert "<script>alert" not in answer.text, path
        assert "Code:" in answer.text, path


def test_a_changed_lock_is_an_error_page(pages: Client, opened: LocalRegistry, lock: Lock) -> None:
    remove_guards(opened.database)
    text = opened.catalogue.get_lock(lock.id).replace("seconds = 600", "seconds = 601")
    forge(opened.database, "UPDATE locks SET text = :text WHERE id = :id", text=text, id=lock.id)
    for path in (f"/locks/{lock.id}", f"/locks/{lock.id}.toml", f"/locks/{lock.id}...{lock.id}"):
        answer = pages.get(path)
        assert answer.status_code >= 400
        assert "attachment" not in answer.headers.get("content-disposition", "")
        assert "damaged" in answer.text


def test_runs_are_compared_with_and_without_the_prefix_of_their_ids(pages: Client, runs: list[str]) -> None:
    both = pages.get("/compare", params={"run": [runs[0], runs[1].removeprefix("run/")]})
    assert both.status_code == 200
    assert "<strong>Comparable.</strong>" in both.text
    assert "Choose another run" in pages.get("/compare", params={"run": runs[0]}).text
    unknown = pages.get("/compare", params={"run": [*runs, f"run/{'0' * 26}"]})
    assert (unknown.status_code, "Comparable." in unknown.text) == (200, True)
    many = pages.get("/compare?" + "&".join(f"run={number:026}" for number in range(21)))
    assert '<a href="/leaderboards">/leaderboards</a>' in many.text
    assert pages.get("/compare", params={"run": [*runs, ""], "csv": "findings"}).text.startswith("system,metric,ratio")


def test_a_run_leads_to_its_lock_and_a_leaderboard_to_its_runs(pages: Client, runs: list[str], lock: Lock) -> None:
    assert f'href="/locks/{lock.id}"' in pages.get(f"/runs/{runs[0].removeprefix('run/')}").text
    query = {"dataset": f"{dataset_of(lock).name}@{dataset_of(lock).version}", "split": dataset_of(lock).split}
    board = pages.get("/leaderboards", params=query).text
    assert f'href="/runs/{runs[1].removeprefix("run/")}"' in board
    assert f'href="/locks/{lock.id}"' in board


class ClosedAuthority:
    """It admits nobody."""

    def known(self, authorization: str | None, request: str | None) -> None:
        del authorization, request

    def admit(self, authorization: str | None, request: str | None) -> None:
        raise UnauthorizedError(f"no token: {authorization} {request}")

    def forget(self) -> None: ...


def test_nothing_is_shown_before_signing_in(opened: LocalRegistry, lock: Lock) -> None:
    app = create_app(opened, authority=ClosedAuthority())  # type: ignore[arg-type] # it returns no actor
    with TestClient(app, raise_server_exceptions=False) as client:
        for path in PAGES:
            answer = client.get(path.format(lock=lock.id), headers={"accept": "text/html"})
            assert answer.status_code == 401, path
            assert lock.subject.digest not in answer.text, path
            assert 'action="/sign-in"' in answer.text, path


def test_every_number_of_a_page_is_that_of_its_twin_and_of_its_csv(
    pages: Client, opened: LocalRegistry, runs: list[str], lock: Lock
) -> None:
    other = variant({"lock": CURRENT, "files": IDX, "request": {"seed": 99}}).lock
    opened.catalogue.put_lock(other)
    dataset = f"{dataset_of(lock).name}@{dataset_of(lock).version}"
    addresses = {
        f"/locks/{lock.id}...{other.id}": {"changes"},
        compare_path(runs): {"runs", "findings", "results", "section-1"},
        compare_path(runs, anyway=True): {"runs", "findings", "results"},
        leaderboard_path(dataset, dataset_of(lock).split): {"board-1"},
        "/leaderboards": {"leaderboards"},
        f"/new?model=digits&dataset={dataset}&split=test": {"resolution"},
    }
    numbers = 0
    for address, names in addresses.items():
        page = pages.get(address).text
        link = re.search(r'<link rel="alternate" type="application/json" href="([^"]*)">', page)
        assert link is not None, address
        twin = pages.get(unescape(link[1]))
        assert twin.status_code == 200, twin.text
        document = twin.json()
        assert names <= document["tables"].keys(), address
        assert set(re.findall(r'csv=([^"&]*)">CSV', page)) == {
            name for name, table in document["tables"].items() if table["rows"]
        }
        for name, table in document["tables"].items():
            found = Table(
                table["id"], table["title"], tuple(Column(**one) for one in table["columns"]),
                tuple(map(tuple, table["rows"])), notes=tuple(table["notes"]),
            )  # fmt: skip
            assert pages.get(f"{address}{'&' if '?' in address else '?'}csv={name}").text == format_csv(found)
            for cells, row in zip(read_cells(page, name), found.rows, strict=True):
                for column, shown, value in zip(found.columns, cells, row, strict=True):
                    whole = format_cell(column, value)
                    assert shown == whole[: len(shown) if column.name in ("run", "lock", "samples") else None]
                    numbers += isinstance(value, float)
    assert numbers > 20


def test_every_chart_is_a_file_of_its_own(pages: Client, runs: list[str]) -> None:
    charts = 0
    for path in (run_path(runs[0]), compare_path(runs)):
        html = pages.get(path).text
        links = re.findall(r'<figcaption>[^<]*<a href="(\?[^"]*svg=[^"]*)"', html)
        assert len(links) == html.count("<figure")
        for link in links:
            file = pages.get(path.partition("?")[0] + unescape(link))
            assert file.headers["content-type"] == "image/svg+xml"
            assert file.headers["content-disposition"].endswith('.svg"')
            drawing = ET.fromstring(file.text)
            names = [part.tag.partition("}")[2] for part in drawing]
            assert names[:2] == ["title", "desc"]
            assert all(part.text for part in drawing[:2])
            if path.startswith("/runs/"):
                assert "".join(drawing.itertext()).count(f"run/{path.removeprefix('/runs/').partition('?')[0]}") == 1
            charts += 1
    assert charts > 1
    assert pages.get(run_path(runs[0]), params={"svg": "nothing"}).status_code == 404
