"""Runs over HTTP: pages of them, one as it is recorded, comparisons and verdicts."""

import dataclasses
import re
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import msgspec
import pytest
from litestar.testing import TestClient
from msgspec.structs import replace
from sqlalchemy import text

from benchlock.api.http.routes.app import create_app
from benchlock.api.local.local_registry import LocalRegistry
from benchlock.api.schemas.run_schemas import RunPage
from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes
from benchlock.evaluator.evidence.run_examination import ExaminedRecords
from benchlock.evaluator.records import run_store, timing_validity
from benchlock.evaluator.records.run_store import Records
from benchlock.evaluator.records.run_types import DamagedRun, Outcome, Run, RunEnd, new_run_id
from benchlock.evaluator.statistics.metric_types import Interval
from benchlock.registry.auth.permissions import Actor, Scopes
from benchlock.registry.catalogue.version_rows import insert_lock
from benchlock.registry.database.engine import DamagedDatabaseError
from benchlock.registry.lock.lockfile import Lock
from benchlock.registry.resolution.resolver_types import ORDER
from tests.api.http.conftest import Client
from tests.support.evaluator.evidence import CURRENT, IDX, make_run
from tests.support.evaluator.recorded import DONE, NOON, metric, recorded
from tests.support.resolution.variants import variant

OTHER = "run/" + "0" * 26
FRAMEWORK = {
    "schema": 1,
    "kind": "framework",
    "name": "acme/runtime",
    "version": "1.0.0",
    "license": "MIT",
    "predictor": "onnxruntime",
    "distributions": ["onnxruntime"],
}
BLOB = Descriptor(digest_bytes(b"predictions"), 11)
ENDS: tuple[RunEnd | None, ...] = (
    replace(
        DONE,
        packages={"onnxruntime": "1.31.1"},
        blobs={"predictions": BLOB},
        timings={"load": 0.25},
        details={"cpus": [0]},
        metrics=(replace(metric("top1", 0.75), ci=Interval(0.5, None)), replace(metric("throughput", 9.0), batch=8)),
    ),
    RunEnd(outcome="failed", ended_at=NOON + timedelta(minutes=1), failure_class="crash", failure_message="it fell"),
    RunEnd(outcome="abandoned", ended_at=NOON + timedelta(minutes=1)),
    None,
)


def path_of(run: Run) -> str:
    return f"/v1/runs/{run.id.removeprefix('run/')}"


def page_path(run: Run) -> str:
    return f'href="/{run.id.replace("run/", "runs/")}"'


@pytest.fixture
def lock(registry: LocalRegistry) -> Lock:
    made = variant({})
    made.publish(registry.catalogue, registry.store)
    registry.catalogue.put_lock(made.lock)
    return made.lock


@pytest.fixture
def runs(registry: LocalRegistry, lock: Lock) -> list[Run]:
    """One of each outcome, and one that is running; newest first."""
    for number, end in enumerate(ENDS):
        start = recorded(lock=lock.id).start
        at = NOON + timedelta(seconds=number)
        start = replace(start, id=new_run_id(at), started_at=at)
        registry.records.start(start)
        if end is not None:
            registry.records.finish(start.id, end)
    return list(registry.records.list())


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_pages_in_a_row_are_all_runs_newest_first(client: Client, runs: list[Run], limit: int) -> None:
    found: list[Run] = []
    query = f"limit={limit}"
    while query:
        page = msgspec.json.decode(client.get(f"/v1/runs?{query}").content, type=RunPage)
        found += page.runs
        query = "" if page.next is msgspec.UNSET else f"limit={limit}&cursor={page.next}"
    assert found == runs


