"""Foreign texts, names at their limits and foreign requests: every page shows them as text, and none acts."""

import csv
import dataclasses
import io
import re
import sqlite3
from collections.abc import Iterator, Mapping
from contextlib import closing
from datetime import timedelta
from html import unescape
from html.parser import HTMLParser
from http.cookies import SimpleCookie
from pathlib import Path
from urllib.parse import urlencode

import pytest
from litestar.testing import TestClient
from msgspec.structs import replace

from benchlock.api.http.page_sessions import COOKIE
from benchlock.api.http.request_authorization import OpenAuthority
from benchlock.api.http.routes.app import create_app
from benchlock.api.http.service_settings import Settings
from benchlock.api.local.local_registry import LocalRegistry, now
from benchlock.api.web.links import artifact_path, compare_path, leaderboard_path, lock_diff_path, lock_path, run_path
from benchlock.api.web.pages.trace_pages import export_trace
from benchlock.evaluator.analysis.exports.formats import EXPORTS
from benchlock.evaluator.evidence.run_examination import ExaminedRecords
from benchlock.evaluator.records.run_types import Run, RunEnd
from benchlock.evaluator.runner.job_folder import fingerprint_lock
from benchlock.evaluator.statistics.metric_types import format_value
from benchlock.registry.artifact_names import LONGEST, Name, Reference
from benchlock.registry.auth.permissions import Scopes
from benchlock.registry.auth.tokens import Authenticator, Tokens
from benchlock.registry.database import sqlite
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.resolution.resolver_types import ORDER
from benchlock.registry.versions import semantic_version
from benchlock.registry.versions.semantic_version import parse_version
from tests.api.http.conftest import Client
from tests.support.evaluator.evidence import CURRENT, IDX, make_run
from tests.support.evaluator.recorded import HOST, NOON
from tests.support.evaluator.traces import LAYERS, write_trace
from tests.support.registry.frameworks import publish_framework
from tests.support.resolution.variants import variant

HOSTILE = (
    "\"><svg onload=alert(1)><script>alert(2)</script><a href=javascript:alert(3)>' \N{RIGHT-TO-LEFT OVERRIDE}{{ 7*7 }}"
)
SHOWN = HOSTILE.replace("\N{RIGHT-TO-LEFT OVERRIDE}", "\\u202e")
OURS = {"sec-fetch-site": "same-origin"}
SPLIT = 'a/b"><svg onload=alert(4)>'
NAME = "n" * 63 + "/" + "m" * 64
VERSION = "1.0.0-" + "a" * 122


