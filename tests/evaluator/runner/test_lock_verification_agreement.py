"""A lock made by hand, whose id is right, cannot give an artifact's name to other bytes."""

from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from benchlock.artifacts.errors import IntegrityError
from benchlock.artifacts.stores.local_store import LocalStore
from benchlock.evaluator.runner.lock_verification import check_agreement, read_manifests
from benchlock.registry.lock.lockfile import Lock, read
from tests.evaluator.evaluation import NOTHING, Evaluation
from tests.support.resolution.recipes import ask, recipes

Forgery = Callable[[dict[str, Any]], None]


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "store")


@pytest.fixture
def lock(store: LocalStore, tmp_path: Path) -> Lock:
    return Evaluation(store, tmp_path, NOTHING).lock()


def forged(lock: Lock, forgery: Forgery) -> Lock:
    """The lock with a change, under the id of the changed content."""
    document = deepcopy(lock.document)
    forgery(document)
    return read(document, "forged")


def check(lock: Lock, store: LocalStore) -> None:
    check_agreement(lock, lock.image.platforms[0], read_manifests(lock, store))


def other_weights(document: dict[str, Any]) -> None:
    document["model"]["files"][0]["sha256"] = document["dataset"]["files"][0]["sha256"]


def fewer_pictures(document: dict[str, Any]) -> None:
    del document["dataset"]["files"][-1]


def other_wheels(document: dict[str, Any]) -> None:
    document["image"]["platforms"][0]["wheels_lock"]["sha256"] = "0" * 64


def another_name(document: dict[str, Any]) -> None:
    document["framework"]["name"] = "pytorch"


def another_version(document: dict[str, Any]) -> None:
    document["model"]["version"] = "2.0.0"


def unknown_split(document: dict[str, Any]) -> None:
    document["dataset"]["split"] = "train"


def test_a_lock_as_it_was_made_agrees(lock: Lock, store: LocalStore) -> None:
    check(lock, store)


@pytest.mark.parametrize(
    ("forgery", "named"),
    [
        (other_weights, "model/matrix@1.0.0"),
        (fewer_pictures, "dataset/pictures@1.0.0"),
        (other_wheels, "image/matrix-cpu@1.0.0"),
        (another_name, "framework/pytorch"),
        (another_version, "model/matrix@2.0.0"),
        (unknown_split, "dataset/pictures@1.0.0"),
    ],
)
def test_a_forged_lock_is_refused_and_what_is_forged_is_named(
    lock: Lock, store: LocalStore, forgery: Forgery, named: str
) -> None:
    with pytest.raises(IntegrityError) as caught:
        check(forged(lock, forgery), store)
    assert str(caught.value.where).startswith(named)


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("settings", "optimizer", "lr"), 0.5, "other settings"),
        (("settings", "batch"), 0, "other settings"),
        (("settings", "batch"), True, "other settings"),
        (("settings",), {}, "other settings"),
        (("request", "settings"), {"loss": 1}, "does not allow requests to change 'loss'"),
        (("request", "settings"), {"batch": "x"}, "invalid setting"),
        (("request", "settings"), [1], "settings by path"),
        (("environment", "OMP_NUM_THREADS"), "1", "the environment of the lock"),
        (("scenario", "deterministic"), False, "the environment of the lock"),
    ],
)
def test_a_training_has_the_settings_and_the_environment_of_its_request(
    path: tuple[str, ...], value: object, words: str
) -> None:
    parts = recipes()
    lock = parts.lock(ask(settings="{batch: 1}"))
    manifests = {manifest.kind: manifest for manifest in parts.chosen.all()}
    check_agreement(lock, lock.image.platforms[0], manifests)
    document = deepcopy(lock.document)
    table = document
    for key in path[:-1]:
        table = table[key]
    table[path[-1]] = value
    with pytest.raises(IntegrityError, match=words):
        check_agreement(read(document, "forged"), lock.image.platforms[0], manifests)
