"""Exports parse, nest, and have the times of the spans."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchlock.evaluator.analysis.exports.formats import (
    EXPORTS,
    export_chrome,
    export_folded,
    export_otlp,
    export_speedscope,
)
from benchlock.evaluator.analysis.exports.perfetto import export_perfetto
from benchlock.evaluator.analysis.exports.spans import list_tracks
from benchlock.evaluator.analysis.trace_types import Trace
from tests.support.evaluator.traces import LAYERS, make_trace

CALLS = 20
ROOTS = {"none": 1, "model": 3, "framework": 3}
SPANS = CALLS * (sum(ROOTS.values()) + len(LAYERS))


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return make_trace(tmp_path, calls=CALLS, fingerprint="ab" * 32)


def blur(document: dict[str, Any], tensors: dict[str, Any]) -> None:
    """A clock of whole microseconds without starts, as LiteRT has, and layers that take longer than their call."""
    document["experiments"][2] |= {"start_source": "accumulated", "resolution_ns": 1000}
    tensors["framework.start"][:, 3:] = -1
    tensors["framework.duration"][:, 3:] = tensors["framework.duration"][:, 3:] // 1000 * 1000 + 1000
    tensors["framework.duration"][3, 4] = 10**6


@pytest.fixture
def blurred(tmp_path: Path) -> Trace:
    return make_trace(tmp_path, calls=CALLS, change=blur)


def test_children_are_inside_of_their_parents_and_behind_one_another(trace: Trace, blurred: Trace) -> None:
    for track in (*list_tracks(trace), *list_tracks(blurred)):
        assert (track.starts <= track.ends).all()
        for parent, children in track.children.items():
            assert (np.diff(track.starts[:, children], axis=1) >= 0).all()
            assert (track.ends[:, children[:-1]] <= track.starts[:, children[1:]]).all()
            if parent is not None:
                assert (track.starts[:, children[0]] >= track.starts[:, parent]).all()
                assert (track.ends[:, children[-1]] <= track.ends[:, parent]).all()


def test_times_are_kept_where_they_fit(trace: Trace) -> None:
    for track in list_tracks(trace):
        experiment = trace.experiments[track.name]
        rows = len(experiment.header.rows)
        assert (track.starts[:, :rows] == experiment.starts).all()
        assert ((track.ends - track.starts)[:, :rows] == experiment.durations).all()


def test_chrome_has_an_event_per_span(trace: Trace) -> None:
    document = json.loads(b"".join(export_chrome(trace, "run/1")))
    events = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert len(events) == SPANS
    names = {event["pid"]: event["args"]["name"] for event in document["traceEvents"] if event["ph"] == "M"}
    assert set(names.values()) == {"none", "model", "framework"}
    sums: Counter[tuple[str, str]] = Counter()
    for event in events:
        sums[names[event["pid"]], event["name"]] += event["dur"]
    for row in LAYERS:
        assert sums["framework", row["name"]] == pytest.approx(CALLS * row["took"] / 1000, abs=CALLS)
    calls = {event["args"]["call"] for event in events}
    assert calls == set(range(CALLS))
    parents = {e["args"]["call"]: e for e in events if e["name"] == "predict" and names[e["pid"]] == "framework"}
    for event in events:
        if event["cat"] != "call":
            parent = parents[event["args"]["call"]]
            assert parent["ts"] <= event["ts"]
            assert event["ts"] + event["dur"] <= parent["ts"] + parent["dur"] + 1e-3


def test_speedscope_opens_and_closes_in_balance(trace: Trace, blurred: Trace) -> None:
    for source in (trace, blurred):
        document = json.loads(b"".join(export_speedscope(source, "run/1")))
        frames = document["shared"]["frames"]
        assert document["$schema"] == "https://www.speedscope.app/file-format-schema.json"
        assert [profile["name"] for profile in document["profiles"]] == ["none", "model", "framework"]
        for profile in document["profiles"]:
            stack: list[int] = []
            at = profile["startValue"]
            for event in profile["events"]:
                assert event["at"] >= at
                at = event["at"]
                if event["type"] == "O":
                    stack.append(event["frame"])
                else:
                    assert stack.pop() == event["frame"]
                assert event["frame"] < len(frames)
            assert stack == []
            assert at <= profile["endValue"]


def test_otlp_has_ids_in_hexadecimal_and_times_as_text(trace: Trace) -> None:
    document = json.loads(b"".join(export_otlp(trace, "run/1")))
    (resource,) = document["resourceSpans"]
    spans = [span for scope in resource["scopeSpans"] for span in scope["spans"]]
    assert len(spans) == SPANS
    ids = Counter((span["traceId"], span["spanId"]) for span in spans)
    assert set(ids.values()) == {1}
    for span in spans:
        assert len(bytes.fromhex(span["traceId"])) == 16
        assert len(bytes.fromhex(span["spanId"])) == 8
        assert int(span["spanId"], 16)
        assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
        if "parentSpanId" in span:
            assert (span["traceId"], span["parentSpanId"]) in ids
    first = next(span for span in spans if span["name"] == "predict")
    begin = int(trace.experiments["none"].call_start[0])
    assert int(first["startTimeUnixNano"]) == begin + trace.header.clock.realtime_minus_monotonic_ns
    assert b"".join(export_otlp(trace, "run/2")) != b"".join(export_otlp(trace, "run/1"))


def read_fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message of Protocol Buffers: numbers, and the bytes of texts and messages."""
    position = 0

    def read_number() -> int:
        nonlocal position
        value = shift = 0
        while True:
            byte = message[position]
            position += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while position < len(message):
        key = read_number()
        if key & 7 == 0:
            yield key >> 3, read_number()
            continue
        assert key & 7 == 2
        length = read_number()
        yield key >> 3, message[position : position + length]
        position += length


