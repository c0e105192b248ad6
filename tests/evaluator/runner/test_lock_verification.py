"""Everything that a lock names is compared before anything starts; one wrong bit anywhere is named."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from msgspec import structs

from benchlock.artifacts.digest import Digest, digest_bytes, from_hex
from benchlock.artifacts.errors import IntegrityError
from benchlock.artifacts.file_trees import parse_listing
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.artifacts.user_output import SILENT
from benchlock.evaluator.runner.lock_verification import verify_lock
from benchlock.registry.lock.lockfile import Lock, LockedFile, LockedLayer, LockedPlatform, dataset_of, from_content
from tests.evaluator.evaluation import NOTHING, Evaluation, damage, locked_file

WHEEL, CONFIG, LAYER = b"a wheel", b'{"config": {}}', b"a layer of an image"


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


@pytest.fixture
def lock(store: LocalStore, tmp_path: Path) -> Lock:
    """A lock with everything that one can have: trees, wheels, a configuration, layers."""
    kept = {data: store.put(io.BytesIO(data)) for data in (WHEEL, CONFIG, LAYER)}
    platform = LockedPlatform(
        os="linux",
        arch="amd64",
        device="cpu",
        python="3.11",
        wheels_lock=NOTHING.wheels_lock,
        wheels=(LockedFile(path="wheels/a.whl", sha256=kept[WHEEL].digest[7:], size=len(WHEEL)),),
        image_id=kept[CONFIG].digest,
        config_size=len(CONFIG),
        layers=(LockedLayer(digest=kept[LAYER].digest, size=len(LAYER)),),
    )
    return Evaluation(store, tmp_path, platform).lock()


def picture(store: LocalStore, lock: Lock) -> Digest:
    with store.open(locked_file(lock, "pictures/")) as stream:
        return next(entry.digest for entry in parse_listing(stream.read(), "") if entry.path == "7.png")


def listed(platform: LockedPlatform) -> LockedFile:
    """The lock of the platform's wheels."""
    assert isinstance(platform.wheels_lock, LockedFile)
    return platform.wheels_lock


NAMED: list[tuple[str, Callable[[LocalStore, Lock], Digest]]] = [
    ("the manifest of model/matrix@1.0.0", lambda _, lock: lock.subject.digest),
    ("the manifest of dataset/pictures@1.0.0", lambda _, lock: dataset_of(lock).digest),
    ("the manifest of framework/onnxruntime@1.31.1", lambda _, lock: lock.framework.digest),
    ("the manifest of image/matrix-cpu@1.0.0", lambda _, lock: lock.image.digest),
    ("model/matrix@1.0.0 weights.npz", lambda _, lock: locked_file(lock, "weights.npz")),
    ("dataset/pictures@1.0.0 index.csv", lambda _, lock: locked_file(lock, "index.csv")),
    ("dataset/pictures@1.0.0 pictures/", lambda _, lock: locked_file(lock, "pictures/")),
    ("dataset/pictures@1.0.0 pictures/7.png", picture),
    ("pylock.toml", lambda _, lock: from_hex(listed(lock.image.platforms[0]).sha256)),
    ("(linux/amd64/cpu) wheels/a.whl", lambda *_: digest_bytes(WHEEL)),
    ("(linux/amd64/cpu) configuration", lambda *_: digest_bytes(CONFIG)),
    ("(linux/amd64/cpu) layers[0]", lambda *_: digest_bytes(LAYER)),
    ("harness", lambda _, lock: lock.harness.digest),
]


def test_what_is_as_locked_is_counted(store: LocalStore, lock: Lock) -> None:
    found = verify_lock(lock, lock.image.platforms[0], store, SILENT)
    # weights, index, 30 pictures, the lock of the wheels, a wheel, a configuration, a layer, the harness
    assert found.files == 2 + 30 + 5
    assert found.size > lock.harness.size
    assert found.seconds > 0
    assert set(found.manifests) == {"model", "dataset", "framework", "image"}
    assert [entry.path for entry in found.trees[locked_file(lock, "pictures/")]][:2] == ["0.png", "1.png"]


@pytest.mark.parametrize(("name", "find"), NAMED, ids=[name for name, _ in NAMED])
def test_one_wrong_bit_is_named_with_both_digests(
    store: LocalStore, lock: Lock, name: str, find: Callable[[LocalStore, Lock], Digest]
) -> None:
    digest = find(store, lock)
    found = damage(store, digest)
    with pytest.raises(IntegrityError) as raised:
        verify_lock(lock, lock.image.platforms[0], store, SILENT)
    assert name in raised.value.what
    assert digest in raised.value.what
    assert found in raised.value.what


@pytest.mark.parametrize(("name", "find"), NAMED, ids=[name for name, _ in NAMED])
def test_what_is_missing_is_named(
    store: LocalStore, lock: Lock, name: str, find: Callable[[LocalStore, Lock], Digest]
) -> None:
    store.delete(find(store, lock))
    with pytest.raises(IntegrityError, match="is missing") as raised:
        verify_lock(lock, lock.image.platforms[0], store, SILENT)
    assert name in raised.value.what


def test_another_platform_needs_nothing_of_this_one(store: LocalStore, lock: Lock) -> None:
    store.delete(digest_bytes(WHEEL))
    store.delete(digest_bytes(LAYER))
    other = LockedPlatform(
        os="linux",
        arch="arm64",
        device="cpu",
        python="3.11",
        wheels_lock=lock.image.platforms[0].wheels_lock,
        wheels=(),
    )
    image = structs.replace(lock.image, platforms=(*lock.image.platforms, other))
    both = from_content(structs.replace(lock, image=image))
    assert verify_lock(both, both.image.platforms[1], store, SILENT).files == 2 + 30 + 2
    with pytest.raises(IntegrityError, match=r"wheels/a.whl is missing"):
        verify_lock(both, both.image.platforms[0], store, SILENT)


def test_a_size_that_is_not_the_files_is_an_integrity_violation(store: LocalStore, tmp_path: Path) -> None:
    evaluation = Evaluation(store, tmp_path, NOTHING)
    pylock = listed(evaluation.platform)
    wrong = LockedPlatform(
        os="linux",
        arch="amd64",
        device="cpu",
        python="3.11",
        wheels_lock=LockedFile(path=pylock.path, sha256=pylock.sha256, size=pylock.size + 1),
        wheels=(),
    )
    with pytest.raises(IntegrityError, match=f"has {pylock.size} bytes"):
        verify_lock(evaluation.lock(platforms=(wrong,)), wrong, store, SILENT)
