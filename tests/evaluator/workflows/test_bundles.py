"""What a bundle brings is checked before anything of it is visible; it changes nothing that is here."""

import dataclasses
import io
import json
import pickle
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from msgspec.structs import replace
from sqlalchemy import Engine, select

from benchlock.artifacts.blob_store import BlobStore, verify
from benchlock.artifacts.blob_store import read as read_blob
from benchlock.artifacts.bundles.bundle_format import BundleError
from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.errors import BenchlockError, IntegrityError, InvalidInputError
from benchlock.artifacts.json_codec import encode_canonical
from benchlock.artifacts.oci.oci_client import RegistryClient
from benchlock.artifacts.stores.cached_store import CachedRepository
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.stores.oci_store import OciStore
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator import harness_releases
from benchlock.evaluator.records.evidence_status import REPORTED_FIELDS
from benchlock.evaluator.records.run_document import decode_run, encode_run
from benchlock.evaluator.records.run_store import Records
from benchlock.evaluator.records.run_types import Run
from benchlock.evaluator.workflows.blob_inventory import Inventory, list_damage
from benchlock.evaluator.workflows.bundles import BundleImport, import_bundle
from benchlock.migrations.schema_check import METADATA
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.catalogue.catalogue_protocol import Provenance
from benchlock.registry.database.engine import read_transaction
from benchlock.registry.lock.lockfile import LockedPlatform, dump, load, read
from benchlock.registry.manifests import parse_published, plain
from benchlock.registry.publishing.garbage_collection import collect_garbage
from benchlock.registry.publishing.lock_bundle import describe_absent_parts
from tests.support.artifacts.bundled import (
    NOON,
    OTHER_PLATFORM,
    Bundled,
    Document,
    Files,
    bundled,
    changed,
    name_of,
    packed,
    root_of,
    run_of,
    unpacked,
    with_root,
)
from tests.support.artifacts.memory_store import MemoryStore
from tests.support.evaluator.forged_records import forge, is_reported, leaves
from tests.support.evaluator.forged_records import name_of as field_of
from tests.support.servers.registry_server import RegistryServer

Change = Callable[[Files], Files]


class Registry:
    """A registry that bundles are imported into."""

    def __init__(self, store: BlobStore, database: Engine) -> None:
        self.store = store
        self.database = database
        self.catalogue = Catalogue(database, self.now)
        self.records = Records(database)

    @staticmethod
    def now() -> datetime:
        return NOON + timedelta(days=1)

    def take(self, path: Path) -> BundleImport:
        return import_bundle(path, self.store, self.database, self.now, SILENT)

    def refuse(self, path: Path) -> BenchlockError:
        """The error of a bundle that is refused: nothing is visible of it, and all that it left is freed."""
        before = self.rows()
        with pytest.raises(BenchlockError) as caught:
            self.take(path)
        assert self.rows() == before
        self.gc()
        assert self.damaged() == []
        return caught.value

    def rows(self) -> list[str]:
        """Everything that the database holds."""
        with read_transaction(self.database) as connection:
            held = ((table.name, connection.execute(select(table)).all()) for table in METADATA.sorted_tables)
            return sorted(f"{name}: {row}" for name, rows in held for row in rows)

    def gc(self) -> int:
        return len(collect_garbage(self.store, self.catalogue, self.records.live_digests).digests)

    def damaged(self) -> list[str]:
        inventory = Inventory(self.store, self.catalogue, self.records)
        return [fault.what for fault in list_damage(self.store, inventory.everything(), SILENT)]


@pytest.fixture
def original(schema: Path, tmp_path: Path) -> Bundled:
    return bundled(MemoryStore(), tmp_path, schema)


@pytest.fixture
def bundle(original: Bundled, tmp_path: Path) -> Path:
    return original.create(tmp_path / "bundle.tar")


@pytest.fixture
def files(bundle: Path) -> Files:
    return unpacked(bundle)


