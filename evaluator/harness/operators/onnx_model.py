"""An ONNX model of one operator, written without the package ``onnx``, which images do not need to have.

The numbers of the fields are those of https://github.com/onnx/onnx/blob/main/onnx/onnx.proto.
"""

import struct
from collections.abc import Iterable

from ..core.operator_job import Argument, Case, Operator

_IR_VERSION = 8
_TYPES = {"float32": 1, "float64": 11}
_FLOATS = ("alpha", "beta", "gamma", "epsilon", "momentum", "lambd", "bias", "threshold", "scale")
"""The attributes that are floating-point numbers, because canonical JSON writes 1.0 as 1."""
_FLOAT, _INT, _STRING, _MANY_FLOATS, _MANY_INTS = 1, 2, 3, 6, 7


def encode_model(operator: Operator, case: Case, output: str, dtype: str | None = None) -> bytes:
    """Return the model; ``dtype`` replaces the type of its tensors."""
    kind = _TYPES[dtype or operator.dtype]
    names = [port.name for port in operator.inputs]
    node = [*(_text(1, name) for name in names), _text(2, output), _text(4, operator.type)]
    node += [_message(5, _attribute(name, value)) for name, value in sorted(case.arguments.items())]
    graph = [_message(1, node), _text(2, case.name)]
    graph += [_message(11, _value(name, kind, case.shapes[name])) for name in names]
    graph += [_message(12, _value(output, kind, None))]
    opset = [_text(1, ""), _number(2, operator.opset)]
    return b"".join([_number(1, _IR_VERSION), _message(7, graph), _message(8, opset)])


def _attribute(name: str, value: Argument) -> Iterable[bytes]:
    yield _text(1, name)
    values = value if isinstance(value, list) else [value]
    is_float = name in _FLOATS or any(isinstance(part, float) for part in values)
    if isinstance(value, str):
        yield _text(4, value)
        yield _number(20, _STRING)
    elif is_float:
        yield from (_float(7 if isinstance(value, list) else 2, float(part)) for part in values)
        yield _number(20, _MANY_FLOATS if isinstance(value, list) else _FLOAT)
    else:
        yield from (_number(8 if isinstance(value, list) else 3, int(part)) for part in values)
        yield _number(20, _MANY_INTS if isinstance(value, list) else _INT)


def _value(name: str, kind: int, shape: tuple[int, ...] | None) -> Iterable[bytes]:
    yield _text(1, name)
    dimensions = [_message(1, [_number(1, size)]) for size in shape or ()]
    tensor = [_number(1, kind), *([] if shape is None else [_message(2, dimensions)])]
    yield _message(2, [_message(1, tensor)])


def _varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    parts = bytearray()
    while value > 0x7F:  # noqa: PLR2004 - seven bits a byte
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _number(field: int, value: int) -> bytes:
    return _varint(field << 3) + _varint(value)


def _float(field: int, value: float) -> bytes:
    return _varint(field << 3 | 5) + struct.pack("<f", value)


def _text(field: int, value: str) -> bytes:
    content = value.encode()
    return _varint(field << 3 | 2) + _varint(len(content)) + content


def _message(field: int, parts: Iterable[bytes]) -> bytes:
    content = b"".join(parts)
    return _varint(field << 3 | 2) + _varint(len(content)) + content
