"""Locks of recipes: their content, what changes them, and requests that a recipe cannot answer."""

from hashlib import sha256
from typing import Any, cast

import pytest
from msgspec import UNSET

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.lock.lock_assembly import change_seed, check_lock, question_of
from benchlock.registry.lock.lock_diff import diff
from benchlock.registry.lock.lockfile import Lock, dump, load, read
from benchlock.registry.lock.selection_reasons import explain_selection
from benchlock.registry.resolution.conflicts import ConflictError
from benchlock.registry.resolution.version_search import Search
from benchlock.registry.versions.semantic_version import parse_version
from tests.support.resolution.locks import request, shelf
from tests.support.resolution.recipes import ask, recipes


@pytest.fixture
def lock() -> Lock:
    return recipes().lock(ask())


def test_the_lock_has_everything_that_decides_bits(lock: Lock) -> None:
    assert (lock.schema, lock.model, lock.operator) == ("1.1", UNSET, UNSET)
    assert list(lock.artifacts()) == ["recipe", "dataset", "framework", "image"]
    assert lock.inputs == (lock.artifacts()["dataset"].digest, "train")
    assert lock.document["target"] == {"metric": "top1", "split": "test", "value": 0.9}
    assert lock.document["settings"] == {
        "optimizer": {
            "name": "adam",
            "lr": 0.001,
            "betas": [0.9, 0.999],
            "eps": 1e-8,
            "weight_decay": 0.0,
            "implementation": "for-loop",
        },
        "loss": "cross-entropy",
        "batch": 2,
        "sampler": {"kind": "shuffle", "generator": "pcg64", "last": "drop"},
        "evaluate": {"every": 1, "batch": 2},
    }
    environment = lock.document["environment"]
    assert (environment["OMP_NUM_THREADS"], environment["ATEN_CPU_CAPABILITY"]) == ("2", "")
    assert load(dump(lock), "train.lock") == lock
    assert recipes().lock(ask()).id == lock.id


def test_each_repeat_has_a_seed_that_no_other_request_uses(lock: Lock) -> None:
    texts = (f"benchlock {2**32 - 1} repeat {repeat}" for repeat in range(3))
    assert lock.scenario["seeds"] == [int.from_bytes(sha256(text.encode()).digest()[:4], "big") for text in texts]
    assert not {*lock.scenario["seeds"]} & {*recipes().lock(ask(seed="4294967294")).scenario["seeds"]}
    assert change_seed(lock, 8).id == recipes().lock(ask(seed="8")).id != lock.id


