"""Traces in the formats of viewers: pure functions from a trace and the name of its run to the bytes of a file."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256

from benchlock.evaluator.analysis.exports.perfetto import export_perfetto
from benchlock.evaluator.analysis.exports.spans import Track, list_tracks
from benchlock.evaluator.analysis.trace_types import Trace

_TRACE_ID = 32
_INTERNAL = 1
"""OpenTelemetry's kind of a span within a program."""


def export_chrome(trace: Trace, name: str) -> Iterator[bytes]:
    """Yield Chrome's trace events, one per span, with a process per experiment; times are microseconds."""
    heads = {"name": name, "clock": "CLOCK_MONOTONIC", "framework": trace.header.framework}
    yield f'{{"displayTimeUnit":"ns","otherData":{json.dumps(heads)},"traceEvents":[\n'.encode()
    for process, track in enumerate(list_tracks(trace), 1):
        about = {"name": "process_name", "ph": "M", "pid": process, "tid": 1, "args": {"name": track.name}}
        yield ((",\n" if process > 1 else "") + json.dumps(about)).encode()
        events = [
            json.dumps({"ph": "X", "pid": process, "tid": 1, "name": row.name, "cat": kind})[:-1]
            + f', "args": {{"type": {json.dumps(row.type)}, "call": '
            for row, kind in zip(track.rows, track.kinds, strict=True)
        ]
        for call, starts, ends in track.calls():
            yield "".join(
                f',\n{events[i]}{call}}}, "ts": {_micro(starts[i])}, "dur": {_micro(ends[i] - starts[i])}}}'
                for i in track.order
            ).encode()
    yield b"\n]}\n"


def _micro(nanoseconds: int) -> str:
    return f"{nanoseconds // 1000}.{nanoseconds % 1000:03}"


def export_speedscope(trace: Trace, name: str) -> Iterator[bytes]:
    """Yield speedscope's document: begin and end events in a profile per experiment; times are nanoseconds."""
    tracks = list(list_tracks(trace))
    head = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "exporter": "benchlock",
        "name": name,
        "shared": {"frames": [{"name": row.name} for track in tracks for row in track.rows]},
    }
    yield (json.dumps(head)[:-1] + ', "profiles": [').encode()
    first = 0
    for number, track in enumerate(tracks):
        ends = {"startValue": int(track.starts.min()), "endValue": int(track.ends.max())}
        about = {"type": "evented", "name": track.name, "unit": "nanoseconds", **ends}
        yield (("," if number else "") + "\n" + json.dumps(about)[:-1] + ', "events": [').encode()
        for call, starts, stops in track.calls():
            events = (
                f'\n{{"type":"{"O" if begins else "C"}","frame":{first + i},"at":{starts[i] if begins else stops[i]}}}'
                for i, begins in track.edges
            )
            yield (("," if call else "") + ",".join(events)).encode()
        yield b"]}"
        first += len(track.rows)
    yield b"\n]}\n"


def export_otlp(trace: Trace, name: str) -> Iterator[bytes]:
    """Yield OpenTelemetry's ``TracesData`` as OTLP/JSON: a trace per call, ids in hexadecimal, times since 1970."""
    offset = trace.header.clock.realtime_minus_monotonic_ns
    resource = {"service.name": "benchlock", "benchlock.run": name, "benchlock.framework": trace.header.framework}
    yield f'{{"resourceSpans":[{{"resource":{json.dumps(_attributes(resource))},"scopeSpans":['.encode()
    for number, track in enumerate(list_tracks(trace)):
        scope = json.dumps({"name": f"benchlock.trace.{track.name}"})
        yield f'{"," if number else ""}\n{{"scope":{scope},"spans":['.encode()
        bodies = [
            json.dumps({"name": row.name, "kind": _INTERNAL, **_attributes(_describe(track, index))})[1:]
            for index, row in enumerate(track.rows)
        ]
        links = ["" if parent is None else f'"parentSpanId":"{parent + 1:016x}",' for parent in track.parents]
        for call, starts, ends in track.calls():
            seed = f"{name} {trace.lock_fingerprint} {track.name} {call}"
            trace_id = sha256(seed.encode()).hexdigest()[:_TRACE_ID]
            spans = (
                f'\n{{"traceId":"{trace_id}","spanId":"{i + 1:016x}",{links[i]}'
                f'"startTimeUnixNano":"{starts[i] + offset}","endTimeUnixNano":"{ends[i] + offset}",{bodies[i]}'
                for i in track.order
            )
            yield (("," if call else "") + ",".join(spans)).encode()
        yield b"]}"
    yield b"\n]}]}\n"


def _describe(track: Track, index: int) -> dict[str, str]:
    row = track.rows[index]
    return {"benchlock.level": row.level, "benchlock.type": row.type, "benchlock.kind": track.kinds[index]}


def _attributes(values: dict[str, str]) -> dict[str, object]:
    return {"attributes": [{"key": key, "value": {"stringValue": value}} for key, value in values.items()]}


def export_folded(trace: Trace, name: str) -> Iterator[bytes]:
    """Yield folded stacks for flame graphs: a line per stack with the nanoseconds in its last span alone."""
    for track in list_tracks(trace):
        spent = (track.ends - track.starts).sum(axis=0).tolist()
        totals: Counter[str] = Counter()
        for position in range(len(track.rows)):
            inside = sum(spent[child] for child in track.children.get(position, ()))
            totals[";".join((_escape(name), track.name, *_stack(track, position)))] += spent[position] - inside
        yield "".join(f"{stack} {count}\n" for stack, count in totals.items() if count > 0).encode(errors="replace")


def _stack(track: Track, position: int) -> list[str]:
    parent, own = track.parents[position], _escape(track.rows[position].name)
    return [own] if parent is None else [*_stack(track, parent), own]


def _escape(name: str) -> str:
    """Replace what separates stacks and lines."""
    return "".join("_" if character == ";" or not character.isprintable() else character for character in name)


EXPORTS: Mapping[str, Callable[[Trace, str], Iterator[bytes]]] = {
    "chrome": export_chrome,
    "perfetto": export_perfetto,
    "speedscope": export_speedscope,
    "otlp": export_otlp,
    "folded": export_folded,
}
