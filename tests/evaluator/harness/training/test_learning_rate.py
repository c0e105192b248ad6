"""The learning rate of each step, by the schedule of a recipe."""

import pytest

from benchlock.evaluator.harness.training.learning_rate import find_rate_factor

STEPS = 4
"""The steps of an epoch."""


def list_factors(count: int, /, **schedule: str | float | list[float]) -> list[float]:
    return [find_rate_factor({"warmup": 0.0, **schedule}, step, STEPS) for step in range(count * STEPS)]


def test_a_warm_up_rises_in_equal_steps_to_the_rate() -> None:
    factors = list_factors(3, name="constant", warmup=1.5)
    assert factors == pytest.approx([1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6, *[1.0] * 7])
    assert factors[5:] == [1.0] * 7


def test_steps_multiply_from_each_milestone_on() -> None:
    factors = list_factors(3, name="step", milestones=[1.0, 2.5], factor=0.1)
    assert factors == pytest.approx([*[1.0] * 4, *[0.1] * 6, *[0.01] * 2])


def test_a_line_falls_to_its_end_and_stays() -> None:
    factors = list_factors(3, name="linear", epochs=2.0, final=0.2)
    assert factors == pytest.approx([1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3, *[0.2] * 4])


def test_a_cosine_falls_from_the_end_of_the_warm_up() -> None:
    factors = list_factors(4, name="cosine", epochs=3.0, final=0.0, warmup=1.0)
    assert factors[:4] == pytest.approx([0.25, 0.5, 0.75, 1.0])
    half = 2**0.5 / 4
    assert factors[4:12:2] == pytest.approx([1.0, 0.5 + half, 0.5, 0.5 - half])
    assert factors[12:] == [0.0] * 4
