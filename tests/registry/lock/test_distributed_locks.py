"""Locks of distributed trainings: their content, and requests that no number of processes can answer."""

import pytest
from msgspec import UNSET

from benchlock.artifacts.errors import InvalidInputError
from benchlock.registry.lock.lock_assembly import change_seed, check_lock
from benchlock.registry.lock.lockfile import Lock, dump, load, read
from tests.support.resolution.recipes import ask_distributed, recipes


@pytest.fixture
def lock() -> Lock:
    return recipes().lock(ask_distributed())


def test_the_lock_has_the_processes_and_no_target(lock: Lock) -> None:
    assert (lock.schema, lock.target, lock.scenario["name"]) == ("1.1", UNSET, "steps")
    assert lock.document["distribution"] == {
        "processes": 2,
        "threads": 1,
        "bucket_bytes": 26_214_400,
        "strategy": "all-reduce",
        "backend": "gloo",
    }
    assert lock.document["environment"]["OMP_NUM_THREADS"] == "1"  # limits.cpus is 2
    assert len(lock.scenario["seeds"]) == 1
    assert load(dump(lock), "train.lock") == lock
    assert change_seed(lock, 8).id == recipes().lock(ask_distributed(seed="8")).id != lock.id
    assert check_lock(lock, ask_distributed(), recipes().snapshot()).fresh


def test_a_lock_has_a_target_or_a_distribution(lock: Lock) -> None:
    target = {"metric": "top1", "split": "test", "value": 0.9}
    with pytest.raises(InvalidInputError, match="has no target"):
        read({**lock.document, "target": target}, "train.lock")
    document = {key: part for key, part in lock.document.items() if key != "distribution"}
    with pytest.raises(InvalidInputError, match="missing required field `target`"):
        read(document, "train.lock")


def test_every_batch_is_shared_equally() -> None:
    with pytest.raises(InvalidInputError, match="a batch has 1 samples, which 2 processes cannot share") as caught:
        recipes().lock(ask_distributed(settings="{batch: 1}"))
    assert caught.value.where == "distribution.processes"


def test_a_process_takes_its_part_of_a_batch_at_once() -> None:
    def lock_parts(size: int) -> Lock:
        replaced = {"batch: 2\nsampler": f"batch: 4\nmicro_batch: {size}\nsampler", "last: drop": "last: keep"}
        return recipes(replaced=replaced).lock(ask_distributed())

    assert lock_parts(2).document["settings"]["micro_batch"] == 2
    with pytest.raises(InvalidInputError, match="a process has 2 samples of a batch") as caught:
        lock_parts(1)
    assert caught.value.where == "settings.micro_batch"


def test_tensorflow_is_refused_with_the_reason() -> None:
    with pytest.raises(InvalidInputError, match="needs the addresses of a cluster") as caught:
        recipes(predictor="tensorflow").lock(ask_distributed())
    assert caught.value.next_step is not None
    assert "level: training" in caught.value.next_step


@pytest.mark.parametrize(
    ("replaced", "words"),
    [
        ({"distribution": "{processes: 1, threads: 1}"}, "at least 2"),
        ({"distribution": "{processes: 17, threads: 1}"}, "at most 16"),
        ({"distribution": "{processes: 2, threads: 2}"}, "2 processes of 2 threads need 4 CPUs, not 2"),
        ({"metrics": "[top1]"}, "the level distributed does not give the metric top1"),
        ({"metrics": "[time_to_quality]"}, "the scenario steps does not give the metric time_to_quality"),
    ],
)
def test_a_request_that_cannot_run_is_refused(replaced: dict[str, str], words: str) -> None:
    with pytest.raises(InvalidInputError, match=words):
        ask_distributed(**replaced)
