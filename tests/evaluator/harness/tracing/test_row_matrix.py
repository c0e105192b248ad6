"""The rows of many calls as one row table and two matrices, by CLOCK_MONOTONIC."""

import time

import numpy as np
import pytest

from benchlock.evaluator.harness.tracing import Row
from benchlock.evaluator.harness.tracing.row_matrix import Span, build_profile, measure_offset, to_monotonic


def describe(number: int) -> list[Row]:
    return [Row("layer", f"of call {number}", "any")]


def test_equal_calls_are_complete() -> None:
    calls = [[Span("a", 1, 2), Span("b", 3, 4)], [Span("a", 11, 3), Span("b", 14, 5)]]
    profile = build_profile(calls, describe, native=b"raw", resolution_ns=7)
    assert profile.starts.tolist() == [[1, 3], [11, 14]]
    assert profile.durations.tolist() == [[2, 4], [3, 5]]
    assert (profile.incomplete, profile.native, profile.resolution_ns) == (None, b"raw", 7)


def test_a_call_with_other_rows_is_unknown_and_counted() -> None:
    usual = [Span("a", 1, 2), Span("b", 3, 4)]
    profile = build_profile([[Span("a", 1, 2)], usual, usual], describe, native=b"")
    assert profile.rows[0].name == "of call 1"
    assert profile.durations.tolist() == [[-1, -1], [2, 4], [2, 4]]
    assert profile.incomplete == "1 of 3 calls have other rows; rows per call: [1, 2]"


def test_a_profile_without_operators_is_an_error() -> None:
    with pytest.raises(ValueError, match="recorded no operator"):
        build_profile([[], []], describe, native=b"")


def test_a_time_between_two_readings_lies_between_them() -> None:
    before, real, after = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
    offset = measure_offset()
    (found, unknown), notes = to_monotonic(np.array([real, -1]), offset, offset)
    assert before - 1_000_000 <= found <= after + 1_000_000
    assert (unknown, notes) == (-1, [])


def test_a_clock_that_was_set_leaves_starts_unknown() -> None:
    times, (note,) = to_monotonic(np.array([5, 6]), 1000, 2_001_000)
    assert times.tolist() == [-1, -1]
    assert "moved by 2000000 ns" in note
