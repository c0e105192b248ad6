"""What is published, hidden and locked is answered by name, by time and from indexes."""

import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from sqlalchemy import Engine, text

from benchlock.artifacts.digest import Descriptor, Digest, digest_bytes
from benchlock.artifacts.errors import InvalidInputError, UnavailableError, UnknownNameError
from benchlock.registry.artifact_names import Kind, Name, parse_reference
from benchlock.registry.catalogue.catalogue import Catalogue
from benchlock.registry.catalogue.catalogue_protocol import Provenance, PublishResult, VersionTakenError
from benchlock.registry.database.engine import open_engine, read_transaction
from benchlock.registry.lock.lockfile import (
    SCHEMA,
    LockContent,
    LockedArtifact,
    LockedDataset,
    LockedFile,
    LockedHarness,
    LockedImage,
    LockedLayer,
    LockedLimits,
    LockedPlatform,
    from_content,
    load,
)
from benchlock.registry.manifests.manifest_content import with_files
from benchlock.registry.resolution.resolver import Question, Requirement, resolve
from benchlock.registry.resolution.resolver_types import EVERY, Candidate, Population, Snapshot
from benchlock.registry.versions.version_ranges import ANY
from tests.support.registry.authored import read_authored
from tests.support.registry.plans import sources
from tests.support.resolution.locks import DATASET, FILES, published

NOON = datetime(2026, 11, 21, 12, tzinfo=UTC)
NOTHING = Provenance("", {})
Publish = Callable[..., PublishResult]

MODEL = """\
schema: 1
kind: model
name: {name}
version: {version}
license: Apache-2.0
description: {description}
task: image-classification
framework: {{name: onnxruntime, version: "{needs}"}}
format: onnx
inputs:
  - name: x
    type: image
    dtype: float32
    shape: [null, 8, 8, 1]
    layout: NHWC
    steps: [{{decode: {{color: L, exif: ignore}}}}, {{cast: {{dtype: float32}}}}]
outputs:
  - {{name: y, type: class-scores, dtype: float32, label_offset: 0}}
files:
  - {{path: net.onnx, role: graph, source: net.onnx}}
"""
IMAGE = """\
schema: 1
kind: image
name: {name}
version: {version}
license: various
provides: {{framework: onnxruntime, version: {provides}}}
platforms:
  - {{os: linux, arch: arm64, device: cpu, python: "3.11", wheels: pylock.toml}}
  - {{os: linux, arch: amd64, device: cpu, python: "3.11", wheels: pylock.toml, config: "{blob}", layers: ["{blob}"]}}
files:
  - {{path: pylock.toml, role: wheels, source: pylock.toml}}
  - {{path: config.json, role: config, source: config.json}}
  - {{path: layers/base.tar, role: layer, source: base.tar}}
"""
BLOB = Descriptor(digest_bytes(b"tar"), 3)

pytestmark = pytest.mark.databases


@pytest.fixture
def model(catalogue: Catalogue) -> Publish:
    """Publishes ``model("net", "1.0.0")``."""

    def publish(name: str, version: str, needs: str = "*", description: str = "a net") -> PublishResult:
        text = MODEL.format(name=name, version=version, needs=needs, description=description)
        manifest = with_files(read_authored(text, "model.yaml"), {"net.onnx": BLOB})
        return catalogue.publish(manifest, NOTHING)

    return publish


@pytest.fixture
def image(catalogue: Catalogue) -> Publish:
    """Publishes ``image("onnxruntime-cpu", "1.0.0", "1.31.1")``."""

    def publish(name: str, version: str, provides: str) -> PublishResult:
        manifest = read_authored(
            IMAGE.format(name=name, version=version, provides=provides, blob=BLOB.digest), "image.yaml"
        )
        found = dict.fromkeys(("pylock.toml", "config.json", "layers/base.tar"), BLOB)
        return catalogue.publish(with_files(manifest, found), NOTHING)

    return publish


def versions(catalogue: Catalogue, kind: Kind, name: str) -> list[str]:
    return [str(entry.reference.version) for entry in catalogue.versions(kind, Name(name))]


def test_versions_are_in_semver_order(catalogue: Catalogue, model: Publish) -> None:
    order = ["0.9.0", "1.0.0-alpha.2", "1.0.0-alpha.10", "1.0.0-rc.1", "1.0.0+b7", "1.9.0", "1.10.0"]
    for version in reversed(order):
        assert model("net", version).changed
    assert versions(catalogue, "model", "net") == order


