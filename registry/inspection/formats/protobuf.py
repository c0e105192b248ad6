"""Protocol buffers: a streaming reader of the wire format that needs no schema.

Long fields, above all weights, are skipped and never held in memory: a graph of many gigabytes needs little memory.

Source: https://protobuf.dev/programming-guides/encoding/
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from benchlock.registry.inspection.formats.untrusted_files import BUDGET, check_count

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10
_LONGEST_TEXT = 1 << 16  # bytes; names and paths are far shorter
_DEEPEST = 64


class MalformedError(ValueError):
    """The bytes violate their format; the text says how."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message: its number, and its value or the position of its bytes."""

    number: int
    value: int = 0
    start: int = 0
    size: int | None = None


@dataclass(slots=True)
class FieldCounter:
    """The number of fields of a file that were read."""

    fields: int = 0

    def count(self) -> None:
        """Count one field. Raises ``OverBudgetError`` if there are too many."""
        self.fields += 1
        check_count(self.fields, BUDGET.fields, "fields to inspect")


@dataclass(frozen=True, slots=True)
class Message:
    """The bytes of one message in a stream."""

    stream: BinaryIO
    start: int
    end: int
    depth: int = 0
    visits: "FieldCounter" = dataclasses.field(default_factory=FieldCounter)

    def fields(self) -> Iterator[Field]:
        """Yield the fields in their order.

        Raises:
            MalformedError: The bytes are not a message.
        """
        at = self.start
        while at < self.end:
            self.stream.seek(at)
            self.visits.count()
            field = self._field(self._varint())
            at = self.stream.tell() if field.size is None else field.start + field.size
            if at > self.end:
                raise MalformedError("a field is longer than its message")
            yield field

    def all(self, number: int) -> Iterator["Message"]:
        """Yield the messages in the fields of this number."""
        return (self.inside(field) for field in self.fields() if field.number == number and field.size is not None)

    def first(self, number: int) -> "Message | None":
        """Return the message in the first field of this number; None if there is none."""
        return next(self.all(number), None)

    def value(self, number: int, default: int = 0) -> int:
        """Return the last number in a field of this number, as the format requires."""
        return [default, *(field.value for field in self.fields() if field.number == number)][-1]

    def text(self, number: int) -> str:
        """Return the last text in a field of this number; empty if there is none."""
        text = ""
        for field in self.fields():
            if field.number == number and field.size is not None:
                text = self.read(field)
        return text

    def read(self, field: Field) -> str:
        """Return the text of a field."""
        if field.size is None or field.size > _LONGEST_TEXT:
            raise MalformedError("a name is missing or too long")
        self.stream.seek(field.start)
        try:
            return self.stream.read(field.size).decode()
        except UnicodeDecodeError as error:
            raise MalformedError("a name is not UTF-8") from error

    def inside(self, field: Field) -> "Message":
        """Return the message in a field of bytes."""
        if field.size is None:
            raise MalformedError("expected a message, found a number")
        if self.depth >= _DEEPEST:
            raise MalformedError(f"messages are nested deeper than {_DEEPEST}")
        return Message(self.stream, field.start, field.start + field.size, self.depth + 1, self.visits)

    def _field(self, tag: int) -> Field:
        """Read the value of a field, or the position of its bytes."""
        number, kind = tag >> 3, tag & 7
        if number < 1:
            raise MalformedError("a field has no number")
        if kind == _VARINT:
            return Field(number, value=self._varint())
        if kind == _BYTES:
            size = self._varint()
            return Field(number, start=self.stream.tell(), size=size)
        if kind not in (_FIXED32, _FIXED64):
            raise MalformedError(f"unknown wire type {kind}")
        width = 4 if kind == _FIXED32 else 8
        content = self.stream.read(width)
        if len(content) < width:
            raise MalformedError("it is truncated")
        return Field(number, value=int.from_bytes(content, "little"))

    def _varint(self) -> int:
        """Read a number of seven bits per byte, the lowest first; a negative one has ten bytes."""
        value = 0
        for position in range(_LONGEST_VARINT):
            byte = self.stream.read(1)
            if not byte:
                raise MalformedError("it is truncated")
            value |= (byte[0] & 0x7F) << (7 * position)
            if byte[0] < 0x80:  # noqa: PLR2004 - the bit that says that more follow
                return value & 0xFFFF_FFFF_FFFF_FFFF
        raise MalformedError("a number does not end")


def to_signed(value: int) -> int:
    """Return a 64-bit number with its sign."""
    return value - (1 << 64) if value >> 63 else value


def whole_message(stream: BinaryIO, size: int) -> Message:
    """Return the message that is a whole file of ``size`` bytes."""
    return Message(stream, 0, size)
