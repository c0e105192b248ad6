"""LiteRT's events as rows: small profiles as the library gives them, and the checks before any of it is decoded."""

import os
import signal
import struct
import time
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from benchlock.evaluator.harness.predictors.tflite_interpreter import Operator
from benchlock.evaluator.harness.tracing import litert, litert_library
from benchlock.evaluator.harness.tracing.litert_library import (
    DEFAULT,
    DELEGATE_OPERATOR,
    FILLER,
    INVOKE,
    OPERATOR,
    Event,
)

CONV, DEPTHWISE = "Convolution (NHWC, F32) IGEMM", "Convolution (NHWC, F32) DWConv"
DENSE, ADD, CLAMP = "Fully Connected (NC, F32) GEMM", "Add (ND)", "Clamp (NC)"
RESHAPE, SOFTMAX = "Static Reshape (NC)", "Softmax (NC, F32)"
TAGS = {1000 + number: tag for number, tag in enumerate(["invoke", CONV, CLAMP, "SQUEEZE"])}
WINDOW = (10_000, 90_000)

NETWORK = [
    Operator("CONV_2D", (0, 20, 21), (1,)),
    Operator("DEPTHWISE_CONV_2D", (1, 22, 23), (2,)),
    Operator("CONV_2D", (2, 24, 25), (3,)),
    Operator("ADD", (1, 3), (4,)),
    Operator("SQUEEZE", (4,), (5,)),
    Operator("RESHAPE", (5, 26), (6,)),
    Operator("FULLY_CONNECTED", (6, 27, -1), (7,)),
    Operator("SOFTMAX", (7,), (8,)),
]
SHAPES = {
    0: (1, 8, 8, 3), 1: (1, 8, 8, 4), 2: (1, 8, 8, 4), 3: (1, 8, 8, 4), 4: (1, 8, 8, 4), 5: (8, 8, 4), 6: (1, 256),
    7: (1, 5),
    8: (1, 5),
    20: (4, 3, 3, 3), 21: (4,), 22: (1, 3, 3, 4), 23: (4,), 24: (4, 1, 1, 4), 25: (4,), 26: (2,), 27: (5, 256),
}  # fmt: skip
TENSORS = {
    index: {"name": f"t{index}", "shape": np.array(shape), "dtype": np.float32} for index, shape in SHAPES.items()
}
DELEGATED = [CONV, DEPTHWISE, DENSE, ADD, CLAMP]
AFTER = [RESHAPE, RESHAPE, DENSE, SOFTMAX]


def call(start: int, elapsed: Sequence[int] = (5, 3, 0, 1, 0, 2, 0, 0, 4, 1)) -> list[Event]:
    """A call of the network: XNNPACK runs both parts around SQUEEZE, whose event alone has a start."""
    times = iter(elapsed)
    return [
        Event("LiteRT::Run[buffer registration]", 1, start - 40, 30, 0, 0),
        Event("invoke", INVOKE, start, 30, -1, 0),
        Event("Invoke", 1, start, 28, 0, 0),
        *(Event(tag, DELEGATE_OPERATOR, 0, next(times), index, 0) for index, tag in enumerate(DELEGATED)),
        Event("SQUEEZE", OPERATOR, start + 15, next(times), 4, 0),
        *(Event(tag, DELEGATE_OPERATOR, 0, next(times), index, 0) for index, tag in enumerate(AFTER)),
        Event("Invoke", 32, 0, 1 << 32, -1, 0),
    ]


def buffer(events: Sequence[Sequence[int]], words: int = 13) -> NDArray[np.uint8]:
    """Events as the library writes them, in a larger buffer."""
    written = b"".join(struct.pack(f"<{words}Q", *event, *[0] * (words - len(event))) for event in events)
    whole = np.full(len(events) * 400 + 100, FILLER, np.uint8)
    whole[: len(written)] = np.frombuffer(written, np.uint8)
    return whole


INVOKED = (1000, INVOKE, 20_000, 300, 6_004_736, 5_869_776, 112_398_336, 6_004_736, 5_869_776, 112_398_336, 2**64 - 1)
BY_DELEGATE = (1001, DELEGATE_OPERATOR, 0, 54, 0, 0, 0, 0, 0, 0, 1)
BUILT_IN = (1003, OPERATOR, 20_200, 2, 0, 0, 0, 0, 0, 0, 29)


