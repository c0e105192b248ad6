"""Ranges of bytes (RFC 9110): which part of a blob is asked for, and where what is sent belongs."""

import re
from dataclasses import dataclass
from typing import Final

from benchlock.artifacts.errors import InvalidInputError

_ASKED: Final = re.compile(r"bytes[ \t]*=[ \t]*(\d*)-(\d*)[ \t]*", re.ASCII)
_SENT: Final = re.compile(r"(?:bytes[ =])?(\d+)-(\d+)(?:/(?:\d+|\*))?", re.ASCII)
_LONGEST: Final = 64  # characters of a header that says a range


class MalformedUploadError(InvalidInputError):
    """A digest or a range of an upload is malformed; 400, as the OCI distribution specification has it."""

    code = "malformed"


class NotInContentError(InvalidInputError):
    """The range that is asked for holds nothing of the blob, which has ``size`` bytes."""

    code = "range-not-satisfiable"

    def __init__(self, asked: str, size: int) -> None:
        super().__init__(f"{asked} holds nothing of {size} bytes", next_step="ask for a range that begins below that")
        self.size = size


@dataclass(frozen=True, slots=True)
class Part:
    """``size`` bytes from ``start`` on."""

    start: int
    size: int

    def of(self, whole: int) -> str:
        """The Content-Range that says so."""
        return f"bytes {self.start}-{self.start + self.size - 1}/{whole}"


def asked_part(header: str | None, whole: int) -> Part | None:
    """What a Range asks for of ``whole`` bytes; ``None`` where it is all, or several parts, or nothing that is known.

    Raises:
        NotInContentError: nothing of it is there.
    """
    found = _ASKED.fullmatch(header) if header and len(header) <= _LONGEST else None
    if header is None or found is None or found[1] == found[2] == "":
        return None
    if not found[1]:
        start, end = max(0, whole - int(found[2])), whole - 1
    else:
        start, end = int(found[1]), int(found[2]) if found[2] else whole - 1
        if found[2] and end < start:
            return None
    if start >= whole:
        raise NotInContentError(header, whole)
    return Part(start, min(end, whole - 1) - start + 1)


def sent_part(header: str) -> Part:
    """Where the body of a request belongs, as its Content-Range says: ``START-END``, with or without what HTTP adds.

    Raises:
        MalformedUploadError: it says something else.
    """
    found = _SENT.fullmatch(header) if len(header) <= _LONGEST else None
    if found is None or int(found[2]) < int(found[1]):
        raise MalformedUploadError(
            f"{header[:_LONGEST]!r} is no range of bytes", where="Content-Range", next_step="write START-END"
        )
    return Part(int(found[1]), int(found[2]) - int(found[1]) + 1)
