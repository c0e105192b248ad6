"""TFLite graphs of a test's own: FlatBuffers with the ports alone, to be read and never run."""

import struct
from collections.abc import Mapping, Sequence
from typing import Final

FLOAT32: Final = 0

_Slots = Mapping[int, "int | str | Sequence[int] | Sequence[_Slots] | _Slots"]


def tensor(name: str, shape: Sequence[int] | None, *, signature: Sequence[int] = (), ranked: bool = False) -> _Slots:
    """Return a float32 tensor; a ``shape`` of None is not written at all, and ``ranked`` is ``has_rank``."""
    slots: dict[int, object] = {1: FLOAT32, 3: name}
    if shape is not None:
        slots[0] = list(shape)
    if signature:
        slots[7] = list(signature)
    if ranked:
        slots[8] = 1
    return slots  # type: ignore[return-value]


def graph(
    inputs: Sequence[_Slots],
    outputs: Sequence[_Slots],
    operators: Sequence[tuple[int, Sequence[int], Sequence[int]]] = (),
) -> bytes:
    """Return a file whose only graph has these inputs and outputs.

    An operator is the number of its operation, and the tensors that it reads and writes; inputs come before outputs.
    """
    count = len(inputs)
    subgraph: _Slots = {0: [*inputs, *outputs], 1: list(range(count)), 2: list(range(count, count + len(outputs)))}
    model: dict[int, object] = {0: 3, 2: [subgraph]}
    if operators:
        subgraph[3] = [{0: index, 1: [*read], 2: [*written]} for index, (_, read, written) in enumerate(operators)]  # type: ignore[index]
        model[1] = [{3: number} for number, _, _ in operators]
    buffer = bytearray(8)
    root = _add_table(buffer, model)  # type: ignore[arg-type]
    struct.pack_into("<I4s", buffer, 0, root, b"TFL3")
    return bytes(buffer)


def _add_table(buffer: bytearray, slots: _Slots) -> int:
    """Append a table behind its vtable, then what it points to; return its position."""
    vtable, count = len(buffer), max(slots) + 1
    buffer += bytes(4 + 2 * count + 2 * (count % 2))
    start, pointers = len(buffer), []
    buffer += struct.pack("<i", start - vtable)
    for slot, value in slots.items():
        struct.pack_into("<H", buffer, vtable + 4 + 2 * slot, len(buffer) - start)
        if not isinstance(value, int):
            pointers.append((len(buffer), value))
        buffer += struct.pack("<i", value if isinstance(value, int) else 0)
    struct.pack_into("<HH", buffer, vtable, 4 + 2 * count, len(buffer) - start)
    for position, value in pointers:
        struct.pack_into("<I", buffer, position, _add_value(buffer, value) - position)
    return start


def _add_value(buffer: bytearray, value: object) -> int:
    if isinstance(value, Mapping):
        return _add_table(buffer, value)
    start = len(buffer)
    if isinstance(value, str):
        content = value.encode()
        buffer += struct.pack("<I", len(content)) + content + bytes(4 - len(content) % 4)
        return start
    assert isinstance(value, list)
    numbers = all(isinstance(one, int) for one in value)
    buffer += struct.pack(f"<I{len(value)}i", len(value), *(value if numbers else [0] * len(value)))
    for index, one in enumerate([] if numbers else value):
        position = start + 4 + 4 * index
        struct.pack_into("<I", buffer, position, _add_value(buffer, one) - position)
    return start
