"""The idx format: two zero bytes, the element type, the number of axes, their lengths (big-endian), the elements."""

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

UINT8 = 0x08


def write_idx(path: Path, array: NDArray[np.uint8]) -> None:
    """Write an array of bytes, uncompressed: equal arrays make equal files."""
    header = struct.pack(f">HBB{array.ndim}I", 0, UINT8, array.ndim, *array.shape)
    path.write_bytes(header + array.tobytes())


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read an array of bytes.

    Raises:
        ValueError: the file is no idx file of bytes, or its length is not what its header says.
    """
    content = path.read_bytes()
    zero, kind, axes = struct.unpack_from(">HBB", content)
    if (zero, kind) != (0, UINT8):
        raise ValueError(f"{path} is no idx file of bytes")
    shape = struct.unpack_from(f">{axes}I", content, 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)
