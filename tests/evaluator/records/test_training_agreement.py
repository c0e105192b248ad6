"""The agreement of trainings, bit by bit and as distributions."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file

from benchlock.artifacts.digest import Digest
from benchlock.evaluator.records.training_agreement import (
    TrainedLock,
    Training,
    compare_distributions,
    compare_speed,
    describe_mlperf,
    find_different_bits,
    read_training,
)


def training(*epochs: float | None, losses: tuple[float, ...] = (2.0, 1.0), weights: str = "w") -> Training:
    loss = np.asarray(losses)
    return Training((weights,) * len(epochs), (loss,) * len(epochs), epochs)


def test_equal_bits_have_no_difference() -> None:
    assert find_different_bits(training(1, 2), training(1, 2)) is None


@pytest.mark.parametrize(
    ("again", "words"),
    [
        (training(1, losses=(2.0, np.nextafter(1.0, 2))), "repeat 0: the losses differ from step 1 on"),
        (training(1, losses=(2.0,)), "repeat 0: the losses differ from step 1 on"),
        (training(1, weights="v"), "repeat 0: the weights differ, although all losses are equal"),
    ],
)
def test_the_first_different_step_is_named(again: Training, words: str) -> None:
    assert words in str(find_different_bits(training(1), again))


def test_distributions_agree_differ_or_name_the_number_of_repeats() -> None:
    original = training(*(10.0, 11.0, 12.0, 13.0, 14.0) * 4)
    agreed = compare_distributions(original, original, 0.25)
    assert agreed.answer == "equivalent"
    assert "the margin allows 0.8 to 1.25" in agreed.reason
    slower = training(*(30.0, 31.0, 33.0, 34.0, 35.0) * 4)
    assert compare_distributions(original, slower, 0.25).answer == "different"
    few = compare_distributions(training(8.0, 12.0, 16.0), training(9.0, 12.0, 15.0), 0.1)
    assert few.answer == "inconclusive"
    assert "repeats a side would decide" in few.reason


def test_repeats_without_the_target_decide_by_their_share() -> None:
    missed = training(*(None,) * 6, *(10.0,) * 4)
    compared = compare_distributions(training(*(10.0,) * 10), missed, 0.25)
    assert compared.answer == "different"
    assert "0 of 10 and 6 of 10 repeats missed the target" in compared.reason
    nobody = training(None, None)
    assert compare_distributions(nobody, nobody, 0.25).answer == "inconclusive"


@pytest.mark.parametrize(("first", "second"), [(0, 4), (4, 0), (2, 2)])
def test_repeats_without_the_target_are_never_equivalent(first: int, second: int) -> None:
    original, again = (training(*(None,) * missed, *(10.0, 10.1) * ((12 - missed) // 2)) for missed in (first, second))
    compared = compare_distributions(original, again, 0.25)
    assert compared.answer == "inconclusive"
    assert f"{first} of 12 and {second} of 12 repeats missed the target" in compared.reason


def test_a_training_is_read_from_its_record_and_a_malformed_one_is_refused(tmp_path: Path) -> None:
    columns = {
        "0/loss": np.asarray([1.0]),
        "1/loss": np.asarray([2.0]),
        "0/evaluation": np.asarray([[1, 5, 5], [2, 9, 9]]),
        "1/evaluation": np.asarray([[1, 5, 5]]),
    }
    path = tmp_path / "samples"
    save_file(columns, path)
    repeats = [{"weights": "a", "reached": True}, {"weights": "b", "reached": False}]
    read = read_training({"training": {"repeats": repeats}}, path)
    assert (read.weights, read.epochs) == (("a", "b"), (2.0, None))
    for details in ({}, {"training": {"repeats": [*repeats, *repeats]}}):
        with pytest.raises(ValueError, match="cannot read the training"):
            read_training(details, path)


def repeats(*epochs: float | None, name: str = "w") -> Training:
    """A training whose repeats have different weights."""
    weights = tuple(f"{name}{number}" for number in range(len(epochs)))
    return Training(weights, (np.asarray([1.0]),) * len(epochs), epochs)


def locked(*trainings: Training, letter: str = "a") -> TrainedLock:
    return TrainedLock(Digest("sha256:" + letter * 64), trainings)


def test_equal_trainings_are_neither_faster_nor_slower() -> None:
    speed = compare_speed(locked(repeats(9, 10, 11, 12, 13)), locked(repeats(9, 10, 11, 12, 13), letter="b"))
    assert (speed.answer, speed.ratio, speed.welch_p) == ("undecided", 1, 0.5)
    assert (speed.against[-1], speed.lock[-1]) == ("a", "b")
    assert "MLPerf's check: passes" in describe_mlperf(speed)


def test_a_rerun_with_equal_weights_adds_no_repeats() -> None:
    again = repeats(9, 10, 11)
    speed = compare_speed(locked(again, again, again), locked(again, repeats(9, 10, name="v")))
    assert speed.repeats == (3, 5)
    assert speed.mlperf is None
    assert describe_mlperf(speed) == "MLPerf's check needs 5 repeats a side that reach the target"


@pytest.mark.parametrize(
    ("epochs", "words"), [((9,), "at least 2"), ((9, 9, None), "1 of 3 repeats missed the target")]
)
def test_too_few_repeats_and_missed_targets_are_undecided_and_say_so(
    epochs: tuple[float | None, ...], words: str
) -> None:
    speed = compare_speed(locked(repeats(20, 21, 22, 23)), locked(repeats(*epochs)))
    assert (speed.answer, speed.welch_p, speed.permutation_p) == ("undecided", None, None)
    assert words in speed.reason
