"""NumPy's files, read as far as their headers: names, types and shapes of arrays (``numpy.lib.format``)."""

import ast
import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from benchlock.registry.inspection.budgets import BUDGET, OverBudgetError, check_count, meter_stream
from benchlock.registry.inspection.protobuf import MalformedError
from benchlock.registry.inspection.recognition import recognize

MAGIC = b"\x93NUMPY"
_SUFFIX = ".npy"
_ROWS_OF_BYTES = 2
"""Axes of an array whose rows are bytes."""


@dataclass(frozen=True, slots=True)
class FoundArray:
    """An array as its header describes it. ``descr`` is NumPy's word, or a list of fields; ``name`` its key."""

    name: str
    descr: object
    shape: tuple[int, ...]

    @property
    def holds_objects(self) -> bool:
        """Whether its elements are a pickle."""
        return _holds_objects(self.descr)

    @property
    def holds_sounds(self) -> bool:
        """Whether its rows are sounds as numbers; a row of single bytes may be an encoded file."""
        kind = str(self.descr).lstrip("<>|=")
        return kind[:1] in ("f", "i", "u") and not (kind == "u1" and len(self.shape) == _ROWS_OF_BYTES)


def read_array(stream: BinaryIO, name: str) -> FoundArray:
    """The header of one array.

    Raises:
        MalformedError: there is none.
    """
    start = stream.read(8)
    if not start.startswith(MAGIC) or len(start) < 8:  # noqa: PLR2004 - the magic and two bytes of version
        raise MalformedError(f"{name} does not begin as an array")
    try:
        (length,) = struct.unpack("<H", stream.read(2)) if start[6] == 1 else struct.unpack("<I", stream.read(4))
        if length > BUDGET.array_header:
            raise OverBudgetError(
                f"has the array {name[:100]!r}, whose header has more than {BUDGET.array_header} bytes"
            )
        text = stream.read(length).decode("latin-1")
        header: dict[str, Any] = ast.literal_eval(text.strip())
        return FoundArray(name, header["descr"], tuple(int(size) for size in header["shape"]))
    except (struct.error, ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError) as error:
        raise MalformedError(f"the header of {name} cannot be read") from error


def read_arrays(stream: BinaryIO) -> tuple[FoundArray, ...]:
    """The arrays of an ``.npz`` file by their names.

    Raises:
        MalformedError: it is none.
    """
    try:
        with zipfile.ZipFile(meter_stream(stream)) as archive:
            members = archive.infolist()
            check_count(len(members), BUDGET.members, "arrays")
            return tuple(_member(archive, member) for member in members if not member.is_dir())
    except (zipfile.BadZipFile, OSError, EOFError, RuntimeError, NotImplementedError, zlib.error) as error:
        seems = recognize(stream, "zip archive")
        raise MalformedError(str(error) if seems is None else f"it is {seems}") from error


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> FoundArray:
    with archive.open(member) as stream:
        return read_array(cast("BinaryIO", stream), member.filename.removesuffix(_SUFFIX))


def _holds_objects(descr: object) -> bool:
    """The element types of a list of fields are their second parts, the first are names; subarrays are tuples."""
    if isinstance(descr, str):
        return "O" in descr
    if isinstance(descr, tuple) and descr:
        return _holds_objects(descr[0])
    fields = descr if isinstance(descr, list) else []
    return any(isinstance(field, tuple) and len(field) > 1 and _holds_objects(field[1]) for field in fields)