@pytest.fixture(params=["folder", "memory", "repository"])
def registry(request: pytest.FixtureRequest, database: Engine, tmp_path: Path) -> Registry:
    """A registry over each kind of store."""
    if request.param == "memory":
        return Registry(MemoryStore(), database)
    folder = LocalStore(tmp_path / "blobs")
    if request.param == "folder":
        return Registry(folder, database)
    server: RegistryServer = request.getfixturevalue("registry_server")
    repository = server.repository(f"bundles/{tmp_path.name.lower().replace('_', '-')}")
    return Registry(
        CachedRepository(folder, OciStore(RegistryClient(repository), tmp_path / "lock", "bundles")), database
    )


@pytest.fixture
def empty(database: Engine) -> Registry:
    return Registry(MemoryStore(), database)


# What comes


@pytest.mark.databases
def test_everything_comes_and_stays(original: Bundled, bundle: Path, registry: Registry) -> None:
    found = registry.take(bundle)
    lock, run = original.lock, original.run
    assert (found.lock, found.changed, found.runs, found.platforms) == (
        lock, True, {run.id: True}, lock.image.platforms,
    )  # fmt: skip
    assert load(registry.catalogue.get_lock(lock.id), "lock") == lock
    kept = registry.records.get(run.id)
    assert replace(kept, imported_at=None) == run
    assert kept.imported_at is not None
    assert [str(entry.reference) for entry in registry.catalogue.list()] == [
        "dataset/digits@1.0.0", "framework/onnxruntime@1.31.1", "image/onnxruntime-cpu@1.0.0", "model/digits@1.0.0",
    ]  # fmt: skip
    assert found.artifacts.kept_out == {}
    assert registry.gc() == 0
    assert registry.damaged() == []


def test_what_came_says_that_it_came_in_a_bundle(original: Bundled, bundle: Path, empty: Registry) -> None:
    empty.take(bundle)
    for entry in empty.catalogue.list():
        sources = set(empty.catalogue.provenance(entry.reference).sources.values())
        assert sources <= {f"bundle:{original.lock.id}"}
    local = run_of(original.lock, original.store, seconds=1)
    empty.records.start(local.start)
    assert empty.records.get(local.id).imported_at is None


@pytest.mark.databases
def test_importing_again_changes_nothing(bundle: Path, registry: Registry) -> None:
    registry.take(bundle)
    before = registry.rows(), set(registry.store.list())
    again = registry.take(bundle)
    assert (again.changed, list(again.runs.values())) == (False, [False])
    assert (registry.rows(), set(registry.store.list())) == before


def test_a_lock_comes_without_runs(original: Bundled, tmp_path: Path, empty: Registry) -> None:
    found = empty.take(original.create(tmp_path / "lock.tar", alone=True))
    assert found.runs == {}
    assert empty.records.list() == ()
    assert empty.gc() == 0


def test_what_was_imported_is_bundled_in_the_same_bytes(
    original: Bundled, bundle: Path, tmp_path: Path, registry: Registry
) -> None:
    registry.take(bundle)
    lock = load(registry.catalogue.get_lock(original.lock.id), "lock")
    again = Bundled(lock, registry.records.get(original.run.id), registry.store)
    assert again.create(tmp_path / "again.tar").read_bytes() == bundle.read_bytes()


def test_a_damaged_blob_is_repaired(original: Bundled, bundle: Path, database: Engine, tmp_path: Path) -> None:
    registry = Registry(LocalStore(tmp_path / "blobs"), database)
    registry.take(bundle)
    place = LocalStore(tmp_path / "blobs").path(original.lock.harness.digest)
    place.chmod(0o644)
    place.write_bytes(b"another harness")
    assert len(registry.damaged()) == 1
    registry.take(bundle)
    assert registry.damaged() == []


# One platform of several


