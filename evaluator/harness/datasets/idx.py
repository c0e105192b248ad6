"""The files of MNIST and its like: pictures of one size, and a label each."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .labels import labels_of
from .places import inside, unpacked
from .samples import Opening, Samples

_TYPES = {0x08: ">u1", 0x09: ">i1", 0x0B: ">i2", 0x0C: ">i4", 0x0D: ">f4", 0x0E: ">f8"}
_FIELDS = frozenset(("image",))


def open_split(opening: Opening) -> Samples:
    """Its samples are 8-bit arrays, [H, W] or [H, W, C]."""
    split = opening.split
    pictures = read_array(inside(opening.folder, split["images"]))
    if pictures.dtype != np.uint8 or pictures.ndim not in (3, 4):
        raise ValueError(f"{split['images']}: {pictures.dtype} {list(pictures.shape)} are no 8-bit pictures")
    names = [f"{split['images']}[{number}]" for number in range(len(pictures))]
    found = None
    if "labels" in split:
        classes = read_array(inside(opening.folder, split["labels"]))
        if classes.shape != (len(pictures),):
            raise ValueError(f"{split['labels']}: {classes.dtype} {list(classes.shape)} for {len(pictures)} pictures")
        found = labels_of(classes.tolist(), opening.names, lambda number: f"{split['labels']}[{number}]")
    return Samples(lambda number: {"image": pictures[number]}, names, found, _FIELDS)


def read_array(path: Path) -> NDArray[Any]:
    """The array of an idx file, gzip or not: two zero bytes, type, number of sizes, big-endian sizes, values."""
    content = unpacked(path)
    if content[:2] != b"\0\0" or len(content) < 4 or content[2] not in _TYPES:  # noqa: PLR2004 - the header's size
        raise ValueError(f"{path.name}: no idx file")
    dtype, start = np.dtype(_TYPES[content[2]]), 4 + 4 * content[3]
    shape = [int(size) for size in np.frombuffer(content[4:start], ">u4")]
    if len(shape) != content[3] or len(content) != start + dtype.itemsize * math.prod(shape):
        raise ValueError(f"{path.name}: {len(content)} bytes are not the {shape} values of {dtype} that it announces")
    return np.frombuffer(content, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="), copy=False)


def write_pictures(path: Path, pictures: NDArray[Any], order: Sequence[int]) -> None:
    """Write 8-bit pictures [N, H, W] or [N, H, W, C] in the given order as an idx file."""
    with path.open("wb") as stream:
        stream.write(bytes((0, 0, 0x08, pictures.ndim)) + np.asarray(pictures.shape, ">u4").tobytes())
        for number in order:
            stream.write(np.ascontiguousarray(pictures[number]).tobytes())
