"""The account of the wall clock: every moment is counted once, whatever a harness says of itself."""

import os
import subprocess
import sys
import time

import pytest

from benchlock.evaluator.runner.wall_clock import WallClock, move_phases, process_start


class _Clock:
    def __init__(self) -> None:
        self.seconds = 10.0

    def __call__(self) -> float:
        return self.seconds


def test_nested_parts_are_counted_once_and_the_rest_is_other() -> None:
    now = _Clock()
    clock = WallClock(8.0, now)
    clock.begin("startup")
    with clock.part("outer"):
        now.seconds += 3
        with clock.part("inner"):
            now.seconds += 5
        now.seconds += 1
    now.seconds += 0.5
    account = clock.account()
    assert account == {"startup": 2.0, "outer": 4.0, "inner": 5.0, "other": 0.5}
    assert list(account)[-1] == "other"
    assert sum(account.values()) == now.seconds - 8.0


def test_a_part_that_fails_is_counted() -> None:
    now = _Clock()
    clock = WallClock(now=now)

    def fail() -> None:
        with clock.part("broken"):
            now.seconds += 2
            raise RuntimeError

    with pytest.raises(RuntimeError):
        fail()
    now.seconds += 1
    assert clock.account() == {"broken": 2.0, "other": 1.0}


def test_a_harness_cannot_claim_more_than_its_stage_took() -> None:
    now = _Clock()
    clock = WallClock(now=now)
    with clock.part("predict"):
        now.seconds += 10
    timings = {"performance": 4.0, "performance.load": 1.0, "performance.warmup": 0.5, "accuracy": 90.0}
    move_phases(clock, "predict", timings | {"accuracy.load": 2.0, "accuracy.prepare": 300.0, "score": 7.0})
    account = clock.account()
    assert account == {
        "predict": 0.0,
        "performance": 2.5,
        "performance.load": 1.0,
        "performance.warmup": 0.5,
        "accuracy": 4.0,
        "accuracy.load": 2.0,
        "other": 0.0,
    }
    assert sum(account.values()) == 10.0


@pytest.mark.parametrize("name", ["verification", "other", "performance.load", "\x1b[2J"])
def test_a_harness_cannot_name_parts_of_its_own(name: str) -> None:
    now = _Clock()
    clock = WallClock(now=now)
    with clock.part("predict"):
        now.seconds += 10
    move_phases(clock, "predict", {name: 4.0, f"{name}.load": 1.0, "accuracy.load": 1.0})
    assert clock.account() == {"predict": 10.0, "other": 0.0}


def test_the_start_of_a_process_is_before_its_first_import() -> None:
    program = (
        "import time; from benchlock.evaluator.runner.wall_clock import process_start; "
        "print(process_start(), time.perf_counter())"
    )
    before = time.perf_counter()
    words = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    start, end = map(float, words)
    # The kernel counts in hundredths of a second.
    tick = 1 / os.sysconf("SC_CLK_TCK")
    assert before - 2 * tick <= start < end <= time.perf_counter()
    assert process_start() < before