def test_a_platform_alone_brings_what_it_needs(original: Bundled, tmp_path: Path, registry: Registry) -> None:
    found = registry.take(original.create(tmp_path / "amd64.tar", platform="linux/amd64/cpu"))
    assert [str(platform) for platform in found.platforms] == ["linux/amd64/cpu"]
    for text in OTHER_PLATFORM.values():
        assert not registry.store.exists(digest_bytes(text))
    ((image, reason),) = found.artifacts.kept_out.items()
    assert str(image) == "image/onnxruntime-cpu@1.0.0"
    assert "arm64.toml and 1 more" in reason
    assert registry.damaged() == []
    assert registry.gc() == 0


@pytest.mark.databases
def test_the_other_platform_may_come_later(original: Bundled, tmp_path: Path, registry: Registry) -> None:
    registry.take(original.create(tmp_path / "amd64.tar", platform="linux/amd64/cpu"))
    later = registry.take(original.create(tmp_path / "arm64.tar", platform="linux/arm64/cpu"))
    assert (later.changed, later.is_new) == (False, False)
    assert registry.gc() == 0
    assert registry.take(original.create(tmp_path / "all.tar")).artifacts.kept_out == {}
    registry.store.delete(digest_bytes(OTHER_PLATFORM["arm64.toml"]))
    assert len(registry.damaged()) == 1


def test_what_is_lost_of_a_platform_that_came_is_missed(original: Bundled, tmp_path: Path, empty: Registry) -> None:
    empty.take(original.create(tmp_path / "amd64.tar", platform="linux/amd64/cpu"))
    lost = original.lock.image.platforms[0].image_id
    assert isinstance(lost, str)
    empty.store.delete(lost)
    assert [lost in fault for fault in empty.damaged()] == [True]


@pytest.mark.parametrize("came", [True, False], ids=["came", "made-here"])
def test_a_platform_is_missed_where_all_of_it_is_lost(
    came: bool,
    original: Bundled,
    bundle: Path,
    database: Engine,
) -> None:
    registry = Registry(MemoryStore() if came else original.store, database)
    if came:
        registry.take(bundle)
    else:
        registry.catalogue.put_lock(original.lock)
        registry.take(original.create(bundle.with_name("one.tar"), platform="linux/amd64/cpu"))
    for content in OTHER_PLATFORM.values():
        registry.store.delete(digest_bytes(content))
    inventory = Inventory(registry.store, registry.catalogue, registry.records)
    assert len([*list_damage(registry.store, inventory.of_lock(original.lock), SILENT)]) == len(OTHER_PLATFORM)
    assert len(registry.damaged()) == len(OTHER_PLATFORM)


def test_a_platform_that_the_lock_lacks_is_refused(original: Bundled, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="no platform linux/amd64/cuda12"):
        original.create(tmp_path / "none.tar", platform="linux/amd64/cuda12")


def test_a_finished_image_is_not_brought_and_that_is_said(original: Bundled) -> None:
    finished = LockedPlatform(
        os="linux",
        arch="amd64",
        device="cpu",
        python="3.11",
        reference=f"registry.test/image@{digest_bytes(b'manifest')}",
        image_id=digest_bytes(b"configuration"),
        config_size=13,
        diff_ids=(digest_bytes(b"layer"),),
    )
    (said,) = describe_absent_parts((*original.lock.image.platforms, finished))
    assert "registry.test/image@sha256:" in said


# Names that are taken


@pytest.mark.databases
def test_a_taken_name_keeps_its_content(original: Bundled, bundle: Path, registry: Registry) -> None:
    other = plain(parse_published(read_blob(original.store, original.lock.framework.digest, name="it"))) | {
        "license": "MPL-2.0"
    }
    mine = parse_published(encode_canonical(other))
    registry.store.put(io.BytesIO(encode_canonical(other)))
    taken = registry.catalogue.publish(mine, Provenance("", {}))
    found = registry.take(bundle)
    assert found.changed
    assert list(found.artifacts.kept_out) == [taken.reference]
    assert "is already published with different content" in found.artifacts.kept_out[taken.reference]
    assert registry.catalogue.get(taken.reference).digest == taken.digest
    verify(registry.store, original.lock.framework.digest, name="the manifest that the lock names")
    assert registry.gc() == 0