class Reader(HTMLParser):
    """It reads a page as a browser does, and notes its text and what might act."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.texts: list[str] = []
        self.acting: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values: Mapping[str, str | None] = dict(attrs)
        is_ours = tag != "script" or (values.get("src") or "").startswith("/assets/")
        if not is_ours or any(name.startswith("on") or name == "style" for name in values):
            self.acting.append(self.get_starttag_text() or tag)
        for name in ("href", "src", "action"):
            if not (values.get(name) or "/").startswith(("/", "?", "#", "data:,")):
                self.acting.append(self.get_starttag_text() or tag)
        self.texts += [value or "" for name, value in attrs if name in ("value", "aria-label")]

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


def read(client: Client, path: str) -> str:
    """Return the text of a page on which nothing acts."""
    answer = client.get(path)
    assert answer.status_code == 200, (path, answer.text)
    page = Reader(answer.text)
    assert page.acting == [], path
    assert "49" not in answer.text.partition("7*7")[2][:4]
    return " ".join(page.texts)


@pytest.fixture
def opened(registry: LocalRegistry) -> LocalRegistry:
    return dataclasses.replace(registry, records=ExaminedRecords(registry.database, registry.examiner))


def serve(registry: LocalRegistry, *, local: bool = False) -> Client:
    app = create_app(registry, authority=OpenAuthority(local=local))
    client = TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False)
    client.headers["accept"] = "text/html"
    return client


@pytest.fixture
def pages(opened: LocalRegistry) -> Iterator[Client]:
    with serve(opened) as client:
        yield client


@pytest.fixture
def lock(registry: LocalRegistry) -> Lock:
    """The lock of artifacts that are hostile in every text, on a split with a slash, and with the longest names."""
    made = variant({
        "model": {"name": NAME, "description": HOSTILE, "attributes": {HOSTILE[:20]: HOSTILE}, "license": HOSTILE},
        "dataset": {
            "name": NAME,
            "description": HOSTILE,
            "splits": {SPLIT: {"images": "images.idx", "labels": "labels.idx", "samples": 2}},
        },
        "files": IDX,
        "lock": CURRENT,
        "request": {"model": {"name": NAME, "version": "*"}, "dataset": {"name": NAME, "version": "*", "split": SPLIT}},
    })  # fmt: skip
    made.publish(registry.catalogue, registry.store)
    registry.catalogue.put_lock(made.lock)
    return made.lock


def record(registry: LocalRegistry, run: Run, end: RunEnd | None = None, **host: str) -> Run:
    final = end or run.end
    assert final is not None
    registry.records.start(replace(run.start, host=HOST | host))
    registry.records.finish(run.id, final)
    return run


def test_names_at_their_limits_and_foreign_texts_are_texts_on_every_page(
    pages: Client, opened: LocalRegistry, lock: Lock
) -> None:
    assert len(NAME) == LONGEST
    failed = RunEnd(outcome="failed", ended_at=NOON, failure_class="engine", failure_message=HOSTILE)
    made = [make_run(lock, opened.store, at=NOON + timedelta(minutes=5 * number)) for number in range(3)]
    runs = [
        record(opened, made[0], cpu_model=HOSTILE, kernel=HOSTILE, driver=HOSTILE),
        record(opened, made[1]),
        record(opened, made[2], replace(failed, ended_at=NOON + timedelta(minutes=11))),
    ]
    opened.catalogue.yank(Reference("model", Name(NAME), parse_version("1.0.0")), HOSTILE)
    target, model, ids = f"model/{NAME}@1.0.0", artifact_path("model", NAME, "1.0.0"), [run.id for run in runs]
    missing = []
    for path, words in {
        model: (NAME, SHOWN, HOSTILE),
        artifact_path("dataset", NAME): (NAME, HOSTILE, SPLIT),
        "/": (NAME, SHOWN),
        f"/artifacts?{urlencode({'search': HOSTILE})}": (HOSTILE,),
        f"/artifacts?{urlencode({'search': NAME})}": (NAME, SHOWN),
        "/runs": (NAME,),
        run_path(ids[0]): (NAME, SHOWN, SPLIT),
        run_path(ids[2]): (HOSTILE,),
        f"{run_path(ids[0])}/provenance": (NAME,),
        f"{run_path(ids[0])}/samples": (NAME,),
        f"{run_path(ids[0])}/trace": (NAME, SPLIT),
        lock_path(lock.id): (NAME, SHOWN, SPLIT),
        lock_diff_path(lock.id, lock.id): (NAME,),
        compare_path(ids[:2]): (NAME, HOSTILE),
        compare_path(ids[:2], anyway=True): (NAME, HOSTILE),
        compare_path(ids[1:]): (NAME, "has no result"),
        "/leaderboards": (NAME, SPLIT),
        leaderboard_path(f"{NAME}@1.0.0", SPLIT): (NAME, SPLIT, HOSTILE),
        f"/new?{urlencode({'model': NAME, 'dataset': NAME, 'split': HOSTILE, 'name': HOSTILE})}": (NAME, HOSTILE),
        f"/yank?{urlencode({'target': target})}": (NAME, SHOWN),
        "/audit": (NAME,),
    }.items():
        text = read(pages, path)
        missing += [(path, word) for word in words if word not in text]
    assert missing == []


def test_the_longest_version_has_its_pages(pages: Client, registry: LocalRegistry) -> None:
    assert len(VERSION) == semantic_version.LONGEST
    publish_framework(registry.catalogue, registry.store, NAME, VERSION)
    target = f"framework/{NAME}@{VERSION}"
    asked = urlencode({"target": target})
    for path in (artifact_path("framework", NAME, VERSION), "/artifacts", f"/yank?{asked}", f"/used-by?{asked}"):
        assert VERSION in read(pages, path)


VERSIONS = {
    "sound": ("1.0.0", "1.1.0-rc.1", "1.1.0!", "2.0.0-rc.1"),
    "yanked": ("1.0.0!", "1.1.0!"),
    "unfinished": ("1.0.0-rc.1", "1.0.0-rc.2"),
    "neither": ("1.0.0!", "1.1.0-rc.1"),
}
"""Versions by name; those with a ``!`` are yanked."""


def test_no_page_calls_a_yanked_or_pre_release_version_the_newest(pages: Client, registry: LocalRegistry) -> None:
    for name, versions in VERSIONS.items():
        for version in versions:
            publish_framework(registry.catalogue, registry.store, name, version.strip("!"))
            if version.endswith("!"):
                reference = Reference("framework", Name(name), parse_version(version.strip("!")))
                registry.catalogue.yank(reference, "a fault")
    for path in ("/", "/artifacts", "/artifacts?kind=framework"):
        rows = csv.DictReader(pages.get(path, params={"csv": "artifacts"}).text.splitlines())
        assert {row["artifact"].partition("/")[2]: row["remarks"] for row in rows} == {
            "sound@1.0.0": "",
            "yanked@1.1.0": "yanked: a fault",
            "unfinished@1.0.0-rc.2": "pre-release",
            "neither@1.1.0-rc.1": "pre-release",
        }
    for name, versions in VERSIONS.items():
        for version in versions:
            text = " ".join(read(pages, artifact_path("framework", name, version.strip("!"))).split())
            claimed = re.findall(r"(?:newest version is|they choose) (\S+?)\.? ", text)
            is_newest = (name, version) == ("sound", "1.0.0")
            assert claimed == (["1.0.0"] if name == "sound" and not is_newest else []), (name, version)


def test_the_preview_and_the_lock_choose_no_yanked_or_pre_release_version(
    pages: Client, registry: LocalRegistry
) -> None:
    for version in ("1.0.0", "1.1.0", "2.0.0-rc.1"):
        made = variant({
            "model": {"version": version}, "request": {"model": {"name": "digits", "version": version}}
        })  # fmt: skip
        made.publish(registry.catalogue, registry.store, ORDER if version == "1.0.0" else ("model",))
    registry.catalogue.yank(Reference("model", Name("digits"), parse_version("1.1.0")), "a fault")
    query = {"model": "digits", "dataset": "digits", "split": "test"}
    text = read(pages, f"/new?{urlencode(query)}")
    assert "model/digits@1.0.0" in text
    answer = pages.post("/locks", data=query, headers=OURS)
    assert answer.status_code == 200
    for page in (text, " ".join(Reader(answer.text).texts)):
        assert "no newer version is published" not in page.partition("model/digits")[2].partition("framework/")[0]
        assert re.search(r"1\.1\.0: yanked", page)
        assert re.search(r"2\.0\.0-rc\.1: .*pre-release", page)


def test_names_in_a_trace_are_texts(registry: LocalRegistry, lock: Lock, tmp_path: Path) -> None:
    layers = [
        {**layer, "name": f"{number} {HOSTILE}", "source_names": [HOSTILE]} for number, layer in enumerate(LAYERS)
    ]
    file = write_trace(tmp_path / "trace", layers=layers, fingerprint=fingerprint_lock(lock))
    blob = registry.store.put(io.BytesIO(file.read_bytes()))
    run = make_run(lock, registry.store)
    assert run.end is not None
    end = replace(run.end, blobs={**run.end.blobs, "trace": blob})
    with serve(registry) as pages:  # its records are not compared with their evidence, which has no trace
        path = f"{run_path(record(registry, run, end).id)}/trace"
        assert f"0 {SHOWN}" in read(pages, path)
        assert pages.get(path).text.count("<svg") == 1
        for format_ in EXPORTS:
            assert f'href="{path}/{format_}"' in pages.get(path).text
            answer = pages.get(f"{path}/{format_}")
            assert answer.content == export_trace(registry, run.id, format_)
            assert answer.headers["content-disposition"] == f'attachment; filename="trace-{format_}"'
        events = pages.get(f"{path}/chrome").json()["traceEvents"]
        assert {f"{number} {HOSTILE}" for number in range(len(LAYERS))} <= {event["name"] for event in events}
        assert pages.get(f"{path}/none").status_code == 422


def test_an_interval_without_an_end_has_no_number_there(pages: Client, opened: LocalRegistry, lock: Lock) -> None:
    runs = [record(opened, make_run(lock, opened.store, at=NOON + timedelta(minutes=5 * n))) for n in range(2)]
    assert runs[0].end is not None
    path, compared = run_path(runs[0].id), compare_path([run.id for run in runs])
    shown, twin = find_rows(pages.get(path).text), pages.get(f"/v1{path}").json()["end"]["metrics"]
    exact = {row["metric"]: row for row in csv.DictReader(pages.get(f"{path}?csv=metrics").text.splitlines())}
    side_by_side = find_rows(pages.get(compared).text)
    open_ends = 0
    for metric, document in zip(runs[0].end.metrics, twin, strict=True):
        for place, end in enumerate(("low", "high")):
            value, cell = getattr(metric.ci, end), shown[metric.key][2 + place]
            assert document["ci"][place] == value
            assert exact[metric.key][end] == ("" if value is None else str(value))
            assert cell == format_value(value, metric.unit)
            if value is None:
                open_ends += 1
                assert cell == "-"
                assert re.search(r"\[-, " if end == "low" else r", -\]", side_by_side[metric.key][1])
    assert open_ends
    assert "None" not in pages.get(path).text


def find_rows(page: str) -> dict[str, list[str]]:
    """Return the cells of the rows of all tables by the first cell."""
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in re.findall(r"<tr>.*?</tr>", page)]
    return {row[0]: [unescape(re.sub(r"<[^>]+>", "", cell)) for cell in row] for row in reversed(rows) if row}


FORMS = ("/jobs", "/jobs/01kam1v3mz4w0q3d5g7h9j2k4m/cancel", "/locks", "/tokens", "/tokens/revoke", "/yank")


def test_a_form_on_a_locked_database_says_when_to_send_it_again(
    opened: LocalRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    variant({}).publish(opened.catalogue, opened.store)
    monkeypatch.setattr(sqlite, "BUSY_TIMEOUT_MS", 50)
    tokens = Tokens(opened.database, now)
    token, secret = tokens.create("admin", Scopes.parse(["admin", "run", "publish:*"]))
    app = create_app(opened, Settings(lock_seconds=0.1), Authenticator(tokens, now))
    data = {"model": "digits", "dataset": "digits", "split": "test", "lock": "sha256:" + "0" * 64, "name": "more"}
    data |= {"scopes": "read", "expires": "1d", "target": "model/digits@1.0.0", "reason": "x", "token": token.id}
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as pages:
        pages.headers["accept"] = "text/html"
        pages.cookies.set(COOKIE, secret.text, domain="127.0.0.1")
        data["csrf_token"] = pages.get("/").text.partition('name="csrf_token" value="')[2].partition('"')[0]
        opened.database.dispose()
        with closing(sqlite3.connect(str(opened.database.url.database), isolation_level=None)) as other:
            other.execute("PRAGMA locking_mode = EXCLUSIVE")
            other.execute("BEGIN EXCLUSIVE")
            answers = {path: pages.post(path, data=data, headers=OURS) for path in FORMS}
    for path, answer in answers.items():
        assert (answer.status_code, answer.headers.get("retry-after")) == (503, "5"), path
        assert Reader(answer.text).acting == []
        assert "Service unavailable" in answer.text
        assert "Traceback" not in answer.text
        assert secret.text not in answer.text


@pytest.mark.parametrize(
    "cookie", [HOSTILE[:150].encode("ascii", "ignore").decode(), "\xe9" * 20, "a=b; " + COOKIE + "=%00"]
)
def test_a_foreign_cookie_is_no_session_and_no_part_of_a_page(registry: LocalRegistry, cookie: str) -> None:
    tokens = Tokens(registry.database, now)
    app = create_app(registry, Settings(strangers=1e6), Authenticator(tokens, now))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as pages:
        headers = [(b"accept", b"text/html"), (b"cookie", f"{COOKIE}={cookie}".encode("latin-1"))]
        form = [*headers, (b"sec-fetch-site", b"same-origin")]
        for answer in (
            pages.get("/runs", headers=headers),
            pages.get("/v1/docs", headers=headers),
            pages.post("/sign-in", data={"token": HOSTILE, "next": HOSTILE}, headers=form),
        ):
            assert answer.status_code in (200, 401, 403), answer.text
            assert Reader(answer.text).acting == []
            assert "<svg" not in answer.text


TOKENS = (HOSTILE, "a; domain=example.org", "a\r\nx-injected: 1", "\u05e9" * 50, "x" * 300, "")


def test_a_text_that_is_no_token_signs_nobody_in_and_adds_no_header(registry: LocalRegistry) -> None:
    app = create_app(registry, Settings(strangers=1e6), Authenticator(Tokens(registry.database, now), now))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as pages:
        pages.headers["accept"] = "text/html"
        for token in TOKENS:
            data = {"token": token, "next": "/runs"}
            answer = pages.post("/sign-in", data=data, headers=OURS, follow_redirects=False)
            assert answer.status_code == 303, (token, answer.text)
            assert "x-injected" not in answer.headers
            (cookie,) = SimpleCookie(answer.headers["set-cookie"]).values()
            assert cookie["domain"] == ""
            answer = pages.get("/runs")
            assert answer.status_code == 401
            assert 'name="next" value="/runs"' in answer.text
            assert Reader(answer.text).acting == []


def test_the_page_of_another_host_reads_and_changes_nothing_on_this_machine(
    registry: LocalRegistry, lock: Lock
) -> None:
    """A name of another site that resolves to this machine, as in DNS rebinding."""
    form = {"lock": lock.id, "model": NAME, "dataset": NAME, "split": SPLIT}
    with serve(registry, local=True) as pages:
        assert pages.get("/").status_code == 200
        for headers in (
            {"host": "evil.example"},
            {"host": "evil.example", "origin": "http://evil.example", "sec-fetch-site": "same-origin"},
            {"origin": "http://evil.example", "sec-fetch-site": "cross-site"},
        ):
            for path in ("/", "/runs", "/artifacts", lock_path(lock.id), "/tokens", f"/new?model={NAME}"):
                answer = pages.get(path, headers=headers)
                assert answer.status_code == 403, path
                assert lock.subject.digest not in answer.text
                assert "Not allowed" in answer.text
            for path in ("/jobs", "/locks", "/yank"):
                assert pages.post(path, data=form, headers=headers).status_code == 403, path
        assert pages.get("/v1/jobs").json()["jobs"] == []
