"""Results that say ``done``, where LoadGen logged an error or an audit caught the model: no record may repeat it."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.evidence.run_examination import Examiner
from benchlock.evaluator.records.run_types import Run
from benchlock.registry.lock.lockfile import dump
from benchlock.registry.manifests.manifest_content import content
from tests.support.evaluator.evidence import CURRENT, IDX, make_run
from tests.support.resolution.variants import variant

CAUGHT = {"samples": 64, "first_ns": 1_000_000, "caught": True}
HONEST = CAUGHT | {"caught": False}
WRONG_LOG = {"key": "error_runtime", "value": "Multiple responses for the same query", "metadata": {"is_error": True}}


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "blobs")


@pytest.fixture
def made(store: LocalStore, tmp_path: Path) -> tuple[Run, Examiner]:
    shelf = variant({"lock": CURRENT, "files": IDX, "request": {"metrics": ["top1", "latency", "throughput"]}})
    for manifest in shelf.manifests.values():
        for blob in (content(manifest), *shelf.files[manifest.kind].values()):
            store.put(io.BytesIO(blob))
    return make_run(shelf.lock, store), Examiner(store, tmp_path, lambda _: dump(shelf.lock))


def with_blob(run: Run, store: LocalStore, role: str, change: Callable[[bytes], bytes]) -> Run:
    """Return the run with another blob of that role."""
    assert run.end is not None
    with store.open(run.end.blobs[role].digest) as stream:
        changed = change(stream.read())
    blobs = {**run.end.blobs, role: store.put(io.BytesIO(changed))}
    return replace(run, end=replace(run.end, blobs=blobs))


def with_details(run: Run, **details: Any) -> Run:  # noqa: ANN401 - JSON
    assert run.end is not None
    return replace(run, end=replace(run.end, details={**run.end.details, **details}))


@pytest.mark.parametrize(
    "audits",
    [
        {"caching": CAUGHT, "answers": None},
        {"caching": HONEST, "answers": {"answers": 9, "caught": True}},
        {"caching": HONEST, "answers": None, "pipeline": {"answers": {"answers": 9, "caught": True}}},
    ],
    ids=["caching", "answers", "pipeline"],
)
def test_a_model_that_an_audit_caught(made: tuple[Run, Examiner], store: LocalStore, audits: dict[str, Any]) -> None:
    run, examiner = made
    forged = with_blob(run, store, "result", lambda old: json.dumps(json.loads(old) | {"audits": audits}).encode())
    status = examiner.compare(with_details(forged, audits=audits))
    assert status.state == "contradicted"
    assert any("loadgen-invalid" in reason and "recomputed" in reason for reason in status.reasons), status.reasons
    honest = {"caching": HONEST, "answers": None}
    forged = with_blob(run, store, "result", lambda old: json.dumps(json.loads(old) | {"audits": honest}).encode())
    assert examiner.compare(with_details(forged, audits=honest)).state == "verified"


@pytest.mark.parametrize("is_stated", [True, False], ids=["stated", "left-out"])
def test_an_error_in_the_log_of_loadgen(made: tuple[Run, Examiner], store: LocalStore, *, is_stated: bool) -> None:
    run, examiner = made
    assert run.end is not None
    account = dict(run.end.details["loadgen"])
    del account["errors"]
    if is_stated:
        account["errors"] = [f"{WRONG_LOG['key']}: {WRONG_LOG['value']}"]
    forged = with_blob(run, store, "loadgen-detail", lambda old: old + f":::MLLOG {json.dumps(WRONG_LOG)}\n".encode())
    forged = with_blob(forged, store, "result", lambda old: json.dumps(json.loads(old) | {"loadgen": account}).encode())
    status = examiner.compare(with_details(forged, loadgen=account))
    assert status.state == "contradicted"
    told = "loadgen-invalid" if is_stated else "lacks loadgen.errors in result.json"
    assert any(told in reason for reason in status.reasons), status.reasons