def with_model(original: Bundled, change: Callable[[Document], None], graph: bytes | None = None) -> Bundled:
    """The same with another manifest of the model, perhaps with another graph, and a lock and a run of that."""
    store, document = original.store, json.loads(json.dumps(original.lock.document))
    manifest = plain(parse_published(read_blob(store, original.lock.subject.digest, name="the manifest")))
    if graph is not None:
        row = {"sha256": store.put(io.BytesIO(graph)).digest[7:], "size": len(graph)}
        manifest["files"][0] |= row
        document["model"]["files"] = [
            one | row if one["path"] == "digits.onnx" else one for one in document["model"]["files"]
        ]
    change(manifest)
    document["model"]["digest"] = store.put(io.BytesIO(encode_canonical(manifest))).digest
    lock = read(document, "lock")
    return Bundled(lock, run_of(lock, store), store)


def test_what_publishing_refuses_stays_out_of_the_catalogue(
    original: Bundled, tmp_path: Path, registry: Registry
) -> None:
    bad = with_model(original, lambda _: None, b"no ONNX graph")
    found = registry.take(bad.create(tmp_path / "bad.tar"))
    ((reference, reason),) = found.artifacts.kept_out.items()
    assert str(reference) == "model/digits@1.0.0"
    assert "digits.onnx" in reason
    assert registry.records.get(bad.run.id).imported_at is not None
    assert registry.gc() == 0


def test_code_that_does_not_say_so_is_refused(original: Bundled, tmp_path: Path, empty: Registry) -> None:
    """It could run as a process, on whoever looks at the run."""
    hidden = with_model(original, lambda _: None, pickle.dumps(print))
    error = empty.refuse(hidden.create(tmp_path / "hidden.tar"))
    assert isinstance(error, InvalidInputError)
    assert "digits.onnx of model/digits@1.0.0 executes code when it is read" in error.what
    said = with_model(original, lambda manifest: manifest.update(unsafe=True), pickle.dumps(print))
    assert empty.take(said.create(tmp_path / "said.tar")).changed


def test_a_run_of_the_same_id_and_other_content_is_refused(
    original: Bundled, bundle: Path, tmp_path: Path, empty: Registry
) -> None:
    empty.take(bundle)
    assert original.run.end is not None
    other = replace(original.run, end=replace(original.run.end, timings={**original.run.end.timings, "run": 2.5}))
    path = Bundled(original.lock, other, original.store).create(tmp_path / "other.tar")
    error = empty.refuse(path)
    assert isinstance(error, IntegrityError)
    assert f"{other.id} is already recorded here with different content" in error.what


def test_every_forged_field_of_a_record_is_refused(bundle: Path, files: Files, tmp_path: Path, empty: Registry) -> None:
    document = json.loads(root_of(files, 1))
    for path in leaves(document):
        if not is_reported(field_of(path, document), REPORTED_FIELDS):
            forged = with_root(dict(files), 1, encode_canonical(forge(document, path)))
            with pytest.raises(BenchlockError):
                empty.take(packed(tmp_path / "forged.tar", forged))
    assert empty.records.list() == ()
    assert empty.take(bundle).changed


def test_a_run_of_this_registry_is_not_imported(
    original: Bundled, bundle: Path, tmp_path: Path, empty: Registry
) -> None:
    lock_alone = original.create(tmp_path / "lock.tar", alone=True)
    empty.take(lock_alone)
    empty.records.start(original.run.start)
    assert isinstance(empty.refuse(bundle), IntegrityError)
    assert original.run.end is not None
    empty.records.finish(original.run.id, original.run.end)
    assert empty.take(bundle).runs == {original.run.id: False}
    assert empty.records.get(original.run.id).imported_at is None


