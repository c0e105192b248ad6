"""Counts of things in words."""

import pytest

from benchlock.artifacts.user_output import format_count


@pytest.mark.parametrize(("number", "text"), [(0, "0 runs"), (1, "1 run"), (2, "2 runs")])
def test_a_noun_agrees_with_its_number(number: int, text: str) -> None:
    assert format_count(number, "run") == text
