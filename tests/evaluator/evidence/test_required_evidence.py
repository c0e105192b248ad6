"""What a run that is done must have left is decided by its lock: nothing that bounds a figure can be left out."""

import io
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from safetensors import safe_open
from safetensors.numpy import save_file

from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.evidence.required_evidence import requirements_of
from benchlock.evaluator.evidence.run_examination import Examiner
from benchlock.evaluator.records.run_types import Run
from benchlock.registry.lock.lockfile import Lock, dump
from benchlock.registry.manifests.manifest_content import content
from tests.support.evaluator.evidence import CURRENT, IDX, make_run
from tests.support.resolution.variants import variant

Change = Callable[[dict[str, Any]], None]
FIRST_COMPLETE = {"harness.version": "1.1.0"}
OLD = {"harness.version": "1.0.0"}


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "blobs")


def lock_of(store: LocalStore, patch: dict[str, Any], **request: object) -> Lock:
    asked = {"metrics": ["top1", "latency", "throughput"], **request}
    made = variant({"lock": patch, "files": IDX, "request": asked})
    for manifest in made.manifests.values():
        for blob in (content(manifest), *made.files[manifest.kind].values()):
            store.put(io.BytesIO(blob))
    return made.lock


def examiner_of(lock: Lock, store: LocalStore) -> Examiner:
    return Examiner(store, store.path(lock.subject.digest).parents[3], lambda _: dump(lock))


def with_result(run: Run, store: LocalStore, change: Change) -> Run:
    """Return the run with another ``result.json``, and a record that repeats it."""
    assert run.end is not None
    with store.open(run.end.blobs["result"].digest) as stream:
        document = json.loads(stream.read())
    change(document)
    blobs = {**run.end.blobs, "result": store.put(io.BytesIO(json.dumps(document).encode()))}
    copied = {
        name: document.get(name) for name in ("accuracy", "performance", "loadgen", "audits", "harness", "pipeline")
    }
    details = {name: value for name, value in run.end.details.items() if name not in copied}
    details |= {name: value for name, value in copied.items() if value is not None}
    return replace(run, end=replace(run.end, blobs=blobs, details=details))


def with_columns(run: Run, store: LocalStore, change: Change, role: str = "samples", **metadata: str) -> Run:
    """Return the run with other columns in a blob, which names the same lock unless ``metadata`` says another."""
    assert run.end is not None
    with safe_open(store.path(run.end.blobs[role].digest), framework="numpy") as file:
        columns = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        named = (file.metadata() or {}) | metadata
    change(columns)
    with tempfile.TemporaryDirectory() as folder:
        save_file(columns, Path(folder) / "columns", {name: text for name, text in named.items() if text})
        blobs = {**run.end.blobs, role: store.put_file(Path(folder) / "columns")}
    return replace(run, end=replace(run.end, blobs=blobs))


def without_blob(run: Run, role: str) -> Run:
    assert run.end is not None
    return replace(run, end=replace(run.end, blobs={name: one for name, one in run.end.blobs.items() if name != role}))


def reasons(run: Run, lock: Lock, store: LocalStore) -> str:
    status = examiner_of(lock, store).compare(run)
    assert status.state == "contradicted", status
    return "; ".join(status.reasons)


def unchanged(columns: dict[str, Any]) -> None:
    """Change nothing but what a file says of itself."""


def dropped(path: str) -> Change:
    *above, last = path.split(".")

    def change(document: dict[str, Any]) -> None:
        place = document
        for name in above:
            place = place[name]
        del place[last]

    return change


@pytest.mark.parametrize("patch", [CURRENT, FIRST_COMPLETE], ids=["today's", "first complete"])
def test_what_bounds_a_figure_cannot_be_left_out(store: LocalStore, patch: dict[str, Any]) -> None:
    lock = lock_of(store, patch)
    run = make_run(lock, store)
    assert examiner_of(lock, store).compare(run).reasons == ()
    fields = [path for one in requirements_of(lock) for path in (*one.fields, *one.nullable)]
    assert {"loadgen.valid", "performance.preempted", "audits.answers"} <= set(fields)
    forged = with_result(run, store, lambda document: document.update(loadgen=None))
    assert "loadgen.valid in result.json" in reasons(forged, lock, store)
    for path in ("loadgen.valid", "loadgen.errors", "audits.caching", "performance.samples", "harness"):
        assert f"{path} in result.json" in reasons(with_result(run, store, dropped(path)), lock, store)
    for name in ("cpu_ns", "preempted", "start_ns", "index", "samples", "warmup_ns"):
        forged = with_columns(run, store, dropped(name))
        assert f"{name} in the blob samples" in reasons(forged, lock, store)
    for role in ("loadgen-detail", "loadgen-summary", "samples", "predictions"):
        assert f"the blob {role}" in reasons(without_blob(run, role), lock, store)


