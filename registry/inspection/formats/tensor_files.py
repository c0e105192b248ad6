"""Headers of NumPy and safetensors files: names, dtypes and shapes of arrays.

Sources: https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html and
https://huggingface.co/docs/safetensors
"""

import ast
import json
import math
import struct
import zipfile
import zlib
from dataclasses import dataclass
from typing import Any, BinaryIO, cast

from benchlock.registry.inspection.formats.protobuf import MalformedError
from benchlock.registry.inspection.formats.untrusted_files import (
    BUDGET,
    OverBudgetError,
    check_count,
    in_units,
    meter_stream,
    recognize,
)

MAGIC = b"\x93NUMPY"
_SUFFIX = ".npy"
_ROWS_OF_BYTES = 2
"""Number of axes of an array whose rows are bytes."""


@dataclass(frozen=True, slots=True)
class ArrayHeader:
    """The header of an array; ``descr`` is NumPy's dtype, or a list of fields, and ``name`` is the key of the array."""

    name: str
    descr: object
    shape: tuple[int, ...]

    @property
    def holds_objects(self) -> bool:
        """Whether its elements are pickled."""
        return _holds_objects(self.descr)

    @property
    def holds_sounds(self) -> bool:
        """Whether its rows are sounds as numbers; a row of single bytes may be an encoded file."""
        kind = str(self.descr).lstrip("<>|=")
        return kind[:1] in ("f", "i", "u") and not (kind == "u1" and len(self.shape) == _ROWS_OF_BYTES)


def read_array(stream: BinaryIO, name: str) -> ArrayHeader:
    """Return the header of one array.

    Raises:
        MalformedError: The stream does not begin with one.
    """
    start = stream.read(8)
    if not start.startswith(MAGIC) or len(start) < 8:  # noqa: PLR2004 - the magic and two bytes of version
        raise MalformedError(f"the first bytes of {name} are not those of an array")
    try:
        (length,) = struct.unpack("<H", stream.read(2)) if start[6] == 1 else struct.unpack("<I", stream.read(4))
        if length > BUDGET.array_header:
            raise OverBudgetError(
                f"has the array {name[:100]!r}, whose header has more than {BUDGET.array_header} bytes"
            )
        text = stream.read(length).decode("latin-1")
        header: dict[str, Any] = ast.literal_eval(text.strip())
        return ArrayHeader(name, header["descr"], tuple(int(size) for size in header["shape"]))
    except (struct.error, ValueError, SyntaxError, KeyError, TypeError, RecursionError, MemoryError) as error:
        raise MalformedError(f"the header of {name} cannot be read") from error


def read_arrays(stream: BinaryIO) -> tuple[ArrayHeader, ...]:
    """Return the headers of the arrays in an ``.npz`` file.

    Raises:
        MalformedError: The file is not in npz format.
    """
    try:
        with zipfile.ZipFile(meter_stream(stream)) as archive:
            members = archive.infolist()
            check_count(len(members), BUDGET.members, "arrays")
            return tuple(_member(archive, member) for member in members if not member.is_dir())
    except (zipfile.BadZipFile, OSError, EOFError, RuntimeError, NotImplementedError, zlib.error) as error:
        seems = recognize(stream, "zip archive")
        raise MalformedError(str(error) if seems is None else f"it is {seems}") from error


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> ArrayHeader:
    """Return the header of the array in a member of the archive."""
    with archive.open(member) as stream:
        return read_array(cast("BinaryIO", stream), member.filename.removesuffix(_SUFFIX))


def _holds_objects(descr: object) -> bool:
    """Return whether a dtype contains objects.

    The second part of each field is its type. A subarray is a tuple of its type and shape.
    """
    if isinstance(descr, str):
        return "O" in descr
    if isinstance(descr, tuple) and descr:
        return _holds_objects(descr[0])
    fields = descr if isinstance(descr, list) else []
    return any(isinstance(field, tuple) and len(field) > 1 and _holds_objects(field[1]) for field in fields)


LONGEST_HEADER = 100_000_000
"""Maximum size of a header in the format, in bytes."""

_TOO_MANY = 1 << 63

_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8,
    "U16": 16, "I16": 16, "F16": 16, "BF16": 16,
    "U32": 32, "I32": 32, "F32": 32,
    "U64": 64, "I64": 64, "F64": 64, "C64": 64,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class StoredTensor:
    """A tensor as the header describes it; ``dtype`` is the format's name."""

    name: str
    dtype: str
    shape: tuple[int, ...]


def read_header(stream: BinaryIO, size: int) -> tuple[StoredTensor, ...]:
    """Return the tensors of a file of ``size`` bytes, in the order of their values.

    Raises:
        MalformedError: The file violates the format: a JSON header of tensors that fill the rest of the file without a
            gap or an overlap.
    """
    try:
        return _tensors(stream, size)
    except MalformedError:
        raise
    except (ValueError, TypeError, KeyError, AttributeError, struct.error, RecursionError) as error:
        raise MalformedError(f"its header cannot be read: {error}") from error


def _tensors(stream: BinaryIO, size: int) -> tuple[StoredTensor, ...]:
    """Return the tensors of a file. Raises as ``read_header``, or any error of decoding."""
    (length,) = struct.unpack("<Q", stream.read(8))
    room = size - 8 - length
    if length > LONGEST_HEADER or room < 0:
        raise MalformedError("its header is longer than the file")
    if length > BUDGET.header:
        raise OverBudgetError(f"has a header of more than {in_units(BUDGET.header)}")
    header = json.loads(stream.read(length), object_pairs_hook=_distinct)
    tensors = [(name, tensor) for name, tensor in header.items() if name != "__metadata__"]
    tensors.sort(key=lambda pair: tuple(pair[1]["data_offsets"]))
    end = 0
    for name, tensor in tensors:
        begin, stop = tensor["data_offsets"]
        if begin != end or 8 * (stop - begin) != _elements(name, tensor["shape"]) * _BITS[tensor["dtype"]]:
            raise MalformedError(f"the tensor {name} does not match its offsets")
        end = stop
    if end != room:
        raise MalformedError(f"its tensors have {end} bytes, but the file has {room}")
    return tuple(StoredTensor(name, tensor["dtype"], tuple(tensor["shape"])) for name, tensor in tensors)


def _elements(name: str, shape: list[Any]) -> int:
    """Return the product of the sizes, after a check of their number and values."""
    check_count(len(shape), BUDGET.axes, f"axes, of the tensor {name[:100]!r}")
    if not all(isinstance(size, int) and 0 <= size < _TOO_MANY for size in shape):
        raise MalformedError(f"the tensor {name[:100]} has an invalid shape")
    product: int = math.prod(shape)
    return product


def _distinct(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return a JSON object; raise if a name stands twice, since readers differ in which value they take."""
    distinct = dict(pairs)
    if len(distinct) < len(pairs):
        raise MalformedError("duplicate name in its header")
    return distinct
