"""Making locks, and what is refused then; whether a lock still answers its request."""

import re

import pytest

from benchlock.artifacts.digest import digest_bytes
from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.inspection.label_files import find_disagreements, normalize_label
from benchlock.registry.lock.lock_assembly import change_seed, check_lock, preferences_of
from benchlock.registry.lock.lock_diff import find_platform_changes
from benchlock.registry.lock.lockfile import dataset_of, list_blob_references
from benchlock.registry.resolution.conflicts import ConflictError
from benchlock.registry.versions.semantic_version import parse_version
from tests.support.resolution.locks import (
    CONFIG,
    FILES,
    FINISHED,
    FINISHED_CONFIG,
    FINISHED_REFERENCE,
    IMAGE,
    LAYER,
    PYLOCK,
    request,
    shelf,
)
from tests.support.resolution.universe import Universe


def test_a_lock_has_the_platforms_that_the_request_admits() -> None:
    (amd64,) = shelf().lock(request()).image.platforms
    assert (str(amd64), amd64.image_id) == ("linux/amd64/cpu", digest_bytes(CONFIG))
    assert [layer.digest for layer in amd64.layers or ()] == [digest_bytes(LAYER)]
    (arm64,) = shelf().lock(request(hardware="{os: linux, arch: arm64, device: cpu}")).image.platforms
    assert str(arm64) == "linux/arm64/cpu"
    assert not arm64.image_id
    assert not arm64.layers


def test_a_lock_with_another_seed_is_that_of_the_request_with_the_seed() -> None:
    lock = shelf().lock(request())
    assert lock.request["seed"] != 11
    assert change_seed(lock, 11) == shelf().lock(request(seed="11"))
    assert change_seed(lock, 11).id != lock.id
    assert change_seed(change_seed(lock, 11), lock.request["seed"]) == lock


def test_a_finished_image_is_locked_by_its_configuration_and_layers() -> None:
    lock = shelf(image_text=FINISHED).lock(request())
    (platform,) = lock.image.platforms
    assert (lock.schema, platform.finished, platform.reference) == ("1.1", True, FINISHED_REFERENCE)
    assert (platform.image_id, platform.config_size) == (digest_bytes(FINISHED_CONFIG), len(FINISHED_CONFIG))
    assert platform.diff_ids == (digest_bytes(LAYER), digest_bytes(b"another layer"))
    assert "wheels" not in lock.document["image"]["platforms"][0]
    named_sorts = {one.sort for one in list_blob_references(lock) if one.platform == platform}
    assert named_sorts == {"configuration"}


def test_a_finished_image_of_another_architecture_is_refused() -> None:
    crossed = shelf(image_text=FINISHED.replace("arch: amd64", "arch: arm64"))
    with pytest.raises(InvalidInputError, match="is built for linux/amd64, but its manifest states linux/arm64"):
        crossed.lock(request(hardware="{}"))


def test_a_finished_image_in_place_of_wheels_is_one_change() -> None:
    built, finished = (shelf(image_text=text).lock(request()).image for text in (IMAGE, FINISHED))
    (change,) = find_platform_changes(built, finished)
    said = f"linux/amd64/cpu: python 3.11 → 3.12; built from wheels → the finished image {FINISHED_REFERENCE}"
    assert change == said
    assert [*find_platform_changes(finished, finished)] == []


def test_a_lock_carries_the_request_as_written_and_what_it_means() -> None:
    asked = request()
    lock = shelf().lock(asked)
    assert lock.request == asked.document
    assert (lock.limits.seconds, lock.limits.bytes) == (600, 2 << 30)
    assert lock.scenario["min_duration"] == 1
    assert set(lock.scenario["seeds"]) == {"qsl", "sample_index", "schedule"}
    assert lock.metrics == dict.fromkeys(("top1", "latency_p50", "latency_p90", "latency_p99"), 2)