def test_an_older_harness_may_have_left_less(store: LocalStore) -> None:
    lock = lock_of(store, OLD)

    def change(document: dict[str, Any]) -> None:
        for path in ("audits", "loadgen.sequence_sha256", "performance.overhead", "harness"):
            dropped(path)(document)

    run = with_result(make_run(lock, store), store, change)
    assert examiner_of(lock, store).compare(run).reasons == ()


def test_a_harness_before_fingerprints_names_no_lock(store: LocalStore) -> None:
    lock = lock_of(store, FIRST_COMPLETE)
    run = make_run(lock, store)
    assert examiner_of(lock, store).compare(run).reasons == ()
    today = lock_of(store, CURRENT)
    nameless = with_columns(make_run(today, store), store, unchanged, lock_fingerprint="")
    assert "the blob samples references no lock" in reasons(nameless, today, store)


def test_a_run_that_is_posted_under_another_lock_contradicts_its_evidence(store: LocalStore) -> None:
    lock, other = (
        lock_of(store, CURRENT),
        lock_of(store, CURRENT, limits={"time": "11m", "memory": "2GiB", "cpus": 1, "processes": 256}),
    )
    run = make_run(lock, store)
    posted = replace(run, start=replace(run.start, lock=other.id))
    assert "result.json references another lock" in reasons(posted, other, store)
    parts = make_run(other, store, right=2)
    assert run.end is not None
    assert parts.end is not None
    mixed = replace(parts, end=replace(parts.end, blobs={**parts.end.blobs, "samples": run.end.blobs["samples"]}))
    assert "the blob samples references another lock" in reasons(mixed, other, store)


@pytest.mark.parametrize("timings", [{}, {"run": -1.0}], ids=["absent", "negative"])
def test_a_run_that_is_done_says_how_long_it_ran(store: LocalStore, timings: dict[str, float]) -> None:
    lock = lock_of(store, OLD)
    run = make_run(lock, store)
    assert run.end is not None
    kept = {name: value for name, value in run.end.timings.items() if name != "run"}
    assert "timings.run" in reasons(replace(run, end=replace(run.end, timings=kept | timings)), lock, store)


def add_samples(columns: dict[str, Any]) -> None:
    columns["samples"] = columns["samples"] * 2


def shift_end(columns: dict[str, Any]) -> None:
    columns["end_ns"] = columns["end_ns"] // 2


def other_sample(columns: dict[str, Any]) -> None:
    columns["index"] = columns["index"] + 2


def real_numbers(columns: dict[str, Any]) -> None:
    columns["samples"] = columns["samples"].astype(np.float64)


def huge(columns: dict[str, Any]) -> None:
    columns["before_ns"] = np.full_like(columns["before_ns"], 1 << 61)


def fewer(columns: dict[str, Any]) -> None:
    columns["before_ns"] = columns["before_ns"][1:]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (add_samples, "samples adds up to 2000, but index has 1000"),
        (shift_end, "end_ns is not the sum of start_ns, before_ns and latency_ns"),
        (other_sample, "index has a sample number out of range: the split has 2"),
        (real_numbers, "samples is not a series of integers"),
        (huge, "the sum of before_ns is out of range"),
        (fewer, "before_ns has 999 values, but latency_ns 1000"),
    ],
)
def test_columns_that_do_not_add_up_are_refused(store: LocalStore, change: Change, reason: str) -> None:
    lock = lock_of(store, CURRENT)
    assert reason in reasons(with_columns(make_run(lock, store), store, change), lock, store)


def test_settings_of_loadgen_are_those_of_the_lock(store: LocalStore) -> None:
    lock = lock_of(store, CURRENT)
    run = make_run(lock, store)
    assert run.end is not None
    with store.open(run.end.blobs["loadgen-detail"].digest) as stream:
        text = stream.read().decode()
    seed = str(lock.scenario["seeds"]["qsl"])
    blobs = {**run.end.blobs, "loadgen-detail": store.put(io.BytesIO(text.replace(seed, "7").encode()))}
    found = reasons(replace(run, end=replace(run.end, blobs=blobs)), lock, store)
    assert f"LoadGen ran with qsl_rng_seed 7, but the lock has {seed}" in found


def test_a_harness_of_today_leaves_its_resources(store: LocalStore) -> None:
    lock = lock_of(store, CURRENT)
    run = make_run(lock, store)
    for path in ("resources.peak_memory", "performance.resources.cpu_seconds", "performance.resources.read_bytes"):
        assert f"{path} in result.json" in reasons(with_result(run, store, dropped(path)), lock, store)
    old = [path for one in requirements_of(lock_of(store, FIRST_COMPLETE)) for path in (*one.fields, *one.nullable)]
    assert not [path for path in old if "resources" in path]