def test_a_run_without_an_end_is_no_bundle(original: Bundled, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="has not ended"):
        dataclasses.replace(original, run=Run(original.run.start, None)).create(tmp_path / "bundle.tar")


# What is refused


def edited_lock(files: Files) -> Files:
    return with_root(files, 0, root_of(files, 0).replace(b"seed = 7", b"seed = 8"))


def newer_lock(files: Files) -> Files:
    return with_root(files, 0, root_of(files, 0).replace(b'schema = "1.0"', b'schema = "2.0"'))


def relocked(change: Callable[[Document], None]) -> Change:
    """The bundle with another lock, whose id is right; its run is left out."""

    def changing(files: Files) -> Files:
        lock = load(root_of(files, 0).decode(), "lock")
        document = json.loads(json.dumps(lock.document))
        change(document)
        return with_root(without_run(files), 0, dump(read(document, "lock")).encode())

    return changing


def without_run(files: Files) -> Files:
    index = json.loads(files["index.json"])
    run = index["manifests"].pop()
    manifest = json.loads(files[name_of(run["digest"])])
    gone = {name_of(one["digest"]) for one in (run, manifest["config"], *manifest["layers"])}
    return {name: text for name, text in files.items() if name not in gone} | {"index.json": encode_canonical(index)}


def rerun(change: Callable[[Document], object]) -> Change:
    """The bundle with another record of its run."""

    def changing(files: Files) -> Files:
        record = json.loads(root_of(files, 1))
        change(record)
        return with_root(files, 1, json.dumps(record, sort_keys=True, separators=(",", ":")).encode())

    return changing


def unlisted(titles: str) -> Change:
    """The bundle without the blob of that title, which its index does not list either."""

    def changing(files: Files) -> Files:
        gone: list[str] = []

        def change(_: Document, manifests: list[Document]) -> None:
            for manifest in manifests:
                found = [
                    one for one in manifest["layers"] if titles in one["annotations"]["org.opencontainers.image.title"]
                ]
                manifest["layers"] = [one for one in manifest["layers"] if one not in found]
                gone.extend(name_of(one["digest"]) for one in found)

        left = changed(files, change)
        assert len(gone) == 1
        return {name: text for name, text in left.items() if name not in gone}

    return changing


def extra(number: int) -> Change:
    """The bundle with a blob that its manifest lists and that nothing names."""

    def changing(files: Files) -> Files:
        row = {"mediaType": "application/octet-stream", "digest": digest_bytes(b"extra"), "size": 5}
        left = changed(files, lambda _, manifests: manifests[number]["layers"].append(row))
        return left | {name_of(digest_bytes(b"extra")): b"extra"}

    return changing


def two_locks(files: Files) -> Files:
    return changed(
        files, lambda _, manifests: manifests[1]["config"].update(mediaType=manifests[0]["config"]["mediaType"])
    )


def no_lock(files: Files) -> Files:
    return changed(files, lambda _, manifests: manifests[0]["config"].update(mediaType="application/x-unknown"))


def swapped_files(document: Document) -> None:
    one, other = document["model"]["files"]
    one["path"], other["path"] = other["path"], one["path"]


def swapped_kinds(document: Document) -> None:
    document["model"]["digest"], document["framework"]["digest"] = (
        document["framework"]["digest"],
        document["model"]["digest"],
    )