def test_versions_that_differ_in_build_metadata_are_one(catalogue: Catalogue, model: Publish) -> None:
    model("net", "1.0.0+first")
    with pytest.raises(VersionTakenError, match=r"model/net@1\.0\.0\+first is already published"):
        model("net", "1.0.0")
    assert str(catalogue.get(parse_reference("model/net@1.0.0")).reference) == "model/net@1.0.0+first"


def test_everything_is_listed_by_kind_name_and_version(catalogue: Catalogue, model: Publish, image: Publish) -> None:
    model("b", "1.0.0")
    model("a", "2.0.0")
    model("a", "1.0.0")
    image("onnxruntime-cpu", "1.0.0", "1.31.1")
    everything = [str(entry.reference) for entry in catalogue.list()]
    assert everything == ["image/onnxruntime-cpu@1.0.0", "model/a@1.0.0", "model/a@2.0.0", "model/b@1.0.0"]
    assert [str(entry.reference) for entry in catalogue.list("model")] == everything[1:]
    assert catalogue.list("dataset") == ()
    assert [entry.published_at for entry in catalogue.list("image")] == [NOON + timedelta(seconds=4)]


def test_an_unknown_name_names_the_nearest_one(catalogue: Catalogue, model: Publish) -> None:
    model("resnet8", "1.0.0")
    with pytest.raises(UnknownNameError, match=r"(?s)unknown model 'resnet'.*did you mean model/resnet8\?"):
        catalogue.versions("model", Name("resnet"))
    with pytest.raises(UnknownNameError, match=r"(?s)dataset/resnet8.*list the datasets"):
        catalogue.get(parse_reference("dataset/resnet8@1.0.0"))


def test_an_unknown_version_names_those_that_there_are(catalogue: Catalogue, model: Publish) -> None:
    for minor in range(7):
        model("net", f"1.{minor}.0")
    with pytest.raises(UnknownNameError, match=r"newest first: 1\.6\.0, 1\.5\.0, 1\.4\.0, 1\.3\.0, 1\.2\.0$"):
        catalogue.manifest(parse_reference("model/net@2.0.0"))


def test_a_yank_hides_and_can_be_undone(catalogue: Catalogue, model: Publish) -> None:
    model("net", "1.0.0")
    reference = parse_reference("model/net@1.0.0")
    assert not catalogue.unyank(reference)
    assert catalogue.yank(reference, "wrong labels")
    assert not catalogue.yank(reference, "wrong labels")
    assert catalogue.get(reference).yanked == "wrong labels"
    assert catalogue.yank(reference, "wrong weights")
    assert catalogue.list()[0].yanked == "wrong weights"
    assert catalogue.unyank(reference)
    assert catalogue.get(reference).yanked is None
    with pytest.raises(InvalidInputError, match="needs a reason"):
        catalogue.yank(reference, " ")
    with pytest.raises(InvalidInputError, match="NUL"):
        catalogue.yank(reference, "wrong\0labels")
    with pytest.raises(UnknownNameError):
        catalogue.yank(parse_reference("model/net@1.0.1"), "it does not exist")


def _all(snapshot: Snapshot, kind: Kind, name: str) -> list[Candidate]:
    """Every version of the name, oldest first."""
    return list(snapshot.candidates(kind, name, tuple(snapshot.oldest(Population(kind, name, EVERY), 9))))


def test_a_snapshot_says_what_the_resolver_asks(catalogue: Catalogue, model: Publish, image: Publish) -> None:
    model("net", "1.0.0", ">=1.20 <2")
    image("onnxruntime-cpu", "1.0.0", "1.31.1")
    image("onnxruntime-cpu", "1.1.0", "1.32.0")
    image("acme/ort", "1.0.0", "1.31.1")
    catalogue.yank(parse_reference("image/onnxruntime-cpu@1.0.0"), "old base")
    with catalogue.snapshot() as snapshot:
        (net,) = _all(snapshot, "model", "net")
        first, second = _all(snapshot, "image", "onnxruntime-cpu")
        assert _all(snapshot, "model", "other") == []
        assert snapshot.names("image", "", 9) == ["acme/ort", "onnxruntime-cpu"]
        assert snapshot.images("onnxruntime") == ["acme/ort", "onnxruntime-cpu"]
        assert snapshot.images("pytorch") == []
    assert (net.requires, net.provides, net.platforms) == ((("framework", "onnxruntime", ">=1.20 <2"),), None, ())
    assert net.digest == catalogue.get(parse_reference("model/net@1.0.0")).digest
    assert (first.yanked, second.yanked) == ("old base", None)
    assert second.provides is not None
    assert (second.provides[0], str(second.provides[1])) == ("onnxruntime", "1.32.0")
    assert second.platforms == (("linux", "amd64", "cpu", "3.11", True), ("linux", "arm64", "cpu", "3.11", False))