def damage_value(registry: LocalRegistry, run: Run) -> None:
    """Change the value of a metric of a run behind the back of the guards."""
    with registry.database.begin() as connection:
        if connection.dialect.name == "sqlite":
            found = text("SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'run_metrics'")
            for name in connection.execute(found).scalars().all():
                connection.execute(text(f'DROP TRIGGER "{name}"'))
        else:
            connection.execute(text("ALTER TABLE run_metrics DISABLE TRIGGER ALL"))
        connection.execute(text("UPDATE run_metrics SET value = 0.999 WHERE run = :run"), {"run": run.id})


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_a_damaged_run_is_listed_as_damaged_beside_the_others(
    client: Client, registry: LocalRegistry, runs: list[Run], limit: int
) -> None:
    broken = next(run for run in runs if run.end is not None and run.end.metrics)
    damage_value(registry, broken)
    found: list[Run | DamagedRun] = []
    query = f"limit={limit}"
    while query:
        answer = client.get(f"/v1/runs?{query}")
        assert "0.999" not in answer.text
        page = msgspec.json.decode(answer.content, type=RunPage)
        found += sorted((*page.runs, *page.damaged), key=lambda one: one.id, reverse=True)
        query = "" if page.next is msgspec.UNSET else f"limit={limit}&cursor={page.next}"
    assert [one.id for one in found] == [run.id for run in runs]
    assert [one for one in found if isinstance(one, Run)] == [run for run in runs if run.id != broken.id]
    (damaged,) = (one for one in found if isinstance(one, DamagedRun))
    assert damaged.id == broken.id
    assert "the database is damaged: a record has the digest" in damaged.damage
    assert registry.records.list_entries() == tuple(found)
    with pytest.raises(DamagedDatabaseError):
        registry.records.list()
    assert client.get(path_of(broken)).json()["code"] == "damaged-database"