DISHONEST: dict[str, tuple[Change, str]] = {
    "a lock that was edited": (edited_lock, "was changed after it was locked"),
    "a size of the lock": (relocked(lambda lock: lock["harness"].update(size=1)), "but the lock states 1"),
    "a size of a tree": (relocked(lambda lock: lock["dataset"]["files"][-1].update(size=1)), "1 are stated"),
    "another name": (relocked(lambda lock: lock["model"].update(name="other")), "contradicts the manifest"),
    "files under each other's names": (relocked(swapped_files), "contradicts the manifest"),
    "another Python": (
        relocked(lambda lock: lock["image"]["platforms"][0].update(python="/../../../tmp/python")),
        "no such platform",
    ),
    "manifests of other kinds": (relocked(swapped_kinds), "has kind framework, expected"),
    "a model's file": (unlisted("digits.onnx"), "lacks model/digits@1.0.0 digits.onnx"),
    "a manifest": (unlisted("the manifest of dataset"), "lacks the manifest of dataset/digits@1.0.0"),
    "the listing of a tree": (unlisted("the listing of"), "lacks dataset/digits@1.0.0 data/"),
    "a file in a tree": (unlisted("deeper/labels.idx"), "lacks dataset/digits@1.0.0 data/deeper/labels.idx"),
    "the harness": (unlisted("harness"), "lacks harness"),
    "a wheel of both platforms": (unlisted("wheels/onnxruntime"), "lacks image/onnxruntime-cpu@1.0.0"),
    "a layer of one platform": (unlisted("layers[0]"), "layers[0]"),
    "a wheel of the other": (unlisted("aarch64"), "aarch64"),
    "the predictions": (unlisted("predictions"), "predictions"),
    "a run of another lock": (rerun(lambda run: run.update(lock=digest_bytes(b"other"))), "contradicts its lock"),
    "a run on another platform": (rerun(lambda run: run["platform"].update(device="cuda12")), "linux/amd64/cuda12"),
    "a run on another Python": (rerun(lambda run: run["platform"].update(python="3.12")), "Python 3.12"),
    "a run of another image": (
        rerun(lambda run: run.update(isolation="container", image_id=digest_bytes(b"other"))),
        "contradicts its lock",
    ),
    "a metric that was not asked": (
        rerun(lambda run: run["end"]["metrics"][-1].update(name="top5")),
        "the metric top5",
    ),
    "a size in the record": (rerun(lambda run: run["end"]["blobs"]["samples"].update(size=1)), "the lock states 1"),
}  # fmt: skip

FUTURE = "2026-11-22T12:00:00.000001Z"
MALFORMED: dict[str, tuple[Change, str]] = {
    "a lock of a newer major schema": (newer_lock, "only 1.x is supported"),
    "a lock that is no text": (lambda files: with_root(files, 0, b"\xff\xfe"), "not UTF-8"),
    "a lock that is no lock": (lambda files: with_root(files, 0, b"a lock"), "invalid TOML"),
    "a lock that is too large": (lambda files: with_root(files, 0, bytes(65 << 20)), "; the limit is"),
    "a blob that the lock does not name": (extra(0), "which nothing in it references"),
    "a blob that the run does not name": (extra(1), "which nothing in it references"),
    "two locks": (two_locks, "must contain exactly one lock"),
    "no lock": (no_lock, "must contain exactly one lock"),
    "a record that is no JSON": (lambda files: with_root(files, 1, b"record"), "not a run record"),
    "a record that is not canonical": (
        lambda files: with_root(files, 1, root_of(files, 1) + b"\n"),
        "not canonical",
    ),
    "a record of a newer schema": (rerun(lambda run: run.update(schema="1.1")), "only 1.0 is supported"),
    "a record with an unknown key": (rerun(lambda run: run.update(comment="")), "unknown field"),
    "a record without predictions": (rerun(lambda run: run["end"].update(blobs={})), "blobs missing"),
    "a record without a host": (rerun(lambda run: run["host"].pop("kernel")), "host.kernel"),
    "a record that ends before it starts": (
        rerun(lambda run: run["end"].update(ended_at="2020-01-01T00:00:00.000000Z")),
        "before the start",
    ),
    "a record of no time": (rerun(lambda run: run.update(started_at="noon")), "not a run record"),
    "a record with a metric twice": (
        rerun(lambda run: run["end"].update(metrics=[one for one in run["end"]["metrics"] for _ in range(2)])),
        "duplicate metric",
    ),
    "a metric by another definition": (
        rerun(lambda run: run["end"]["metrics"][0].update(version=9)),
        "metrics.latency_p50.version (9, defined as 2)",
    ),
    "a role that leads out": (
        rerun(lambda run: run["end"]["blobs"].update({"../out": run["end"]["blobs"]["samples"]})),
        "not a run record",
    ),
    "an id that is none": (rerun(lambda run: run.update(id="run/../../etc")), "is not a run record"),
    "an id of a later time": (rerun(lambda run: run.update(id="run/7" + "z" * 25)), "before the time of the id"),
    "a record of the future": (
        rerun(lambda run: (run.update(started_at=FUTURE), run["end"].update(ended_at=FUTURE))),
        "the clock here is at 2026-11-22T12:00:00.000000Z",
    ),
    "a record that ends in the future": (
        rerun(lambda run: run["end"].update(ended_at=FUTURE)),
        "ended at 2026-11-22T12:00:00.000001Z, but the clock here is at 2026-11-22T12:00:00.000000Z",
    ),
    "a number that no column holds": (rerun(lambda run: run.update(attempt=2**31)), "$.attempt"),
    "details without end": (
        lambda files: with_root(
            files, 1, root_of(files, 1).replace(b'"errors":[]', b'"errors":' + b"[" * 5000 + b"]" * 5000)
        ),
        "nested too deeply",
    ),
}