FRAMEWORK = """\
{{schema: 1, kind: framework, name: onnxruntime, version: {version}, predictor: onnxruntime, license: MIT,
 distributions: [onnxruntime]}}
"""


def test_the_resolver_is_answered(catalogue: Catalogue, model: Publish, image: Publish) -> None:
    model("net", "1.0.0", ">=1.20 <1.32")
    model("net", "1.1.0", ">=1.20 <1.32")
    image("onnxruntime-cpu", "1.0.0", "1.31.1")
    image("onnxruntime-cpu", "1.1.0", "1.32.0")
    for version in ("1.31.1", "1.32.0"):
        catalogue.publish(read_authored(FRAMEWORK.format(version=version), "framework.yaml"), NOTHING)
    catalogue.publish(published(DATASET, FILES["dataset"], version="1.0.0"), NOTHING)
    question = Question(Requirement("model", "net", ANY, "me"), Requirement("dataset", "digits", ANY, "me"))
    with catalogue.snapshot() as snapshot:
        found = resolve(question, snapshot, {})
    assert [str(one) for one in (found.model, found.framework, found.image)] == [
        "model/net 1.1.0",
        "framework/onnxruntime 1.31.1",
        "image/onnxruntime-cpu 1.0.0",
    ]


def test_a_snapshot_of_an_earlier_time_has_what_was_there(catalogue: Catalogue, model: Publish, image: Publish) -> None:
    model("net", "1.0.0")  # second 1
    catalogue.yank(parse_reference("model/net@1.0.0"), "a mistake")  # 2
    catalogue.unyank(parse_reference("model/net@1.0.0"))  # 3
    model("net", "1.1.0")  # 4
    image("onnxruntime-cpu", "1.0.0", "1.31.1")  # 5
    seen = {}
    for second in range(6):
        with catalogue.snapshot(NOON + timedelta(seconds=second)) as snapshot:
            candidates = _all(snapshot, "model", "net")
            seen[second] = [(str(candidate.version), candidate.yanked) for candidate in candidates]
            assert snapshot.names("image", "", 9) == snapshot.images("onnxruntime")
            assert bool(snapshot.names("image", "", 9)) == (second == 5)
    both: list[tuple[str, str | None]] = [("1.0.0", None), ("1.1.0", None)]
    assert seen == {0: [], 1: both[:1], 2: [("1.0.0", "a mistake")], 3: both[:1], 4: both, 5: both}


def test_a_snapshot_stays_as_it_was_while_others_publish(catalogue: Catalogue, model: Publish) -> None:
    model("net", "1.0.0")
    with catalogue.snapshot() as snapshot:
        assert len(_all(snapshot, "model", "net")) == 1
        model("net", "1.1.0")
        catalogue.yank(parse_reference("model/net@1.0.0"), "old")
        assert [candidate.yanked for candidate in _all(snapshot, "model", "net")] == [None]
    with catalogue.snapshot() as snapshot:
        assert [candidate.yanked for candidate in _all(snapshot, "model", "net")] == ["old", None]