def test_lists_take_no_thread_from_other_requests(
    client: Client, runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As many lists as a client may ask for wait without end, and more are refused; all else is answered."""
    gate, entered = threading.Event(), threading.Semaphore(0)
    listed = Records.list_some

    def blocked(records: Records, **wanted: Any) -> Any:  # noqa: ANN401 - as the method takes them
        entered.release()
        assert gate.wait(300)
        return listed(records, **wanted)

    monkeypatch.setattr(Records, "list_some", blocked)
    with ThreadPoolExecutor(32) as pool:
        try:
            lists = [pool.submit(client.get, "/v1/runs?limit=1000") for _ in range(24)]
            assert entered.acquire(timeout=300)
            others = [
                pool.submit(client.get, "/v1/health"),
                pool.submit(client.get, "/v1/artifacts"),
                pool.submit(client.get, path_of(runs[0])),
                pool.submit(client.get, f"/v1/locks/{runs[0].start.lock}"),
                pool.submit(client.post, "/v1/artifacts", json={"manifest": FRAMEWORK, "authored": "", "sources": {}}),
            ]
            assert [one.result(timeout=300).status_code for one in others] == [200, 200, 200, 200, 201]
        finally:
            gate.set()
        statuses = Counter(one.result(timeout=300).status_code for one in lists)
    assert set(statuses) == {200, 429}
    assert statuses[200] >= 8


def test_a_page_has_two_hundred_runs_at_most(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[int]()

    def listed(_: Records, *, limit: int, **__: object) -> tuple[tuple[Run, ...], None]:
        asked.append(limit)
        return (), None

    monkeypatch.setattr(Records, "list_some", listed)
    monkeypatch.setattr("benchlock.api.http.routes.run_routes.AT_ONCE", 10_000)
    assert client.get("/v1/runs?limit=1000").json() == {"runs": [], "damaged": []}
    assert asked == [201]


@pytest.mark.parametrize("outcome", ["done", "failed", "abandoned", "cancelled"])
def test_runs_are_narrowed(client: Client, runs: list[Run], lock: Lock, outcome: Outcome) -> None:
    expected = [run for run in runs if run.end is not None and run.end.outcome == outcome]
    page = msgspec.json.decode(client.get(f"/v1/runs?outcome={outcome}&lock={lock.id}").content, type=RunPage)
    assert list(page.runs) == expected
    assert client.get(f"/v1/runs?lock=sha256:{'0' * 64}").json()["runs"] == []
    assert client.get(f"/v1/runs/count?lock={lock.id}").json() == {"count": len(runs)}


def test_runs_are_filtered_by_model_dataset_time_and_the_beginning_of_their_id(
    client: Client, runs: list[Run], lock: Lock
) -> None:
    def listed(query: str) -> list[str]:
        return [run["start"]["id"] for run in client.get(f"/v1/runs?{query}").json()["runs"]]

    newest = [run.id for run in runs]
    assert listed(f"model={lock.model.name}@%5E1.0&dataset={lock.dataset.name}") == newest
    assert listed(f"model={lock.model.name}@%5E9.0") == listed("dataset=another") == []
    assert listed("operator=gemm") == listed("recipe=cnn") == []
    assert listed("since=2026-11-21T12:00:02Z") == newest[:-2]
    assert listed("since=2026-11-21T14:00:03%2B02:00") == newest[:-3]
    assert listed("since=9999d") == listed("since=2026-11-21") == newest
    assert listed(f"prefix={newest[1][:-1]}") == listed(f"prefix={newest[1][4:-1]}") == [newest[1]]
    page = client.get("/v1/runs?prefix=01m7&limit=1").json()
    assert listed(f"prefix=01m7&cursor={page['next']}") == newest[1:]


def test_a_search_for_flagged_runs_goes_on_after_an_empty_page(
    client: Client, runs: list[Run], monkeypatch: pytest.MonkeyPatch
) -> None:
    flagged = runs[-1].id
    monkeypatch.setattr(run_store, "FLAGS_READ", len(runs) - 1)
    monkeypatch.setattr(timing_validity, "flag_of", lambda run: "a busy host" if run.id == flagged else None)
    page = client.get("/v1/runs?flagged=true").json()
    assert page["runs"] == []
    rest = client.get(f"/v1/runs?flagged=true&cursor={page['next']}").json()
    assert ([run["start"]["id"] for run in rest["runs"]], rest.get("next")) == ([flagged], None)
    assert [run["start"]["id"] for run in client.get("/v1/runs?flagged=false").json()["runs"]] == [
        run.id for run in runs[:-1]
    ]

    html = client.get("/runs?flagged=true", headers={"accept": "text/html"}).text
    assert "No run matches on this page; older ones may." in html
    assert '<option value="true" selected>flagged</option>' in html
    [following] = re.findall('rel="next" href="([^"]+)"', html)
    last = client.get(following.replace("&amp;", "&"), headers={"accept": "text/html"}).text
    assert page_path(runs[-1]) in last
    assert page_path(runs[0]) not in last
    assert client.get("/runs?flagged=maybe", headers={"accept": "text/html"}).status_code == 422


@pytest.mark.parametrize(
    "query",
    [
        "flagged=maybe",
        "model=acme@",
        "model=Acme",
        "dataset=x@1.x.y",
        "operator=gemm@",
        "recipe=CNN",
        "since=tomorrow",
        "since=1969-12-31",
        "prefix=01m",
        "prefix=01mu1l",
        f"prefix={'0' * 27}",
        f"model={'a' * 401}",
        f"since={'1' * 41}",
    ],
)
def test_a_malformed_filter_of_runs_is_refused(client: Client, query: str) -> None:
    answer = client.get(f"/v1/runs?{query}")
    assert (answer.status_code, answer.json()["code"]) in ((422, "invalid-input"), (400, "malformed"))


def test_runs_are_counted_beside_the_loop(
    client: Client, runs: list[Run], lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    count, threads = Records.count, []

    def counted(records: Records, lock: Digest) -> int:
        threads.append(threading.current_thread().name.partition("_")[0])
        return count(records, lock)

    monkeypatch.setattr(Records, "count", counted)
    assert client.get(f"/v1/runs/count?lock={lock.id}").json() == {"count": len(runs)}
    assert threads == ["work"]


def test_a_run_is_read_as_it_is_recorded(client: Client, registry: LocalRegistry, runs: list[Run]) -> None:
    for run in runs:
        answer = client.get(path_of(run))
        assert msgspec.json.decode(answer.content, type=Run) == registry.records.get(run.id)
        again = client.get(path_of(run), headers={"if-none-match": answer.headers["etag"]})
        assert again.status_code == 304
        assert "no-cache" in answer.headers["cache-control"]


def test_a_run_that_was_read_before_its_blob_was_damaged_is_no_longer_verified(registry: LocalRegistry) -> None:
    made = variant({"files": IDX, "lock": CURRENT, "request": {"metrics": ["top1"]}})
    made.publish(registry.catalogue, registry.store)
    registry.catalogue.put_lock(made.lock)
    run = make_run(made.lock, registry.store)
    assert run.end is not None
    registry.records.start(run.start)
    registry.records.finish(run.id, run.end)
    examined = dataclasses.replace(registry, records=ExaminedRecords(registry.database, registry.examiner))
    with TestClient(create_app(examined), raise_server_exceptions=False) as client:
        answer = client.get(path_of(run))
        assert answer.json()["evidence"]["state"] == "verified"
        blob = registry.store.path(run.end.blobs["predictions"].digest)
        content = blob.read_bytes()
        blob.unlink()
        blob.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        assert registry.examiner.compare(run, again=True).damaged
        later = client.get(path_of(run), headers={"if-none-match": answer.headers["etag"]})
        assert later.status_code == 200
        assert (later.json()["evidence"]["state"], later.json()["end"]["metrics"]) == ("unverified", [])


def test_a_run_that_ends_is_no_longer_what_the_client_has(
    client: Client, registry: LocalRegistry, runs: list[Run]
) -> None:
    running = runs[0]
    tag = client.get(path_of(running)).headers["etag"]
    registry.records.finish(running.id, RunEnd(outcome="cancelled", ended_at=NOON + timedelta(minutes=1)))
    changed = client.get(path_of(running), headers={"if-none-match": tag})
    assert changed.json()["end"]["outcome"] == "cancelled"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        (f"/v1/runs/{'0' * 26}", 404),
        ("/v1/runs/1", 422),
        ("/v1/runs/" + "u" * 26, 422),
        ("/v1/runs?cursor=x", 422),
        ("/v1/runs?lock=x", 422),
        ("/v1/runs?outcome=odd", 400),
        ("/v1/runs/count", 400),
        ("/v1/runs/count?lock=x", 422),
    ],
)
def test_a_run_that_is_not_there_is_a_problem(client: Client, path: str, status: int) -> None:
    assert client.get(path).status_code == status


def test_runs_are_compared(client: Client, registry: LocalRegistry, runs: list[Run], lock: Lock) -> None:
    again = replace(
        recorded(lock=lock.id).start, id=new_run_id(NOON + timedelta(hours=1)), started_at=NOON + timedelta(hours=1)
    )
    registry.records.start(again)
    registry.records.finish(again.id, replace(ENDS[0], ended_at=NOON + timedelta(hours=2)) if ENDS[0] else DONE)
    document = client.post("/v1/comparisons", json={"runs": [runs[-1].id, again.id]}).json()
    assert document["comparable"] is True
    assert [arm["runs"] for arm in document["arms"]] == [[runs[-1].id], [again.id]]
    findings = {one["metric"]: one for one in document["findings"]}
    assert findings.keys() == {"top1", "throughput@8"}
    assert findings["top1"]["test"] is None
    assert "not compared sample by sample: the predictions of" in findings["top1"]["reason"]
    assert client.post("/v1/comparisons", json={"runs": [again.id]}).status_code == 400
    repeated = client.post("/v1/comparisons", json={"runs": [runs[-1].id, again.id, runs[-1].id, again.id]})
    assert repeated.json()["arms"] == document["arms"]
    alone = client.post("/v1/comparisons", json={"runs": [again.id, again.id]})
    assert (alone.status_code, alone.json()["detail"]) == (422, "a comparison needs at least two runs")
    assert client.post("/v1/comparisons", json={"runs": [again.id, OTHER]}).status_code == 404


def test_quality_is_compared_sample_by_sample(client: Client, registry: LocalRegistry) -> None:
    runs = []
    for number, name in enumerate(("digits", "other", "third")):
        request = {"metrics": ["top1"], "model": {"name": name, "version": "*"}}
        made = variant({"model": {"name": name}, "files": IDX, "lock": CURRENT, "request": request})
        made.publish(registry.catalogue, registry.store, ORDER if number == 0 else ("model",))
        registry.catalogue.put_lock(made.lock)
        run = make_run(made.lock, registry.store, at=NOON + timedelta(hours=number), right=2 - number)
        assert run.end is not None
        registry.records.start(run.start)
        registry.records.finish(run.id, run.end)
        runs.append(run.id)
    document = client.post("/v1/comparisons", json={"runs": runs[:2]}).json()
    (finding,) = document["findings"]
    assert finding["answer"] == "undecided"
    expected = {"method": "mcnemar", "n": 2, "difference": -0.5, "p": 1.0, "adjusted": 1.0, "comparisons": 1}
    assert expected.items() <= finding["test"].items()
    assert (finding["test"]["only_first"], finding["test"]["only_second"]) == (1, 0)
    several = client.post("/v1/comparisons", json={"runs": runs}).json()["findings"]
    assert [(one["test"]["comparisons"], one["test"]["only_first"]) for one in several] == [(2, 1), (2, 2)]


def test_a_verdict_is_given(client: Client, registry: LocalRegistry, runs: list[Run], lock: Lock) -> None:
    failed = next(run for run in runs if run.end and run.end.outcome == "failed")
    document = client.post("/v1/verdicts", json={"run": failed.id}).json()
    assert (document["verdict"], document["original"]) == ("not reproduced", runs[-1].id)
    assert client.post("/v1/verdicts", json={"run": failed.id, "against": failed.id}).json()["verdict"] == "reproduced"
    for refused in ({"run": runs[0].id}, {"run": runs[-1].id}):  # it runs; there is none before it
        assert client.post("/v1/verdicts", json=refused).status_code == 422
    with registry.database.begin() as connection:
        other = variant({"request": {"seed": 8}}).lock
        insert_lock(connection, other, NOON)
    started = replace(recorded(lock=other.id).start, id=new_run_id(NOON))
    registry.records.start(started)
    registry.records.finish(started.id, ENDS[1] or DONE)
    answer = client.post("/v1/verdicts", json={"run": started.id, "against": failed.id})
    assert (answer.status_code, answer.json()["where"]) == (422, "against")
    assert lock.id != Digest(other.id)


def test_a_verdict_skips_damaged_runs_and_names_them(
    client: Client, registry: LocalRegistry, runs: list[Run], lock: Lock
) -> None:
    at = NOON + timedelta(minutes=1)
    damaged, again = (
        replace(recorded(lock=lock.id).start, id=new_run_id(begun), started_at=begun)
        for begun in (at, at + timedelta(seconds=1))
    )
    for start in (damaged, again):
        registry.records.start(start)
        done = next(end for end in ENDS if end is not None and end.metrics)
        blobs = {"log": next(iter(done.blobs.values()))}  # predictions would be read
        registry.records.finish(start.id, replace(done, blobs=blobs, ended_at=at + timedelta(minutes=1)))
    damage_value(registry, registry.records.get(damaged.id))
    answer = client.post("/v1/verdicts", json={"run": again.id})
    assert answer.status_code == 200, answer.text
    assert answer.json()["original"] == runs[-1].id
    assert f"skipped {damaged.id}: its record is damaged" in answer.json()["reported"]


def test_a_hidden_run_is_for_administrators_alone(client: Client, runs: list[Run]) -> None:
    failed = next(run for run in runs if run.end is not None and run.end.outcome == "failed")
    reader = Actor("token/reader", Scopes.parse(["read"]))
    assert client.get(path_of(failed)).json()["hidden"] is None
    hidden = {"target": failed.id, "reason": "noise"}
    for changed in (True, False):
        answer = client.post("/v1/hidings", json=hidden)
        assert (answer.status_code, answer.json()) == (200, {"target": failed.id, "hidden": True, "changed": changed})
    assert failed.id not in client.get("/v1/runs").text
    seen = client.get(path_of(failed))
    assert seen.json()["hidden"]["reason"] == "noise"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("benchlock.api.http.request_authorization.OPEN", reader)
        assert client.get(path_of(failed)).status_code == 404
        compared = client.post("/v1/comparisons", json={"runs": [failed.id, failed.id]})
        assert compared.status_code == 404
        assert client.post("/v1/hidings", json=hidden | {"undo": True}).status_code == 403
    assert client.post("/v1/hidings", json=hidden | {"undo": True}).json()["changed"]
    assert failed.id in client.get("/v1/runs").text


def test_a_figure_of_a_list_is_marked_as_in_the_run(client: Client, registry: LocalRegistry, lock: Lock) -> None:
    start = recorded(lock=lock.id).start
    registry.records.start(start)
    calls = {"calls": {"n": 1}, "self_reported": ["latency_p50"], "other": "x" * 100}
    registry.records.finish(
        start.id,
        replace(DONE, packages={"numpy": "1"}, blobs={"predictions": BLOB}, timings={"load": 1.0}, details=calls),
    )
    whole = registry.records.get(start.id)
    (listed,) = msgspec.json.decode(client.get("/v1/runs").content, type=RunPage).runs
    assert whole.end is not None
    found = listed.end
    assert found is not None
    assert found.metrics == whole.end.metrics
    assert any(one.self_reported for one in found.metrics)
    assert "other" not in found.details