def test_events_are_decoded() -> None:
    events = litert_library.decode_events(buffer([INVOKED, BY_DELEGATE, BUILT_IN]), 3, WINDOW, TAGS.__getitem__)
    assert events == [
        Event("invoke", INVOKE, 20_000, 300, -1, 0),
        Event(CONV, DELEGATE_OPERATOR, 0, 54, 1, 0),
        Event("SQUEEZE", OPERATOR, 20_200, 2, 29, 0),
    ]


def test_no_event_is_an_empty_profile() -> None:
    assert litert_library.decode_events(buffer([]), 0, WINDOW, TAGS.__getitem__) == []


def changed(event: Sequence[int], word: int, value: int) -> list[int]:
    return [*event[:word], value, *event[word + 1 :]]


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (changed(INVOKED, 1, 64), "type"),
        (changed(INVOKED, 4, 0x7FFF_1234_5678), "memory"),  # a pointer
        (changed(INVOKED, 9, 2**64 - 1), "memory"),
        (changed(BY_DELEGATE, 6, 1), "memory"),
        (changed(BY_DELEGATE, 2, 20_000), "start"),
        (changed(INVOKED, 2, 9_999), "start"),
        (changed(BUILT_IN, 2, 90_001), "start"),
        (changed(BUILT_IN, 3, 80_001), "duration"),
        ([*INVOKED, 0, 16], "source"),
    ],
)
def test_an_impossible_value_refuses_the_profile_before_any_tag_is_read(event: list[int], reason: str) -> None:
    def read_tag(address: int) -> str:
        pytest.fail(f"followed the pointer {address}")

    with pytest.raises(ValueError, match=f"event 1 of the profiler has an impossible {reason}"):
        litert_library.decode_events(buffer([INVOKED, event]), 2, WINDOW, read_tag)


@pytest.mark.parametrize("words", [11, 12, 14, 16])
def test_another_size_of_events_refuses_the_profile(words: int) -> None:
    whole = np.full(1000, FILLER, np.uint8)
    whole[: words * 16] = 0
    with pytest.raises(ValueError, match=rf"2 events of the profiler have {words * 16} bytes, but 208 were expected"):
        litert_library.decode_events(whole, 2, WINDOW, TAGS.__getitem__)


def test_a_tag_is_read_only_from_memory_of_the_process() -> None:
    text = np.frombuffer(b"Clamp (NC)\0more", np.uint8)
    assert litert_library.read_text(text.ctypes.data) == "Clamp (NC)"
    for address in (0, 8, 0xFFFF_FFFF_FFFF_0000):
        with pytest.raises(ValueError, match="impossible tag"):
            litert_library.read_text(address)


def test_a_trial_without_an_error_ends_silently() -> None:
    litert_library.run_trial(lambda: None)


def test_a_trial_that_fails_crashes_or_hangs_is_a_reason() -> None:
    def fail() -> None:
        raise ValueError("no function LiteRtX")

    with pytest.raises(ValueError, match=r"cannot be profiled: .* failed: ValueError: no function LiteRtX"):
        litert_library.run_trial(fail)
    with pytest.raises(ValueError, match=f"ended its process with code -{signal.SIGSEGV.value}"):
        litert_library.run_trial(lambda: os.kill(os.getpid(), signal.SIGSEGV))
    with pytest.raises(ValueError, match=r"took longer than 0\.2 s"):
        litert_library.run_trial(lambda: time.sleep(60), seconds=0.2)


