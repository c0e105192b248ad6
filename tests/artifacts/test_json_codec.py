"""Numbers that anybody chose are read without keeping other threads from running."""

import sys
from types import FrameType

import msgspec
import pytest

from benchlock.artifacts.json_codec import LONGEST_NUMBER, decode_untyped


def test_other_threads_may_run_between_two_numbers() -> None:
    calls = 0

    def count(_frame: FrameType, event: str, _argument: object) -> None:
        nonlocal calls
        calls += event == "call"

    content = b"[" + b",".join([b"1e-320"] * 1000) + b"]"
    before = sys.getprofile()
    sys.setprofile(count)
    try:
        assert decode_untyped(content) == [1e-320] * 1000
    finally:
        sys.setprofile(before)
    assert calls > 1000  # the interpreter changes threads where a Python function begins, and not inside of msgspec


@pytest.mark.parametrize("number", ["1e999", "-1e999", "0." + "1" * LONGEST_NUMBER, "NaN"])
def test_numbers_out_of_range_or_longer_than_any_float_are_refused(number: str) -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_untyped(f'{{"x": [{number}]}}'.encode())


def test_other_values_are_those_of_json() -> None:
    content = '{"a":[1,-0.0,2.5,1e22,null,true,"é"],"b":{"c":18446744073709551616}}'.encode()
    assert decode_untyped(content) == msgspec.json.decode(content)