def test_perfetto_has_two_packets_per_span_and_one_per_track(trace: Trace) -> None:
    content = b"".join(export_perfetto(trace, "run/1"))
    packets = [
        dict(read_fields(body)) for field, body in read_fields(content) if field == 1 and isinstance(body, bytes)
    ]
    assert len(packets) == 2 * SPANS + 3
    open_spans: defaultdict[int, list[str]] = defaultdict(list)
    last: dict[int, int] = {}
    tracks = {}
    for packet in packets:
        if 60 in packet:
            descriptor = dict(read_fields(packet[60]))  # type: ignore[arg-type]
            tracks[descriptor[1]] = descriptor[2]
            continue
        event = dict(read_fields(packet[11]))  # type: ignore[arg-type]
        track, at = event[11], packet[8]
        assert isinstance(track, int)
        assert isinstance(at, int)
        assert at >= last.get(track, 0)
        last[track] = at
        if event[9] == 1:
            open_spans[track].append(event[23].decode())  # type: ignore[union-attr]
        else:
            open_spans[track].pop()
    assert set(tracks.values()) == {b"run/1 none", b"run/1 model", b"run/1 framework"}
    assert not any(open_spans.values())


def test_folded_stacks_add_up_to_the_calls(trace: Trace) -> None:
    lines = b"".join(export_folded(trace, "run;1")).decode().splitlines()
    stacks = {stack: int(count) for stack, _, count in (line.rpartition(" ") for line in lines)}
    assert stacks["run_1;framework;predict;conv1"] == CALLS * LAYERS[0]["took"]
    total = sum(count for stack, count in stacks.items() if stack.startswith("run_1;framework;predict"))
    assert total == trace.experiments["framework"].call_duration.sum()


Export = Callable[[Trace, str], Iterator[bytes]]


@pytest.mark.parametrize("export", EXPORTS.values())
def test_the_same_spans_are_the_same_bytes(export: Export, trace: Trace) -> None:
    assert b"".join(export(trace, "run/1")) == b"".join(export(trace, "run/1"))


@pytest.mark.parametrize("export", EXPORTS.values())
def test_hostile_names_stay_text(export: Export, tmp_path: Path) -> None:
    name = '"};alert(1)//\n\u202e</script>'
    layers = [{**LAYERS[0], "name": name, "type": name}, *LAYERS[1:]]
    content = b"".join(export(make_trace(tmp_path, layers=layers, calls=2), name))
    if export in (export_chrome, export_speedscope, export_otlp):
        json.loads(content)
    elif export is export_folded:
        assert all(line.rpartition(" ")[2].isdigit() for line in content.decode().splitlines())
    else:
        assert len(list(read_fields(content))) == 2 * 2 * (sum(ROOTS.values()) + len(LAYERS)) + 3
