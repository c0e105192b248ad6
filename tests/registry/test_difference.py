"""The difference of two locks, as a person reads it."""

from msgspec import structs

from registry.difference import diff
from registry.lockfile import Lock, LockedFile, from_content
from registry.manifests.identity import manifest_digest
from tests.support.locks import Shelf, request, shelf


def told(before: Lock, after: Lock, *shelves: Shelf) -> list[str]:
    manifests = {manifest_digest(one): one for each in shelves for one in each.chosen.all()}
    return [str(change) for change in diff(before, after, manifests)]


def test_the_same_lock_has_no_changes() -> None:
    assert diff(shelf().lock(request()), shelf().lock(request()), {}) == ()


def test_new_weights_under_a_new_version_are_told_by_role() -> None:
    old, new = shelf(), shelf(version="1.1.0", files={"model": {"model.onnx": b"better"}})
    before, after = old.lock(request()), new.lock(request())
    assert told(before, after, old, new) == ["model/digits 1.0.0 → 1.1.0: graph changed, labels the same"]
    assert told(before, after) == ["model/digits 1.0.0 → 1.1.0: model.onnx changed, 1 other file the same"]


def test_a_new_version_with_the_same_files() -> None:
    changes = told(shelf().lock(request()), shelf(version="1.1.0").lock(request()))
    assert changes == ["model/digits 1.0.0 → 1.1.0: other manifest, the same files"]


def test_data_that_changed_is_told_by_path() -> None:
    other = shelf(files={"dataset": {"images.idx": b"other pictures"}})
    assert told(shelf().lock(request()), other.lock(request())) == [
        "dataset/digits: images.idx changed, 2 other files the same"
    ]


def test_settings_are_told_by_key() -> None:
    asked = request(
        model="{name: digits, version: '*'}",
        limits="{time: 20m, memory: 2GiB, cpus: 2, processes: 256}",
        scenario="{name: single_stream, min_queries: 100, min_duration: 1s, warmup: 8}",
        metrics="[top1]",
    )
    assert told(shelf().lock(request()), shelf().lock(asked)) == [
        "request.model.version ^1.0 → *",
        "limits.cpus 1 → 2",
        "limits.seconds 600.0 → 1200.0",
        "scenario.min_queries 662 → 100",
        "metrics.latency_p50 1 → absent",
        "metrics.latency_p90 1 → absent",
        "metrics.latency_p99 1 → absent",
    ]


def test_an_environment_is_told_by_distribution() -> None:
    before = shelf().lock(request())
    (platform,) = before.image.platforms
    wheels = (
        LockedFile(path="wheels/numpy-2.4.1-py3-none-any.whl", sha256="1" * 64, size=1),
        LockedFile(path=platform.wheels[0].path, sha256="0" * 64, size=1),
    )
    other = structs.replace(platform, wheels=wheels, layers=())
    after = from_content(structs.replace(before, image=structs.replace(before.image, platforms=(other,))))
    (change,) = told(before, after)
    subject, *parts = change.split(": ")
    assert subject == "image/onnxruntime-cpu"
    assert parts[0] == "linux/amd64/cpu python 3.11"
    assert parts[1].split("; ") == [
        "numpy absent → 2.4.1",
        "onnxruntime 1.31.1 with other bytes",
        "layers changed (0 of 0 the same)",
    ]
