"""TFLite graphs: a FlatBuffer, read at the few places that name inputs and outputs. Slots are those of its schema."""

import struct
from dataclasses import dataclass
from typing import BinaryIO

from benchlock.registry.inspection.graphs import FoundGraph, FoundTensor, Quantization, Size
from benchlock.registry.inspection.protobuf import MalformedError

_IDENTIFIER = b"TFL3"
_DTYPES = {
    0: "float32", 1: "float16", 2: "int32", 3: "uint8", 4: "int64", 6: "bool", 7: "int16", 9: "int8",
    10: "float64", 12: "uint64", 15: "uint32", 16: "uint16",
}  # fmt: skip
_LONGEST = 1 << 16  # elements of a vector that is read: names, sizes, tensors of a graph


def read_graph(stream: BinaryIO, size: int) -> FoundGraph:
    """The inputs and outputs of the first graph, in its order.

    Raises:
        MalformedError: it is no TFLite file.
    """
    file = _File(stream, size)
    if file.read(4, 4) != _IDENTIFIER:
        raise MalformedError("it does not begin as one")
    graphs = file.root().tables(2)
    if not graphs:
        raise MalformedError("it holds no graph")
    tensors = graphs[0].tables(0)
    inputs, outputs = (tuple(_named(tensors, index) for index in graphs[0].numbers(slot, "i")) for slot in (1, 2))
    return FoundGraph(inputs, outputs)


def custom_operations(stream: BinaryIO, size: int) -> tuple[str, ...]:
    """Return the names of the operations that are not TFLite's own.

    Raises:
        MalformedError: The file is no TFLite graph.
    """
    file = _File(stream, size)
    if file.read(4, 4) != _IDENTIFIER:
        raise MalformedError("it does not begin as one")
    return tuple(name for name in (code.text(1) for code in file.root().tables(1)) if name)


@dataclass(frozen=True, slots=True)
class _File:
    stream: BinaryIO
    size: int

    def read(self, at: int, count: int) -> bytes:
        if at < 0 or count < 0 or at + count > self.size:
            raise MalformedError("it points outside itself")
        self.stream.seek(at)
        return self.stream.read(count)

    def number(self, at: int, form: str) -> int:
        """One number, little-endian, of a form of ``struct``."""
        value: int
        (value,) = struct.unpack(f"<{form}", self.read(at, struct.calcsize(f"<{form}")))
        return value

    def followed(self, at: int) -> int:
        """Where the offset at a place leads."""
        return at + self.number(at, "I")

    def vector(self, at: int) -> tuple[int, int]:
        """How many elements the vector at a place has, and where they begin."""
        count = self.number(at, "I")
        if count > _LONGEST:
            raise MalformedError(f"it lists {count} elements where few are expected")
        return count, at + 4

    def root(self) -> "_Table":
        return _Table(self, self.followed(0))


@dataclass(frozen=True, slots=True)
class _Table:
    file: _File
    at: int

    def _slot(self, index: int) -> int | None:
        """Where the field of a slot is; None if it is absent."""
        described = self.at - self.file.number(self.at, "i")
        place = 4 + 2 * index
        if place >= self.file.number(described, "H"):
            return None
        offset = self.file.number(described + place, "H")
        return self.at + offset if offset else None

    def scalar(self, index: int, form: str) -> int:
        at = self._slot(index)
        return 0 if at is None else self.file.number(at, form)

    def text(self, index: int) -> str:
        at = self._slot(index)
        if at is None:
            return ""
        count, start = self.file.vector(self.file.followed(at))
        try:
            return self.file.read(start, count).decode()
        except UnicodeDecodeError as error:
            raise MalformedError("a name is not UTF-8") from error

    def numbers(self, index: int, form: str) -> tuple[int, ...]:
        at = self._slot(index)
        if at is None:
            return ()
        count, start = self.file.vector(self.file.followed(at))
        return struct.unpack(f"<{count}{form}", self.file.read(start, count * struct.calcsize(f"<{form}")))

    def table(self, index: int) -> "_Table | None":
        at = self._slot(index)
        return None if at is None else _Table(self.file, self.file.followed(at))

    def tables(self, index: int) -> "tuple[_Table, ...]":
        at = self._slot(index)
        if at is None:
            return ()
        count, start = self.file.vector(self.file.followed(at))
        return tuple(_Table(self.file, self.file.followed(start + 4 * place)) for place in range(count))


def _named(tensors: tuple[_Table, ...], index: int) -> FoundTensor:
    if not 0 <= index < len(tensors):
        raise MalformedError(f"it names a tensor {index} that there is not")
    tensor = tensors[index]
    return FoundTensor(tensor.text(3), _DTYPES.get(tensor.scalar(1, "b")), _sizes(tensor), _quantization(tensor))


def _sizes(tensor: _Table) -> tuple[Size, ...] | None:
    """Return the sizes, or None where the graph does not say how many axes there are.

    The signature has -1 for a free axis, where there is one; without it, the shape is fixed. An empty shape is that of
    a scalar only if ``has_rank`` says so: converters leave the shape of what custom operators return empty, too.
    """
    sizes = tensor.numbers(7, "i") or tensor.numbers(0, "i")
    if not sizes and not tensor.scalar(8, "b"):
        return None
    return tuple(size if size > 0 else None for size in sizes)


def _quantization(tensor: _Table) -> Quantization | None:
    """Of the whole tensor; None where there is none, or one a channel."""
    found = tensor.table(4)
    scales = found.numbers(2, "f") if found else ()
    points = found.numbers(3, "q") if found else ()
    return Quantization(float(scales[0]), points[0]) if found and len(scales) == len(points) == 1 else None
