"""One registry is as good as the other: a folder of this machine, and the same behind a real server."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from benchlock.api.client.embedded_registry import EmbeddedRegistry
from benchlock.api.client.remote_registry import open_remote
from benchlock.api.local.local_registry import open_registry
from benchlock.api.schemas.registry_protocol import Registry
from benchlock.artifacts.blob_store import read
from benchlock.artifacts.digest import Digest, digest_bytes
from benchlock.artifacts.errors import BenchlockError, InvalidInputError, RefusedError, UnknownNameError
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.records.run_types import (
    RunEnd,
    RunEndedError,
    RunFilter,
    RunStart,
    VersionSelector,
    new_run_id,
)
from benchlock.evaluator.runner.host_platform import this_host
from benchlock.evaluator.workflows.bundles import create_bundle
from benchlock.registry.artifact_names import parse_name, parse_reference
from benchlock.registry.catalogue.catalogue_protocol import ContentFilter, Provenance, VersionTakenError
from benchlock.registry.lock.lock_assembly import preferences_of
from benchlock.registry.lock.lock_creation import make_draft_candidate
from benchlock.registry.lock.lockfile import load
from benchlock.registry.manifests import Model
from benchlock.registry.manifests.manifest_content import content, manifest_digest, reference_of
from benchlock.registry.requests.evaluation_request import Request
from benchlock.registry.resolution.conflicts import ConflictError
from benchlock.registry.versions.version_ranges import Constraint
from tests.support.api.serving import service
from tests.support.resolution.locks import request as request_with
from tests.support.resolution.variants import variant

WHOLE = variant({"model": {"tags": ["vision", "small"]}})
NEWER = variant({"model": {"version": "1.1.0"}})


@dataclass(frozen=True)
class Desk:
    """A registry, and the folder where its truth is."""

    registry: Registry
    folder: Path


@pytest.fixture(scope="module", params=["embedded", "server"])
def desk(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    folder = tmp_path_factory.mktemp("registry") / "registry"
    opened = open_registry(str(folder), print)
    WHOLE.publish(opened.catalogue, opened.store)
    if request.param == "embedded":
        yield Desk(EmbeddedRegistry(opened), folder)
        return
    with service(folder) as served, pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield Desk(open_remote(served.url, print, SILENT), folder)


@pytest.fixture
def registry(desk: Desk) -> Registry:
    return desk.registry


@pytest.fixture(scope="module")
def asked() -> Request:
    return _asked()


def _asked(**changes: str) -> Request:
    return request_with(**changes)


def test_what_is_published_is_listed_and_read_as_it_is(registry: Registry) -> None:
    listed = {entry.reference: entry for entry in registry.catalogue.list()}
    for digest, manifest in WHOLE.manifests.items():
        reference = reference_of(manifest)
        assert listed[reference].digest == digest
        assert listed[reference] == registry.catalogue.get(reference)
        assert registry.catalogue.manifest(reference) == manifest
        assert registry.catalogue.content(reference)[0].encode() == content(manifest)
        assert reference in [one.reference for one in registry.catalogue.versions(reference.kind, reference.name)]
        assert [one.reference.kind for one in registry.catalogue.list(reference.kind)] == [reference.kind]
        for constraint in (None, Constraint.parse(f"=={reference.version}"), Constraint.parse(">=0.1, <99")):
            assert registry.catalogue.newest(reference.kind, reference.name, constraint) == listed[reference]


def test_what_is_listed_may_be_filtered_by_content(registry: Registry) -> None:
    model = next(one for one in WHOLE.manifests.values() if isinstance(one, Model))
    reference = reference_of(model)
    for content_filter, is_listed in (
        (ContentFilter(task=model.task, framework=parse_name(model.framework.name), search=model.name.upper()), True),
        (ContentFilter(task="regression"), False),
        (ContentFilter(framework=parse_name("another")), False),
        (ContentFilter(search="no such text"), False),
        (ContentFilter(task=model.task, tag="small"), True),
        (ContentFilter(search="visio"), True),
        (ContentFilter(tag="visio"), False),
        (ContentFilter(license=model.license.upper()), True),
        (ContentFilter(license="another"), False),
        (ContentFilter(platform="linux"), False),
    ):
        listed = [entry.reference for entry in registry.catalogue.list("model", content_filter)]
        assert (reference in listed) == is_listed, content_filter


def test_the_same_again_changes_nothing_and_other_content_is_refused(registry: Registry) -> None:
    same, other = (
        next(one for one in made.manifests.values() if one.kind == "framework")
        for made in (WHOLE, variant({"framework": {"license": "Apache-2.0"}}))
    )
    assert not registry.catalogue.publish(same, Provenance("", {})).changed
    assert not registry.catalogue.would_change(same).changed
    for act in (registry.catalogue.would_change, lambda one: registry.catalogue.publish(one, Provenance("", {}))):
        with pytest.raises(VersionTakenError, match="is already published with different content") as refused:
            act(other)
        assert refused.value.next_step == "publish the new content under a new version"


def test_an_unknown_name_is_told_what_is_near(registry: Registry) -> None:
    with pytest.raises(UnknownNameError, match="unknown model 'digit'") as refused:
        registry.catalogue.versions("model", parse_name("digit"))
    assert refused.value.next_step == "did you mean model/digits?"
    for ask in (registry.catalogue.get, registry.catalogue.manifest, registry.catalogue.content):
        with pytest.raises(UnknownNameError, match=r"model/digits@9\.0\.0 is not published"):
            ask(parse_reference("model/digits@9.0.0"))
    with pytest.raises(UnknownNameError, match="no version of model/digits satisfies \\^9") as refused:
        registry.catalogue.newest("model", parse_name("digits"), Constraint.parse("^9"))
    assert "available: 1.0.0" in str(refused.value.next_step)


def test_a_yank_is_seen_by_the_next_question_and_undone(registry: Registry, asked: Request) -> None:
    reference = parse_reference("model/digits@1.0.0")
    with pytest.raises(InvalidInputError, match="needs a reason"):
        registry.catalogue.yank(reference, " ")
    assert registry.catalogue.yank(reference, "wrong labels")
    assert not registry.catalogue.yank(reference, "wrong labels")
    try:
        assert registry.catalogue.get(reference).yanked == "wrong labels"
        with pytest.raises(ConflictError, match=r"yanked \(wrong labels\)") as refused:
            registry.resolve(asked, {})
        assert refused.value.conflict
    finally:
        assert registry.catalogue.unyank(reference)
    assert registry.catalogue.get(reference).yanked is None


def test_a_request_is_resolved_and_locked_to_the_same_bytes(registry: Registry, asked: Request) -> None:
    resolution = registry.resolve(asked, {})
    assert {one.kind: one.digest for one in resolution.chosen().values()} == {
        one.kind: digest for digest, one in WHOLE.manifests.items()
    }
    made = registry.lock(asked, {})
    assert made.warnings == ()
    assert made.lock.artifacts() == WHOLE.lock.artifacts()
    assert registry.lock(asked, preferences_of(made.lock)).lock == made.lock
    assert load(registry.catalogue.get_lock(made.lock.id), "kept") == made.lock
    assert registry.catalogue.find_lock(made.lock.id[:20]) == made.lock.id
    assert digest_bytes(read(registry.store, made.lock.harness.digest, name="harness")) == made.lock.harness.digest
    assert registry.check(made.lock, asked).reasons == ()
    stale = registry.check(made.lock, _asked(seed="8"))
    assert stale.reasons == ("seed was 7, is 8",)


def test_what_cannot_be_is_said_in_the_same_words(registry: Registry) -> None:
    with pytest.raises(ConflictError, match="no available version of model/digits") as refused:
        registry.resolve(_asked(model='{name: digits, version: "^9.0"}'), {})
    assert refused.value.code == "conflict"
    with pytest.raises(InvalidInputError, match="invalid lock id"):
        registry.catalogue.find_lock("sha256:12")
    with pytest.raises(UnknownNameError, match=r"(has no|unknown) lock"):
        registry.catalogue.find_lock(f"sha256:{'0' * 64}")


def test_a_lock_and_a_request_are_left_to_workers(registry: Registry, asked: Request) -> None:
    lock = registry.lock(asked, {}).lock
    for given in (lock, asked):
        found = registry.submit_job(given, "container", allow_code=False, priority=2)
        assert (found.job.lock, found.job.state, found.blocked, found.job.priority) == (lock.id, "queued", True, 2)
        assert found.sentence == "no machine can take it: none is known; start a worker on one"
    with pytest.raises(ConflictError, match="no available version of model/digits") as refused:
        registry.submit_job(_asked(model='{name: digits, version: "^9.0"}'), None, allow_code=False)
    assert refused.value.conflict


def test_a_draft_is_resolved_as_if_it_were_published(registry: Registry) -> None:
    (model,) = (one for one in NEWER.manifests.values() if one.kind == "model")
    found = registry.resolve(_asked(model='{name: digits, version: "=1.1.0"}'), {}, [make_draft_candidate(model)])
    assert found.model.digest == manifest_digest(model)
    with pytest.raises(UnknownNameError):
        registry.catalogue.get(reference_of(model))


def test_why_is_told_in_words_and_as_values(registry: Registry, asked: Request) -> None:
    lock = registry.lock(asked, {}).lock
    told = registry.why(lock, "framework", "onnxruntime")
    assert told.prose.startswith("framework/onnxruntime 1.31.1")
    assert told.why["version"] == "1.31.1"
    with pytest.raises(InvalidInputError, match="the lock has no model/other"):
        registry.why(lock, "model", "other")


def _start(lock: Digest, attempt: int = 1) -> RunStart:
    at = datetime.now(UTC)
    return RunStart(
        id=new_run_id(at),
        lock=lock,
        attempt=attempt,
        isolation="process",
        platform={"os": "linux", "arch": "amd64", "device": "cpu", "python": "3.11"},
        host=this_host().fingerprint(None),
        process={"pid": 1},
        started_at=at,
    )


def test_a_run_is_recorded_once_and_read_as_it_was(registry: Registry, asked: Request) -> None:
    lock = registry.lock(asked, {}).lock
    before = registry.records.count(lock.id)
    start = _start(lock.id, before + 1)
    registry.records.start(start)
    assert registry.records.get(start.id).end is None
    end = RunEnd(
        outcome="failed",
        failure_class="engine",
        failure_message="it was full",
        timings={"run": 0.25},
        details={"part_of": {"number": 1}},
        ended_at=start.started_at + timedelta(milliseconds=1),
    )
    registry.records.finish(start.id, end)
    found = registry.records.get(start.id)
    assert (found.start, found.end) == (start, end)
    (listed,) = registry.records.list(lock=lock.id, outcome="failed", limit=1)
    assert (listed.id, listed.end and listed.end.failure_message) == (start.id, "it was full")
    assert registry.records.hide(start.id, "full of noise")
    assert not registry.records.hide(start.id, "full of noise")
    assert registry.records.list(lock=lock.id, outcome="failed") == ()
    hidden = registry.records.get(start.id)
    assert (hidden.end, hidden.hidden and hidden.hidden.reason) == (end, "full of noise")
    assert registry.records.unhide(start.id)
    assert not registry.records.unhide(start.id)
    assert [run.id for run in registry.records.list(lock=lock.id, outcome="failed")] == [start.id]
    assert registry.records.get(start.id) == found
    assert registry.records.list(lock=lock.id, outcome="done") == ()
    for chosen, expected in (
        (RunFilter(prefix=start.id[:-1]), [start.id]),
        (RunFilter(prefix="run/7zzz"), []),
        (RunFilter(model=VersionSelector.parse(f"{lock.model.name}@^1.0"), lock=lock.id, outcome="failed"), [start.id]),
        (RunFilter(model=VersionSelector.parse(f"{lock.model.name}@^9.0")), []),
        (RunFilter(dataset=VersionSelector.parse("another")), []),
        (RunFilter(operator=VersionSelector.parse("another")), []),
        (RunFilter(recipe=VersionSelector.parse("another")), []),
        (RunFilter(lock=lock.id, outcome="failed", since=start.started_at), [start.id]),
        (RunFilter(since=start.started_at + timedelta(days=1)), []),
    ):
        assert [entry.id for entry in registry.records.list_entries(chosen=chosen)] == expected, chosen
    assert registry.records.count(lock.id) == before + 1
    with pytest.raises(RunEndedError):
        registry.records.finish(start.id, replace(end, failure_message="it was not"))
    with pytest.raises(UnknownNameError, match="the registry has no run/"):
        registry.records.get(new_run_id(datetime.now(UTC)))


def test_a_run_of_no_lock_is_refused(registry: Registry) -> None:
    with pytest.raises(UnknownNameError, match=r"(has no|unknown) lock"):
        registry.records.start(_start(digest_bytes(b"no lock")))


def test_a_trial_leaves_nothing_where_others_look(desk: Desk) -> None:
    found = desk.registry.trial_store.put(io.BytesIO(b"a trial"))
    assert read(desk.registry.trial_store, found.digest, name="it") == b"a trial"


def test_a_bundle_brings_what_it_has_once(registry: Registry, asked: Request, tmp_path: Path) -> None:
    lock = registry.lock(asked, {}).lock
    created = create_bundle(tmp_path / "bundle.tar", lock, None, registry.store, SILENT)
    brought = registry.import_bundle(tmp_path / "bundle.tar", SILENT)
    assert (brought.lock, brought.changed, brought.blobs) == (lock.id, False, created.blobs)
    assert [one.changed for one in brought.artifacts] == [False] * 4
    (tmp_path / "none.tar").write_bytes(b"no bundle")
    with pytest.raises(InvalidInputError, match="not a bundle"):
        registry.import_bundle(tmp_path / "none.tar", SILENT)


def test_damage_is_found_where_the_bytes_are(desk: Desk, asked: Request) -> None:
    registry = desk.registry
    lock = registry.lock(asked, {}).lock
    whole = registry.verify([], SILENT, remote=False)
    assert whole.damaged == ()
    assert registry.verify(["model/digits", lock], SILENT, remote=False).blobs <= whole.blobs
    (model,) = (one for one in WHOLE.manifests.values() if one.kind == "model")
    digest = digest_bytes(WHOLE.files["model"]["model.onnx"])
    path = desk.folder / "blobs" / "sha256" / digest.removeprefix("sha256:")[:2] / digest.removeprefix("sha256:")
    path.chmod(0o600)
    path.write_bytes(b"WEIGHTS")
    try:
        (fault,) = registry.verify(["model/digits"], SILENT, remote=False).damaged
        assert fault["where"] == f"{reference_of(model)} model.onnx"
        assert fault["code"] == "integrity"
    finally:
        path.write_bytes(WHOLE.files["model"]["model.onnx"])


def test_garbage_is_counted_before_it_goes(registry: Registry) -> None:
    assert registry.collect(dry_run=True, local=False).local is None
    with pytest.raises(InvalidInputError, match="--local requires a registry with its blobs in an OCI repository"):
        registry.collect(dry_run=True, local=True)


def test_errors_are_of_the_same_classes(registry: Registry) -> None:
    expected: list[tuple[type[BenchlockError], Any]] = [
        (UnknownNameError, lambda: registry.catalogue.get(parse_reference("image/none@1.0.0"))),
        (InvalidInputError, lambda: registry.catalogue.yank(parse_reference("model/digits@1.0.0"), "")),
        (RefusedError, lambda: _end_twice(registry)),
    ]
    for kind, act in expected:
        with pytest.raises(kind):
            act()


def _end_twice(registry: Registry) -> None:
    start = _start(registry.lock(_asked(), {}).lock.id, 7)
    registry.records.start(start)
    registry.records.finish(start.id, RunEnd(outcome="cancelled", ended_at=datetime.now(UTC)))
    registry.records.finish(start.id, RunEnd(outcome="abandoned", ended_at=datetime.now(UTC)))
