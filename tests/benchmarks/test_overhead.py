"""What the benchmark of overheads makes of its figures."""

import pytest

from benchmarks.timing.report import Taken, bars, calls_table, estimate, fastest_table, starts_table, turns_table


def taken() -> Taken:
    """Three rounds of a call of a quarter of a millisecond, which a run tells to be 4 to 5 µs slower."""
    calls = {
        "loop": [250e-6, 260e-6, 240e-6],
        "loadgen": [254e-6, 263e-6, 243e-6],
        "process": [254e-6, 264.5e-6, 245e-6],
        "container": [254e-6, 265e-6, 245e-6],
    }
    starts = {
        "docker": [1.0, 1.2, 1.1],
        "benchlock": [1.3, 1.4, 1.2],
        "image": [0.1] * 3,
        "verification": [0.2] * 3,
        "job": [0.01] * 3,
    }
    fastest = {
        "loop": [240e-6, 250e-6],
        "loadgen": [242e-6, 241e-6],
        "process": [250e-6, 243e-6],
        "container": [244e-6, 246e-6],
    }
    turns = {
        "call": [{"p50": 250e-6, "p10": 240e-6}, {"p50": 260e-6, "p10": 250e-6}],
        "loadgen": [{"p50": 252e-6, "p10": 241e-6}, {"p50": 263e-6, "p10": 252e-6}],
        "benchlock": [{"p50": 255.5e-6, "p10": 242e-6}, {"p50": 264e-6, "p10": 253e-6}],
    }
    return Taken(calls, fastest, null=[2e-7] * 3, watching=[0.01, 0.02, 0.03], starts=starts, turns=turns)


def test_what_is_above_the_loop_is_taken_within_each_round() -> None:
    above = taken().above("process")
    assert above.middle == pytest.approx(4.5)
    # 4, 4.5 and 5: a mean of 4.5, a standard error of 0.5/sqrt(3), 4.303 of Student's t with two degrees of freedom.
    assert [above.low, above.high] == pytest.approx([4.5 - 1.242, 4.5 + 1.242], abs=1e-3)


def test_what_is_above_the_call_alone_is_taken_within_each_turn() -> None:
    line = turns_table({"litert": taken()}).splitlines()[-1]
    assert line.startswith("| litert | 255.0 | +2.5 [")
    assert "| 245.0 | +1.5 [" in line
    assert taken().in_turn("benchlock", "p50").middle == pytest.approx(4.75)


def test_one_round_bounds_nothing() -> None:
    found = estimate([3.0])
    assert (found.middle, found.low, found.high) == (3.0, float("-inf"), float("inf"))


def test_each_bar_is_met_or_not_by_its_figure() -> None:
    lines = list(bars({"onnxruntime": taken()}, {"benchlock": [190.0, 200.0], "by hand": [200.0, 250.0]}))
    assert [line.partition(":")[0] for line in lines] == [
        *("- met", "- met", "- met", "- met", "- not met"),
        *("- met", "- not met"),
    ]
    assert lines[0].startswith("- met: onnxruntime: in turns, ")
    assert lines[0].endswith(" µs, +1.9%)")
    assert lines[1].endswith("(+4.5 µs, +1.8%)")
    assert lines[2].endswith("(+3.0 µs, +1.2%)")
    assert lines[4].endswith("(1.18, +0.20 s)")
    assert lines[5].endswith("(at most 0.030 s)")
    assert lines[6].startswith("- not met: JPEG files at 0.9 of a pipeline of two threads by hand (0.88;")


def test_a_container_that_may_be_slower_by_more_does_not_meet_its_bar() -> None:
    slow = taken()
    slow.calls["container"] = [value * 1.03 for value in slow.calls["process"]]
    (line,) = [line for line in bars({"litert": slow}, {}) if "a container within" in line]
    assert line.startswith("- not met")
    assert line.endswith("(+3.0%, from +3.0% to +3.0%)")


def test_what_needs_a_container_is_left_out_where_there_was_none() -> None:
    without = taken()
    del without.calls["container"]
    without.starts.clear()
    assert len(list(bars({"pytorch": without}, {}))) == 4
    assert "| onnxruntime | 240.0 | +1.0 | +3.0 | +4.0 |" in fastest_table({"onnxruntime": taken()})
    assert "| pytorch | 250.0 |" in calls_table({"pytorch": without})
    assert "pytorch" not in starts_table({"pytorch": without})
    assert "| onnxruntime | 1.10 | 1.30 | 1.18 | 0.10 | 0.20 | 0.01 |" in starts_table({"onnxruntime": taken()})