def test_another_request_is_another_lock_and_the_same_the_same() -> None:
    assert shelf().lock(request()).id == shelf().lock(request()).id
    others = (
        request(seed="8"),
        request(metrics="[top1]"),
        request(limits="{time: 600s, memory: 2GiB, cpus: 1, processes: 256}"),
    )
    assert len({shelf().lock(one).id for one in (request(), *others)}) == 4


@pytest.mark.parametrize(
    ("replaced", "words"),
    [
        ({"dataset": "{name: digits, version: '*', split: tset}"}, "no split 'tset'"),
        ({"dataset": "{name: digits, version: '*', split: bare}"}, "needs labels"),
        ({"metrics": "[miou]"}, "miou"),
        ({"trace": "full", "scenario": "{name: accuracy}", "metrics": "[top1]"}, "the scenario is accuracy"),
    ],
)
def test_what_cannot_be_answered_is_refused(replaced: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidInputError, match=re.escape(words)):
        shelf().lock(request(**replaced))


def test_an_unlabelled_split_can_be_timed() -> None:
    asked = request(dataset="{name: digits, version: '*', split: bare}", metrics="[latency]")
    assert dataset_of(shelf().lock(asked)).split == "bare"


def test_the_wheels_must_be_those_of_the_image() -> None:
    for other, words in (
        (PYLOCK.replace(b"wheels/onnx", b"elsewhere/onnx"), "is not in the image's files"),
        (re.sub(rb'sha256 = "\w+"', b'sha256 = "%s"' % (b"0" * 64), PYLOCK), "disagree about the digest"),
        (b"nothing", "not a valid wheels lock"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            shelf(files={"image": {"amd64/pylock.toml": other}}).lock(request())


class TestLabels:
    def test_names_are_compared_without_case_space_and_wordnet_ids(self) -> None:
        assert normalize_label(" n01440764 Tench ") == normalize_label("TENCH") == normalize_label("n01440764: tench")
        assert normalize_label("n01440764") == "n01440764"

    def test_the_same_names_at_the_same_places_agree(self) -> None:
        assert not find_disagreements(["zero", "One"], [" zero", "one "], 0)
        assert not find_disagreements(["background", "tench", "goldfish"], ["n01440764 tench", "n01443537 goldfish"], 1)

    def test_names_of_one_side_alone_say_nothing(self) -> None:
        assert not find_disagreements(["cat", "automobile"], ["cat", "car"], 0)

    def test_a_name_that_stands_twice(self) -> None:
        assert not find_disagreements(["crane", "x", "crane"], ["crane", "x", "crane"], 0)
        assert not find_disagreements(["crane", "x", "crane machine"], ["crane", "x", "crane"], 0)
        assert find_disagreements(["x", "crane", "crane"], ["crane", "x", "crane"], 0)

    def test_names_at_other_places_are_a_conflict_at_lock(self) -> None:
        shifted = b"background\nzero\none\ntwo\n"
        shelf(offset=1, files={"model": {"labels.txt": shifted}}).lock(request())
        with pytest.raises(ConflictError, match="disagree about 3 labels") as caught:
            shelf(files={"model": {"labels.txt": shifted}}).lock(request())
        assert caught.value.next_step
        assert "label_offset: 1" in caught.value.next_step
        assert caught.value.conflict["labels"][0] == {"name": "zero", "dataset": 0, "model": 1}

    def test_a_swap_is_a_conflict_that_no_offset_mends(self) -> None:
        with pytest.raises(ConflictError) as caught:
            shelf(files={"model": {"labels.txt": b"one\nzero\ntwo\n"}}).lock(request())
        assert "label_offset" not in (caught.value.next_step or "")
        assert len(caught.value.conflict["labels"]) == 2


class TestCheck:
    def test_a_lock_answers_its_request(self) -> None:
        freshness = check_lock(shelf().lock(request()), request(), shelf().snapshot())
        assert freshness.reasons == freshness.warnings == ()

    def test_a_newer_version_makes_no_lock_stale(self) -> None:
        lock = shelf().lock(request())
        newer = Universe([*shelf().snapshot().rows, *shelf(version="1.1.0").snapshot().of("model", "digits")])
        assert check_lock(lock, request(), newer).reasons == ()

    def test_a_yanked_version_still_answers_with_a_warning(self) -> None:
        lock = shelf().lock(request())
        freshness = check_lock(lock, request(), shelf(yanked={"model": "wrong weights"}).snapshot())
        assert freshness.reasons == ()
        assert freshness.warnings == ("model/digits 1.0.0 is yanked: wrong weights",)

    @pytest.mark.parametrize(
        ("replaced", "words"),
        [
            ({"seed": "8"}, "seed was 7, is 8"),
            ({"model": "{name: digits, version: '>=1.1'}"}, "no available version of model/digits"),
            ({"model": "{name: digit, version: '^1.0'}"}, "no model/digit"),
            ({"dataset": "{name: digits, version: '>=1.0 <2', split: bare}"}, "dataset.split was test, is bare"),
            ({"hardware": "{os: linux, arch: arm64, device: cpu}"}, "linux/arm64/cpu, not linux/amd64/cpu"),
            ({"hardware": "{os: linux}"}, "linux/amd64/cpu, linux/arm64/cpu, not linux/amd64/cpu"),
            ({"hardware": "{os: linux, arch: amd64, device: cpu, cpus: 2}"}, "hardware was"),
            ({"hardware": "{os: linux, arch: amd64, device: cpu, memory: 1GiB}"}, "hardware was"),
            ({"trace": "none"}, "trace was absent, is none"),
        ],
    )
    def test_a_changed_request_that_it_does_not_answer(self, replaced: dict[str, str], words: str) -> None:
        reasons = check_lock(shelf().lock(request()), request(**replaced), shelf().snapshot()).reasons
        assert any(words in reason for reason in reasons)

    def test_a_reworded_constraint_that_it_still_answers_is_a_warning(self) -> None:
        other = request(model="{name: digits, version: '>=0.9 <1.5'}")
        freshness = check_lock(shelf().lock(request()), other, shelf().snapshot())
        assert freshness.reasons == ()
        assert "model" in freshness.warnings[0]

    @pytest.mark.parametrize("hardware", ["{os: [linux, darwin], arch: [amd64], device: cpu}", "{arch: amd64}"])
    def test_hardware_that_admits_the_same_platforms_is_a_warning(self, hardware: str) -> None:
        freshness = check_lock(shelf().lock(request()), request(hardware=hardware), shelf().snapshot())
        assert freshness.reasons == ()
        assert freshness.warnings == (
            "the request has changed in hardware, but resolves to the same versions and platforms",
        )

    def test_other_content_under_the_same_name_does_not_answer(self) -> None:
        other = shelf(files={"model": {"model.onnx": b"other weights"}})
        assert "has other content" in check_lock(shelf().lock(request()), request(), other.snapshot()).reasons[0]

    def test_a_version_that_this_catalogue_has_not(self) -> None:
        reasons = check_lock(shelf().lock(request()), request(), shelf(version="1.2.0").snapshot()).reasons
        assert reasons == ("model/digits 1.0.0 does not satisfy the request; model/digits 1.2.0 does",)


def test_preferences_are_the_choices_but_for_the_upgraded() -> None:
    lock = shelf().lock(request())
    assert preferences_of(lock)["image", "onnxruntime-cpu"] == parse_version("1.0.0")
    assert ("model", "digits") not in preferences_of(lock, [("model", "digits")])
    assert len(preferences_of(lock, [("model", "digits")])) == 3
    with pytest.raises(InvalidInputError, match="no model/other"):
        preferences_of(lock, [("model", "other")])


def test_the_files_of_the_shelf_are_those_of_the_locks() -> None:
    lock = shelf().lock(request())
    assert {file.path for file in lock.subject.files} == set(FILES["model"])
    assert {file.path for file in dataset_of(lock).files} == set(FILES["dataset"])