@pytest.mark.parametrize("name", DISHONEST)
def test_what_does_not_fit_is_an_integrity_violation(name: str, files: Files, tmp_path: Path, empty: Registry) -> None:
    change, reason = DISHONEST[name]
    error = empty.refuse(packed(tmp_path / "bad.tar", change(files)))
    assert isinstance(error, IntegrityError), error
    assert reason in error.what
    assert set(empty.store.list()) == set()


@pytest.mark.parametrize("name", MALFORMED)
def test_what_is_malformed_is_refused(name: str, files: Files, tmp_path: Path, empty: Registry) -> None:
    change, reason = MALFORMED[name]
    error = empty.refuse(packed(tmp_path / "bad.tar", change(files)))
    assert isinstance(error, InvalidInputError), error
    assert reason in error.what
    assert set(empty.store.list()) == set()


def test_a_lock_that_names_a_released_harness_under_a_false_version_is_refused(
    bundle: Path, original: Bundled, empty: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(harness_releases, "RELEASES", {original.lock.harness.digest: "1.2.0"})
    error = empty.refuse(bundle)
    assert isinstance(error, IntegrityError), error
    assert "with the digest of harness 1.2.0" in error.what


def test_a_blob_is_missed_even_where_the_store_has_it(
    files: Files, original: Bundled, tmp_path: Path, database: Engine
) -> None:
    """A bundle that works here alone is none."""
    registry = Registry(original.store, database)
    with pytest.raises(IntegrityError, match=r"lacks model/digits@1.0.0 digits.onnx"):
        registry.take(packed(tmp_path / "bad.tar", unlisted("digits.onnx")(files)))


def test_a_flipped_bit_anywhere_in_a_blob_is_noticed(
    files: Files, original: Bundled, tmp_path: Path, empty: Registry
) -> None:
    for digest in original.store.list():
        name = name_of(digest)
        if name not in files:
            continue
        text = bytearray(files[name])
        text[len(text) // 2] ^= 1
        error = empty.refuse(packed(tmp_path / "bad.tar", {**files, name: bytes(text)}))
        assert isinstance(error, IntegrityError)
        assert name in error.what


# The record as a document


def test_a_record_is_read_as_it_was_written(original: Bundled) -> None:
    text = encode_run(original.run)
    assert decode_run(text, "record") == original.run
    assert encode_run(decode_run(text, "record")) == text


def test_an_error_of_a_bundle_has_its_own_code(tmp_path: Path, empty: Registry) -> None:
    (tmp_path / "no.tar").write_bytes(b"no bundle" * 100)
    assert isinstance(empty.refuse(tmp_path / "no.tar"), BundleError)
