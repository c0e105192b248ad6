"""Whether a model's files are what they seem: a safetensors header that fits its file, no pickle that runs code."""

import json
import math
import struct
from typing import Any, BinaryIO

from msgspec import UNSET

from registry.inspection.content import Content
from registry.inspection.pickles import foreign_globals
from registry.manifests import File, Model

LONGEST_HEADER = 100_000_000
"""Bytes of the longest header that the format allows."""

_BITS = {
    "BOOL": 8, "U8": 8, "I8": 8, "F8_E4M3": 8, "F8_E5M2": 8,
    "U16": 16, "I16": 16, "F16": 16, "BF16": 16,
    "U32": 32, "I32": 32, "F32": 32,
    "U64": 64, "I64": 64, "F64": 64, "C64": 64,
}  # fmt: skip


def check_model(model: Model, content: Content) -> None:
    """Look at the files that a framework will read.

    Raises:
        InvalidInputError: a safetensors file is malformed; a file would run code when read, and the manifest does not
            say ``unsafe: true``.
    """
    for index, file in enumerate(model.files):
        if file.role not in ("graph", "weights") or file.path.endswith("/"):
            continue
        where = f"files[{index}]"
        with content.open(file.path, where) as stream:
            if file.path.endswith(".safetensors"):
                _check_safetensors(file, stream, content, where)
            elif model.unsafe is UNSET or not model.unsafe:
                _refuse_code(model, file, stream, content, where)


def _refuse_code(model: Model, file: File, stream: BinaryIO, content: Content, where: str) -> None:
    foreign = foreign_globals(stream, torchscript=model.format == "torchscript")
    if foreign:
        raise content.error(
            f"{file.path} is a pickle that executes code when it is read: it calls {', '.join(sorted(foreign))}",
            where,
            "export the weights alone (a state_dict, safetensors), or write unsafe: true",
        )


def _check_safetensors(file: File, stream: BinaryIO, content: Content, where: str) -> None:
    try:
        fault = _safetensors_fault(stream, content.size(file.path))
    except (ValueError, TypeError, KeyError, AttributeError, struct.error) as error:
        fault = f"its header cannot be read: {error}"
    if fault:
        raise content.error(f"{file.path} is no safetensors file: {fault}", where, "write it again")


def _safetensors_fault(stream: BinaryIO, size: int) -> str | None:
    """What breaks the format's rules: a JSON header of tensors that fill the rest of the file, no gap, no overlap."""
    (length,) = struct.unpack("<Q", stream.read(8))
    room = size - 8 - length
    if length > LONGEST_HEADER or room < 0:
        return "its header is longer than the file"
    header: dict[str, Any] = json.loads(stream.read(length))
    tensors = [(name, tensor) for name, tensor in header.items() if name != "__metadata__"]
    end = 0
    for name, tensor in sorted(tensors, key=lambda pair: tuple(pair[1]["data_offsets"])):
        begin, stop = tensor["data_offsets"]
        if begin != end or 8 * (stop - begin) != math.prod(tensor["shape"]) * _BITS[tensor["dtype"]]:
            return f"the tensor {name} does not fit its place"
        end = stop
    return None if end == room else f"its tensors have {end} bytes, and the file has {room} for them"
