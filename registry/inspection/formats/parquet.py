"""Parquet footers in Thrift's compact form: the number of rows, and the columns.

A footer is a struct ``FileMetaData``: field 2 is the schema, a list of elements in depth-first order, and field 3 is
the number of rows. In an element field 1 is the physical type, 4 the name, 5 the number of children, 6 the converted
type.

Source: https://github.com/apache/parquet-format/blob/master/src/main/thrift/parquet.thrift
"""

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from benchlock.registry.inspection.formats.protobuf import MalformedError
from benchlock.registry.inspection.formats.untrusted_files import BUDGET, OverBudgetError, check_count, in_units

_MAGIC = b"PAR1"
_DEEPEST = 64
_SCHEMA, _ROWS = 2, 3
_PHYSICAL, _NAME, _CHILDREN, _CONVERTED = 1, 4, 5, 6
_FLOATS = (4, 5)
_MAP, _LIST, _INT_16 = 1, 3, 16
_TRUE, _FALSE, _BYTE, _DOUBLE, _BINARY, _LISTS, _STRUCT = 1, 2, 3, 7, 8, (9, 10), 12
_INTEGERS = (4, 5, 6)
_LONG_LIST = 15


@dataclass(frozen=True, slots=True)
class Column:
    """A column, whose ``parts`` are columns too; a list or map has none that can be named.

    ``holds_sounds`` is true if the values are floats or integers of 16 bits, or lists of them: sounds as numbers.
    """

    name: str
    parts: tuple["Column", ...]
    holds_sounds: bool


@dataclass(frozen=True, slots=True)
class Footer:
    """The number of rows and the columns of a parquet file."""

    rows: int
    columns: tuple[Column, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """The names of columns; a column with parts is replaced by the paths of its parts."""
        return tuple(key for column in self.columns for key in _keys(column, ""))

    def column(self, key: str) -> Column | None:
        """Return the column named ``key``, else the part of a column with this path; None if there is none."""
        column = next((each for each in self.columns if each.name == key), None)
        top, *names = key.split(".")
        if column is None and names:
            column = next((each for each in self.columns if each.name == top), None)
            for name in names:
                column = next((each for each in column.parts if each.name == name), None) if column else None
        return column


def _keys(column: Column, prefix: str) -> Iterator[str]:
    """Yield the paths of a column's parts, or its own."""
    if not column.parts:
        yield prefix + column.name
    for part in column.parts:
        yield from _keys(part, f"{prefix}{column.name}.")


def read_footer(stream: BinaryIO) -> Footer:
    """Return the footer of a parquet file.

    Raises:
        MalformedError: The file has none.
    """
    size = stream.seek(0, 2)
    stream.seek(0)
    if size < 3 * len(_MAGIC) or stream.read(len(_MAGIC)) != _MAGIC:
        raise MalformedError("its first bytes do not match")
    stream.seek(size - 8)
    length, magic = struct.unpack("<I4s", stream.read(8))
    if magic != _MAGIC or length > size - 12:
        raise MalformedError("its end is missing")
    if length > BUDGET.header:
        raise OverBudgetError(f"has a footer of more than {in_units(BUDGET.header)}")
    stream.seek(size - 8 - length)
    try:
        return _footer(_Compact(stream.read(length)))
    except MalformedError:
        raise
    except (IndexError, struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise MalformedError("its footer cannot be read") from error


def _footer(reader: "_Compact") -> Footer:
    """Return the schema and the number of rows, which precede the row groups; these are not read."""
    elements: list[dict[int, Any]] | None = None
    for field, value in reader.fields(0):
        if field == _SCHEMA:
            elements = value
        if field == _ROWS and elements is not None:
            root, *rest = elements
            elements_left = iter(rest)
            return Footer(int(value), tuple(_column(elements_left, 0) for _ in range(root[_CHILDREN])))
    raise MalformedError("its footer has no schema, or no number of rows")


def _column(elements: Iterator[dict[int, Any]], depth: int) -> Column:
    """Return the next column of the schema, with its parts."""
    element = next(elements, None)
    if element is None or depth > _DEEPEST:
        raise MalformedError("its schema is truncated")
    parts = tuple(_column(elements, depth + 1) for _ in range(element.get(_CHILDREN, 0)))
    name = bytes(element[_NAME]).decode()
    converted = element.get(_CONVERTED)
    is_number = element.get(_PHYSICAL) in _FLOATS or converted == _INT_16
    holds_sounds = is_number or (converted != _MAP and any(part.holds_sounds for part in parts))
    return Column(name, () if converted in (_MAP, _LIST) else parts, holds_sounds)


class _Compact:
    """A reader of Thrift's compact protocol; raises ``IndexError`` where the bytes end too early."""

    def __init__(self, content: bytes) -> None:
        """Start at the first byte of ``content``."""
        self._content = content
        self._at = 0

    def fields(self, depth: int) -> Iterator[tuple[int, Any]]:
        """Yield number and value of each field of a struct."""
        if depth > _DEEPEST:
            raise MalformedError("its footer is nested too deep")
        number = 0
        while (head := self._byte()) != 0:
            number = number + (head >> 4) if head >> 4 else self._integer()
            kind = head & 0x0F
            yield number, (kind == _TRUE if kind in (_TRUE, _FALSE) else self._value(kind, depth))

    def _value(self, kind: int, depth: int) -> Any:  # noqa: ANN401 - whatever stands there
        """Return the value of a type."""
        if kind in _INTEGERS:
            return self._integer()
        if kind == _BINARY:
            return self._bytes(self._varint())
        if kind in _LISTS:
            return self._list(depth)
        if kind == _STRUCT:
            return dict(self.fields(depth + 1))
        if kind == _DOUBLE:
            return self._bytes(8)
        if kind in (_TRUE, _FALSE, _BYTE):
            return self._byte()
        raise MalformedError("its footer has a map or an unknown type")

    def _list(self, depth: int) -> list[Any]:
        """Return a list."""
        if depth > _DEEPEST:
            raise MalformedError("its footer is nested too deep")
        head = self._byte()
        count = head >> 4 if head >> 4 != _LONG_LIST else self._varint()
        check_count(count, BUDGET.columns, "columns")
        return [self._value(head & 0x0F, depth + 1) for _ in range(count)]

    def _bytes(self, count: int) -> bytes:
        """Return the next ``count`` bytes."""
        content = self._content[self._at : self._at + count]
        if len(content) < count:
            raise IndexError
        self._at += count
        return content

    def _byte(self) -> int:
        """Return the next byte."""
        self._at += 1
        return self._content[self._at - 1]

    def _varint(self) -> int:
        """Return a number of seven bits per byte, the lowest first."""
        value = shift = 0
        while True:
            byte = self._byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80 or shift > 70:  # noqa: PLR2004 - the last byte's sign; no more than 64 bits
                return value

    def _integer(self) -> int:
        """Return a zigzag-encoded integer: 0, -1, 1, -2, …."""
        value = self._varint()
        return (value >> 1) ^ -(value & 1)
