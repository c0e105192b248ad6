"""Protocol buffers: a streaming reader of the wire format that needs no schema.

What is long (weights, most of all) is passed over and never held: a graph of many gigabytes is read in little memory.
"""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from benchlock.registry.inspection.formats.foreign_files import BUDGET, check_count

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10
_LONGEST_TEXT = 1 << 16  # bytes; names and paths are far shorter
_DEEPEST = 64


class MalformedError(ValueError):
    """The bytes do not follow their format; says how."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a message: its number, and its value, or where its bytes are."""

    number: int
    value: int = 0
    start: int = 0
    size: int | None = None


@dataclass(slots=True)
class FieldCounter:
    """How many fields of a file were looked at."""

    fields: int = 0

    def count(self) -> None:
        """Count one. Raises ``OverBudgetError`` where there were too many."""
        self.fields += 1
        check_count(self.fields, BUDGET.fields, "fields to look at")


@dataclass(frozen=True, slots=True)
class Message:
    """The bytes of one message in a stream."""

    stream: BinaryIO
    start: int
    end: int
    depth: int = 0
    visits: "FieldCounter" = dataclasses.field(default_factory=FieldCounter)

    def fields(self) -> Iterator[Field]:
        """Its fields, in their order.

        Raises:
            MalformedError: the bytes are no message.
        """
        at = self.start
        while at < self.end:
            self.stream.seek(at)
            self.visits.count()
            found = self._field(self._varint())
            at = self.stream.tell() if found.size is None else found.start + found.size
            if at > self.end:
                raise MalformedError("a field is longer than what holds it")
            yield found

    def all(self, number: int) -> Iterator["Message"]:
        """The messages in the fields of this number."""
        return (self.inside(field) for field in self.fields() if field.number == number and field.size is not None)

    def first(self, number: int) -> "Message | None":
        return next(self.all(number), None)

    def value(self, number: int, default: int = 0) -> int:
        """The last number in a field of this number, as the format wants it."""
        return [default, *(field.value for field in self.fields() if field.number == number)][-1]

    def text(self, number: int) -> str:
        """The last text in a field of this number; empty if there is none."""
        found = ""
        for field in self.fields():
            if field.number == number and field.size is not None:
                found = self.read(field)
        return found

    def read(self, field: Field) -> str:
        """The text of a field."""
        if field.size is None or field.size > _LONGEST_TEXT:
            raise MalformedError("there is no text, or a far too long one, where a name should be")
        self.stream.seek(field.start)
        try:
            return self.stream.read(field.size).decode()
        except UnicodeDecodeError as error:
            raise MalformedError("a name is not UTF-8") from error

    def inside(self, field: Field) -> "Message":
        """The message in a field of bytes."""
        if field.size is None:
            raise MalformedError("a number stands where a message should be")
        if self.depth >= _DEEPEST:
            raise MalformedError(f"messages are nested deeper than {_DEEPEST}")
        return Message(self.stream, field.start, field.start + field.size, self.depth + 1, self.visits)

    def _field(self, tag: int) -> Field:
        number, kind = tag >> 3, tag & 7
        if number < 1:
            raise MalformedError("a field has no number")
        if kind == _VARINT:
            return Field(number, value=self._varint())
        if kind == _BYTES:
            size = self._varint()
            return Field(number, start=self.stream.tell(), size=size)
        if kind not in (_FIXED32, _FIXED64):
            raise MalformedError(f"a field is of a kind that there is not: {kind}")
        width = 4 if kind == _FIXED32 else 8
        content = self.stream.read(width)
        if len(content) < width:
            raise MalformedError("it breaks off")
        return Field(number, value=int.from_bytes(content, "little"))

    def _varint(self) -> int:
        """A number of seven bits a byte, the lowest first; a negative one has ten."""
        value = 0
        for position in range(_LONGEST_VARINT):
            byte = self.stream.read(1)
            if not byte:
                raise MalformedError("it breaks off")
            value |= (byte[0] & 0x7F) << (7 * position)
            if byte[0] < 0x80:  # noqa: PLR2004 - the bit that says that more follow
                return value & 0xFFFF_FFFF_FFFF_FFFF
        raise MalformedError("a number does not end")


def to_signed(value: int) -> int:
    """A 64-bit number with its sign."""
    return value - (1 << 64) if value >> 63 else value


def whole_message(stream: BinaryIO, size: int) -> Message:
    """The message that is a whole file of ``size`` bytes."""
    return Message(stream, 0, size)