def test_a_request_changes_mutable_settings_alone() -> None:
    settings = recipes().lock(ask(settings="{batch: 1, optimizer.lr: 1}")).document["settings"]
    assert (settings["batch"], settings["optimizer"]["lr"]) == (1, 1)
    for text, words in (
        ("{loss: 1}", "does not allow requests to change 'loss'"),
        ("{optimizer.momentum: 0.9}", "the optimizer adam has no momentum"),
        ("{batch: 0}", "invalid setting"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            recipes().lock(ask(settings=text))


CUSTOM = {
    "{{name: adam, lr: 0.001}}": "{{file: network.py, function: make, lr: 1, beta1: 0.9}}",
    "optimizer.momentum": "optimizer.beta1",
}


def test_the_settings_of_an_own_optimizer_are_in_the_lock_and_may_be_mutable() -> None:
    custom = recipes(replaced=CUSTOM)
    optimizer = custom.lock(ask(settings="{optimizer.beta1: 0.8}")).document["settings"]["optimizer"]
    assert optimizer == {"file": "network.py", "function": "make", "lr": 1.0, "beta1": 0.8}
    with pytest.raises(InvalidInputError, match=r"allow requests to change 'optimizer[.]function'"):
        custom.lock(ask(settings="{optimizer.function: 1}"))


def test_the_size_of_micro_batches_is_in_the_lock_where_it_is_stated() -> None:
    stated = recipes(replaced={"batch: 2\nsampler": "batch: 2\nmicro_batch: 1\nsampler"})
    assert stated.lock(ask()).document["settings"]["micro_batch"] == 1
    mutable = recipes(replaced={"evaluate.every]": "evaluate.every, micro_batch]"})
    assert "micro_batch" not in mutable.lock(ask()).document["settings"]
    assert mutable.lock(ask(settings="{micro_batch: 2}")).document["settings"]["micro_batch"] == 2
    for changes, words in (
        ("{micro_batch: 3}", "a micro-batch of 3 is larger than the batch of 2"),
        ("{micro_batch: 2, batch: 1}", "a micro-batch of 2 is larger than the batch of 1"),
        ("{micro_batch: 0}", "invalid setting"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            mutable.lock(ask(settings=changes))


def test_a_schedule_is_in_the_lock_with_all_its_settings() -> None:
    stated = recipes(replaced={"batch: 2\nsampler": "schedule: {{name: cosine, epochs: 4}}\nbatch: 2\nsampler"})
    assert stated.lock(ask()).document["settings"]["schedule"] == {
        "name": "cosine",
        "epochs": 4,
        "final": 0.0,
        "warmup": 0.0,
    }


@pytest.mark.parametrize(
    ("schedule", "words"),
    [
        ("{{name: cosine, epochs: 2, warmup: 2}}", "ends at epoch 2, within its warm-up of 2"),
        ("{{name: linear, epochs: 0}}", "ends at epoch 0"),
        ("{{name: step, milestones: [3, 3], factor: 0.1}}", "milestones do not follow each other"),
        ("{{name: step, milestones: [1], factor: 0.1, warmup: 1}}", "milestones do not follow each other"),
        ("{{name: step, milestones: [1], factor: 1}}", "factor"),
        ("{{name: constant}}", "warmup"),
        ("{{name: cosine, epochs: 2, milestones: [1]}}", "milestones"),
    ],
)
def test_a_schedule_that_makes_no_sense_is_refused(schedule: str, words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        recipes(replaced={"batch: 2\nsampler": f"schedule: {schedule}\nbatch: 2\nsampler"})


@pytest.mark.parametrize(
    "file",
    ["{{path: start.bin, role: weights, source: s}}", "{{path: start.safetensors, role: labels, source: s}}"],
)
def test_initial_weights_are_safetensors(file: str) -> None:
    code = "{{path: network.py, role: code, source: ./network.py}}"
    with pytest.raises(InvalidInputError, match="initial weights have the role weights"):
        recipes(replaced={f"[{code}]": f"[{code}, {file}]"})


@pytest.mark.parametrize(
    ("replaced", "words"),
    [
        ({"target": "{metric: top1, split: train, value: 0.9}"}, "which the training learns"),
        ({"target": "{metric: top1, split: tset, value: 0.9}"}, "no split 'tset'"),
        ({"target": "{metric: top1, split: bare, value: 0.9}"}, "the split bare has none"),
        ({"dataset": '{name: digits, version: "^1.0", split: bare}'}, "the split bare has none"),
    ],
)
def test_splits_exist_apart_with_labels(replaced: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        recipes().lock(ask(**replaced))


def test_the_framework_is_the_recipes_and_can_train() -> None:
    with pytest.raises(InvalidInputError, match=r"needs framework/pytorch >=2, but pytorch 1\.31\.1 was chosen"):
        recipes(needs=">=2").lock(ask())
    with pytest.raises(InvalidInputError, match="framework/pytorch cannot train here"):
        recipes(predictor="onnxruntime").lock(ask())


def test_a_training_takes_steps_and_is_evaluated() -> None:
    settings = recipes().lock(ask(settings="{evaluate.every: 5, batch: 2}")).document["settings"]
    assert settings["evaluate"]["every"] == 5
    for changes, words in (
        ("{evaluate.every: 6}", "an evaluation every 6 epochs never happens within 5"),
        ("{batch: 3}", "a batch of 3 is larger than the split, which has 2 samples"),
    ):
        with pytest.raises(InvalidInputError, match=words):
            recipes().lock(ask(settings=changes))


def test_a_comparison_of_distributions_needs_the_margin_of_epochs() -> None:
    with pytest.raises(InvalidInputError, match="distribution needs the margin of epochs_to_quality"):
        recipes().lock(ask(reproduce="distribution"))
    lock = recipes().lock(ask(reproduce="distribution", equivalence="{epochs_to_quality: 0.2}"))
    assert lock.request["reproduce"] == "distribution"


def test_a_lock_of_a_recipe_has_all_parts_of_a_training(lock: Lock) -> None:
    for name in ("target", "settings", "environment", "dataset"):
        document = {key: part for key, part in lock.document.items() if key != name}
        with pytest.raises(InvalidInputError, match=f"missing required field `{name}`"):
            read(document, "train.lock")
    with pytest.raises(InvalidInputError, match="a lock of a model has no target"):
        read({**shelf().lock(request()).document, "target": lock.document["target"]}, "train.lock")


def test_why_check_diff_and_conflicts_know_recipes(lock: Lock) -> None:
    search = Search.of(question_of(ask()), recipes().snapshot(), {})
    for kind, name, version in (("recipe", "cnn", "1.0.0"), ("dataset", "digits", "1.0.0")):
        assert explain_selection(lock.artifacts(), cast("Any", kind), name, search).version == parse_version(version)
    assert check_lock(lock, ask(), recipes().snapshot()).fresh
    assert not check_lock(lock, ask(dataset='{name: digits, version: "^1.0", split: test}'), recipes().snapshot()).fresh
    changes = {change.subject for change in diff(lock, recipes().lock(ask(settings="{batch: 1}")), {})}
    assert {"request.settings", "settings.batch"} <= changes
    with pytest.raises(ConflictError) as caught:
        recipes().resolution(ask(recipe='{name: cnn, version: "^2.0"}'))
    assert "recipe/cnn 1.0.0: outside ^2.0 (the request)" in str(caught.value)
    assert "recipe.version" in str(caught.value)