def test_of_writers_at_once_one_publishes_and_the_others_are_told(catalogue: Catalogue, model: Publish) -> None:
    outcomes: list[str] = []

    def attempt(number: int) -> None:
        try:
            outcomes.append("changed" if model("net", "1.0.0", description=f"number {number % 2}").changed else "same")
        except VersionTakenError:
            outcomes.append("taken")

    threads = [threading.Thread(target=attempt, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["changed"] + ["same"] * 3 + ["taken"] * 4
    assert versions(catalogue, "model", "net") == ["1.0.0"]


QUERIES = (
    "SELECT * FROM versions WHERE kind = 'model' AND name = 'net' ORDER BY precedence",
    "SELECT * FROM versions WHERE kind = 'model' AND name = 'net' AND precedence = 'x'",
    "SELECT DISTINCT name FROM versions WHERE framework = 'onnxruntime'",
    "SELECT * FROM yanks WHERE kind = 'model' AND name = 'net' ORDER BY kind, name, precedence, position",
    "SELECT * FROM requirements WHERE kind = 'model' AND name = 'net'",
    "SELECT * FROM platforms WHERE kind = 'image' AND name = 'net'",
    "SELECT * FROM files WHERE digest = 'x'",
)


def test_questions_are_answered_from_indexes(database: Engine) -> None:
    with read_transaction(database) as connection:
        for query in QUERIES:
            for step in sources(connection, query):
                assert "SEARCH" in step or "Index Cond" in step, step
                assert "INDEX" in step or "PRIMARY KEY" in step or "Index" in step, step


def digest(text: str) -> Digest:
    return digest_bytes(text.encode())


def file(path: str) -> LockedFile:
    return LockedFile(path=path, sha256=digest(path).removeprefix("sha256:"), size=1)


LOCK = from_content(
    LockContent(
        schema=".".join(map(str, SCHEMA)),
        request={"name": "net-on-pictures", "kind": "evaluation"},
        model=LockedArtifact(name="net", version="1.0.0", digest=digest("net"), files=(file("net.onnx"),)),
        dataset=LockedDataset(
            name="pictures", version="1.2.0", digest=digest("pictures"), files=(file("images/"),), split="test"
        ),
        framework=LockedArtifact(name="onnxruntime", version="1.31.1", digest=digest("onnxruntime")),
        image=LockedImage(
            name="onnxruntime-cpu",
            version="1.0.0",
            digest=digest("image"),
            platforms=(
                LockedPlatform(
                    os="linux",
                    arch="amd64",
                    device="cpu",
                    python="3.11",
                    wheels_lock=file("pylock.toml"),
                    wheels=(file("wheels/numpy.whl"),),
                    image_id=digest("config"),
                    config_size=1,
                    layers=(LockedLayer(digest=digest("layer"), size=1),),
                ),
            ),
        ),
        harness=LockedHarness(version="0.1.0", digest=digest("harness"), size=1),
        limits=LockedLimits(seconds=60, bytes=1 << 30, cpus=1, processes=64),
        scenario={"name": "accuracy"},
        metrics={"top1": 1},
    )
)


def test_a_lock_is_kept_once_under_its_id(catalogue: Catalogue) -> None:
    assert catalogue.put_lock(LOCK)
    assert not catalogue.put_lock(LOCK)
    assert load(catalogue.get_lock(LOCK.id), "the registry") == LOCK
    with pytest.raises(UnknownNameError, match="unknown lock sha256:"):
        catalogue.get_lock(digest("other"))


def test_the_beginning_of_an_id_finds_one_lock(catalogue: Catalogue, database: Engine) -> None:
    catalogue.put_lock(LOCK)
    assert catalogue.find_lock(LOCK.id) == catalogue.find_lock(LOCK.id[: len("sha256:") + 4]) == LOCK.id
    for other in (LOCK.id[: len("sha256:") + 3], LOCK.id.upper(), f"{LOCK.id}0", LOCK.id[len("sha256:") :], "sha256:%"):
        with pytest.raises(InvalidInputError, match="invalid lock id"):
            catalogue.find_lock(other)
    with pytest.raises(UnknownNameError, match="unknown lock sha256:"):
        catalogue.find_lock(digest("other")[:20])
    columns = "text, request, model, model_version, dataset, dataset_version, framework, framework_version, image"
    twin = LOCK.id[:20] + digest("other")[20:]
    with database.begin() as connection:
        copied = f"SELECT '{twin}', {columns}, image_version, created_at FROM locks"
        connection.execute(text(f"INSERT INTO locks (id, {columns}, image_version, created_at) {copied}"))
    with pytest.raises(InvalidInputError, match=f"ambiguous id {LOCK.id[:20]}") as caught:
        catalogue.find_lock(LOCK.id[:20])
    shown = str(caught.value.where).split("; ")
    assert {one.split(" ")[0] for one in shown} == {LOCK.id, twin}
    assert all(one.endswith(f", {LOCK.subject.name} {LOCK.subject.version})") for one in shown)
    assert catalogue.find_lock(LOCK.id[:21]) == LOCK.id


def test_everything_that_a_lock_or_version_names_is_alive(catalogue: Catalogue, model: Publish) -> None:
    catalogue.put_lock(LOCK)
    words = ("net", "pictures", "onnxruntime", "image", "net.onnx", "images/", "pylock.toml", "wheels/numpy.whl")
    named = {digest(word) for word in (*words, "config", "layer", "harness")}
    assert set(catalogue.live_digests()) == named
    assert list(catalogue.live_trees()) == [digest("images/")]
    published = model("net", "1.0.0")
    assert set(catalogue.live_digests()) == named | {published.digest, BLOB.digest}


def test_a_file_that_is_no_database_is_reported(tmp_path: Path) -> None:
    path = tmp_path / "registry.db"
    path.write_bytes(b"not a database" * 100)
    engine = open_engine(path)
    with pytest.raises(UnavailableError, match="the database is unavailable"):
        Catalogue(engine, lambda: NOON).get(parse_reference("framework/acme/ort@1.0.0"))
    engine.dispose()