def test_the_rows_of_a_call_have_the_operators_that_they_execute() -> None:
    operators = litert.list_operators(NETWORK, TENSORS)
    rows = litert.convert([*call(20_000), *call(30_000)], operators, "digest").rows
    assert [(row.type, row.variant, row.source_names, row.source_type, row.provider) for row in rows] == [
        ("Convolution", "IGEMM", ("t1",), "CONV_2D", "XNNPACK"),
        ("Convolution", "DWConv", ("t2",), "DEPTHWISE_CONV_2D", "XNNPACK"),
        ("Fully Connected", "GEMM", ("t3",), "CONV_2D", "XNNPACK"),
        ("Add", None, ("t4",), "ADD", "XNNPACK"),
        ("Clamp", None, ("t4",), None, "XNNPACK"),
        ("SQUEEZE", None, ("t5",), None, "LiteRT"),
        ("Static Reshape", None, ("t6",), "RESHAPE", "XNNPACK"),
        ("Static Reshape", None, (), None, "XNNPACK"),
        ("Fully Connected", "GEMM", ("t7",), "FULLY_CONNECTED", "XNNPACK"),
        ("Softmax", None, ("t8",), "SOFTMAX", "XNNPACK"),
    ]
    assert [row.attributes for row in rows[:3]] == [
        {"weight_format": "OHWI"},
        {"weight_format": "1HWO"},
        {"weight_format": "OHWI"},
    ]
    assert [(tensor.shape, tensor.role) for tensor in rows[2].inputs] == [
        ((1, 8, 8, 4), "data"),
        ((4, 1, 1, 4), "weight"),
        ((4,), "bias"),
    ]
    assert rows[4].inputs[0].shape == rows[4].outputs[0].shape == (1, 8, 8, 4)
    assert rows[7].inputs == ()


def test_rows_of_the_delegate_are_laid_end_to_end_and_others_where_they_were() -> None:
    profile = litert.convert(call(20_000), litert.list_operators(NETWORK, TENSORS), "digest")
    starts = [20_000, 20_005, 20_008, 20_008, 20_009, 20_015, 20_017, 20_017, 20_017, 20_021]
    assert profile.starts.tolist() == [[start * 1000 for start in starts]]
    assert profile.durations.tolist() == [[5000, 3000, 0, 1000, 0, 2000, 0, 0, 4000, 1000]]
    assert (profile.start_source, profile.resolution_ns, profile.incomplete) == ("accumulated", 1000, None)


def test_a_call_with_other_rows_makes_the_profile_incomplete() -> None:
    short = [event for event in call(40_000) if event.tag != SOFTMAX]
    events = [*call(20_000), *call(30_000), *short]
    profile = litert.convert(events, litert.list_operators(NETWORK, TENSORS), "digest")
    assert profile.incomplete == "1 of 3 calls have other rows; rows per call: [9, 10]"
    assert set(profile.durations[2].tolist()) == {-1}


def test_rows_of_nested_graphs_are_a_part_of_their_operator() -> None:
    inner = Event("ADD", OPERATOR, 20_016, 1, 0, 1)
    events = call(20_000)
    events.insert(9, inner)
    assert len(litert.convert(events, [], "digest").rows) == 10


def test_calls_of_a_graph_with_signatures_begin_where_it_is_executed() -> None:
    """Such a profile has no event of the type INVOKE, and nested graphs are executed inside the call."""
    events = [event for event in [*call(20_000), *call(30_000)] if event.type != INVOKE]
    events.insert(9, Event("Invoke", DEFAULT, 20_016, 2, 0, 0))
    profile = litert.convert(events, [], "digest")
    assert (profile.durations.shape, profile.incomplete) == ((2, 10), None)


def test_a_profile_without_rows_is_an_error() -> None:
    with pytest.raises(ValueError, match="recorded no operator"):
        litert.convert([], [], "digest")


class Interpreter:
    """What ``describe_interpreter`` reads."""

    def predict(self, batch: object) -> None:
        assert batch == {"t0": 0}

    def operators(self) -> tuple[list[Operator], object]:
        return NETWORK, TENSORS


def test_a_graph_counts_its_operators_and_parameters() -> None:
    graph = litert.describe_interpreter(Interpreter(), {"t0": 0})  # type: ignore[arg-type, dict-item]
    assert graph.operators == dict(Counter(operator.type for operator in NETWORK))
    assert graph.parameters == 4 * 27 + 4 + 36 + 4 + 16 + 4 + 5 * 256
    assert [row.type for row in graph.rows] == [operator.type for operator in NETWORK]
    assert graph.framework_flops is None
