"""Perfetto's trace format: a track per experiment, with a packet where each span begins and ends.

Only five messages of Protocol Buffers are needed, so they are encoded here. Field numbers are those of
``protos/perfetto/trace/trace_packet.proto``, ``track_event.proto`` and ``track_descriptor.proto``.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np

from benchlock.evaluator.analysis.exports.spans import Track, list_tracks
from benchlock.evaluator.analysis.trace_types import Times, Trace

_LAST_BIT: Final = 0x7F
_VARINT, _BYTES = 0, 2
_PACKET: Final = 1
_TIMESTAMP, _SEQUENCE, _TRACK_EVENT, _TRACK_DESCRIPTOR = 8, 10, 11, 60
_CATEGORY, _NAME, _TYPE, _TRACK = 22, 23, 9, 11
_UUID, _TRACK_NAME = 1, 2
_BEGIN, _END = 1, 2
_TIME_BYTES: Final = 9


def export_perfetto(trace: Trace, name: str) -> Iterator[bytes]:
    """Yield a Perfetto trace; its timestamps are nanoseconds of CLOCK_MONOTONIC."""
    for number, track in enumerate(list_tracks(trace), 1):
        descriptor = _number(_UUID, number) + _text(_TRACK_NAME, f"{name} {track.name}")
        yield _packet(_message(_TRACK_DESCRIPTOR, descriptor), number)
        yield from _list_packets(track, number)


def _list_packets(track: Track, number: int) -> Iterator[bytes]:
    """Yield the packets of each call."""
    begins = [
        _number(_TYPE, _BEGIN) + _number(_TRACK, number) + _text(_CATEGORY, kind) + _text(_NAME, row.name)
        for row, kind in zip(track.rows, track.kinds, strict=True)
    ]
    end = _number(_TYPE, _END) + _number(_TRACK, number)
    frames = [_frame(begins[i] if is_begin else end, number) for i, is_begin in track.edges]
    rows, are_begins = (np.array(part) for part in zip(*track.edges, strict=True))
    for starts, ends in zip(track.starts, track.ends, strict=True):
        stamps = _encode_times(np.where(are_begins, starts[rows], ends[rows]))
        yield b"".join(part for (head, tail), stamp in zip(frames, stamps, strict=True) for part in (head, stamp, tail))


def _frame(event: bytes, sequence: int) -> tuple[bytes, bytes]:
    """Return the bytes of a packet before and after its time, which always has ``_TIME_BYTES``."""
    tail = _message(_TRACK_EVENT, event) + _number(_SEQUENCE, sequence)
    key = _varint(_TIMESTAMP << 3 | _VARINT)
    return _varint(_PACKET << 3 | _BYTES) + _varint(len(key) + _TIME_BYTES + len(tail)) + key, tail


def _encode_times(times: Times) -> list[bytes]:
    """Encode times as numbers of ``_TIME_BYTES`` bytes: longer than needed, which the encoding allows."""
    parts = times[:, None] >> np.arange(0, 7 * _TIME_BYTES, 7) & _LAST_BIT
    parts[:, :-1] |= _LAST_BIT + 1
    content = parts.astype(np.uint8).tobytes()
    return [content[at : at + _TIME_BYTES] for at in range(0, len(content), _TIME_BYTES)]


def _packet(body: bytes, sequence: int) -> bytes:
    return _message(_PACKET, body + _number(_SEQUENCE, sequence))


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > _LAST_BIT:
        encoded.append(value & _LAST_BIT | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3 | _VARINT) + _varint(value)


def _message(field: int, body: bytes) -> bytes:
    return _varint(field << 3 | _BYTES) + _varint(len(body)) + body


def _text(field: int, text: str) -> bytes:
    return _message(field, text.encode(errors="replace"))
